// How a number has changed since the period before.

import { h } from "./dom.js";
import * as format from "./format.js";
import { DAY_MS, HOUR_MS, daysBefore, extentOf } from "./period.js";
import { usage as text } from "./strings-traffic.js";

/** The start of the running hour. */
const lastHour = () => Math.floor(Date.now() / HOUR_MS) * HOUR_MS;

/** All visits of a count, those of people, and those of bots. */
export const PARTS = { visits: ({ total }) => total, people: ({ total, bots }) => (total === null || bots === null ? null : total - bots), bots: ({ bots }) => bots };

/** The start of the running day, in UTC. */
const lastDay = () => Math.floor(Date.now() / DAY_MS) * DAY_MS;

/** The part of `counts` that a running period is compared by: its whole days, and the whole hours of the running day where the period before has single hours too. `back` is how much earlier that is. */
function soFar(counts, period, valueOf, back = 0) {
  if (!counts || valueOf(counts.summary) === null) {
    return null;
  }
  const [day, hour] = [lastDay() - back, lastHour() - back];
  const sum = (rows, from, to) => rows.reduce((all, one) => (Date.parse(one.date) >= from && Date.parse(one.date) < to ? all + valueOf(one) : all), 0);
  return sum(counts.perDay, -Infinity, day) + (extentOf(period) === "hour" ? sum(counts.perHour ?? [], day, hour) : 0);
}

/** What a change of visits, or of a part of them, is made of: `[now, before, extent]`, for both the same part of their period. */
export function visitsOfBoth(visits, before, period, valueOf = PARTS.visits) {
  const extent = extentOf(period);
  if (extent === "whole") {
    return [valueOf(visits.summary), before ? valueOf(before.summary) : null, extent];
  }
  return [soFar(visits, period, valueOf), soFar(before, period, valueOf, daysBefore(period) * DAY_MS), extent];
}

/** The change of visits. */
export const visitsSince = (visits, before, period) => changeSince(...visitsOfBoth(visits, before, period));

/**
 * Visits of the period before at each of its steps, for a chart of `steps`. `counts` are those of whole steps. Where the period is running, the last one ends at the same hour; it is
 * null if no hour of it is over, or if its hours are not known. The visit log, which gives no hours, has counted up to the same time already.
 */
export function countsBefore(counts, before, steps, period) {
  const hours = before?.perHour;
  const extent = extentOf(period);
  if (extent === "whole" || !hours) {
    return counts;
  }
  const [start, end] = [steps.at(-1), lastHour()].map((at) => at - daysBefore(period) * DAY_MS);
  const ended = hours.filter(({ date }) => Date.parse(date) >= start && Date.parse(date) < end);
  const isKnown = extent === "hour" && hours.length > 0 && end > start;
  return [...counts.slice(0, -1), isKnown ? ended.reduce((sum, one) => sum + one.total, 0) : null];
}

/** How much more or less than in the period before: "+12%"; nothing where that is not known, or was none. `extent` says which part of both periods is compared. */
export function changeSince(now, before, extent) {
  if (now === null || !before) {
    return null;
  }
  const change = Math.round(((now - before) / before) * 100);
  return h("span", { class: change < 0 ? "bad-text" : change > 0 ? "good-text" : "soft", title: text.before[extent](format.number(before)) }, `${change > 0 ? "+" : change < 0 ? "−" : ""}${format.number(Math.abs(change))}%`,
    h("span", { class: "visually-hidden" }, ` ${text.thanBefore}`));
}
