// The numbers of Analytics as a CSV file: one line for each day, link, referrer, app, domain, and value of a breakdown in the period.

import { csvLine } from "./csv.js";
import { saveCsv } from "./save-file.js";
import { usage as text } from "./strings-traffic.js";
import { toast, toastError } from "./toast.js";
import { appsAndRest } from "./usage-cards.js";
import { breakdownLines, tellSaved } from "./visits-export.js";

const COLUMNS = ["kind", "name", "visits", "bots", "links", "newLinks"];

/** The lines of what the node counts. What is not counted stays empty, as new links where the node does not store all links. */
function usageLines({ visits, links, topLinks }) {
  const noneMade = links.perDay.length > 0 ? 0 : null;
  const made = new Map(links.perDay.map((one) => [one.date.slice(0, 10), one.links]));
  const seen = new Map(visits.perDay.map((one) => [one.date.slice(0, 10), one]));
  const days = [...new Set([...made.keys(), ...seen.keys()])].sort();
  return [
    ...days.map((day) => ["day", day, seen.get(day)?.total ?? 0, seen.get(day)?.bots ?? 0, null, made.get(day) ?? noneMade]),
    ...topLinks.map(({ link, visits: own }) => ["link", link.shortUrl, own.total, own.bots, null, null]),
    ...visits.referrers.map(({ host, total }) => ["referrer", host, total, null, null, null]),
    ...appsAndRest(links).map((one) => ["app", one.app ?? "", one.visits.total, one.visits.bots, one.links, one.created]),
    ...links.byDomain.map((one) => ["domain", one.domain ?? "", one.visits.total, one.visits.bots, one.links, one.created]),
  ];
}

/** The lines of the days and links of filtered visits. */
function filteredLines({ perDay, links }) {
  return [
    ...perDay.map(({ date, total, bots }) => ["day", date, total, bots, null, null]),
    ...links.map(({ shortUrl, visits, bots }) => ["link", shortUrl, visits, bots, null, null]),
  ];
}

/** Saves the numbers of a period: what the node counts, if `usage` is there, or the days and links of filtered visits, `now`; and all values of the breakdowns of `query`. */
export async function saveUsage({ usage, now, period, query, signal }) {
  const name = `analytics-${period.from}-${period.to}.csv`;
  try {
    // Referrers are counted without the visit log, too.
    const { lines, isCut } = await breakdownLines(query, { signal, without: usage ? ["referrers"] : [] });
    const counted = usage ? usageLines(usage) : now ? filteredLines(now) : [];
    const all = [COLUMNS, ...counted, ...lines.map((line) => [...line, null, null, null])];
    if (all.length === 1) {
      toast(text.nothingToSave);
      return;
    }
    saveCsv(all.map((cells) => csvLine(cells.map((cell) => cell ?? ""))), name);
    tellSaved(name, isCut);
  } catch (error) {
    toastError(error, text.notSaved);
  }
}
