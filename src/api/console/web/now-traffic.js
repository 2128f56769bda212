// Traffic in two minutes, an hour or a day: the first chart of the server on the overview.

import { get } from "./api.js";
import { card, errorState, fill, h, loadingState } from "./dom.js";
import * as format from "./format.js";
import { lastHour } from "./now-samples.js";
import { insteadOf } from "./parts.js";
import { DAY_MS, HOUR_MS } from "./period.js";
import { barPlot, linePlot, secondsBack } from "./plot.js";
import { overview as text, usage } from "./strings-traffic.js";

const SECONDS = 120;
const HOUR_SECONDS = 3_600;

let chosen = "minutes";

/** Adds up lists of the same length, second by second. */
function sums(lists, length) {
  return Array.from({ length }, (_, at) => lists.reduce((sum, list) => sum + (list[at] ?? 0), 0));
}

/** The card, with a chart of a height in pixels: `{ element, update(status), destroy() }`. */
export function trafficCard(height) {
  const host = h("div");
  const note = h("small");
  const about = h("p", { class: "soft" }, note);
  const none = insteadOf(host, about);
  let plot = null;
  let status = null;
  let asked = null;
  const buttons = Object.entries(text.spans).map(([name, title]) => h("button", { type: "button", class: "button", "data-span": name, onclick: () => show(name) }, title));
  const drop = () => {
    asked?.abort();
    plot?.destroy();
    plot = null;
  };
  const show = (name) => {
    chosen = name;
    drop();
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.span === name)));
    fill(note, text.spanNotes[name]);
    if (name === "day") {
      none.set("");
      asked = new AbortController();
      showDay(host, height, asked.signal, (made) => { plot = made; }, () => show("day"));
      return;
    }
    const series = [{ label: text.series.redirects, fill: true }, { label: text.series.misses }];
    plot = linePlot(host, { series, height, label: text.spanLabels[name], seconds: name === "hour" ? HOUR_SECONDS : SECONDS });
    write();
  };
  const write = () => {
    if (status === null || plot === null || chosen === "day") {
      return;
    }
    const { pulse } = status;
    const { length } = pulse.changes;
    const { xs, lists } = chosen === "hour" ? lastHour() : { xs: secondsBack(length), lists: [sums(pulse.redirects, length), sums(pulse.misses, length)] };
    none.set(lists.every((list) => list.every((count) => count === 0)) ? text.trafficNone[chosen] : "", text.trafficNext);
    plot.set(xs, lists);
  };
  const element = card(text.traffic, { beside: h("div", { class: "segments small", role: "group", "aria-label": text.span }, buttons), className: "traffic" }, none.element, host, about);
  show(chosen);
  return {
    element,
    update(now) {
      status = now;
      write();
    },
    destroy: drop,
  };
}

/** Visits by hour: the node keeps them, also of the time before the console was open. */
async function showDay(host, height, signal, made, again) {
  fill(host, loadingState(6));
  const now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const first = now - DAY_MS + HOUR_MS;
  try {
    const { visits } = await get("/admin/api/usage", { query: { startDate: new Date(first).toISOString() }, signal });
    const known = new Map(visits.perHour.map((one) => [Date.parse(one.date), one]));
    const steps = Array.from({ length: DAY_MS / HOUR_MS }, (_, at) => first + at * HOUR_MS);
    const plot = barPlot(host, { label: text.spanLabels.day, when: format.instant, byHour: true, stacked: true, height, series: [{ label: usage.people, colour: "--plot-1" }, { label: usage.bots, colour: "--plot-quiet" }] });
    plot.set(steps, ["nonBots", "bots"].map((name) => steps.map((at) => known.get(at)?.[name] ?? 0)));
    made(plot);
  } catch (error) {
    if (error.name !== "AbortError") {
      fill(host, errorState(error, again));
    }
  }
}
