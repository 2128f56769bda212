// The latencies of the last minutes. The node tells only those of the last second, so they are kept here for as long as the
// console is open, whichever view is shown.

import { onLive } from "./live.js";

const KEPT = 600;
const QUANTILES = ["p50", "p90", "p99", "p999"];

const xs = [];
const lists = QUANTILES.map(() => []);
let heard = null;

onLive(({ status }) => {
  if (status === null || status === heard) {
    return;
  }
  heard = status;
  xs.push(Date.now());
  QUANTILES.forEach((name, index) => lists[index].push(status.now.latencyMicros[name]));
  if (xs.length > KEPT) {
    [xs, ...lists].forEach((list) => list.shift());
  }
});

/** The latencies of the last seconds, by quantile: p50, p90, p99, p99.9. */
export function latencies(seconds) {
  const since = Date.now() - seconds * 1000;
  const from = xs.findIndex((at) => at >= since);
  const recent = (list) => (from < 0 ? [] : list.slice(from));
  return { xs: recent(xs), lists: lists.map(recent) };
}

/**
 * The quantiles of the requests of all cores, in microseconds: of the last two minutes or, without requests then, since the
 * start of the node. The node computes them from its histograms.
 */
export function quantiles({ window, sinceStart }) {
  const isRecent = window?.count > 0;
  return { isRecent, ...(isRecent ? window : sinceStart) };
}
