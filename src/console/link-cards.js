// The cards of the page of one link.

import { linkPath, withQuery } from "./api.js";
import { badge, card, clipped, emptyState, facts, h, outside, pageLink, regionTable, row } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { bar } from "./parts.js";
import { barPlot } from "./plot.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const WAYS = { api: "the API", admin: "the console", fleet: "another node" };

const yes = (value) => (value ? "yes" : "no");

export function factsCard(link) {
  const { meta, visitsSummary: visits } = link;
  return card("Fields", {}, facts([
    ["Visits", `${format.number(visits.total)}${meta.maxVisits ? ` of ${format.number(meta.maxVisits)}` : ""}, ${format.number(visits.bots)} of them by bots`],
    ["Tags", link.tags.length === 0 ? "none" : link.tags.map((tag) => [pageLink(withQuery("/admin/links", { tags: joinTags([tag]) }), outside(tag), { class: "badge" }), " "])],
    ["Created", format.time(link.dateCreated)],
    ["Valid from", meta.validSince ? format.time(meta.validSince) : "at once"],
    ["Valid until", meta.validUntil ? format.time(meta.validUntil) : "for good"],
    ["App", link.app ? [pageLink(`/admin/links?app=${encodeURIComponent(link.app)}`, outside(link.app)), link.appVersion && [" ", outside(link.appVersion)]] : "none"],
    ["Domain", link.domain ? outside(link.domain) : "default domain"],
    ["Redirects with", String(link.redirectStatus)],
    ["Browsers keep it", link.cacheSeconds === null ? "not at all" : `for ${format.duration(link.cacheSeconds)}`],
    ["Query goes along", yes(link.forwardQuery)],
    ["Crawlers may follow", yes(link.crawlable)],
  ]));
}

export function qrCard(link) {
  const path = (format_, size) => withQuery(linkPath(link, "/qr"), { format: format_, size });
  return card("QR code", {},
    h("div", { class: "qr" }, h("img", { src: path("svg", 240), width: 200, height: 200, alt: `QR code of ${link.shortUrl}` })),
    h("p", { class: "line" },
      h("a", { class: "button", href: path("svg", 240), download: `${link.shortCode}.svg` }, "SVG"),
      h("a", { class: "button", href: path("png", 1000), download: `${link.shortCode}.png` }, "PNG")));
}

/** Visits by hour of the last week and by day of the last 90 days, each as a plot with a table beside it. */
export function visitsCards(visits, plots) {
  const now = Date.now();
  return [
    visitsCard("Visits by hour, in the last 7 days", visits.perHour, { step: HOUR_MS, from: now - 7 * DAY_MS, when: format.instant }, plots),
    visitsCard("Visits by day, in the last 90 days", visits.perDay, { step: DAY_MS, from: now - 89 * DAY_MS, when: format.day, utc: true }, plots),
  ];
}

function visitsCard(title, counts, { step, from, when, utc }, plots) {
  const known = new Map(counts.map((one) => [Date.parse(one.date), one]));
  const steps = [];
  for (let at = Math.floor(from / step) * step; at <= Date.now(); at += step) {
    steps.push(at);
  }
  if (!steps.some((at) => known.has(at))) {
    return card(title, {}, emptyState("No visits", "Visits show up here within a second or two."));
  }
  const host = h("div");
  const plot = barPlot(host, { label: title, when, utc, series: [{ label: "All visits", colour: "--plot-1" }, { label: "Bots", colour: "--plot-2" }] });
  plot.set(steps, ["total", "bots"].map((name) => steps.map((at) => known.get(at)?.[name] ?? 0)));
  plots.push(plot);
  const num = (content) => ({ content, class: "num" });
  const rows = steps.toReversed().filter((at) => known.has(at)).map((at) => row(
    h("time", { datetime: new Date(at).toISOString(), title: new Date(at).toUTCString() }, when(at)),
    num(format.number(known.get(at).total)), num(format.number(known.get(at).bots))));
  const columns = [{ title: utc ? "Day (UTC)" : "Hour" }, { title: "Visits", class: "num" }, { title: "Bots", class: "num" }];
  return card(title, {}, h("div", { class: "plot-and-table" }, host, regionTable(`${title}, as a table`, columns, rows).element));
}

export function referrersCard(referrers) {
  if (referrers.length === 0) {
    return card("Top referrers", {}, emptyState("No referrers", "Nobody who followed the link said where it stood."));
  }
  const largest = Math.max(...referrers.map(({ total }) => total));
  const rows = referrers.map(({ host, total }) => row({ content: [clipped(host), bar(total, largest)], class: "fluid" }, { content: format.number(total), class: "num" }));
  return card("Top referrers", {}, regionTable("Top referrers, one a row", [{ title: "Host" }, { title: "Visits", class: "num" }], rows).element);
}

/** Who has changed what, the last first; `null` where nobody can say. */
export function historyCard(history, link) {
  if (history === null) {
    return card("History", {}, emptyState("Not known", "What was done to the link cannot be read at present."));
  }
  const made = link && h("li", null, badge("made", "good"), " ", format.time(link.dateCreated), " by ", link.app ? outside(link.app) : "nobody in particular");
  return card("History", { beside: h("small", null, "the last 64 changes of 400 days") }, h("ol", { class: "plain history" }, history.map(editItem), made));
}

function editItem({ at, app, keyId, through, what, changes }) {
  const who = app ? [outside(app), keyId && [" (key ", h("code", null, keyId), ")"]] : through === "fleet" ? "somebody" : "nobody in particular";
  return h("li", null,
    badge(what, what === "deleted" ? "bad" : ""), " ", format.time(at), " by ", who, " through ", WAYS[through] ?? outside(through),
    h("ul", { class: "changes" }, changes.filter((one) => what !== "deleted" || !isEmpty(one.from)).map(({ field, from, to }) =>
      h("li", null, h("b", null, field), " ", h("del", null, shown(from)), what !== "deleted" && [" → ", h("ins", null, shown(to))]))));
}

const isEmpty = (value) => value === null || value === false || (Array.isArray(value) && value.length === 0);

function shown(value) {
  if (value === null || (Array.isArray(value) && value.length === 0)) {
    return h("span", { class: "soft" }, "nothing");
  }
  return outside(Array.isArray(value) ? value.join(", ") : String(value));
}
