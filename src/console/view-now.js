// Now: what the node does at this moment, second by second.

import { badge, card, fill, h, outside, pageHead, pageLink, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { followStatus, tiles } from "./parts.js";
import { linePlot } from "./plot.js";

const SECONDS = 120;
const QUANTILES = ["p50", "p90", "p99", "p999"];

export async function show(main) {
  const host = h("div", { class: "stack" });
  const page = { plots: [], latencies: [] };
  main.append(pageHead("Now"), host);
  const clear = () => page.plots.splice(0).forEach((plot) => plot.destroy());
  // What is there depends on the cores and on whether the node is one of a fleet; everything else changes in place.
  const shapeOf = (status) => [status.cores.length, status.fleet !== null];
  const end = followStatus(host, shapeOf, (status) => {
    clear();
    return build(page, status);
  });
  return () => {
    end();
    clear();
  };
}

function build(page, status) {
  const parts = [alarmsCard(), rates(), trafficCard(page), latencyCard(page), coresCard(page, status), statesCard(status)];
  return { content: parts.map((part) => part.element), update: (now) => parts.forEach((part) => part.update(now)) };
}

/** Alarms that stand, and behind a fold those that are over. Drawn anew only when they change. */
function alarmsCard() {
  const element = h("div", { class: "stack" });
  let drawn = "";
  return {
    element,
    update({ alarms }) {
      const key = JSON.stringify(alarms);
      if (key !== drawn) {
        drawn = key;
        fill(element, alarmsOf(alarms));
      }
    },
  };
}

function alarmsOf(alarms) {
  const standing = alarms.filter((alarm) => alarm.cleared === null).reverse();
  const past = alarms.filter((alarm) => alarm.cleared !== null).reverse();
  const told = (alarm) => [h("code", null, alarm.name), " ", outside(alarm.text), " ", h("small", null, "since ", format.time(alarm.since), alarm.cleared && [", over since ", format.time(alarm.cleared)])];
  return [
    standing.map((alarm) => h("p", { class: "notice bad" }, told(alarm))),
    past.length > 0 && h("details", null, h("summary", null, format.count(past.length, "alarm"), " of before"),
      h("ul", { class: "plain stack" }, past.map((alarm) => h("li", { class: "soft" }, told(alarm))))),
  ];
}

/** Large numbers of the last second. Their nodes stay, so that nothing flickers and a selection holds. */
function rates() {
  const values = {};
  const value = (name) => (values[name] = h("span", null, "–"));
  const names = [
    ["Redirects a second", "redirects"], ["Not found, a second", "misses"], ["Changes a second", "changes"],
    ["p99 of the last second", "p99"], ["Open connections", "connections"], ["Links", "links"], ["Codes left", "codes"],
  ];
  const hint = h("span");
  const element = tiles(names.map(([label, name]) => [label, value(name), name === "codes" && hint]));
  return {
    element,
    update({ now, cores, links, issuer }) {
      setText(values.redirects, format.number(now.redirects));
      setText(values.misses, format.number(now.misses));
      setText(values.changes, format.number(now.changes));
      setText(values.p99, format.micros(now.latencyMicros.p99));
      setText(values.connections, format.number(sum(cores, "connections")));
      setText(values.links, format.number(links));
      setText(values.codes, format.short(issuer.remaining));
      setText(hint, issuer.lastsSeconds === null ? `of ${issuer.codeLength} characters` : `for ${format.duration(issuer.lastsSeconds)} at this rate`);
    },
  };
}

const sum = (all, name) => all.reduce((total, one) => total + (one[name] ?? 0), 0);

/** Instants of the last seconds, the present one last. */
function instants(count) {
  const now = Math.floor(Date.now() / 1000) * 1000;
  return Array.from({ length: count }, (_, index) => now - (count - 1 - index) * 1000);
}

function trafficCard(page) {
  const host = h("div");
  const plot = linePlot(host, {
    label: "Requests a second in the last two minutes", height: 200,
    series: [{ label: "Redirects", fill: true }, { label: "Not found" }, { label: "Changes of links" }],
  });
  page.plots.push(plot);
  return {
    element: card("Requests a second", {}, host),
    update({ pulse }) {
      const count = pulse.changes.length;
      const total = (cores) => Array.from({ length: count }, (_, second) => cores.reduce((all, core) => all + core[second], 0));
      plot.set(instants(count), [total(pulse.redirects), total(pulse.misses), pulse.changes]);
    },
  };
}

/** Quantiles of each second since the page was opened. */
function latencyCard(page) {
  const host = h("div");
  const plot = linePlot(host, { label: "Latency of requests", height: 200, value: format.micros, series: QUANTILES.map((name) => ({ label: name })) });
  page.plots.push(plot);
  return {
    element: card("Latency", { beside: h("small", null, "from the receipt of a request to its answer being queued") }, host),
    update({ now }) {
      page.latencies.push({ at: Date.now(), ...now.latencyMicros });
      page.latencies.splice(0, page.latencies.length - SECONDS);
      plot.set(page.latencies.map(({ at }) => at), QUANTILES.map((name) => page.latencies.map((one) => one[name])));
    },
  };
}

const CORE_COLUMNS = [
  { title: "Core" }, { title: "CPU", class: "num" }, { title: "Redirects a second", class: "num" }, { title: "Last two minutes" }, { title: "p50", class: "num" },
  { title: "p99", class: "num" }, { title: "Connections", class: "num" }, { title: "Links", class: "num" }, { title: "Memory", class: "num" }, { title: "Codes ready", class: "num" },
];

/** One row for each core, with a small plot on the scale of all: a core that differs is seen. */
function coresCard(page, status) {
  const rows = status.cores.map((core) => coreRow(page, core));
  const { element } = regionTable("Cores, one a row", CORE_COLUMNS, rows.map((one) => one.element));
  return {
    element: card("Cores", {}, element),
    update({ cores, pulse }) {
      const most = Math.max(1, ...pulse.redirects.flat());
      cores.forEach((core, index) => rows[index].update(core, pulse.redirects[index], most));
    },
  };
}

function coreRow(page, { core, cpu }) {
  const host = h("div", { class: "spark" });
  let max = 1;
  const plot = linePlot(host, { label: `Redirects a second of core ${core}`, height: 28, axes: false, legend: false, max: () => max, series: [{ label: "Redirects", fill: true }] });
  page.plots.push(plot);
  const names = ["now", "p50", "p99", "connections", "links", "memory", "codes"];
  const cells = Object.fromEntries(names.map((name) => [name, h("span", null, "–")]));
  const num = (name) => ({ content: cells[name], class: "num" });
  const element = row(String(core), { content: String(cpu), class: "num" }, num("now"), host, ...names.slice(1).map(num));
  return {
    element,
    update(now, redirects = [], most) {
      max = most;
      plot.set(instants(redirects.length), [redirects]);
      setText(cells.now, format.number(redirects.at(-1) ?? 0));
      setText(cells.p50, format.micros(now.latencyMicros?.p50));
      setText(cells.p99, format.micros(now.latencyMicros?.p99));
      setText(cells.connections, format.number(now.connections));
      setText(cells.links, format.number(now.links));
      setText(cells.memory, format.bytes(now.mapBytes));
      setText(cells.codes, format.number(now.codes.remaining));
    },
  };
}

/** Store, Redis and fleet in words. */
function statesCard(status) {
  const facts = [
    ["Node", (now) => (now.draining ? ["draining", "warn"] : now.ready ? ["ready", "good"] : ["starting", "warn"])],
    ["Up for", (now) => [format.duration(now.uptimeSeconds)]],
    ["Store", ({ store }) => (store.writable ? ["takes writes", "good"] : ["takes no writes", "bad"])],
    ["Mean commit", ({ store }) => [`${format.micros(store.commitMicrosMean)}, of it ${format.micros(store.syncMicrosMean)} to sync`]],
    ["Commits above 100 ms", ({ store }) => [format.number(store.commitsSlow)]],
    ["Damaged records", ({ store }) => (store.damaged > 0 ? [format.number(store.damaged), "bad"] : ["none", "good"])],
    ["Ended links to remove", ({ expiry }) => [format.number(expiry.waiting)]],
    ["Redis", ({ redis }) => (!redis.configured ? ["not used"] : redis.connected ? ["connected", "good"] : ["away", "bad"])],
    status.fleet !== null && ["Changes to bring to Redis", ({ fleet }) => [format.number(fleet.outbox)]],
    status.fleet !== null && ["Nodes of the fleet", ({ fleet }) => [format.number(fleet.nodes.length)]],
  ].filter(Boolean).map(([name, tell]) => ({ name, tell, node: badge("–") }));
  const list = h("dl", { class: "facts" }, facts.map(({ name, node }) => h("div", null, h("dt", null, name), h("dd", null, node))));
  const more = status.fleet !== null && pageLink("/admin/fleet", "To the fleet");
  return {
    element: card("Store and fleet", { beside: more }, list),
    update(now) {
      facts.forEach(({ tell, node }) => {
        const [text, kind = ""] = tell(now);
        setText(node, text);
        node.className = `badge ${kind}`.trim();
      });
    },
  };
}
