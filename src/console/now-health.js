// What the node stands on: its codes, its store, its memory, Redis and the fleet.

import { badge, card, fill, h, pageLink, setText } from "./dom.js";
import { bytes, duration, micros, number } from "./format.js";

/** The cards: `{ element, update(status) }`. A value is a text, or `[text, kind]` for a badge. */
export function healthCards() {
  const groups = [
    group("Codes", [["Length", (s) => `${s.issuer.codeLength} characters`], ["Left", (s) => number(s.issuer.remaining)], ["They last", lasts], ["Failed draws", (s) => tally(s.issuer.error)]]),
    group("Store", [
      ["Writes", (s) => (s.store.writable ? ["taken", "good"] : ["refused", "bad"])], ["Commits", (s) => number(s.store.commits)],
      ["Mean commit", (s) => (s.store.commits > 0 ? micros(s.store.commitMicrosMean) : "–")], ["Above 100 ms", (s) => number(s.store.commitsSlow)],
      ["Waiting", (s) => number(s.store.queue)], ["Errors", (s) => tally(s.store.error)], ["Damaged records", (s) => tally(s.store.damaged)]]),
    group("Memory and expiry", [
      ["Links in memory", (s) => (s.residency.mode === "hot" ? "those in use" : "all")], ["Memory of links", memory],
      ["Read from disk", (s) => number(s.residency.fetched)], ["Expired", (s) => number(s.expiry.expired)], ["Waiting to expire", (s) => number(s.expiry.waiting)]]),
    group("Redis and fleet", [
      ["Redis", redis], ["Errors", (s) => tally(s.redis.error)], ["Nodes", (s) => (s.fleet ? number(s.fleet.nodes.length) : "this one alone")],
      ["Waiting to be sent", (s) => (s.fleet ? number(s.fleet.outbox) : "–")], ["Behind by", (s) => (!s.fleet ? "–" : s.redis.connected ? duration(s.fleet.lagMillis / 1000) : "not known")]], pageLink("/admin/fleet", "Fleet")),
  ];
  const element = h("div", { class: "cards" }, groups.map((one) => one.element));
  return { element, update: (status) => groups.forEach((one) => one.update(status)) };
}

function group(title, lines, beside) {
  const values = lines.map(() => h("dd"));
  const list = h("dl", { class: "facts" }, lines.map(([name], index) => h("div", null, h("dt", null, name), values[index])));
  const update = (status) => lines.forEach(([, read], index) => showValue(values[index], read(status)));
  return { element: card(title, { beside }, list), update };
}

function showValue(node, value) {
  if (typeof value === "string") {
    setText(node, value);
  } else if (node.dataset.said !== value.join()) {
    node.dataset.said = value.join();
    fill(node, badge(...value));
  }
}

function tally(errors) {
  return errors > 0 ? [number(errors), "warn"] : ["none", "good"];
}

function lasts({ issuer }) {
  return issuer.lastsSeconds === null ? "no link was made in the last minute" : `${duration(issuer.lastsSeconds)} at the rate of the last minute`;
}

function memory({ residency }) {
  return residency.memoryLimitBytes === null ? bytes(residency.memoryBytes) : `${bytes(residency.memoryBytes)} of ${bytes(residency.memoryLimitBytes)}`;
}

function redis({ redis: { configured, connected } }) {
  if (!configured) {
    return ["not configured", ""];
  }
  return connected ? ["connected", "good"] : ["away", "bad"];
}
