// Host lists: where links may lead and where none does, and the question whether a URL would be accepted.

import { alarmNotes, followStatus, settingLink, snippet } from "./parts.js";
import { card, emptyState, facts, h, pageHead, setText } from "./dom.js";
import * as format from "./format.js";
import { urlCheck } from "./url-check.js";

const LISTS = [
  {
    title: "Allow list", member: "allowList", table: "allow", alarms: "allow_list_",
    meaning: "New links may lead to these hosts only. Links that there are go on.",
    none: ["No allow list", "New links may lead to any host. To limit that, name hosts in "],
    example: "[allow]\nhosts = [\"shop.example\", \"*.shop.example\"]\nsource = \"/etc/carom/hosts.json\"",
  },
  {
    title: "Block list", member: "blockList", table: "block", alarms: "block_list_",
    meaning: "No link leads to these hosts: new ones are refused, and those that there are answer 410.",
    none: ["No block list", "No host is blocked. To block some, name them in "],
    example: "[block]\nhosts = [\"bad.example\", \"*.bad.example\"]\nsource = \"/etc/carom/blocked.json\"",
  },
];

export async function show(main, { signal }) {
  const host = h("div", { class: "cards" });
  main.append(pageHead("Host lists"), urlCheck(signal), host);
  return followStatus(host, shapeOf, build);
}

/** What cards there are, with which alarms: all else is only numbers. */
function shapeOf(status) {
  const alarms = status.alarms.filter((alarm) => alarm.cleared === null && LISTS.some((list) => alarm.name.startsWith(list.alarms)));
  return [LISTS.map((list) => status[list.member] !== null), alarms];
}

function build(status) {
  const cards = LISTS.map((list) => (status[list.member] === null ? { content: noList(list) } : listCard(list, status)));
  return {
    content: cards.map((one) => one.content),
    update: (now) => cards.forEach((one) => one.update?.(now)),
  };
}

function noList({ title, table, none: [said, what], example }) {
  return card(title, {}, emptyState(said,
    h("span", null, what, settingLink(`${table}.hosts`), ", or say in ", settingLink(`${table}.source`), " where a list is read every two seconds. Then start the node anew.")),
  snippet(`Example of the ${title.toLowerCase()} in the settings file`, example));
}

function listCard({ title, member, table, alarms, meaning }, status) {
  const [fixed, dynamic, read] = [h("span"), h("span"), h("span")];
  const content = card(title, {}, h("div", { class: "stack" },
    alarmNotes(status, [alarms]),
    h("p", { class: "soft" }, meaning),
    facts([
      ["In the settings", [fixed, " in ", settingLink(`${table}.hosts`)]],
      ["Read from a source", [dynamic, " from ", settingLink(`${table}.source`)]],
      ["Last read", read],
    ])));
  let lastRead;
  return {
    content,
    update(now) {
      const list = now[member];
      setText(fixed, format.count(list.static, "host"));
      setText(dynamic, format.count(list.dynamic, "host"));
      if (list.read !== lastRead || list.read === null) {
        lastRead = list.read;
        read.replaceChildren(list.read === null ? "never: no source is set, or it has not answered yet" : format.time(list.read));
      }
    },
  };
}
