// The overview: whether the service is well, what the week brought, and below that, what the server does right now. What is live changes once a second, in place, so that neither
// the focus nor a selection is lost.

import { badge, button, card, fill, h, loadingState, pageHead, setText } from "./dom.js";
import { duration, micros, number, percent } from "./format.js";
import { keep, kept } from "./kept.js";
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
import { insteadOf, isStale, staleText, tiles } from "./parts.js";
import { linePlot, secondsBack } from "./plot.js";
import { hasAllLinks, mayWrite } from "./rights.js";
import { palette, pages } from "./strings-shell.js";
import { overview as text } from "./strings-traffic.js";

const SECONDS = 120;
/** The height of the charts of the server, in pixels: lower than the one of visits. */
const PLOT_HEIGHT = 190;
/** The name under which the browser keeps whether the details of the server are open. */
const DETAILS = "server-details";
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
  const parts = [wellness(), alarmList(), week, server()];
  fill(body, parts.map((part) => part.element));
  return parts;
}

/** All that is about the server, apart from the visits above: its state in a line and five numbers, and the rest folded. */
function server() {
  const [head, numbers, traffic, latency, cores, bypass, writes, health] = [
    rightNow(), rates(), trafficCard(PLOT_HEIGHT), latencyCard(), coreTable(SECONDS), bypassCard(), writesCard(), healthCards()];
  const [slugs, store, memory, fleet] = health.cards;
  const details = serverDetails(
    h("div", { class: "cards" }, traffic.element, latency.element), cores.element, bypass.element,
    h("div", { class: "cards" }, h("div", { class: "stack" }, writes.element, memory), h("div", { class: "stack" }, slugs, store, fleet)));
  const parts = [head, numbers, details, traffic, latency, cores, bypass, writes, health];
  return {
    element: h("section", { class: "server stack", "aria-label": text.server }, head.element, numbers.element, details.element),
    update: (...now) => parts.forEach((part) => part.update(...now)),
    destroy: () => parts.forEach((part) => part.destroy?.()),
  };
}

/** Charts and numbers for those who run the node. They are as they were left in this browser, at first folded; an alarm opens them. */
function serverDetails(...content) {
  const summary = h("summary", { onclick: () => keep(DETAILS, !element.open) }, text.serverDetails);
  const element = h("details", { class: "server-details" }, summary, h("div", { class: "stack" }, content));
  let known = null;
  const update = ({ alarms }) => {
    const active = alarms.filter((alarm) => alarm.cleared === null).map(({ name }) => name);
    if (known === null) {
      element.open = kept(DETAILS, (value) => typeof value === "boolean", false);
    }
    if (active.some((name) => !known?.includes(name))) {
      element.open = true;
    }
    known = active;
  };
  return { element, update };
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

/** The head of the section of the server, with the state of the node. */
function rightNow() {
  const said = h("span", { class: "soft" });
  const ready = h("span", { class: "line" });
  const update = (status, state) => {
    setText(said, isStale(state, status) ? text.lastKnown : text.rightNow);
    showReady(ready, status, state);
  };
  return { element: h("div", { class: "section-head now-head" }, h("div", { class: "line" }, h("h2", null, text.server), said), ready), update };
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

/** The quantiles beside the p99. */
function otherQuantiles({ p50, p999 }) {
  return p50 === null ? text.p99.none : text.p99.others(micros(p50), micros(p999));
}

/** The share of requests that the node could not answer, in the last two minutes. */
function errorRate() {
  const { failed, asked } = failures();
  return asked > 0 ? percent(failed, asked) : text.noRequests;
}

/** Link writes and new connections, second by second. */
function writesCard() {
  const [host, now] = [h("div"), h("span")];
  const plot = linePlot(host, {
    seconds: SECONDS, height: PLOT_HEIGHT, label: text.writesLabel,
    series: [{ label: text.series.changes, colour: "--plot-3", fill: true }, { label: text.series.connections, colour: "--plot-4" }],
  });
  const none = insteadOf(host);
  return {
    element: card(text.writesTitle, { fold: now }, none.element, host),
    update: ({ pulse }) => {
      const isQuiet = [...pulse.changes, ...pulse.accepted].every((count) => count === 0);
      none.set(isQuiet ? text.writesNone : "", text.writesNext);
      setText(now, text.perSecond(pulse.changes.at(-1) ?? 0));
      plot.set(secondsBack(pulse.changes.length), [pulse.changes, pulse.accepted]);
    },
    destroy: () => plot.destroy(),
  };
}

/** The percentiles of each second, on a logarithmic axis. */
function latencyCard() {
  const [slow, p99] = [h("div", null), h("span")];
  const note = h("p", { class: "soft" }, h("small", null, text.latencyNote));
  const none = insteadOf(slow, note);
  const plot = linePlot(slow, { seconds: SECONDS, height: PLOT_HEIGHT, label: text.latencyLabel, log: true, dots: true, value: micros, series: ["p50", "p90", "p99", "p99.9"].map((label) => ({ label })) });
  const update = ({ pulse, latency }) => {
    setText(p99, text.p99.only(micros(quantiles(latency).p99)));
    const heard = latencies(SECONDS);
    const isEmpty = heard.lists[0].every((value) => value === null);
    const hasRedirects = pulse.redirects.some((core) => core.some((count) => count > 0));
    // The server has no history of latencies, so the plot begins with the page.
    none.set(!isEmpty ? "" : hasRedirects ? text.latencyBegins : text.latencyNone, text.latencyNext);
    plot.set(heard.xs, heard.lists);
  };
  return { element: card(text.latencyTitle, { className: "latency", fold: p99 }, none.element, slow, note), update, destroy: () => plot.destroy() };
}
