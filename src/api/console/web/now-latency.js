// The latencies of the last minutes. The node tells only those of the last second, so they are kept here for as long as the
// console is open, whichever view is shown.

import { onLive } from "./live.js";

const KEPT = 600;
const QUANTILES = ["p50", "p90", "p99", "p999"];

const xs = [];
const lists = QUANTILES.map(() => []);
/** Requests of each second. */
const counts = [];
let heard = null;

onLive(({ status }) => {
  if (status === null || status === heard) {
    return;
  }
  heard = status;
  xs.push(Date.now());
  QUANTILES.forEach((name, index) => lists[index].push(status.now.latencyMicros[name]));
  counts.push(status.now.redirects + status.now.misses);
  if (xs.length > KEPT) {
    [xs, counts, ...lists].forEach((list) => list.shift());
  }
});

/** The latencies of the last seconds, by quantile: p50, p90, p99, p99.9. */
export function latencies(seconds) {
  const recent = recentOf(seconds);
  return { xs: recent(xs), lists: lists.map(recent) };
}

/** Returns what cuts a list to the last seconds. */
function recentOf(seconds) {
  const since = Date.now() - seconds * 1000;
  const from = xs.findIndex((at) => at >= since);
  return (list) => (from < 0 ? [] : list.slice(from));
}

/**
 * The p99 of the last seconds in microseconds; `null` without requests. Every request up to p99.9 counts with the next
 * higher quantile of its second, so the result may be too high by such a step.
 */
export function recentP99(seconds) {
  const recent = recentOf(seconds);
  const [p50, p90, p99, p999] = lists.map(recent);
  return mergedP99(recent(counts).map((count, at) => ({ count: Math.max(count, 1), parts: [[0.5, p50[at]], [0.4, p90[at]], [0.09, p99[at]], [0.01, p999[at]]] })));
}

/** The p99 of all cores since the start of the node, in microseconds; `null` without requests. */
export function p99SinceStart(cores) {
  const known = cores.map((core) => core.latencyMicros).filter((one) => one?.count > 0);
  return mergedP99(known.map(({ count, p50, p80, p99, p999 }) => ({ count, parts: [[0.5, p50], [0.3, p80], [0.19, p99], [0.01, p999]] })));
}

/** The p99 of several groups of requests, each with its number and with values by share. */
function mergedP99(groups) {
  const values = groups.flatMap(({ count, parts }) => parts.map(([share, value]) => [value, share * count])).filter(([value]) => value !== null && value !== undefined);
  const wanted = values.reduce((sum, [, weight]) => sum + weight, 0) * 0.99;
  let seen = 0;
  const found = values.sort(([a], [b]) => a - b).find(([, weight]) => {
    seen += weight;
    // Sums of shares are a little off.
    return seen >= wanted * (1 - 1e-9);
  });
  return found?.[0] ?? null;
}
