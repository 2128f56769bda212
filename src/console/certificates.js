// The certificates that are in use, from the live status.

import { badge, card, emptyState, h, outside, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { alarmNotes, followStatus, settingLink } from "./parts.js";

const ENDS_SOON_MS = 21 * 86_400_000;
const ALARMS = ["certificate_"];
const COLUMNS = [{ title: "Names" }, { title: "Ends" }, { title: "State" }, { title: "File" }];

/** Keeps a host in step with them. Returns what ends that. */
export function certificates(host) {
  const alarmsOf = (status) => status.alarms.filter((alarm) => alarm.name.startsWith(ALARMS[0]));
  return followStatus(host, (status) => [status.tls, alarmsOf(status)], (status) => ({
    content: card("Certificates", { id: "certificates" }, status.tls === null ? noTls() : inUse(status)),
  }));
}

function noTls() {
  return emptyState("This node speaks no TLS",
    h("span", null, "Something in front of it may. For certificates of its own set ", settingLink("tls.cert"), " and ", settingLink("tls.key"), "."));
}

function inUse(status) {
  const rows = status.tls.certificates.map(({ names, validUntil, file }) => {
    const [text, kind] = stateOf(Date.parse(validUntil) - Date.now());
    return row(
      { content: names.length === 0 ? "none" : h("ul", { class: "plain" }, names.map((name) => h("li", null, outside(name)))), class: "wrap" },
      { content: [format.time(validUntil), " (", format.relative(validUntil), ")"], class: "nowrap" },
      badge(text, kind),
      { content: outside(file, { class: "mono" }), class: "wrap" });
  });
  return h("div", { class: "stack" },
    alarmNotes(status, ALARMS),
    regionTable("Certificates, as a table", COLUMNS, rows).element,
    h("p", { class: "soft" }, `Put a new one into its file: it is taken up by itself. ${format.count(status.tls.renewed, "certificate")} taken up since the start.`));
}

function stateOf(leftMs) {
  if (leftMs <= 0) {
    return ["over", "bad"];
  }
  return leftMs < ENDS_SOON_MS ? ["ends soon", "warn"] : ["valid", "good"];
}
