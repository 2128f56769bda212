// The cards of the usage view, each from one part of the answer of the node. How many links there are is null while they are counted.

import { withQuery } from "./api.js";
import { PARTS, changeSince, visitsOfBoth } from "./changes.js";
import { card, clipped, emptyState, h, outside, pageLink, row } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { bestOf, numberOr, onBar, restOf, shareTable, tiles } from "./parts.js";
import { extentOf, isRunning, periodIn } from "./period.js";
import { hasAllLinks } from "./rights.js";
import { common } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";
import { breakdowns } from "./strings-visits.js";
import { tabbedCard } from "./tabs.js";
import { LINK_FILTERS, filtersOf, withFilters } from "./visit-filters.js";
import { comparedWith, visitsCard } from "./visits-card.js";

/** Rows that are shown at first: of links, which take two lines each, and of other lists. */
const LINKS_SHOWN = 6;
const TOP_SHOWN = 8;

/** The size of the chart of visits, in pixels. */
const CHART = { height: 264, barWidth: 28 };

/** As many apps as the node lists. */
const APPS_MAX = 100;

/** As many referring hosts as the node lists. */
const REFERRERS_MAX = 100;

/** Referrers that are shown at first: their rows are lower. */
const REFERRERS_SHOWN = 10;

const num = (content) => ({ content, class: "num" });

/** Numbers above the chart that they sum up, in one frame. */
export function heroOf(numbers, { visits, before, period, keep }) {
  return h("div", { class: "usage-hero" }, numbers, before && comparedWith(period, visits), visitsCard(visits, before, period, keep, { size: CHART }));
}

/** The numbers above all, each with its change. */
export function totals({ visits, orphanVisits, links }, before, period) {
  return tiles([
    ...visitTiles(visits.summary, (valueOf) => visitsOfBoth(visits, before?.visits, period, valueOf)),
    [text.unknownVisits, numberOr(orphanVisits.summary.total, text.counting), compared(visitsOfBoth(orphanVisits, before?.orphanVisits, period), { isNeutral: true })],
    hasAllLinks() && [text.created, numberOr(links.created, text.counting), compared(createdOfBoth(links, before?.links ?? null, period))],
    hasAllLinks() && [text.links, numberOr(links.total, text.counting), links.created !== null && noChange(text.newLinks(links.created))],
  ].filter(Boolean));
}

/** What the change of new links is made of. The node counts them up to the same time of the period before. */
function createdOfBoth(links, before, period) {
  const extent = extentOf(period);
  const byDay = ({ created, perDay }) => ({ summary: { total: created }, perDay: perDay.map((one) => ({ date: one.date, total: one.links })) });
  return extent === "days" ? visitsOfBoth(byDay(links), before && byDay(before), period) : [links.created, before?.created ?? null, extent];
}

/** All visits, people and bots, each with its change, the latter two with their share. `bothOf(valueOf)` gives what a change is made of. */
function visitTiles(summary, bothOf) {
  const { total } = summary;
  const tile = (label, valueOf, props) => [label, numberOr(valueOf(summary), text.counting), compared(bothOf(valueOf), props)];
  const withShare = ([label, value, change], part) => [label, [value, part !== null && total > 0 && h("small", null, format.percent(part, total))], change];
  return [
    tile(text.visits, PARTS.visits),
    withShare(tile(text.people, PARTS.people), PARTS.people(summary)),
    withShare(tile(text.bots, PARTS.bots, { isNeutral: true }), PARTS.bots(summary)),
  ];
}

/** A muted text for numbers that have no percentage of change. */
const noChange = (said) => h("span", { class: "change soft" }, said);

/** A change with the number that it began at: "+12% from 1,340". A neutral one is neither good nor bad. What began at 0 has no percentage. */
function compared([now, before, extent], { isNeutral = false } = {}) {
  if (now !== null && before === 0) {
    return noChange(text.from(0));
  }
  const change = changeSince(now, before, extent);
  return change && h("span", { class: isNeutral ? "change neutral" : "change" }, change, h("span", { class: "soft not-on-phone" }, " ", text.from(before)));
}

/** The numbers of some visits of the visit log, `now`, and of the period before. */
export function totalsOfFiltered(now, before, period) {
  return tiles(visitTiles(now, (valueOf) => [valueOf(now), before ? valueOf(before) : null, isRunning(period) ? "hour" : "whole"]));
}

/** The address of this page for the visits of some filters as well. */
const narrowed = (query, part) => `/admin/usage?${withFilters(query, { ...part, show: "" })}`;

/** The most visited links. Each leads to its page, for the period and the filters of the query of this one. Bars are shares of `all` visits, or of the largest number without that. */
export const topLinksCard = (topLinks, query, all = null) => card(text.topLinks, { id: "card-links" }, linksList(topLinks, query, all));

function linksList(topLinks, query, all) {
  if (topLinks.length === 0) {
    return emptyState(text.noTopLinks, text.longer);
  }
  const whole = all ?? Math.max(...topLinks.map(({ visits }) => visits.total ?? 0));
  const rows = topLinks.map(({ link, visits }) => row(
    { content: onBar(visits.total, whole, linkCell(link, query)), class: "fluid" },
    num(numberOr(visits.total, text.counting)), { content: numberOr(visits.bots, text.counting), class: "num soft not-on-phone" }));
  const columns = [{ title: text.link }, { title: text.visits, class: "num" }, { title: text.bots, class: "num not-on-phone" }];
  return shareTable(common.asTable(text.topLinks), columns, rows, { shown: LINKS_SHOWN, action: "all-links" });
}

/** The code, which leads to the link's own page, with what it is and where it leads. */
export function linkCell(link, query) {
  const path = withQuery(`/admin/links/${encodeURIComponent(link.shortCode)}`, { domain: link.domain, ...Object.fromEntries(periodIn(query)), ...filtersOf(query, LINK_FILTERS) });
  return h("div", { class: "share-link" },
    h("div", { class: "line-tight" }, pageLink(path, outside(link.shortCode), { class: "mono" }), link.title && clipped(link.title)),
    clipped(format.bareUrl(link.longUrl), "soft small"));
}

/** The hosts from which visitors came. Each leads to its visits. `direct` is the number of visits without a host, where it is known; else all others are. */
export function referrersCard({ referrers, direct, summary: { total: all } }, query) {
  const title = text.topReferrers;
  if (referrers.length === 0) {
    return card(title, { id: "card-referrers" }, emptyState(text.noReferrers, text.noReferrersText));
  }
  // A filter needs the visit log, which needs all links.
  const named = (host) => (hasAllLinks() ? pageLink(narrowed(query, { referrer: host }), clipped(host), { class: "pick", "data-action": "filter-by" }) : clipped(host));
  const rows = referrers.map(({ host, total }) => row({ content: onBar(total, all, named(host)), class: "fluid" }, num(format.number(total)), { content: format.percent(total, all), class: "num soft" }));
  const columns = [{ title: text.host }, { title: text.visits, class: "num" }, { title: text.share, class: "num" }];
  const others = direct ?? referrers.reduce((left, { total }) => left - total, all);
  const isCut = direct === undefined && referrers.length >= REFERRERS_MAX;
  const rest = others > 0 && row({ content: restOf(isCut ? text.otherReferrers : breakdowns.unknown.referrers, others, all), class: "fluid" }, num(format.number(others)), { content: format.percent(others, all), class: "num soft" });
  return card(title, { id: "card-referrers", fold: bestOf(referrers[0].host, format.percent(referrers[0].total, all)) }, shareTable(common.asTable(title), columns, rows, { shown: REFERRERS_SHOWN, action: "all-referrers", rest }));
}

/**
 * One card for what was visited most: links, tags, apps and domains, each in its own tab. Without visits in the period, there are no links in it, and on a node that cannot list
 * tags, no tags. `queryOf()` is the query of the page, which names the tab.
 */
export function mostVisitedCard({ visits, topLinks, tags, links }, queryOf, onChoose) {
  const all = visits.summary.total;
  const lists = [
    topLinks.length > 0 && { name: "links", label: text.linksColumn, build: () => linksList(topLinks, queryOf(), all) },
    tags !== undefined && { name: "tags", label: text.tagsTab, build: () => tagsList(tags, queryOf()) },
    { name: "apps", label: text.appsTab, build: () => appsList(links, queryOf(), all) },
    { name: "domains", label: text.domainsTab, build: () => domainsList(links.byDomain, queryOf(), all) },
  ].filter(Boolean);
  return tabbedCard(text.mostVisited, { id: "card-links", lists, chosen: queryOf().get(TAB) ?? lists[0].name, onChoose });
}

/** The parameter of the query that names a tab. */
export const TAB = "list";

/**
 * Links in all, made and followed in the period, of each of some parts. The name leads to the visits of the part, `part`, and the number of links to its links; where `part` is
 * null, no filter selects them. Bars are shares of `all` visits.
 */
function partsList(title, first, parts, { name, part: partOf, query, all, empty }) {
  if (parts.length === 0) {
    return emptyState(text.noLinks, empty);
  }
  const named = (part) => (partOf(part) === null ? name(part) : pageLink(narrowed(query, partOf(part)), name(part), { class: "pick", "data-action": "filter-by" }));
  const linksOf = (part) => (part.links === null || partOf(part) === null ? numberOr(part.links, text.counting) : pageLink(withQuery("/admin/links", partOf(part)), format.number(part.links)));
  const rows = parts.map((part) => row(
    { content: onBar(part.visits.total, all, named(part)), class: "fluid" },
    num(linksOf(part)), { content: numberOr(part.created, text.counting), class: "num not-on-phone" }, num(format.number(part.visits.total))));
  const columns = [{ title: first }, { title: text.linksColumn, class: "num" }, { title: text.newColumn, class: "num not-on-phone" }, { title: text.visits, class: "num" }];
  return shareTable(common.asTable(title), columns, rows, { shown: TOP_SHOWN, action: "all-parts" });
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
function appsList(links, query, all) {
  const isCut = links.byApp.length >= APPS_MAX;
  const others = () => h("div", { class: "share-link" }, isCut ? text.otherApps : [text.withoutApp, h("small", { class: "meaning" }, text.withoutAppMeaning)]);
  return partsList(text.byApp, text.app, appsAndRest(links).toSorted((a, b) => b.visits.total - a.visits.total), {
    name: ({ app }) => (app === null ? others() : clipped(app)),
    part: ({ app }) => (app === null ? null : { app }),
    query,
    all,
    empty: text.noLinksByApp,
  });
}

/** Links and visits by domain. */
function domainsList(byDomain, query, all) {
  return partsList(text.byDomain, text.domain, byDomain.toSorted((a, b) => b.visits.total - a.visits.total), {
    name: ({ domain }) => clipped(domain ?? common.defaultDomain),
    part: ({ domain }) => ({ domain: domain ?? "DEFAULT" }),
    query,
    all,
    empty: text.noLinksByDomain,
  });
}

/** The most visited tags. Their visits are those of all time: the node does not count them by day. `tags` is null where it cannot sort them. */
function tagsList(tags, query) {
  const toTags = (kind) => pageLink("/admin/tags", text.allTags, { class: `button ${kind}`.trim() });
  if (tags === null || tags.length === 0) {
    return tags === null ? emptyState(text.tagsUnknown, text.tagsUnknownText, toTags("")) : emptyState(text.noTags, text.noTagsText);
  }
  const largest = Math.max(...tags.map(({ visitsSummary }) => visitsSummary?.total ?? 0));
  const rows = tags.map(({ tag, shortUrlsCount, visitsSummary }) => row(
    { content: onBar(visitsSummary?.total, largest, pageLink(narrowed(query, { tag }), clipped(tag), { class: "pick", "data-action": "filter-by" })), class: "fluid" },
    num(pageLink(withQuery("/admin/links", { tags: joinTags([tag]) }), format.number(shortUrlsCount))), num(numberOr(visitsSummary?.total, text.counting))));
  const columns = [{ title: text.tag }, { title: text.linksColumn, class: "num" }, { title: text.visitsOfAllTime, class: "num" }];
  return [shareTable(common.asTable(text.byTag), columns, rows, { shown: TOP_SHOWN, action: "all-tags" }), h("p", { class: "shares-more" }, toTags("quiet"))];
}
