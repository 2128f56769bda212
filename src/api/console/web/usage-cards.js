// The cards of the usage view, each from one part of the answer of the node. How many links there are is null while they are counted.

import { withQuery } from "./api.js";
import { changeSince, visitsSince } from "./changes.js";
import { card, clipped, emptyState, h, outside, pageLink, regionTable, row } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { bestOf, numberOr, onBar, shareTable, tiles } from "./parts.js";
import { DAY_MS, isRunning, periodIn, stepsOf } from "./period.js";
import { barPlot } from "./plot.js";
import { hasAllLinks } from "./rights.js";
import { common } from "./strings-shell.js";
import { units, usage as text } from "./strings-traffic.js";
import { LINK_FILTERS, filtersOf, withFilters } from "./visit-filters.js";
import { tableOf } from "./visits-plot.js";

/** Rows that are shown at first. */
const TOP_SHOWN = 10;

/** The height of the chart of new links, in pixels: about half of that of visits, below which it stands. */
const MADE_HEIGHT = 100;

/** As many apps as the node lists. */
const APPS_MAX = 100;

/** Referrers that are shown at first: their rows are lower. */
const REFERRERS_SHOWN = 15;

const num = (content) => ({ content, class: "num" });

/** The numbers above all. */
export function totals({ visits, orphanVisits, links }, before, period) {
  const isPart = isRunning(period);
  return tiles([
    ...visitTiles(visits.summary, visitsSince(visits, before?.visits, period)),
    [text.unknownVisits, numberOr(orphanVisits.summary.total, text.counting)],
    hasAllLinks() && [text.created, numberOr(links.created, text.counting), changeSince(links.created, before?.links.created, isPart)],
    hasAllLinks() && [text.links, numberOr(links.total, text.counting)],
  ].filter(Boolean));
}

/** All visits with their change, then people and bots, each with its share of them. */
function visitTiles({ total, bots }, change) {
  const isKnown = total !== null && bots !== null;
  const share = (part) => isKnown && total > 0 && format.percent(part, total);
  return [
    [text.visits, numberOr(total, text.counting), change],
    [text.people, numberOr(isKnown ? total - bots : null, text.counting), share(total - bots)],
    [text.bots, numberOr(bots, text.counting), share(bots)],
  ];
}

/** The numbers of some visits of the visit log, `now`, and of the period before. */
export function totalsOfFiltered(now, before, period) {
  return tiles(visitTiles(now, changeSince(now.total, before?.total, isRunning(period))));
}

/** The address of this page for the visits of some filters as well. */
const narrowed = (query, part) => `/admin/usage?${withFilters(query, { ...part, show: "" })}`;

/** The content of a card whose numbers are not known yet. */
function notKnown() {
  return emptyState(text.countingTitle, text.countingText);
}

/** Links created by day; nothing where there are none, which the number above says. */
export function madeCard(links, period, keep) {
  const title = text.createdByDay;
  if (links.created === 0) {
    return null;
  }
  if (links.perDay.some((one) => one.links === null)) {
    return card(title, {}, notKnown());
  }
  const known = new Map(links.perDay.map((one) => [Date.parse(one.date), one.links]));
  const steps = stepsOf(period, DAY_MS);
  const made = steps.map((step) => known.get(step) ?? 0);
  const picture = h("div");
  const plot = barPlot(picture, { series: [{ label: text.created, colour: "--plot-3" }], label: title, height: MADE_HEIGHT, when: format.day, utc: true });
  plot.set(steps, [made]);
  keep(plot);
  return card(title, { fold: text.createdIn(made.reduce((sum, one) => sum + one, 0)) }, picture, tableOf(title, [text.created], { steps, lists: [made], when: format.day }));
}

/** The most visited links. Each leads to its page, for the period and the filters of the query of this one. */
export function topLinksCard(topLinks, query) {
  const title = text.topLinks;
  if (topLinks.length === 0) {
    return card(title, { id: "card-links" }, emptyState(text.noTopLinks, text.longer));
  }
  const largest = Math.max(...topLinks.map(({ visits }) => visits.total ?? 0));
  const rows = topLinks.map(({ link, visits }) => row(
    { content: onBar(visits.total, largest, linkCell(link, query)), class: "fluid" },
    num(numberOr(visits.total, text.counting)), { content: numberOr(visits.bots, text.counting), class: "num soft not-on-phone" }));
  const columns = [{ title: text.link }, { title: text.visits, class: "num" }, { title: text.bots, class: "num not-on-phone" }];
  return card(title, { id: "card-links" }, shareTable(common.asTable(title), columns, rows, { shown: TOP_SHOWN, action: "all-links" }));
}

/** The code, which leads to the link's own page, with what it is and where it leads. */
export function linkCell(link, query) {
  const path = withQuery(`/admin/links/${encodeURIComponent(link.shortCode)}`, { domain: link.domain, ...Object.fromEntries(periodIn(query)), ...filtersOf(query, LINK_FILTERS) });
  return h("div", { class: "share-link" },
    h("div", { class: "line-tight" }, pageLink(path, outside(link.shortCode), { class: "mono" }), link.title && clipped(link.title)),
    clipped(format.bareUrl(link.longUrl), "soft small"));
}

/** The hosts from which visitors came. Each leads to its visits. */
export function referrersCard({ referrers, summary: { total: all } }, query) {
  const title = text.topReferrers;
  if (referrers.length === 0) {
    return card(title, { id: "card-referrers" }, emptyState(text.noReferrers, text.noReferrersText));
  }
  const largest = Math.max(...referrers.map((one) => one.total));
  // A filter needs the visit log, which needs all links.
  const named = (host) => (hasAllLinks() ? pageLink(narrowed(query, { referrer: host }), clipped(host), { class: "pick", "data-action": "filter-by" }) : clipped(host));
  const rows = referrers.map(({ host, total }) => row({ content: onBar(total, largest, named(host)), class: "fluid" }, num(format.number(total)), { content: format.percent(total, all), class: "num soft" }));
  const columns = [{ title: text.host }, { title: text.visits, class: "num" }, { title: text.share, class: "num" }];
  return card(title, { id: "card-referrers", fold: bestOf(referrers[0].host, format.percent(referrers[0].total, all)) }, shareTable(common.asTable(title), columns, rows, { shown: REFERRERS_SHOWN, action: "all-referrers" }));
}

/**
 * Links in all, made and followed in the period, of each of some parts. The name leads to the visits of the part, `part`, and the number of links to its links; where `part` is
 * null, no filter selects them.
 */
function partsCard(title, first, parts, { name, said, part: partOf, query, empty }) {
  if (parts.length === 0) {
    return card(title, {}, emptyState(text.noLinks, empty));
  }
  const named = (part) => (partOf(part) === null ? name(part) : pageLink(narrowed(query, partOf(part)), name(part), { "data-action": "filter-by" }));
  const linksOf = (part) => (part.links === null || partOf(part) === null ? numberOr(part.links, text.counting) : pageLink(withQuery("/admin/links", partOf(part)), format.number(part.links)));
  const rows = parts.map((part) => {
    const { links, created, visits: { total } } = part;
    return row({ content: named(part), class: "wrap lead" },
      { content: linksOf(part), class: "num fact unit", label: units.links(links) },
      { content: numberOr(created, text.counting), class: "num fact unit", label: units.new },
      { content: format.number(total), class: "num figure unit", label: units.visits(total) });
  });
  const columns = [first, text.linksColumn, text.newColumn, text.visits].map((column, at) => ({ title: column, class: at > 0 ? "num" : undefined }));
  const { element, table } = regionTable(common.asTable(title), columns, rows);
  table.classList.add("rows");
  const best = parts.reduce((most, one) => (one.visits.total > most.visits.total ? one : most));
  return card(title, { beside: h("small", null, text.periodNote), fold: bestOf(said(best), format.number(best.visits.total)) }, element);
}

/** The apps, then the links that belong to none of them, if there are any: their `app` is null. The domains have all links. */
export function appsAndRest({ byApp, byDomain }) {
  const sum = (parts, valueOf) => parts.reduce((all, part) => (all === null || valueOf(part) === null ? null : all + valueOf(part)), 0);
  const rest = (valueOf) => {
    const [all, ofApps] = [sum(byDomain, valueOf), sum(byApp, valueOf)];
    return all === null || ofApps === null ? null : Math.max(0, all - ofApps);
  };
  const visits = Object.fromEntries(["total", "bots"].map((name) => [name, rest((part) => part.visits[name])]));
  const none = { app: null, links: rest((part) => part.links), created: rest((part) => part.created), visits };
  return none.links > 0 || visits.total > 0 ? [...byApp, none] : byApp;
}

/** Links and visits by app. */
export function byAppCard(links, query) {
  const isCut = links.byApp.length >= APPS_MAX;
  const others = () => (isCut ? text.otherApps : h("span", null, text.withoutApp, h("small", { class: "meaning" }, text.withoutAppMeaning)));
  return partsCard(text.byApp, text.app, appsAndRest(links), {
    name: ({ app }) => (app === null ? others() : outside(app)),
    said: ({ app }) => app ?? (isCut ? text.otherApps : text.withoutApp),
    part: ({ app }) => (app === null ? null : { app }),
    query,
    empty: text.noLinksByApp,
  });
}

export function byDomainCard(byDomain, query) {
  return partsCard(text.byDomain, text.domain, byDomain, {
    name: ({ domain }) => (domain === null ? common.defaultDomain : outside(domain)),
    said: ({ domain }) => domain ?? common.defaultDomain,
    part: ({ domain }) => ({ domain: domain ?? "DEFAULT" }),
    query,
    empty: text.noLinksByDomain,
  });
}

/** The most visited tags. Their visits are those of all time: the node does not count them by day. `tags` is null where it cannot sort them, undefined where it cannot list them. */
export function byTagCard(tags, query) {
  if (tags === undefined) {
    return null;
  }
  const toTags = (kind) => pageLink("/admin/tags", text.allTags, { class: `button ${kind}`.trim() });
  if (tags === null || tags.length === 0) {
    return card(text.byTag, {}, tags === null ? emptyState(text.tagsUnknown, text.tagsUnknownText, toTags("")) : emptyState(text.noTags, text.noTagsText));
  }
  const largest = Math.max(...tags.map(({ visitsSummary }) => visitsSummary?.total ?? 0));
  const rows = tags.map(({ tag, shortUrlsCount, visitsSummary }) => row(
    { content: onBar(visitsSummary?.total, largest, pageLink(narrowed(query, { tag }), clipped(tag), { class: "pick", "data-action": "filter-by" })), class: "fluid" },
    num(pageLink(withQuery("/admin/links", { tags: joinTags([tag]) }), format.number(shortUrlsCount))), num(numberOr(visitsSummary?.total, text.counting))));
  const columns = [{ title: text.tag }, { title: text.linksColumn, class: "num" }, { title: text.visits, class: "num" }];
  const fold = bestOf(tags[0].tag, numberOr(tags[0].visitsSummary?.total, text.counting));
  return card(text.byTag, { fold }, shareTable(common.asTable(text.byTag), columns, rows, { shown: TOP_SHOWN, action: "all-tags" }), h("p", { class: "shares-more" }, toTags("quiet")));
}
