// What the node does right now: once a second, in place, so that neither the focus nor a selection is lost.

import { badge, button, card, emptyState, fill, h, loadingState, pageHead, setText } from "./dom.js";
import { duration, micros, number, percent } from "./format.js";
import { createDialog, onCreated } from "./link-form.js";
import { onLive } from "./live.js";
import { alarmList } from "./now-alarms.js";
import { bypassCard } from "./now-bypass.js";
import { coreTable } from "./now-cores.js";
import { healthCards } from "./now-health.js";
import { latencies, quantiles } from "./now-latency.js";
import { failures } from "./now-samples.js";
import { trafficCard } from "./now-traffic.js";
import { weekSection } from "./now-week.js";
import { isStale, staleText, tiles } from "./parts.js";
import { linePlot, secondsBack } from "./plot.js";
import { hasAllLinks, mayWrite } from "./rights.js";
import { palette, pages } from "./strings-shell.js";
import { overview as text } from "./strings-traffic.js";

const SECONDS = 120;
const STATES = { connecting: text.connecting, lost: text.lost, ended: text.ended };
/** How long the page waits for the visits of the week. With them, nothing below moves; without, it does not wait for them any longer. */
const WEEK_WAIT_MS = 300;

export async function show(main, { signal }) {
  const notice = h("p", { class: "notice bad", role: "status", hidden: true });
  const body = h("div", { class: "stack" }, loadingState(14, text.waiting));
  main.append(pageHead(pages.overview, mayWrite() && button(palette.newLink, () => createDialog(), { kind: "primary", "data-action": "new-link" })), notice, body);
  const week = weekSection();
  let parts = null;
  let isReady = false;
  let last = null;
  const follow = (now) => {
    last = now;
    const { state, status, heardAt } = now;
    const isOld = isStale(state, status);
    body.classList.toggle("stale", isOld);
    // With values, the sentence above them says it.
    notice.hidden = state === "live" || isOld || (state === "connecting" && status === null);
    setText(notice, STATES[state] ?? "");
    if (status === null || !isReady) {
      return;
    }
    parts ??= build(body, week);
    parts.forEach((part) => part.update(status, state, heardAt));
  };
  const ends = [onLive(follow), onCreated(() => week.load())];
  Promise.race([week.load(), new Promise((resolve) => setTimeout(resolve, WEEK_WAIT_MS))]).then(() => {
    isReady = true;
    if (!signal.aborted) {
      follow(last);
    }
  });
  return () => {
    ends.forEach((end) => end());
    week.destroy();
    parts?.forEach((part) => part.destroy?.());
  };
}

function build(body, week) {
  const parts = [wellness(), alarmList(), week, rightNow(), rates(), trafficCard(), plots(), coreTable(SECONDS), bypassCard(), healthCards()];
  fill(body, parts.map((part) => part.element));
  return parts;
}

/** Whether the node is well, in one sentence. While the connection is lost, that is unknown. */
function wellness() {
  const element = h("p", { class: "well", role: "status" });
  const update = (status, state, heardAt) => {
    const { draining, ready, alarms, store } = status;
    const active = alarms.filter((alarm) => alarm.cleared === null).length;
    const [kind, said] = isStale(state, status) ? ["bad", staleText(state, heardAt)] : draining ? ["warn", text.isDraining] : !ready ? ["warn", text.isStarting] : active > 0 ? ["bad", text.hasAlarms(active)]
      : !store.writable ? ["bad", text.refusesWrites] : ["good", text.isWell];
    element.dataset.kind = kind;
    setText(element, said);
  };
  return { element, update };
}

/** The head of the live numbers, with the state of the node. */
function rightNow() {
  const title = h("h2");
  const ready = h("span", { class: "line" });
  const update = (status, state) => {
    setText(title, isStale(state, status) ? text.lastKnown : text.rightNow);
    showReady(ready, status, state);
  };
  return { element: h("div", { class: "section-head now-head" }, title, ready), update };
}

/** The state of the node, green only if the node has no problem. Nothing while it is unknown. */
function showReady(host, status, connection) {
  const isOld = isStale(connection, status);
  const isWell = status.store.writable && status.alarms.every((alarm) => alarm.cleared !== null);
  const [state, kind] = status.draining ? [text.draining, "warn"] : status.ready ? [text.ready, isWell ? "good" : ""] : [text.notReady, "bad"];
  const uptime = text.uptime(duration(status.uptimeSeconds));
  const said = isOld ? "" : `${state}|${kind}|${uptime}`;
  if (host.dataset.said !== said) {
    host.dataset.said = said;
    fill(host, !isOld && [badge(state, kind), h("span", { class: "soft" }, uptime)]);
  }
}

/** The numbers that one looks for first. */
function rates() {
  const wanted = [
    [text.redirects, ({ now }) => number(now.redirects)],
    [text.p99.recent, ({ latency }) => micros(quantiles(latency).p99), ({ latency }) => (quantiles(latency).isRecent ? text.p99.recent : text.p99.sinceStart), ({ latency }) => otherQuantiles(quantiles(latency))],
    [text.errorRate, () => errorRate()],
    [text.misses, ({ now }) => number(now.misses)],
    [hasAllLinks() ? text.links : text.linksInMemory, ({ links }) => number(links)],
  ];
  const labels = wanted.map(([label]) => h("span", null, label));
  const values = wanted.map(() => h("span", null, number(null)));
  const hints = wanted.map(([, , , hint]) => hint && h("span"));
  const element = tiles(wanted.map((_, index) => [labels[index], values[index], hints[index]]));
  const update = (status) => wanted.forEach(([label, read, name, hint], index) => {
    setText(labels[index], name?.(status) ?? label);
    setText(values[index], read(status));
    if (hint) {
      setText(hints[index], hint(status));
    }
  });
  return { element, update };
}

/** The quantiles beside the p99, or nothing without requests. */
function otherQuantiles({ p50, p999 }) {
  return p50 === null ? "" : text.p99.others(micros(p50), micros(p999));
}

/** The share of requests that the node could not answer, in the last two minutes. */
function errorRate() {
  const { failed, asked } = failures();
  return asked > 0 ? percent(failed, asked) : text.noRequests;
}

function plots() {
  const [changed, slow, none] = [h("div"), h("div"), h("div")];
  const [writes, p99] = [h("span"), h("span")];
  const element = h("div", { class: "cards" }, card(text.latencyTitle, { fold: p99 }, none, slow), card(text.writesTitle, { fold: writes }, changed));
  const shared = { seconds: SECONDS, height: 170 };
  const changes = linePlot(changed, { ...shared, label: text.writesLabel, series: [{ label: text.series.changes, colour: "--plot-3", fill: true }, { label: text.series.connections, colour: "--plot-4" }] });
  const latency = linePlot(slow, { ...shared, label: text.latencyLabel, log: true, dots: true, value: micros, series: ["p50", "p90", "p99", "p99.9"].map((label) => ({ label })) });
  let said = null;
  const showLatency = (pulse) => {
    const heard = latencies(SECONDS);
    const isEmpty = heard.lists[0].every((value) => value === null);
    const hasTraffic = pulse.redirects.some((core) => core.some((count) => count > 0));
    // The server has no history of latencies, so the plot begins with the page.
    const wanted = !isEmpty ? "" : hasTraffic ? text.latencyBegins : text.latencyNone;
    if (said !== wanted) {
      said = wanted;
      fill(none, isEmpty && emptyState(wanted, text.latencyNext));
      slow.hidden = isEmpty;
    }
    latency.set(heard.xs, heard.lists);
  };
  const update = ({ pulse, latency: told }) => {
    setText(writes, text.perSecond(pulse.changes.at(-1) ?? 0));
    setText(p99, text.p99.only(micros(quantiles(told).p99)));
    changes.set(secondsBack(pulse.changes.length), [pulse.changes, pulse.accepted]);
    showLatency(pulse);
  };
  return { element, update, destroy: () => [changes, latency].forEach((plot) => plot.destroy()) };
}
