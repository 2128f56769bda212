// The chart of visits in a period, with those of the period before as a line.

import { countsBefore } from "./changes.js";
import { card, emptyState, h } from "./dom.js";
import * as format from "./format.js";
import { DAY_MS, HOUR_MS, daysBefore, extentOf, isRunning, stepsOf, weeksBefore } from "./period.js";
import { usage as text } from "./strings-traffic.js";
import { visitsPlot } from "./visits-plot.js";

// Up to here single hours say more than days.
const DAYS_BY_HOUR_MAX = 3;

/** Says what the changes above it are from. Visits of the visit log, which has no counts of hours, are compared up to the same time. */
export function comparedWith(period, { perHour }) {
  const extent = perHour || !isRunning(period) ? extentOf(period) : "hour";
  return h("p", { class: "compared soft small" }, text.compared(weeksBefore(period), period.days, extent));
}

/**
 * Visits of people and bots, by hour where the period is short and the node still has single hours of it, else by day. `visits` and `before`, which may be null, are counts of the
 * node; `keep(plot)` gets what has to be destroyed. `note` stands below the chart, whose `size` may be `{ height, barWidth }` in pixels.
 */
export function visitsCard(visits, before, period, keep, { note = null, size } = {}) {
  const isByHour = period.days <= DAYS_BY_HOUR_MAX && (visits.perHour?.length ?? 0) > 0;
  const [title, rows, rowsBefore, step] = isByHour ? [text.byHour, visits.perHour, before?.perHour, HOUR_MS] : [text.byDay, visits.perDay, before?.perDay, DAY_MS];
  if (rows.length === 0) {
    return card(title, { className: "visits-chart" }, emptyState(text.noVisits, text.noVisitsText), note);
  }
  const byStep = (all) => new Map((all ?? []).map((one) => [Date.parse(one.date), one]));
  const [known, knownBefore] = [byStep(rows), byStep(rowsBefore)];
  const steps = stepsOf(period, step);
  const of = (at, name) => known.get(at)?.[name] ?? 0;
  const lists = [steps.map((at) => of(at, "total") - of(at, "bots")), steps.map((at) => of(at, "bots"))];
  const earlier = countsBefore(steps.map((at) => knownBefore.get(at - daysBefore(period) * DAY_MS)?.total ?? 0), before, steps, period);
  const host = h("div");
  keep(visitsPlot(host, {
    label: title, steps, lists, before: earlier.some((count) => count > 0) ? earlier : null, beforeName: text.periodBefore(weeksBefore(period), period.days), when: isByHour ? format.hour : format.day, utc: true, byHour: isByHour,
    running: isRunning(period) ? text.soFar[isByHour ? "hour" : "day"] : null, size,
  }));
  return card(title, { className: "visits-chart" }, host, note);
}
