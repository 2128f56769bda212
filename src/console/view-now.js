// What the node does right now: once a second, in place, so that neither the focus nor a selection is lost.

import { badge, card, fill, h, loadingState, pageHead, setText } from "./dom.js";
import { duration, micros, number } from "./format.js";
import { onLive } from "./live.js";
import { alarmList } from "./now-alarms.js";
import { coreTable } from "./now-cores.js";
import { healthCards } from "./now-health.js";
import { latencies } from "./now-latency.js";
import { linePlot, secondsBack } from "./plot.js";

const SECONDS = 120;
const STATES = {
  connecting: "Connecting to the node…",
  lost: "The connection is lost, trying again. What stands here is the last that was heard.",
};

export async function show(main) {
  const ready = h("span", { class: "line" });
  const notice = h("p", { class: "notice bad", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, loadingState(14, "Waiting for the node…"));
  main.append(pageHead("Now", ready), notice, body);
  let parts = null;
  const off = onLive(({ state, status }) => {
    notice.hidden = state === "live" || (state === "connecting" && status === null);
    setText(notice, STATES[state] ?? "");
    if (status === null) {
      return;
    }
    parts ??= build(body);
    showReady(ready, status);
    parts.forEach((part) => part.update(status));
  });
  return () => {
    off();
    parts?.forEach((part) => part.destroy?.());
  };
}

function build(body) {
  const parts = [alarmList(), tiles(), ratePlots(), coreTable(SECONDS), healthCards()];
  fill(body, parts.map((part) => part.element));
  return parts;
}

function showReady(host, status) {
  const [text, kind] = status.draining ? ["Going down", "warn"] : status.ready ? ["Serving", "good"] : ["Not ready", "bad"];
  const said = `${text}|${duration(status.uptimeSeconds)}`;
  if (host.dataset.said !== said) {
    host.dataset.said = said;
    fill(host, badge(text, kind), h("span", { class: "soft" }, `up for ${duration(status.uptimeSeconds)}`));
  }
}

/** The numbers that one looks for first. */
function tiles() {
  const wanted = [
    ["Redirects a second", ({ now }) => number(now.redirects)],
    ["Misses a second", ({ now }) => number(now.misses)],
    ["Changes a second", ({ now }) => number(now.changes)],
    ["New connections a second", ({ now }) => number(now.accepted)],
    ["p99 of the last second", ({ now }) => micros(now.latencyMicros.p99)],
    ["Links", ({ links }) => number(links)],
  ];
  const values = wanted.map(() => h("b", { class: "tile-value" }, "–"));
  const element = h("div", { class: "tiles" }, wanted.map(([label], index) => h("div", { class: "tile" }, h("span", null, label), values[index])));
  return { element, update: (status) => wanted.forEach(([, read], index) => setText(values[index], read(status))) };
}

/** Adds up lists of the same length, second by second. */
function sums(lists) {
  return (lists[0] ?? []).map((_, index) => lists.reduce((sum, list) => sum + list[index], 0));
}

function ratePlots() {
  const [served, changed, slow] = [h("div"), h("div"), h("div")];
  const element = h("div", { class: "cards thirds" },
    card("Redirects and misses a second", {}, served), card("Changes a second", {}, changed), card("Latency of requests", {}, slow));
  const shared = { seconds: SECONDS, height: 170 };
  const redirects = linePlot(served, { ...shared, label: "Redirects and misses a second, in the last two minutes", series: [{ label: "Redirects", fill: true }, { label: "Misses" }] });
  const changes = linePlot(changed, { ...shared, label: "Changes of links and new connections a second, in the last two minutes", series: [{ label: "Changes", colour: "--plot-3", fill: true }, { label: "New connections", colour: "--plot-4" }] });
  const latency = linePlot(slow, { ...shared, label: "Latency of requests by quantile", value: micros, series: ["p50", "p90", "p99", "p99.9"].map((label) => ({ label })) });
  const update = ({ pulse }) => {
    const xs = secondsBack(pulse.changes.length);
    redirects.set(xs, [sums(pulse.redirects), sums(pulse.misses)].map((list) => (list.length > 0 ? list : xs.map(() => 0))));
    changes.set(xs, [pulse.changes, pulse.accepted]);
    const heard = latencies(SECONDS);
    latency.set(heard.xs, heard.lists);
  };
  return { element, update, destroy: () => [redirects, changes, latency].forEach((plot) => plot.destroy()) };
}
