// How a number has changed since the period before.

import { h } from "./dom.js";
import * as format from "./format.js";
import { DAY_MS, HOUR_MS, isRunning } from "./period.js";
import { usage as text } from "./strings-traffic.js";

/** Up to here an unfinished day is a large part of a period, and the server still has the hours of the period before. */
const DAYS_TO_THE_HOUR_MAX = 7;

/** The change of visits. In a short period that is not over, whole hours are compared with those of the period before. */
export function visitsSince(visits, before, period) {
  if (!isRunning(period) || period.days > DAYS_TO_THE_HOUR_MAX) {
    return changeSince(visits.summary.total, before?.summary.total, false);
  }
  const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const until = (rows, last) => rows?.reduce((sum, one) => (Date.parse(one.date) < last ? sum + one.total : sum), 0);
  return changeSince(until(visits.perHour, end) ?? null, until(before?.perHour, end - period.days * DAY_MS), true);
}

/** How much more or less than in the period before: "+12%"; nothing where that is not known, or was none. `isPart` says that both end at the same hour. */
export function changeSince(now, before, isPart) {
  if (now === null || !before) {
    return null;
  }
  const change = Math.round(((now - before) / before) * 100);
  return h("span", { class: change < 0 ? "bad-text" : change > 0 ? "good-text" : "soft", title: (isPart ? text.beforePart : text.before)(format.number(before)) }, `${change > 0 ? "+" : ""}${format.number(change)}%`,
    h("span", { class: "visually-hidden" }, ` ${text.thanBefore}`));
}
