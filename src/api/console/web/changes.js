// How a number has changed since the period before.

import { h } from "./dom.js";
import * as format from "./format.js";
import { DAY_MS, HOUR_MS, daysBefore, isRunning } from "./period.js";
import { usage as text } from "./strings-traffic.js";

/** Up to here an unfinished day is a large part of a period, and the server still has the hours of the period before. */
const DAYS_TO_THE_HOUR_MAX = 7;

/** Whether a period is compared with the one before up to the same hour: it is short, and not over. */
const endsAtHour = (period) => isRunning(period) && period.days <= DAYS_TO_THE_HOUR_MAX;

/** The start of the running hour. */
const lastHour = () => Math.floor(Date.now() / HOUR_MS) * HOUR_MS;

/** All visits of a count, those of people, and those of bots. */
export const PARTS = { visits: ({ total }) => total, people: ({ total, bots }) => (total === null || bots === null ? null : total - bots), bots: ({ bots }) => bots };

/**
 * What a change of visits, or of a part of them, is made of: `[now, before, isPart]`. In a short period that is not over, whole hours are compared with those of the period before, and
 * `isPart` is true.
 */
export function visitsOfBoth(visits, before, period, valueOf = PARTS.visits) {
  if (!endsAtHour(period)) {
    return [valueOf(visits.summary), before ? valueOf(before.summary) : null, false];
  }
  const end = lastHour();
  const until = (rows, last) => rows?.reduce((sum, one) => (Date.parse(one.date) < last ? sum + valueOf(one) : sum), 0) ?? null;
  return [until(visits.perHour, end), until(before?.perHour, end - daysBefore(period) * DAY_MS), true];
}

/** The change of visits. */
export const visitsSince = (visits, before, period) => changeSince(...visitsOfBoth(visits, before, period));

/**
 * Visits of the period before at each of its steps, for a chart of `steps`. `counts` are those of whole steps. Where the period ends at an hour, the last one ends at the same hour; it
 * is null if no hour of it is over.
 */
export function countsBefore(counts, before, steps, period) {
  const hours = before?.perHour ?? [];
  if (!endsAtHour(period) || hours.length === 0) {
    return counts;
  }
  const [start, end] = [steps.at(-1), lastHour()].map((at) => at - daysBefore(period) * DAY_MS);
  const ended = hours.filter(({ date }) => Date.parse(date) >= start && Date.parse(date) < end);
  return [...counts.slice(0, -1), end > start ? ended.reduce((sum, one) => sum + one.total, 0) : null];
}

/** How much more or less than in the period before: "+12%"; nothing where that is not known, or was none. `isPart` says that both end at the same hour. */
export function changeSince(now, before, isPart) {
  if (now === null || !before) {
    return null;
  }
  const change = Math.round(((now - before) / before) * 100);
  return h("span", { class: change < 0 ? "bad-text" : change > 0 ? "good-text" : "soft", title: (isPart ? text.beforePart : text.before)(format.number(before)) }, `${change > 0 ? "+" : change < 0 ? "−" : ""}${format.number(Math.abs(change))}%`,
    h("span", { class: "visually-hidden" }, ` ${text.thanBefore}`));
}
