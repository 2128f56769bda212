// The health of the node: slugs, storage, memory, Redis and the fleet.

import { badge, card, fill, h, pageLink, setText } from "./dom.js";
import { bytes, duration, micros, number } from "./format.js";
import { hasAllLinks } from "./rights.js";
import { pages } from "./strings-shell.js";
import { health as text } from "./strings-traffic.js";

/** The cards of slugs, storage, memory and the fleet: `{ cards, update(status) }`. A value is a text, or `[text, kind]` for a badge. A third function hides a line: "zero" is a problem that did not occur, "no" a value of no use. It is "problem" for one that occurred. */
export function healthCards() {
  const groups = [
    group(text.codes, [[text.length, (s) => text.characters(s.issuer.codeLength)], [text.left, (s) => number(s.issuer.remaining)], [text.runsOut, lasts], [text.allocationErrors, (s) => tally(s.issuer.error), zeroAt((s) => s.issuer.error)]]),
    group(text.store, [
      [text.writes, (s) => (s.store.writable ? [text.accepting, "good"] : [text.refusing, "bad"])], [text.commits, (s) => number(s.store.commits), usedAt((s) => s.store.commits)],
      [text.meanCommit, (s) => (s.store.commits > 0 ? micros(s.store.commitMicrosMean) : number(null)), (s) => (s.store.commits > 0 ? null : "no")], [text.slowCommits, (s) => number(s.store.commitsSlow), zeroAt((s) => s.store.commitsSlow)],
      [text.queue, (s) => number(s.store.queue), usedAt((s) => s.store.queue)], [text.errors, (s) => tally(s.store.error), zeroAt((s) => s.store.error)],
      [text.damaged, (s) => tally(s.store.damaged), zeroAt((s) => s.store.damaged)], [text.newer, (s) => tally(s.store.newer), zeroAt((s) => s.store.newer)]]),
    group(text.memory, [
      [text.inMemory, (s) => (s.residency.mode === "hot" ? text.hotLinks : text.allLinks)], [text.linkMemory, memory],
      [hasAllLinks() ? text.diskReads : text.redisReads, (s) => number(s.residency.fetched), usedAt((s) => s.residency.fetched)], [text.expired, (s) => number(s.expiry.expired), usedAt((s) => s.expiry.expired)],
      [text.expiring, (s) => number(s.expiry.waiting), usedAt((s) => s.expiry.waiting)]]),
    group(text.redisAndFleet, [
      [text.redis, redis], [text.errors, (s) => tally(s.redis.error), (s) => (s.redis.configured ? zeroAt(({ redis: { error } }) => error)(s) : "no")], [text.nodes, (s) => (s.fleet ? number(s.fleet.nodes.length) : text.singleNode)],
      [text.allRedirects, (s) => number(s.fleet?.totals.redirectsPerSecond), alone], [text.counts, counts, alone],
      [text.unsynced, (s) => number(s.fleet?.outbox), (s) => alone(s) ?? usedAt(({ fleet }) => fleet.outbox)(s)], [text.lag, (s) => (!s.fleet ? number(null) : s.redis.connected ? duration(s.fleet.lagMillis / 1000) : text.unknown), alone]], pageLink("/admin/fleet", pages.fleet)),
  ];
  return { cards: groups.map((one) => one.element), update: (status) => groups.forEach((one) => one.update(status)) };
}

function group(title, lines, beside) {
  const values = lines.map(() => h("dd"));
  const rows = lines.map(([name], index) => h("div", null, h("dt", null, name), values[index]));
  const zeros = h("p", { class: "soft small zeros" }, text.noProblems);
  const update = (status) => {
    const folded = lines.map(([, , isLess]) => isLess?.(status) ?? null);
    lines.forEach(([, read], index) => {
      rows[index].hidden = folded[index] === "zero" || folded[index] === "no";
      showValue(values[index], read(status));
    });
    zeros.hidden = !folded.includes("zero") || folded.includes("problem");
  };
  return { element: card(title, { beside }, h("dl", { class: "facts" }, rows), zeros), update };
}

/** Says of a line of problems whether there were any. */
function zeroAt(read) {
  return (status) => (read(status) === 0 ? "zero" : "problem");
}

/** Says that a line is of no use while its number is 0. */
function usedAt(read) {
  return (status) => (read(status) === 0 ? "no" : null);
}

/** Says that a line is of no use on a single node. */
const alone = ({ fleet }) => (fleet ? null : "no");

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
  return issuer.lasts ? text.lastsFor(issuer.lasts) : text.noneGenerated;
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
