// How links are shown wherever they are shown.

import { badge, clipped, copyButton, h, outside, pageLink } from "./dom.js";
import { currentSession, linkPath, withQuery } from "./api.js";
import { isBeingDeleted } from "./deletes.js";
import { openDialog } from "./dialog.js";
import { bareUrl } from "./format.js";
import { settingLink } from "./parts.js";
import { DAY_MS } from "./period.js";
import { page, states as text } from "./strings-links.js";

const STATES = {
  active: [text.active, "good"],
  scheduled: [text.scheduled, "warn"],
  ended: [text.ended, ""],
  archived: [text.archived, ""],
  usedUp: [text.usedUp, "warn"],
};

/** The states that a filter knows: `[[value, text], …]`. */
export const STATE_CHOICES = Object.entries(STATES).map(([value, [text]]) => [value, text]);

/** What state a link is in now. */
export function stateOf({ archived, meta, visitsSummary }, now = Date.now()) {
  if (archived) {
    return "archived";
  }
  if (meta.validUntil !== null && Date.parse(meta.validUntil) <= now) {
    return "ended";
  }
  if (meta.validSince !== null && Date.parse(meta.validSince) > now) {
    return "scheduled";
  }
  return meta.maxVisits !== null && visitsSummary.total >= meta.maxVisits ? "usedUp" : "active";
}

/** The state of a link as a badge; `data-state` names it. */
export function stateBadge(link) {
  const state = shownState(link);
  const element = badge(...(STATES[state] ?? [text[state], "bad"]));
  element.dataset.state = state;
  return element;
}

function shownState(link) {
  if (isBeingDeleted(link)) {
    return "deleting";
  }
  const state = stateOf(link);
  return link.blocked && state === "active" ? "blocked" : state;
}

/** Whether a link has a state for the column of a list: most links are active, and one that is being deleted says so at its slug. */
export const hasNotableState = (link) => !["active", "deleting"].includes(shownState(link));

/** An expiry within this time is worth a look. */
const NEAR_MS = 30 * DAY_MS;
/** How far the lifetime of a link may be from the default one: instants have whole seconds. */
const SAME_MS = 60_000;

/** Whether a list shows when a link expires: soon, in the past, or at another time than by default. */
export function hasNotableExpiry({ dateCreated, meta: { validSince, validUntil } }, now = Date.now()) {
  if (validUntil === null) {
    return false;
  }
  const ends = Date.parse(validUntil);
  const lifetime = currentSession()?.defaultLifetime ?? null;
  const begins = Math.max(Date.parse(dateCreated), Date.parse(validSince) || 0);
  const isUsual = lifetime !== null && Math.abs(ends - begins - lifetime * 1000) < SAME_MS;
  return ends - now < NEAR_MS || !isUsual;
}

/** The value of a field as it is in a link. */
export function valueIn(link, name) {
  return ["validSince", "validUntil", "maxVisits"].includes(name) ? link.meta[name] : link[name];
}

/** The page of a link in the console. */
export function detailPath({ shortCode, domain }) {
  return withQuery(`/admin/links/${encodeURIComponent(shortCode)}`, { domain });
}

/**
 * A link's code, linked to its page, with a button that copies the short URL; below it the domain, unless that is the default one.
 * While a link is being deleted, this badge takes the place of the button: a column for one row would cut the destinations of all.
 */
export function shortUrlCell(link) {
  const code = h("bdi", { class: "clipped", title: link.shortUrl }, link.shortCode);
  return [h("span", { class: "short-url" }, pageLink(detailPath(link), code), isBeingDeleted(link) && stateBadge(link), copyButton(link.shortUrl)),
    link.domain !== null && clipped(link.domain, "soft domain")];
}

/** Whether a host is that of this machine alone. */
export const isLoopback = (host) => host === "[::1]" || /^127\.|(^|\.)localhost$/.test(host);

/** The QR code of a link, with its downloads, and a warning where no other machine can open it. */
export function qrCode(link) {
  const path = (format, size) => withQuery(linkPath(link, "/qr"), { format, size });
  const { hostname } = new URL(link.shortUrl);
  const code = h("div", { class: "qr" },
    h("img", { src: path("svg", 240), width: 200, height: 200, alt: page.qrOf(link.shortUrl) }),
    h("p", { class: "line" },
      h("a", { class: "button", href: path("svg", 240), download: `${link.shortCode}.svg` }, page.downloadSvg),
      h("a", { class: "button", href: path("png", 1000), download: `${link.shortCode}.png` }, page.downloadPng)));
  return [isLoopback(hostname) && onlyHere(), code];
}

/** The warning that only this machine can open a short URL, with the way to the setting, which closes the dialog above it. */
function onlyHere() {
  const setting = settingLink("base_url");
  setting.addEventListener("click", () => setting.closest("dialog")?.close());
  return h("p", { class: "notice warn" }, page.onlyHere, setting, ".");
}

/** Shows the QR code of a link in a dialog. */
export function openQr(link) {
  const { element } = openDialog(page.qr, [h("p", { class: "mono wrap" }, outside(bareUrl(link.shortUrl))), qrCode(link)]);
  element.querySelector(".qr a").focus();
}

/** Tags in a row; of many the first, and how many more there are. */
export function tagList(tags, most = Infinity) {
  const shown = tags.slice(0, most);
  const more = tags.length - shown.length;
  return h("span", { class: "tags", title: tags.join(", ") }, shown.map((tag) => outside(tag, { class: "tag" })),
    more > 0 && h("span", { class: "soft" }, `+${more}`));
}
