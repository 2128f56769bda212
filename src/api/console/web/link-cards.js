// The cards of the page of one link.

import { withQuery } from "./api.js";
import { badge, button, card, clipped, emptyState, facts, h, loadingState, outside, pageLink, row } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { bestOf, onBar, shareTable } from "./parts.js";
import { hasAllLinks } from "./rights.js";
import { conditionText } from "./rule-conditions.js";
import { form, page as text } from "./strings-links.js";
import { common } from "./strings-shell.js";

/** Referrers that are shown at first. */
const REFERRERS_SHOWN = 10;

const yes = (value) => (value ? text.yes : text.no);

/** The name of a redirect status: "302 Found". */
const redirectType = (status) => form.statuses.find(([value]) => value === String(status))?.[1] ?? String(status);

/** A text that leads to the links with something in common, where the node can list them. */
function toLinks(query, said, props) {
  return hasAllLinks() ? pageLink(withQuery("/admin/links", query), outside(said), props) : h("span", props, outside(said));
}

/** The properties of a link. Those that say nothing, as in any new link, are folded. */
export function factsCard(link) {
  const { meta, visitsSummary: visits } = link;
  const all = [
    [text.allVisits, text.visitsOf(visits.total, meta.maxVisits, visits.bots), true],
    [text.tags, link.tags.length === 0 ? common.none : link.tags.map((tag) => [toLinks({ tags: joinTags([tag]) }, tag, { class: "badge" }), " "]), true],
    [text.created, format.time(link.dateCreated), true],
    [text.starts, meta.validSince ? format.time(meta.validSince) : text.immediately, meta.validSince],
    [text.expires, meta.validUntil ? format.time(meta.validUntil) : text.never, true],
    [text.app, link.app ? [toLinks({ app: link.app }, link.app), link.appVersion && [" ", outside(link.appVersion)]] : common.none, link.app],
    [text.domain, link.domain ? outside(link.domain) : common.defaultDomain, true],
    [text.redirectType, redirectType(link.redirectStatus), true],
    [text.cache, link.cacheSeconds === null ? text.off : format.duration(link.cacheSeconds), link.cacheSeconds !== null],
    [text.forwardQuery, yes(link.forwardQuery), !link.forwardQuery],
    [text.crawlable, yes(link.crawlable), link.crawlable],
  ];
  const list = facts(all);
  const further = [...list.children].filter((_, at) => !all[at][2]);
  further.forEach((one) => one.classList.add("further"));
  const more = further.length > 0 && button(text.allDetails, () => {
    list.dataset.all = "";
    list.tabIndex = -1;
    list.focus({ preventScroll: true });
  }, { kind: "quiet more-facts", "data-action": "all-details" });
  return card(text.details, {}, list, more);
}

/** The referring hosts of all visits, `null` while they load: the node does not count them by day. */
export function referrersCard(referrers) {
  if (referrers === null) {
    return card(text.referrers, {}, loadingState(4));
  }
  if (referrers.length === 0) {
    return card(text.referrers, {}, emptyState(text.noReferrers, text.noReferrersText));
  }
  const largest = Math.max(...referrers.map(({ total }) => total));
  const rows = referrers.map(({ host, total }) => row({ content: onBar(total, largest, clipped(host)), class: "fluid" }, { content: format.number(total), class: "num" }));
  const columns = [{ title: text.host }, { title: text.visits, class: "num" }];
  return card(text.referrers, { fold: bestOf(referrers[0].host, format.number(referrers[0].total)) }, shareTable(common.asTable(text.referrers), columns, rows, { shown: REFERRERS_SHOWN, action: "all-referrers" }));
}

/** How soon after its creation the console takes the default expiry away from a link that never expires. */
const CREATED_MS = 3_000;
/** How long before a delete the console archives a link at most: that is the time to undo it. */
const DELETED_MS = 120_000;

/** Whether an edit did no more than to set a field to a value. */
const isOnly = ({ what, changes }, field, to) => what === "changed" && changes.length === 1 && changes[0].field === field && changes[0].to === to;

const isWithin = (later, earlier, time) => Math.abs(Date.parse(later) - Date.parse(earlier)) <= time;

/** The edits that somebody wanted: without the steps in which the console creates a link that never expires, and deletes one. */
function wantedEdits(history, link) {
  const ofCreate = (edit) => link && edit === history.at(-1) && edit.through === "admin" && edit.app === link.app && isOnly(edit, "validUntil", null) && isWithin(edit.at, link.dateCreated, CREATED_MS);
  const wanted = [];
  for (const edit of history) {
    const last = wanted.at(-1);
    if (last?.what === "deleted" && isOnly(edit, "archived", true) && isWithin(last.at, edit.at, DELETED_MS)) {
      wanted[wanted.length - 1] = { ...last, changes: last.changes.filter(({ field }) => field !== "archived") };
    } else if (!ofCreate(edit)) {
      wanted.push(edit);
    }
  }
  return wanted;
}

/** The history of a link, the newest change first; `null` where it could not be read. */
export function historyCard(history, link) {
  if (history === null) {
    return card(text.history, {}, emptyState(text.historyUnknown, text.historyUnknownText));
  }
  const made = link && h("li", null, badge(text.badges.created, "good"), " ", format.time(link.dateCreated), text.by, link.app ? outside(link.app) : text.noKey);
  const edits = wantedEdits(history, link);
  const [last] = edits;
  const latest = last ? [text.badges[last.what] ?? last.what, " ", format.date(last.at)] : link && [text.badges.created, " ", format.date(link.dateCreated)];
  return card(text.history, { beside: h("small", null, text.historyNote), fold: latest }, h("ol", { class: "plain history" }, edits.map(editItem), made));
}

function editItem({ at, app, keyId, through, what, changes }) {
  const who = app ? [outside(app), keyId && [text.key, h("code", null, keyId), ")"]] : through === "fleet" ? text.unknownActor : text.noKey;
  return h("li", null,
    badge(text.badges[what] ?? what, what === "deleted" ? "bad" : ""), " ", format.time(at), text.by, who, text.through, text.ways[through] ?? outside(through),
    h("ul", { class: "changes" }, changes.filter((one) => what !== "deleted" || !isEmpty(one.from)).map(({ field, from, to }) =>
      h("li", null, h("b", null, text.fields[field] ?? field), " ", what === "deleted" ? shown(field, from) : [h("del", null, shown(field, from)), " → ", h("ins", null, shown(field, to))]))));
}

const isEmpty = (value) => value === null || value === false || (Array.isArray(value) && value.length === 0);

/** The value of a field, as the rest of the page shows it. */
function shown(field, value) {
  if (value === null || (Array.isArray(value) && value.length === 0)) {
    return h("span", { class: "soft" }, text.nothings[field] ?? text.nothing);
  }
  switch (field) {
    case "validSince":
    case "validUntil":
      return format.time(value);
    case "redirectStatus":
      return redirectType(value);
    case "cacheSeconds":
      return format.duration(value);
    case "redirectRules":
      return value.map(({ longUrl, conditions }, at) => [at > 0 && "; ", outside(`${conditions.map(conditionText).join(", ")}: ${longUrl}`)]);
    case "maxVisits":
      return format.number(value);
    default:
      return typeof value === "boolean" ? yes(value) : outside(Array.isArray(value) ? value.join(", ") : String(value));
  }
}
