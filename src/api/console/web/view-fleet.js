// The fleet: Redis, the nodes, the other site, and what is not yet replicated. Live.

import { badge, card, facts, fill, h, outside, pageHead, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink, snippet, sourcesNote, sourcesShape, tiles } from "./parts.js";
import { fleetMap } from "./fleet-map.js";
import { SILENT_MS, contactOf, relaysOf, siteLag } from "./fleet-sites.js";
import { fleet as text } from "./strings-access.js";
import { pages } from "./strings-shell.js";

const ALARMS = ["redis_", "other_key", "conflict", "compare_failed", "fleet_behind", "duplicate_node", "counter_regressed", "lease_lost", "stream_damaged", "newer_format", "settings_differ", "apps_unshared", "site_"];

const EXAMPLE = `redis = "redis://10.0.0.1:6379"

# The same file on every node.
space_key_file = "/etc/carom/space.key"

[fleet]
# Another name on every node.
node = "node-a"`;

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, class: ["redirects", "unsynced", "lag", "heard"].includes(name) ? "num" : undefined }));

export async function show(main) {
  const host = h("div", { class: "stack" });
  main.append(pageHead(pages.fleet), host);
  return followStatus(host, shapeOf, (status) => (status.fleet === null ? alone() : fleet(status)));
}

/** Who is there and which alarms stand: all else is only numbers. */
function shapeOf(status) {
  const alarms = status.alarms.filter((alarm) => alarm.cleared === null).map((alarm) => [alarm.name, alarm.text]);
  const { fleet: shown } = status;
  return shown === null ? null : [shown.node, shown.nodes.map((one) => one.node), shown.servers, shown.site && [shown.site.name, shown.site.other], sourcesShape(shown.totals), alarms];
}

/** The picture of a single node, and the way to a fleet. */
function alone() {
  const step = ([first, ...others], ...settings) => h("li", null, first, others.map((words, at) => [settingLink(settings[at]), words]));
  const said = h("span", { class: "map-state" });
  const node = h("li", { class: "map-node own" }, h("b", null, text.thisNode), said);
  const map = h("div", { class: "map alone" }, h("div", { class: "map-redis" }, h("b", null, text.redis), h("span", { class: "soft" }, text.noRedis)), h("ul", { class: "map-nodes" }, node));
  const content = h("div", { class: "cards" },
    card(text.single, {}, h("p", { class: "soft" }, text.singleText), map),
    card(text.toFleet, {},
      h("ol", { class: "notes" },
        step(text.steps.redis, "redis", "fleet.prefix"),
        step(text.steps.secret, "space_key_file"),
        step(text.steps.node, "fleet.node")),
      snippet(text.example, EXAMPLE)));
  return {
    content,
    update({ draining, ready }, connection) {
      const [state, kind] = connection === "lost" ? [text.states.unknown, "bad"] : draining ? [text.states.draining, "warn"] : ready ? [text.states.ready, "good"] : [text.states.starting, "warn"];
      setText(said, state);
      node.dataset.kind = kind;
    },
  };
}

function fleet(status) {
  const [numbers, map, list] = [summary(), fleetMap(status, stateOf), nodes(status)];
  const [site, ...cards] = [status.fleet.site && sites(status.fleet.site), changes(status), codes()];
  const parts = [numbers, map, list, site, ...cards].filter(Boolean);
  const shown = cards.map((one) => one.content);
  // The card of sites stands beside the two others.
  const columns = site ? [site.content, shown].map((column) => h("div", { class: "stack" }, column)) : shown;
  return {
    content: [alarmNotes(status, ALARMS), numbers.content, map.content, sourcesNote(status.fleet.totals), list.content, h("div", { class: "cards" }, columns)],
    update: (now) => parts.forEach((part) => part.update(now)),
  };
}

/** Elements whose texts are written with each status: `[[element, text(status)], …]`. */
function writer(texts) {
  return (status) => texts.forEach(([element, read]) => setText(element, read(status)));
}

function summary() {
  const [redis, there, redirects, unsynced, behind] = Array.from({ length: 5 }, () => h("span"));
  const write = writer([
    [there, (now) => (now.redis.connected ? text.of(now.fleet.nodes.filter((one) => stateOf(one, now)[1] === "good").length, now.fleet.nodes.length) : text.unknown)],
    [redirects, (now) => format.number(now.fleet.totals.redirectsPerSecond)],
    [unsynced, (now) => format.number(now.fleet.outbox)],
    [behind, (now) => (now.redis.connected ? lag(now.fleet.lagMillis) : text.unknown)],
  ]);
  return {
    content: tiles([[text.redis, redis], [text.ready, there], [text.redirects, redirects], [text.unsynced, unsynced], [text.lag, behind]]),
    update(now) {
      const isThere = now.redis.connected;
      setText(redis, isThere ? text.connected : text.disconnected);
      redis.className = isThere ? "map-state" : "map-state bad-text";
      redis.parentElement.dataset.kind = isThere ? "good" : "bad";
      write(now);
    },
  };
}

function lag(millis) {
  return format.duration(millis / 1000);
}

/** How a node is: `[text, kind of badge]`. Nodes hear of each other through Redis. */
function stateOf({ node, silentMillis, about }, { fleet: { node: own }, redis }) {
  if (!redis.connected && node !== own) {
    return [text.states.unknown, "warn"];
  }
  if (redis.connected && silentMillis >= SILENT_MS) {
    return about?.stopped ? [text.states.stopped, "warn"] : [text.states.silent, "bad"];
  }
  if (about?.draining) {
    return [text.states.draining, "warn"];
  }
  return about?.ready ? [text.states.ready, "good"] : [text.states.starting, "warn"];
}

function nodes(status) {
  const own = status.fleet.node;
  const cells = new Map(status.fleet.nodes.map((one) => [one.node, Array.from({ length: 7 }, () => h("span"))]));
  const rows = status.fleet.nodes.map(({ node }) => {
    const [version, formats, state, redirects, unsynced, behind, heard] = cells.get(node);
    const fact = (content, role = "") => ({ content, class: `fact ${role}`.trim() });
    return row({ content: [outside(node), node === own && [" ", badge(text.thisNode)]], class: "wrap lead" }, fact(version, "named"), fact(formats, "named"), { content: state, class: "figure" },
      // A phone has these two in the map.
      { content: redirects, class: "num not-on-phone" }, fact(unsynced, "num named"), { content: behind, class: "num not-on-phone" }, fact(heard, "num named"));
  });
  const { element, table } = regionTable(text.nodesLabel, COLUMNS, rows);
  table.classList.add("rows");
  return {
    content: card(text.nodes, {}, element),
    update: (now) => now.fleet.nodes.forEach((one) => writeNode(cells.get(one.node), one, now)),
  };
}

function writeNode([version, formats, state, redirects, unsynced, behind, heard], one, now) {
  const [said, kind] = stateOf(one, now);
  if (state.textContent !== said) {
    fill(state, badge(said, kind));
  }
  setText(version, one.about?.version ?? "–");
  setText(formats, one.about?.formats ? text.format(one.about.formats) : "–");
  setText(redirects, format.number(one.silentMillis < SILENT_MS ? one.about?.redirectsPerSecond : null));
  setText(unsynced, format.number(one.about?.outbox));
  setText(behind, one.about ? lag(one.about.lagMillis) : "–");
  setText(heard, one.silentMillis < SILENT_MS ? text.now : text.ago(format.duration(one.silentMillis / 1000)));
}

/** A card of names and values, each with a line that says what it means: `[[name, text(fleet), meaning], …]`. */
function numbersCard(title, lines, more = []) {
  const values = lines.map(() => h("b", { class: "value" }));
  const write = writer(lines.map(([, read], index) => [values[index], ({ fleet: now }) => read(now)]));
  const pairs = lines.map(([name, , meaning], index) => [name, [values[index], h("small", { class: "meaning" }, meaning)]]);
  return { content: card(title, { className: "meanings" }, facts([...pairs, ...more])), update: write };
}

function sites({ name, other }) {
  const words = text.sites;
  return numbersCard(words.title, [
    [words.thisSite, () => name, words.thisSiteMeaning],
    [words.otherSite, () => other, words.otherSiteMeaning],
    [words.contact, ({ site }) => contactOf(site)[0], words.contactMeaning],
    [words.lag, ({ site }) => siteLag(site), words.lagMeaning],
    [words.relay, relaysOf, words.relayMeaning],
    [words.relayed, ({ site }) => format.number(site.relayed), words.relayedMeaning],
    [words.replaced, ({ site }) => format.number(site.replaced), words.replacedMeaning],
    [text.gaps, ({ site }) => format.number(site.gaps), words.gapsMeaning],
  ]);
}

function changes({ fleet: { servers } }) {
  return numbersCard(text.changes, [
    [text.unsynced, (now) => format.number(now.outbox), text.unsyncedMeaning],
    [text.synced, (now) => format.number(now.delivered), text.syncedMeaning],
    [text.received, (now) => format.number(now.followed), text.receivedMeaning],
    [text.comparing, (now) => text.partitions(now.comparing), text.comparingMeaning],
    [text.gaps, (now) => format.number(now.gaps), text.gapsMeaning],
    [text.unread, (now) => format.number(now.unread), text.unreadMeaning],
  ], [[text.servers, servers.length === 0 ? text.noServers : h("ul", { class: "plain" }, servers.map((server) => h("li", { class: "mono" }, outside(server))))]]);
}

function codes() {
  return numbersCard(text.codes, [
    [text.conflicts, (now) => format.number(now.conflicts), text.conflictsMeaning],
    [text.collisions, (now) => format.number(now.collisions), text.collisionsMeaning],
    [text.lookUps, (now) => format.number(now.lookUps), text.lookUpsMeaning],
    [text.hits, (now) => (now.lookUps > 0 ? `${format.number(now.lookUpHits)} (${format.percent(now.lookUpHits, now.lookUps)})` : format.number(now.lookUpHits)), text.hitsMeaning],
    [text.leftOut, (now) => format.number(now.lookUpsLeftOut), text.leftOutMeaning],
    [text.resets, (now) => format.number(now.regressions), text.resetsMeaning],
  ]);
}
