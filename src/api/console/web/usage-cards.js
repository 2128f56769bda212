// The cards of the usage view, each from one part of the answer of the node. How many links there are is null while they are counted.

import { withQuery } from "./api.js";
import { button, card, clipped, emptyState, h, outside, pageLink, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { bar, domainName, numberOr, tiles } from "./parts.js";
import { DAY_MS, HOUR_MS, isRunning, stepsOf } from "./period.js";
import { barPlot } from "./plot.js";
import { tableOf, visitsPlot } from "./visits-plot.js";
import { common } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";

// Up to here single hours say more than days.
const DAYS_BY_HOUR_MAX = 3;

/** Up to here an unfinished day is a large part of a period, and the server still has the hours of the period before. */
const DAYS_TO_THE_HOUR_MAX = 7;

/** The most visited links that are shown at first. */
const TOP_SHOWN = 10;

const num = (content) => ({ content, class: "num" });

/** The numbers above all. */
export function totals({ visits, orphanVisits, links }, before, period) {
  const { total, bots } = visits.summary;
  const isPart = isRunning(period);
  return tiles([
    [text.visits, numberOr(total, text.counting), visitsSince(visits, before?.visits, period)],
    [text.botVisits, numberOr(bots, text.counting), total > 0 && bots !== null && format.percent(bots, total)],
    [text.unknownVisits, numberOr(orphanVisits.summary.total, text.counting)],
    [text.created, numberOr(links.created, text.counting), changeSince(links.created, before?.links.created, isPart)],
    [text.links, numberOr(links.total, text.counting)],
  ]);
}

/** The change of visits. In a short period that is not over, whole hours are compared with those of the period before. */
function visitsSince(visits, before, period) {
  if (!isRunning(period) || period.days > DAYS_TO_THE_HOUR_MAX) {
    return changeSince(visits.summary.total, before?.summary.total, false);
  }
  const end = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  const until = (rows, last) => rows?.reduce((sum, one) => (Date.parse(one.date) < last ? sum + one.total : sum), 0);
  return changeSince(until(visits.perHour, end) ?? null, until(before?.perHour, end - period.days * DAY_MS), true);
}

/** How much more or less than in the period before: "+12%"; nothing where that is not known, or was none. `isPart` says that both end at the same hour. */
function changeSince(now, before, isPart) {
  if (now === null || !before) {
    return null;
  }
  const change = Math.round(((now - before) / before) * 100);
  return h("span", { class: change < 0 ? "bad-text" : change > 0 ? "good-text" : "soft", title: (isPart ? text.beforePart : text.before)(format.number(before)) }, `${change > 0 ? "+" : ""}${format.number(change)}%`,
    h("span", { class: "visually-hidden" }, ` ${text.thanBefore}`));
}

/** The content of a card whose numbers are not known yet. */
function notKnown() {
  return emptyState(text.countingTitle, text.countingText);
}

/** Visits of people and bots, by hour where the period is short and the node still has single hours of it, else by day. */
export function visitsCard(visits, period, keep) {
  const isByHour = period.days <= DAYS_BY_HOUR_MAX && (visits.perHour?.length ?? 0) > 0;
  const title = isByHour ? text.byHour : text.byDay;
  const rows = isByHour ? visits.perHour : visits.perDay;
  if (rows.length === 0) {
    return card(title, {}, emptyState(text.noVisits, text.noVisitsText));
  }
  const known = new Map(rows.map((one) => [Date.parse(one.date), one]));
  const steps = stepsOf(period, isByHour ? HOUR_MS : DAY_MS);
  const of = (step, name) => known.get(step)?.[name] ?? 0;
  const lists = [steps.map((step) => of(step, "total") - of(step, "bots")), steps.map((step) => of(step, "bots"))];
  const host = h("div");
  keep(visitsPlot(host, { label: title, steps, lists, when: isByHour ? format.hour : format.day, utc: true, byHour: isByHour }));
  return card(title, {}, host);
}

/** Links created by day. */
export function madeCard(links, period, keep) {
  const title = text.createdByDay;
  if (links.perDay.some((one) => one.links === null)) {
    return card(title, {}, notKnown());
  }
  if (links.perDay.length === 0) {
    return card(title, {}, emptyState(text.noneCreated, text.noneCreatedText, pageLink("/admin/links", text.toLinks, { class: "button" })));
  }
  const known = new Map(links.perDay.map((one) => [Date.parse(one.date), one.links]));
  const steps = stepsOf(period, DAY_MS);
  const made = steps.map((step) => known.get(step) ?? 0);
  const picture = h("div");
  const plot = barPlot(picture, { series: [{ label: text.created, colour: "--plot-3" }], label: title, when: format.day, utc: true });
  plot.set(steps, [made]);
  keep(plot);
  return card(title, {}, picture, tableOf(title, [text.created], { steps, lists: [made], when: format.day }));
}

/** The most visited links. */
export function topLinksCard(topLinks) {
  const title = text.topLinks;
  if (topLinks.length === 0) {
    return card(title, {}, emptyState(text.noTopLinks, text.longer));
  }
  const largest = Math.max(...topLinks.map(({ visits }) => visits.total ?? 0));
  const rows = topLinks.map(({ link, visits }) => row(
    { content: linkCell(link), class: "fluid" },
    num([numberOr(visits.total, text.counting), bar(visits.total, largest)]), num(numberOr(visits.bots, text.counting))));
  const columns = [{ title: text.link }, { title: text.visits, class: "num" }, { title: text.bots, class: "num" }];
  const { element, body } = regionTable(common.asTable(title), columns, rows.slice(0, TOP_SHOWN));
  const all = rows.length > TOP_SHOWN && h("p", null, button(text.showAll(rows.length), () => {
    body.append(...rows.slice(TOP_SHOWN));
    element.focus();
    all.remove();
  }, { kind: "quiet", "data-action": "all-links" }));
  return card(title, {}, element, all);
}

/** The code, which leads to the link's own page, with what it is and where it leads. */
function linkCell(link) {
  const path = withQuery(`/admin/links/${encodeURIComponent(link.shortCode)}`, { domain: link.domain });
  return [
    h("div", { class: "line-tight" }, pageLink(path, outside(link.shortCode), { class: "mono" }), link.title && clipped(link.title)),
    clipped(link.longUrl, "soft small"),
  ];
}

/** The hosts from which visitors came. */
export function referrersCard({ referrers, summary: { total: all } }) {
  const title = text.topReferrers;
  if (referrers.length === 0) {
    return card(title, {}, emptyState(text.noReferrers, text.noReferrersText));
  }
  const largest = Math.max(...referrers.map((one) => one.total));
  const rows = referrers.map(({ host, total }) => row({ content: [clipped(host), bar(total, largest)], class: "fluid" }, num(format.number(total)), { content: format.percent(total, all), class: "num soft" }));
  const columns = [{ title: text.host }, { title: text.visits, class: "num" }, { title: text.share, class: "num" }];
  return card(title, {}, regionTable(common.asTable(title), columns, rows).element);
}

/** Links in all, made and followed in the period, of each of some parts. */
function partsCard(title, first, parts, { name, path, empty }) {
  if (parts.length === 0) {
    return card(title, {}, emptyState(text.noLinks, empty));
  }
  const rows = parts.map((part) => row({ content: pageLink(path(part), name(part)), class: "wrap" },
    num(numberOr(part.links, text.counting)), num(numberOr(part.created, text.counting)), num(format.number(part.visits.total))));
  const columns = [first, text.linksColumn, text.newColumn, text.visits].map((column, at) => ({ title: column, class: at > 0 ? "num" : undefined }));
  return card(title, {}, regionTable(common.asTable(title), columns, rows).element, h("p", { class: "soft small" }, text.periodNote));
}

export function byAppCard(byApp) {
  return partsCard(text.byApp, text.app, byApp, {
    name: ({ app }) => outside(app),
    path: ({ app }) => withQuery("/admin/links", { app }),
    empty: text.noLinksByApp,
  });
}

export function byDomainCard(byDomain) {
  return partsCard(text.byDomain, text.domain, byDomain, {
    name: ({ domain }) => domainName(domain),
    path: ({ domain }) => withQuery("/admin/links", { domain: domain ?? "DEFAULT" }),
    empty: text.noLinksByDomain,
  });
}
