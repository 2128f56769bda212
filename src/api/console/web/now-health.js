// The health of the node: slugs, storage, memory, Redis and the fleet.

import { badge, card, fill, h, pageLink, setText } from "./dom.js";
import { bytes, duration, micros, number } from "./format.js";
import { pages } from "./strings-shell.js";
import { health as text } from "./strings-traffic.js";

/** The cards: `{ element, update(status) }`. A value is a text, or `[text, kind]` for a badge. */
export function healthCards() {
  const groups = [
    group(text.codes, [[text.length, (s) => text.characters(s.issuer.codeLength)], [text.left, (s) => number(s.issuer.remaining)], [text.runsOut, lasts], [text.allocationErrors, (s) => tally(s.issuer.error)]]),
    group(text.store, [
      [text.writes, (s) => (s.store.writable ? [text.accepting, "good"] : [text.refusing, "bad"])], [text.commits, (s) => number(s.store.commits)],
      [text.meanCommit, (s) => (s.store.commits > 0 ? micros(s.store.commitMicrosMean) : number(null))], [text.slowCommits, (s) => number(s.store.commitsSlow)],
      [text.queue, (s) => number(s.store.queue)], [text.errors, (s) => tally(s.store.error)], [text.damaged, (s) => tally(s.store.damaged)]]),
    group(text.memory, [
      [text.inMemory, (s) => (s.residency.mode === "hot" ? text.hotLinks : text.allLinks)], [text.linkMemory, memory],
      [text.diskReads, (s) => number(s.residency.fetched)], [text.expired, (s) => number(s.expiry.expired)], [text.expiring, (s) => number(s.expiry.waiting)]]),
    group(text.redisAndFleet, [
      [text.redis, redis], [text.errors, (s) => tally(s.redis.error)], [text.nodes, (s) => (s.fleet ? number(s.fleet.nodes.length) : text.singleNode)],
      [text.allRedirects, (s) => number(s.fleet?.totals.redirectsPerSecond)], [text.counts, counts],
      [text.unsynced, (s) => number(s.fleet?.outbox)], [text.lag, (s) => (!s.fleet ? number(null) : s.redis.connected ? duration(s.fleet.lagMillis / 1000) : text.unknown)]], pageLink("/admin/fleet", pages.fleet)),
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
  return errors > 0 ? [number(errors), "warn"] : [text.none, "good"];
}

function lasts({ issuer }) {
  return issuer.lastsSeconds === null ? text.noNewLinks : text.runsOutIn(duration(issuer.lastsSeconds));
}

function memory({ residency }) {
  return residency.memoryLimitBytes === null ? bytes(residency.memoryBytes) : text.memoryOf(bytes(residency.memoryBytes), bytes(residency.memoryLimitBytes));
}

/** Which nodes are in the counts of visits. */
function counts({ fleet }) {
  if (!fleet) {
    return text.singleNode;
  }
  const lacks = fleet.totals.lacks.map(({ node }) => node);
  return lacks.length > 0 ? [text.without(lacks.join(", ")), "warn"] : [text.allNodes, "good"];
}

function redis({ redis: { configured, connected } }) {
  if (!configured) {
    return [text.notConfigured, ""];
  }
  return connected ? [text.connected, "good"] : [text.disconnected, "bad"];
}
