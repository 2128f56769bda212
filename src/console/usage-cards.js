// The cards of the usage view, each from one part of the answer of the node. How many links there are is null while they are counted.

import { withQuery } from "./api.js";
import { card, clipped, emptyState, h, outside, pageLink, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { bar, domainName, numberOr, tiles } from "./parts.js";
import { DAY_MS, HOUR_MS, stepsOf } from "./period.js";
import { barPlot } from "./plot.js";

const COUNTING = "Not known yet: the node is still counting.";
// Up to here single hours say more than days.
const DAYS_BY_HOUR_MAX = 3;

const num = (content) => ({ content, class: "num" });

/** The numbers above all. */
export function totals({ visits, orphanVisits, links }) {
  const { total, bots } = visits.summary;
  return tiles([
    ["Visits", numberOr(total, COUNTING)],
    ["Of them by bots", numberOr(bots, COUNTING), total > 0 && bots !== null && format.percent(bots, total)],
    ["Visits of unknown codes", numberOr(orphanVisits.summary.total, COUNTING)],
    ["Links made", numberOr(links.created, COUNTING)],
    ["Links in all", numberOr(links.total, COUNTING)],
  ]);
}

/** What stands in a card whose part is not known. */
function notKnown() {
  return emptyState("Not known yet", "The node is still counting. Refresh in a minute.");
}

/** A plot and the same as a table beside it. */
function plotAndTable(plot, table) {
  return h("div", { class: "plot-and-table" }, plot, table.element);
}

/** Visits by hour where the period is short and the node still has single hours of it, else by day. */
export function visitsCard(visits, period, keep) {
  const isByHour = period.days <= DAYS_BY_HOUR_MAX && (visits.perHour?.length ?? 0) > 0;
  const title = isByHour ? "Visits by hour" : "Visits by day";
  const rows = isByHour ? visits.perHour : visits.perDay;
  if (rows.length === 0) {
    return card(title, {}, emptyState("No visits in this period", "Choose a longer one. Visits show up here within a minute."));
  }
  const known = new Map(rows.map((one) => [Date.parse(one.date), one]));
  const steps = stepsOf(period, isByHour ? HOUR_MS : DAY_MS);
  const at = (step, of) => known.get(step)?.[of] ?? 0;
  const when = isByHour ? format.instant : format.day;
  const host = h("div");
  const plot = barPlot(host, { series: [{ label: "All visits", colour: "--plot-1" }, { label: "Bots", colour: "--plot-2" }], label: title, when, utc: !isByHour });
  plot.set(steps, [steps.map((step) => at(step, "total")), steps.map((step) => at(step, "bots"))]);
  keep(plot);
  const columns = [{ title: isByHour ? "Hour" : "Day" }, { title: "Visits", class: "num" }, { title: "Bots", class: "num" }];
  const cells = steps.toReversed().map((step) => row(whenCell(step, when), num(format.number(at(step, "total"))), num(format.number(at(step, "bots")))));
  return card(title, {}, plotAndTable(host, regionTable(`${title}, as a table`, columns, cells)));
}

function whenCell(step, when) {
  return h("time", { datetime: new Date(step).toISOString(), title: new Date(step).toUTCString() }, when(step));
}

/** Links made by day. */
export function madeCard(links, period, keep) {
  const title = "Links made by day";
  if (links.perDay.some((one) => one.links === null)) {
    return card(title, {}, notKnown());
  }
  if (links.perDay.length === 0) {
    return card(title, {}, emptyState("No links made in this period", "Choose a longer one, or make a link.", pageLink("/admin/links", "To the links")));
  }
  const known = new Map(links.perDay.map((one) => [Date.parse(one.date), one.links]));
  const steps = stepsOf(period, DAY_MS);
  const made = steps.map((step) => known.get(step) ?? 0);
  const host = h("div");
  const plot = barPlot(host, { series: [{ label: "Links made", colour: "--plot-3" }], label: title, when: format.day, utc: true });
  plot.set(steps, [made]);
  keep(plot);
  const cells = steps.map((step, index) => row(whenCell(step, format.day), num(format.number(made[index])))).reverse();
  return card(title, {}, plotAndTable(host, regionTable(`${title}, as a table`, [{ title: "Day" }, { title: "Links made", class: "num" }], cells)));
}

/** The links that were followed most. */
export function topLinksCard(topLinks) {
  const title = "Top links";
  if (topLinks.length === 0) {
    return card(title, {}, emptyState("No link was followed in this period", "Choose a longer one."));
  }
  const largest = Math.max(...topLinks.map(({ visits }) => visits.total ?? 0));
  const rows = topLinks.map(({ link, visits }) => row(
    { content: linkCell(link), class: "fluid" },
    num([numberOr(visits.total, COUNTING), bar(visits.total, largest)]), num(numberOr(visits.bots, COUNTING))));
  const columns = [{ title: "Link" }, { title: "Visits", class: "num" }, { title: "Bots", class: "num" }];
  return card(title, {}, regionTable(`${title}, as a table`, columns, rows).element);
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
export function referrersCard({ referrers }) {
  const title = "Top referrers";
  if (referrers.length === 0) {
    return card(title, {}, emptyState("No referrers in this period", "Visits whose browser did not say where they came from are counted under visits only."));
  }
  const largest = Math.max(...referrers.map((one) => one.total));
  const rows = referrers.map(({ host, total }) => row({ content: [clipped(host), bar(total, largest)], class: "fluid" }, num(format.number(total))));
  return card(title, {}, regionTable(`${title}, as a table`, [{ title: "Host" }, { title: "Visits", class: "num" }], rows).element);
}

/** Links in all, made and followed in the period, of each of some parts. */
function partsCard(title, first, parts, { name, path, empty }) {
  if (parts.length === 0) {
    return card(title, {}, emptyState("No links yet", empty));
  }
  const rows = parts.map((part) => row({ content: pageLink(path(part), name(part)), class: "wrap" },
    num(numberOr(part.links, COUNTING)), num(numberOr(part.created, COUNTING)), num(format.number(part.visits.total))));
  const columns = [first, "Links", "New", "Visits"].map((name, at) => ({ title: name, class: at > 0 ? "num" : undefined }));
  return card(title, {}, regionTable(`${title}, as a table`, columns, rows).element, h("p", { class: "soft small" }, "New links and visits are those of the period."));
}

export function byAppCard(byApp) {
  return partsCard("By app", "App", byApp, {
    name: ({ app }) => outside(app),
    path: ({ app }) => withQuery("/admin/links", { app }),
    empty: "Each app that makes links is shown here.",
  });
}

export function byDomainCard(byDomain) {
  return partsCard("By domain", "Domain", byDomain, {
    name: ({ domain }) => domainName(domain),
    path: ({ domain }) => withQuery("/admin/links", { domain: domain ?? "DEFAULT" }),
    empty: "Each domain that has links is shown here.",
  });
}
