// Fleet: the nodes that share a code space, and how far each has heard of the others.

import { badge, card, emptyState, h, outside, pageHead, regionTable, row, setText } from "./dom.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink, snippet, tiles } from "./parts.js";

const EXAMPLE = "redis = \"redis://redis1.internal:6379\"\n\n[fleet]\nnode = \"carom1\"";
const COLUMNS = [
  { title: "Node" }, { title: "Version" }, { title: "State" }, { title: "To bring to Redis", class: "num" },
  { title: "Behind", class: "num" }, { title: "Silent for", class: "num" },
];
const NUMBERS = [
  ["Redis", (status) => (status.redis.connected ? "connected" : "away")],
  ["Changes to bring", ({ fleet }) => format.number(fleet.outbox)],
  ["Behind the streams", ({ fleet }) => `${format.number(fleet.lagMillis)} ms`],
  ["Changes of all nodes heard", ({ fleet }) => format.number(fleet.followed)],
  ["Partitions to compare", ({ fleet }) => format.number(fleet.comparing)],
  ["Found by looking up", ({ fleet }) => `${format.number(fleet.lookUpHits)} of ${format.number(fleet.lookUps)}`],
  ["Conflicts", ({ fleet }) => format.number(fleet.conflicts)],
  ["Codes that others had", ({ fleet }) => format.number(fleet.collisions)],
];

export async function show(main) {
  const host = h("div", { class: "stack" });
  main.append(pageHead("Fleet"), host);
  const shapeOf = ({ fleet, alarms }) => [fleet?.nodes.map((node) => node.node), alarms.filter((alarm) => alarm.cleared === null).map((alarm) => [alarm.name, alarm.text])];
  return followStatus(host, shapeOf, (status) => (status.fleet === null ? { content: alone() } : fleetOf(status)));
}

function alone() {
  return emptyState("This node is alone",
    "Several nodes share their links through Redis: each has all of them in its own memory and goes on redirecting whatever becomes of the others. To make a fleet, give every node the same Redis and the same secret key, and each a name of its own.",
    snippet("Lines for the settings file", EXAMPLE), h("span", null, "See ", settingLink("redis"), ", ", settingLink("fleet.node"), " and ", settingLink("space_key_file"), "."));
}

function fleetOf(status) {
  const values = NUMBERS.map(() => h("span"));
  const rows = status.fleet.nodes.map(({ node }) => nodeRow(node, node === status.fleet.node));
  return {
    content: [
      alarmNotes(status, ["redis", "fleet"]),
      tiles(NUMBERS.map(([label], index) => [label, values[index]])),
      card("Nodes", {}, regionTable("Nodes of the fleet", COLUMNS, rows.map((one) => one.element)).element),
    ],
    update(now) {
      NUMBERS.forEach(([, tell], index) => setText(values[index], tell(now)));
      now.fleet.nodes.forEach((node, index) => rows[index].update(node));
    },
  };
}

function nodeRow(name, isOwn) {
  const state = badge("–");
  const [version, outbox, lag, silent] = [0, 1, 2, 3].map(() => h("span", null, "–"));
  const num = (content) => ({ content, class: "num" });
  return {
    element: row([outside(name), isOwn && [" ", badge("this one")]], version, state, num(outbox), num(lag), num(silent)),
    update({ about, silentMillis }) {
      const [text, kind] = about?.draining ? ["draining", "warn"] : about?.ready ? ["ready", "good"] : ["starting", "warn"];
      setText(state, text);
      state.className = `badge ${kind}`;
      setText(version, about?.version ?? "–");
      setText(outbox, format.number(about?.outbox));
      setText(lag, about?.lagMillis === undefined ? "–" : `${format.number(about.lagMillis)} ms`);
      setText(silent, `${format.number(silentMillis / 1000, 1)} s`);
    },
  };
}
