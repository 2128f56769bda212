// How links are shown wherever they are shown.

import { badge, clipped, copyButton, h, outside, pageLink } from "./dom.js";
import { withQuery } from "./api.js";
import { isBeingDeleted } from "./deletes.js";
import { states as text } from "./strings-links.js";

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

/** The page of a link in the console. */
export function detailPath({ shortCode, domain }) {
  return withQuery(`/admin/links/${encodeURIComponent(shortCode)}`, { domain });
}

/** A link's code, linked to its page, with a button that copies the short URL; below it the domain, unless that is the default one. */
export function shortUrlCell(link) {
  const code = h("bdi", { class: "clipped", title: link.shortUrl }, link.shortCode);
  return [h("span", { class: "short-url" }, pageLink(detailPath(link), code), copyButton(link.shortUrl)),
    link.domain !== null && clipped(link.domain, "soft domain")];
}

/** Tags in a row; of many the first, and how many more there are. */
export function tagList(tags, most = Infinity) {
  const shown = tags.slice(0, most);
  const more = tags.length - shown.length;
  return h("span", { class: "tags", title: tags.join(", ") }, shown.map((tag) => outside(tag, { class: "tag" })),
    more > 0 && h("span", { class: "soft" }, `+${more}`));
}
