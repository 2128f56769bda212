// The plot of visits over time: people and bots as stacked bars, with the same numbers as a table for those who want it.

import { fill, h, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { barPlot } from "./plot.js";
import { common } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";

/** Fills a host with the plot of `lists`, people and bots at each of `steps`, and of all visits at the same step of the period `before`, if that is there, named `beforeName`; returns the plot. `running` names the last step if it is not over. */
export function visitsPlot(host, { label, steps, lists, before = null, beforeName, when, utc, byHour = false, running = null, size = {} }) {
  const picture = h("div");
  const all = before === null ? lists : [...lists, before];
  const series = [{ label: text.people, colour: "--plot-1" }, { label: text.bots, colour: "--plot-quiet" }, { label: beforeName, colour: "--ink", line: true }].slice(0, all.length);
  fill(host, picture, tableOf(label, series.map((one) => one.label), { steps, lists: all, when, byHour }));
  const plot = barPlot(picture, { label, when, utc, byHour, running, ...size, stacked: true, series });
  plot.set(steps, all);
  return plot;
}

/** The numbers of a plot as a table, folded, the newest first. Steps without any number are left out. */
export function tableOf(label, names, { steps, lists, when, byHour = false }) {
  const num = (content) => ({ content, class: "num" });
  const known = steps.map((_, at) => at).filter((at) => lists.some((list) => list[at])).reverse();
  const columns = [{ title: byHour ? text.hour : text.day }, ...names.map((title) => ({ title, class: "num" }))];
  const rows = known.map((at) => row(
    h("time", { datetime: new Date(steps[at]).toISOString(), title: new Date(steps[at]).toUTCString() }, when(steps[at])), ...lists.map((list) => num(format.number(list[at])))));
  return h("details", { class: "plot-table" }, h("summary", null, text.asTable), regionTable(common.asTable(label), columns, rows).element);
}
