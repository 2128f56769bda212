// The cards of the page of one link.

import { linkPath, withQuery } from "./api.js";
import { badge, card, clipped, emptyState, facts, h, outside, pageLink, regionTable, row } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { bar } from "./parts.js";
import { barPlot } from "./plot.js";
import { form, page as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { usage } from "./strings-traffic.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const yes = (value) => (value ? text.yes : text.no);

/** The name of a redirect status: "302 Found". */
const redirectType = (status) => form.statuses.find(([value]) => value === String(status))?.[1] ?? String(status);

export function factsCard(link) {
  const { meta, visitsSummary: visits } = link;
  return card(text.details, {}, facts([
    [text.visits, text.visitsOf(visits.total, meta.maxVisits, visits.bots)],
    [text.tags, link.tags.length === 0 ? common.none : link.tags.map((tag) => [pageLink(withQuery("/admin/links", { tags: joinTags([tag]) }), outside(tag), { class: "badge" }), " "])],
    [text.created, format.time(link.dateCreated)],
    [text.starts, meta.validSince ? format.time(meta.validSince) : text.immediately],
    [text.expires, meta.validUntil ? format.time(meta.validUntil) : text.never],
    [text.app, link.app ? [pageLink(`/admin/links?app=${encodeURIComponent(link.app)}`, outside(link.app)), link.appVersion && [" ", outside(link.appVersion)]] : common.none],
    [text.domain, link.domain ? outside(link.domain) : common.defaultDomain],
    [text.redirectType, redirectType(link.redirectStatus)],
    [text.cache, link.cacheSeconds === null ? text.off : format.duration(link.cacheSeconds)],
    [text.forwardQuery, yes(link.forwardQuery)],
    [text.crawlable, yes(link.crawlable)],
  ]));
}

export function qrCard(link) {
  const path = (format_, size) => withQuery(linkPath(link, "/qr"), { format: format_, size });
  return card(text.qr, {},
    h("div", { class: "qr" }, h("img", { src: path("svg", 240), width: 200, height: 200, alt: text.qrOf(link.shortUrl) })),
    h("p", { class: "line" },
      h("a", { class: "button", href: path("svg", 240), download: `${link.shortCode}.svg` }, text.downloadSvg),
      h("a", { class: "button", href: path("png", 1000), download: `${link.shortCode}.png` }, text.downloadPng)));
}

/** Visits by hour of the last week and by day of the last 90 days, each as a plot with a table beside it. */
export function visitsCards(visits, plots) {
  const now = Date.now();
  return [
    visitsCard(text.byHour, visits.perHour, { step: HOUR_MS, from: now - 7 * DAY_MS, when: format.instant }, plots),
    visitsCard(text.byDay, visits.perDay, { step: DAY_MS, from: now - 89 * DAY_MS, when: format.day, utc: true }, plots),
  ];
}

function visitsCard(title, counts, { step, from, when, utc }, plots) {
  const known = new Map(counts.map((one) => [Date.parse(one.date), one]));
  const steps = [];
  for (let at = Math.floor(from / step) * step; at <= Date.now(); at += step) {
    steps.push(at);
  }
  if (!steps.some((at) => known.has(at))) {
    return card(title, {}, emptyState(text.noVisitsYet, text.noVisitsYetText));
  }
  const host = h("div");
  const plot = barPlot(host, { label: title, when, utc, series: [{ label: usage.allVisits, colour: "--plot-1" }, { label: usage.bots, colour: "--plot-2" }] });
  plot.set(steps, ["total", "bots"].map((name) => steps.map((at) => known.get(at)?.[name] ?? 0)));
  plots.push(plot);
  const num = (content) => ({ content, class: "num" });
  const rows = steps.toReversed().filter((at) => known.has(at)).map((at) => row(
    h("time", { datetime: new Date(at).toISOString(), title: new Date(at).toUTCString() }, when(at)),
    num(format.number(known.get(at).total)), num(format.number(known.get(at).bots))));
  const columns = [{ title: utc ? text.day : text.hour }, { title: text.visits, class: "num" }, { title: usage.bots, class: "num" }];
  return card(title, {}, h("div", { class: "plot-and-table" }, host, regionTable(common.asTable(title), columns, rows).element));
}

export function referrersCard(referrers) {
  if (referrers.length === 0) {
    return card(text.referrers, {}, emptyState(text.noReferrers, text.noReferrersText));
  }
  const largest = Math.max(...referrers.map(({ total }) => total));
  const rows = referrers.map(({ host, total }) => row({ content: [clipped(host), bar(total, largest)], class: "fluid" }, { content: format.number(total), class: "num" }));
  return card(text.referrers, {}, regionTable(common.asTable(text.referrers), [{ title: text.host }, { title: text.visits, class: "num" }], rows).element);
}

/** The history of a link, the newest change first; `null` where it could not be read. */
export function historyCard(history, link) {
  if (history === null) {
    return card(text.history, {}, emptyState(text.historyUnknown, text.historyUnknownText));
  }
  const made = link && h("li", null, badge(text.badges.created, "good"), " ", format.time(link.dateCreated), text.by, link.app ? outside(link.app) : text.noKey);
  return card(text.history, { beside: h("small", null, text.historyNote) }, h("ol", { class: "plain history" }, history.map(editItem), made));
}

function editItem({ at, app, keyId, through, what, changes }) {
  const who = app ? [outside(app), keyId && [text.key, h("code", null, keyId), ")"]] : through === "fleet" ? text.unknownActor : text.noKey;
  return h("li", null,
    badge(text.badges[what] ?? what, what === "deleted" ? "bad" : ""), " ", format.time(at), text.by, who, text.through, text.ways[through] ?? outside(through),
    h("ul", { class: "changes" }, changes.filter((one) => what !== "deleted" || !isEmpty(one.from)).map(({ field, from, to }) =>
      h("li", null, h("b", null, text.fields[field] ?? field), " ", h("del", null, shown(field, from)), what !== "deleted" && [" → ", h("ins", null, shown(field, to))]))));
}

const isEmpty = (value) => value === null || value === false || (Array.isArray(value) && value.length === 0);

/** The value of a field, as the rest of the page shows it. */
function shown(field, value) {
  if (value === null || (Array.isArray(value) && value.length === 0)) {
    return h("span", { class: "soft" }, text.nothing);
  }
  switch (field) {
    case "validSince":
    case "validUntil":
      return format.time(value);
    case "redirectStatus":
      return redirectType(value);
    case "cacheSeconds":
      return format.duration(value);
    case "maxVisits":
      return format.number(value);
    default:
      return typeof value === "boolean" ? yes(value) : outside(Array.isArray(value) ? value.join(", ") : String(value));
  }
}
