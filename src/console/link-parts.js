// How links are shown wherever they are shown.

import { badge, clipped, copyButton, h, outside, pageLink } from "./dom.js";
import { withQuery } from "./api.js";
import { isBeingDeleted } from "./deletes.js";

const STATES = {
  active: ["Active", "good"],
  scheduled: ["Scheduled", "warn"],
  ended: ["Ended", ""],
  archived: ["Archived", ""],
  usedUp: ["Used up", "warn"],
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

/** What becomes now of who follows a link. */
export function stateBadge(link) {
  if (isBeingDeleted(link)) {
    return badge("Being deleted", "bad");
  }
  const state = stateOf(link);
  return link.blocked && state === "active" ? badge("Blocked", "bad") : badge(...STATES[state]);
}

/** The page of a link in the console. */
export function detailPath({ shortCode, domain }) {
  return withQuery(`/admin/links/${encodeURIComponent(shortCode)}`, { domain });
}

/** A code that leads to the link's page, with a button that copies the short URL, and the domain below where it is not the default one. */
export function shortUrlCell(link) {
  const code = h("bdi", { class: "clipped", title: link.shortUrl }, link.shortCode);
  return [h("span", { class: "short-url" }, pageLink(detailPath(link), code), copyButton(link.shortUrl, "Copy")),
    link.domain !== null && clipped(link.domain, "soft domain")];
}

/** Tags in a row; of many the first, and how many more there are. */
export function tagList(tags, most = Infinity) {
  const shown = tags.slice(0, most);
  const more = tags.length - shown.length;
  return h("span", { class: "tags", title: tags.join(", ") }, shown.map((tag) => outside(tag, { class: "tag" })),
    more > 0 && h("span", { class: "soft" }, `+${more}`));
}
