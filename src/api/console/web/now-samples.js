// Requests of the last hour. The node tells those of the last two minutes, so older ones are kept here for as long as the
// console is open, whichever view is shown.

import { onLive } from "./live.js";

/** Seconds of a point. */
const STEP = 10;
const POINTS = 360;
/** Seconds over which the share of errors is counted. */
const ERROR_SECONDS = 120;

/** Points, the oldest first: `{ at, seconds, redirects, misses }`, with the sums of their seconds. */
const points = [];
/** Requests and failures since the start of the node, second by second: `{ at, failed, asked }`. */
const counts = [];
let heard = null;

const sum = (cores, name) => cores.reduce((all, core) => all + core[name], 0);

function add(at, redirects, misses) {
  const start = Math.floor(at / (STEP * 1000)) * STEP * 1000;
  if (points.at(-1)?.at !== start) {
    points.push({ at: start, seconds: 0, redirects: 0, misses: 0 });
    points.splice(0, points.length - POINTS);
  }
  const point = points.at(-1);
  point.seconds += 1;
  point.redirects += redirects;
  point.misses += misses;
}

onLive(({ status }) => {
  if (status === null || status === heard) {
    return;
  }
  const now = Date.now();
  const { redirects, misses } = status.pulse;
  if (heard === null) {
    const seconds = status.pulse.changes.length;
    for (let at = 0; at < seconds - 1; at += 1) {
      add(now - (seconds - 1 - at) * 1000, ...[redirects, misses].map((cores) => cores.reduce((all, core) => all + (core[at] ?? 0), 0)));
    }
  }
  heard = status;
  add(now, status.now.redirects, status.now.misses);
  const failed = sum(status.cores, "unavailable");
  counts.push({ at: now, failed, asked: sum(status.cores, "redirects") + sum(status.cores, "misses") + failed });
  counts.splice(0, counts.length - ERROR_SECONDS);
});

/** Redirects and unknown links per second in the last hour: `{ xs, lists }`. */
export function lastHour() {
  const per = (name) => points.map((point) => point[name] / point.seconds);
  return { xs: points.map(({ at }) => at), lists: [per("redirects"), per("misses")] };
}

/** Failed requests of the last two minutes, and all: `{ failed, asked }`. */
export function failures() {
  const [first, last] = [counts[0], counts.at(-1)];
  return { failed: (last?.failed ?? 0) - (first?.failed ?? 0), asked: (last?.asked ?? 0) - (first?.asked ?? 0) };
}
