// Destination rules: the allow list, the block list, and a check of single URLs.

import { get } from "./api.js";
import { alarmNotes, followStatus, settingLink, snippet } from "./parts.js";
import { badge, card, facts, h, loadingState, outside, pageHead, setText } from "./dom.js";
import * as format from "./format.js";
import { rules as text } from "./strings-access.js";
import { pages } from "./strings-shell.js";
import { urlCheck } from "./url-check.js";

const LISTS = [
  {
    ...text.allow, member: "allowList", table: "allow", alarms: "allow_list_",
    example: "[allow]\nhosts = [\"shop.example\", \"*.shop.example\"]\nsource = \"/etc/carom/hosts.json\"",
  },
  {
    ...text.block, member: "blockList", table: "block", alarms: "block_list_",
    example: "[block]\nhosts = [\"bad.example\", \"*.bad.example\"]\nsource = \"/etc/carom/blocked.json\"",
  },
];

/** The hosts of the settings that are named; the rest is counted. */
const NAMED_HOSTS_MAX = 20;

export async function show(main, { signal }) {
  const host = h("div", { class: "cards" }, loadingState(6));
  main.append(pageHead(pages.rules), urlCheck(signal), host);
  // The lists are shown without the names of their hosts if these cannot be had.
  const { settings } = await get("/admin/api/settings", { signal }).catch(() => ({ settings: [] }));
  signal.throwIfAborted();
  return followStatus(host, shapeOf, (status) => build(status, settings));
}

/** What cards there are, with which alarms: all else is only numbers. */
function shapeOf(status) {
  const alarms = status.alarms.filter((alarm) => alarm.cleared === null && LISTS.some((list) => alarm.name.startsWith(list.alarms)));
  return [LISTS.map((list) => status[list.member] !== null), alarms];
}

function build(status, settings) {
  const cards = LISTS.map((list) => (status[list.member] === null ? { content: noList(list) } : listCard(list, status, settings)));
  return {
    content: cards.map((one) => one.content),
    update: (now) => cards.forEach((one) => one.update?.(now)),
  };
}

function noList({ title, table, noneText, example }) {
  const [or, rest] = text.source;
  return card(title, { beside: badge(text.unused) },
    h("p", { class: "soft" }, noneText, settingLink(`${table}.hosts`), or, settingLink(`${table}.source`), rest),
    snippet(text.example(title), example));
}

/** The hosts of a list in the settings, which are few: long lists have a source. */
function namesOf(table, settings) {
  const hosts = format.settingValue(settings.find((one) => one.name === `${table}.hosts`)?.value);
  if (!Array.isArray(hosts)) {
    return null;
  }
  const more = hosts.length - NAMED_HOSTS_MAX;
  return h("ul", { class: "plain hosts" },
    hosts.slice(0, NAMED_HOSTS_MAX).map((one) => h("li", null, outside(one, { class: "mono" }))),
    more > 0 && h("li", { class: "soft" }, text.more(more)));
}

/** Whether the settings are known, and name no source for a list. */
function lacksSource(table, settings) {
  return settings.some((one) => one.name === `${table}.source` && one.value === null);
}

function listCard({ title, member, table, alarms, meaning }, status, settings) {
  const [fixed, dynamic, read] = [h("span"), h("span"), h("span")];
  const [set, rest] = text.noSource;
  const sources = lacksSource(table, settings) ? [[text.dynamic, h("p", { class: "soft" }, set, settingLink(`${table}.source`), rest)]]
    : [[text.dynamic, h("p", null, dynamic, settingLink(`${table}.source`))], [text.read, read]];
  const content = card(title, { beside: badge(text.inUse, "good") }, h("div", { class: "stack" },
    alarmNotes(status, [alarms]),
    h("p", { class: "soft" }, meaning),
    facts([[text.fixed, [h("p", null, fixed, settingLink(`${table}.hosts`)), namesOf(table, settings)]], ...sources])));
  let lastRead;
  return {
    content,
    update(now) {
      const list = now[member];
      setText(fixed, text.hosts(list.static));
      setText(dynamic, text.hosts(list.dynamic));
      if (list.read !== lastRead || list.read === null) {
        lastRead = list.read;
        read.replaceChildren(list.read === null ? text.neverRead : format.time(list.read));
      }
    },
  };
}
