// The numbers of Analytics as a CSV file: one line for each day, link, referrer, app and domain of the period.

import { csvLine } from "./csv.js";
import { h } from "./dom.js";

const COLUMNS = ["kind", "name", "visits", "bots", "links", "newLinks"];

/** All lines of the file. What is not counted stays empty. */
export function usageLines({ visits, links, topLinks }) {
  const made = new Map(links.perDay.map((one) => [one.date.slice(0, 10), one.links]));
  const seen = new Map(visits.perDay.map((one) => [one.date.slice(0, 10), one]));
  const days = [...new Set([...made.keys(), ...seen.keys()])].sort();
  return [
    COLUMNS,
    ...days.map((day) => ["day", day, seen.get(day)?.total ?? 0, seen.get(day)?.bots ?? 0, null, made.get(day) ?? 0]),
    ...topLinks.map(({ link, visits: own }) => ["link", link.shortUrl, own.total, own.bots, null, null]),
    ...visits.referrers.map(({ host, total }) => ["referrer", host, total, null, null, null]),
    ...links.byApp.map((one) => ["app", one.app, one.visits.total, one.visits.bots, one.links, one.created]),
    ...links.byDomain.map((one) => ["domain", one.domain ?? "", one.visits.total, one.visits.bots, one.links, one.created]),
  ].map((cells) => cells.map((cell) => cell ?? ""));
}

/** Lets the browser save the numbers of a period. */
export function saveUsage({ usage, period }) {
  const text = usageLines(usage).map((cells) => csvLine(cells.map(String))).join("");
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: url, download: `analytics-${period.from}-${period.to}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
