// The fleet: whether Redis is there, who else is, and what is still to be brought to whom. Live.

import { badge, card, emptyState, facts, fill, h, outside, pageHead, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink, snippet, tiles } from "./parts.js";

// Nodes tell of themselves every second.
const SILENT_MS = 5_000;
const ALARMS = ["redis_", "other_key", "conflict", "compare_failed", "counter_regressed", "lease_lost", "stream_damaged", "apps_unshared"];

const EXAMPLE = `redis = "redis://10.0.0.1:6379"

[fleet]
node = "node-a"`;

const COLUMNS = [
  { title: "Node" }, { title: "Version" }, { title: "State" },
  { title: "To bring to Redis", class: "num" }, { title: "Behind", class: "num" }, { title: "Last heard", class: "num" },
];

export async function show(main) {
  const host = h("div", { class: "stack" });
  main.append(pageHead("Fleet"), host);
  return followStatus(host, shapeOf, (status) => (status.fleet === null ? { content: alone() } : fleet(status)));
}

/** Who is there and which alarms stand: all else is only numbers. */
function shapeOf(status) {
  const alarms = status.alarms.filter((alarm) => alarm.cleared === null).map((alarm) => [alarm.name, alarm.text]);
  return status.fleet === null ? null : [status.fleet.node, status.fleet.nodes.map((one) => one.node), status.fleet.servers, alarms];
}

function alone() {
  return card("This node is alone", {}, emptyState("No fleet",
    h("span", null, "Nodes become a fleet by sharing a Redis: give each the same ", settingLink("redis"), ", the same ", settingLink("fleet.prefix"),
      " and the same secret key (", settingLink("space_key_file"), "), and start it anew. ", settingLink("fleet.node"), " names it here. A link made on one node then redirects on all within moments, and redirects go on while Redis is away.")),
  snippet("Example of a fleet in the settings file", EXAMPLE));
}

function fleet(status) {
  const parts = [summary(), nodes(status), changes(status), codes()];
  return {
    content: [alarmNotes(status, ALARMS), parts[0].content, parts[1].content, h("div", { class: "cards" }, parts[2].content, parts[3].content)],
    update: (now) => parts.forEach((part) => part.update(now)),
  };
}

/** Elements whose texts are written with each status: `[[element, text(status)], …]`. */
function writer(texts) {
  return (status) => texts.forEach(([element, text]) => setText(element, text(status)));
}

function summary() {
  const [redis, there, toBring, behind] = [h("span"), h("span"), h("span"), h("span")];
  const write = writer([
    [there, (now) => (now.redis.connected ? `${format.number(now.fleet.nodes.filter((one) => stateOf(one, now)[1] === "good").length)} of ${format.number(now.fleet.nodes.length)}` : "not known")],
    [toBring, (now) => format.number(now.fleet.outbox)],
    [behind, (now) => (now.redis.connected ? lag(now.fleet.lagMillis) : "not known")],
  ]);
  return {
    content: tiles([["Redis", redis], ["Nodes that serve", there], ["To bring to Redis", toBring], ["Behind the others", behind]]),
    update(now) {
      const isThere = now.redis.connected;
      setText(redis, isThere ? "Connected" : "Away");
      redis.className = isThere ? "good-text" : "bad-text";
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
    return ["not known", "warn"];
  }
  if (redis.connected && silentMillis >= SILENT_MS) {
    return ["silent", "bad"];
  }
  if (about?.draining) {
    return ["draining", "warn"];
  }
  return about?.ready ? ["serves", "good"] : ["starting", "warn"];
}

function nodes(status) {
  const own = status.fleet.node;
  const cells = new Map(status.fleet.nodes.map((one) => [one.node, Array.from({ length: 5 }, () => h("span"))]));
  const rows = status.fleet.nodes.map(({ node }) => {
    const [version, state, toBring, behind, heard] = cells.get(node);
    const num = (content) => ({ content, class: "num" });
    return row({ content: [outside(node), node === own && [" ", badge("this node")]], class: "wrap" }, version, state, num(toBring), num(behind), num(heard));
  });
  return {
    content: card("Nodes", {}, regionTable("Nodes of the fleet", COLUMNS, rows).element),
    update: (now) => now.fleet.nodes.forEach((one) => writeNode(cells.get(one.node), one, now)),
  };
}

function writeNode([version, state, toBring, behind, heard], one, now) {
  const [text, kind] = stateOf(one, now);
  if (state.textContent !== text) {
    fill(state, badge(text, kind));
  }
  setText(version, one.about?.version ?? "–");
  setText(toBring, format.number(one.about?.outbox));
  setText(behind, one.about ? lag(one.about.lagMillis) : "–");
  setText(heard, one.silentMillis < SILENT_MS ? "now" : `${format.duration(one.silentMillis / 1000)} ago`);
}

/** A card of names and values, each with a line that says what it means: `[[name, text(fleet), meaning], …]`. */
function numbersCard(title, lines, more = []) {
  const values = lines.map(() => h("b", { class: "value" }));
  const write = writer(lines.map(([, text], index) => [values[index], ({ fleet: now }) => text(now)]));
  const pairs = lines.map(([name, , meaning], index) => [name, [values[index], h("small", { class: "meaning" }, meaning)]]);
  return { content: card(title, {}, facts([...pairs, ...more])), update: write };
}

function changes({ fleet: { servers } }) {
  return numbersCard("Changes", [
    ["To bring", (now) => format.number(now.outbox), "Codes whose state Redis may not have yet. Grows while Redis is away."],
    ["Brought", (now) => format.number(now.delivered), "States that this node has brought to Redis so."],
    ["Followed", (now) => format.number(now.followed), "Changes of all nodes that have come through."],
    ["Comparing", (now) => (now.comparing === 0 ? "no" : format.count(now.comparing, "partition")), "What is still to be compared with Redis; the node serves meanwhile."],
    ["Gaps", (now) => format.number(now.gaps), "Places in the streams that were lost; each is compared anew."],
  ], [["Redis servers", servers.length === 0 ? "none yet" : h("ul", { class: "plain" }, servers.map((server) => h("li", { class: "mono" }, outside(server))))]]);
}

function codes() {
  return numbersCard("Codes", [
    ["Conflicts", (now) => format.number(now.conflicts), "Links that were given up because another node had their code."],
    ["Collisions", (now) => format.number(now.collisions), "Fresh codes that were taken already, so that the next one was tried."],
    ["Looked up", (now) => format.number(now.lookUps), "Unknown codes that were asked of Redis."],
    ["Found so", (now) => `${format.number(now.lookUpHits)} (${format.percent(now.lookUpHits, now.lookUps)})`, "Those of them that another node had made a moment before."],
    ["Not looked up", (now) => format.number(now.lookUpsLeftOut), "Because too many were asked for at once."],
    ["Set back", (now) => format.number(now.regressions), "Times that Redis had lost its counter of codes; it was raised again."],
  ]);
}
