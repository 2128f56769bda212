// What the node does right now: once a second, in place, so that neither the focus nor a selection is lost.

import { badge, card, fill, h, loadingState, pageHead, setText } from "./dom.js";
import { duration, micros, number } from "./format.js";
import { onLive } from "./live.js";
import { alarmList } from "./now-alarms.js";
import { bypassCard } from "./now-bypass.js";
import { coreTable } from "./now-cores.js";
import { healthCards } from "./now-health.js";
import { latencies } from "./now-latency.js";
import { tiles } from "./parts.js";
import { linePlot, secondsBack } from "./plot.js";
import { pages } from "./strings-shell.js";
import { overview as text } from "./strings-traffic.js";

const SECONDS = 120;
const STATES = { connecting: text.connecting, lost: text.lost };

export async function show(main) {
  const ready = h("span", { class: "line" });
  const notice = h("p", { class: "notice bad", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, loadingState(14, text.waiting));
  main.append(pageHead(pages.overview, ready), notice, body);
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
  const parts = [alarmList(), rates(), ratePlots(), coreTable(SECONDS), bypassCard(), healthCards()];
  fill(body, parts.map((part) => part.element));
  return parts;
}

function showReady(host, status) {
  const [state, kind] = status.draining ? [text.draining, "warn"] : status.ready ? [text.ready, "good"] : [text.notReady, "bad"];
  const said = `${state}|${duration(status.uptimeSeconds)}`;
  if (host.dataset.said !== said) {
    host.dataset.said = said;
    fill(host, badge(state, kind), h("span", { class: "soft" }, text.uptime(duration(status.uptimeSeconds))));
  }
}

/** The numbers that one looks for first. */
function rates() {
  const wanted = [
    [text.redirects, ({ now }) => number(now.redirects)],
    [text.misses, ({ now }) => number(now.misses)],
    [text.changes, ({ now }) => number(now.changes)],
    [text.connections, ({ now }) => number(now.accepted)],
    [text.p99, ({ now }) => micros(now.latencyMicros.p99)],
    [text.links, ({ links }) => number(links)],
  ];
  const values = wanted.map(() => h("span", null, number(null)));
  const element = tiles(wanted.map(([label], index) => [label, values[index]]));
  return { element, update: (status) => wanted.forEach(([, read], index) => setText(values[index], read(status))) };
}

/** Adds up lists of the same length, second by second. */
function sums(lists) {
  return (lists[0] ?? []).map((_, index) => lists.reduce((sum, list) => sum + list[index], 0));
}

function ratePlots() {
  const [served, changed, slow] = [h("div"), h("div"), h("div")];
  const element = h("div", { class: "cards thirds" },
    card(text.ratesTitle, {}, served), card(text.writesTitle, {}, changed), card(text.latencyTitle, {}, slow));
  const shared = { seconds: SECONDS, height: 170 };
  const redirects = linePlot(served, { ...shared, label: text.ratesLabel, series: [{ label: text.series.redirects, fill: true }, { label: text.series.misses }] });
  const changes = linePlot(changed, { ...shared, label: text.writesLabel, series: [{ label: text.series.changes, colour: "--plot-3", fill: true }, { label: text.series.connections, colour: "--plot-4" }] });
  const latency = linePlot(slow, { ...shared, label: text.latencyLabel, log: true, value: micros, series: ["p50", "p90", "p99", "p99.9"].map((label) => ({ label })) });
  const update = ({ pulse }) => {
    const xs = secondsBack(pulse.changes.length);
    redirects.set(xs, [sums(pulse.redirects), sums(pulse.misses)].map((list) => (list.length > 0 ? list : xs.map(() => 0))));
    changes.set(xs, [pulse.changes, pulse.accepted]);
    const heard = latencies(SECONDS);
    latency.set(heard.xs, heard.lists);
  };
  return { element, update, destroy: () => [redirects, changes, latency].forEach((plot) => plot.destroy()) };
}
