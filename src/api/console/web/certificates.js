// The certificates that are in use, from the live status.

import { badge, card, emptyState, h, outside, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink } from "./parts.js";
import { certificates as text } from "./strings-access.js";
import { common } from "./strings-shell.js";

const ENDS_SOON_MS = 21 * 86_400_000;
const ALARMS = ["certificate_"];
const COLUMNS = text.columns.map((title) => ({ title }));

/** Keeps a host in step with them. Returns what ends that. */
export function certificates(host) {
  const alarmsOf = (status) => status.alarms.filter((alarm) => alarm.name.startsWith(ALARMS[0]));
  return followStatus(host, (status) => [status.tls, alarmsOf(status)], (status) => ({
    content: card(text.title, { id: "certificates" }, status.tls === null ? noTls() : inUse(status)),
  }));
}

function noTls() {
  const [set, and, rest] = text.noneText;
  return emptyState(text.none, h("span", null, set, settingLink("tls.cert"), and, settingLink("tls.key"), rest));
}

function inUse(status) {
  const rows = status.tls.certificates.map(({ names, validUntil, file }) => {
    const [said, kind] = stateOf(Date.parse(validUntil) - Date.now());
    return row(
      { content: names.length === 0 ? text.noNames : h("ul", { class: "plain" }, names.map((name) => h("li", null, outside(name)))), class: "wrap lead" },
      { content: h("span", null, format.time(validUntil), " (", format.relative(validUntil), ")"), class: "fact named" },
      { content: badge(said, kind), class: "figure" },
      { content: outside(file, { class: "mono" }), class: "wrap below soft small" });
  });
  const { element, table } = regionTable(common.asTable(text.title), COLUMNS, rows);
  table.classList.add("rows");
  return h("div", { class: "stack" },
    alarmNotes(status, ALARMS),
    element,
    h("p", { class: "soft" }, text.note(status.tls.renewed)));
}

function stateOf(leftMs) {
  if (leftMs <= 0) {
    return [text.expired, "bad"];
  }
  return leftMs < ENDS_SOON_MS ? [text.expiresSoon, "warn"] : [text.valid, "good"];
}
