// Visits as CSV files: counts by day and by each property, and single visits.

import { get } from "./api.js";
import { visitStats } from "./breakdowns.js";
import { csvLine } from "./csv.js";
import { saveCsv } from "./save-file.js";
import { common } from "./strings-shell.js";
import { exports as text } from "./strings-visits.js";
import { toast, toastError } from "./toast.js";
import { LISTS, kindOf } from "./visit-filters.js";

/** The most values of a list, and the most visits of a page, that the node gives. */
const VALUES_MAX = 500;
const PER_PAGE = 5_000;

/**
 * All values of the breakdowns of some visits: `{ lines, isCut }`, where each line is `[kind, name, visits]`, and `isCut` says that a list has more values than the node gives. Without
 * the visit log there are no lines.
 */
export async function breakdownLines(query, { signal, without = [] } = {}) {
  const stats = await visitStats(query, { limit: VALUES_MAX, signal });
  const lists = LISTS.filter((list) => !without.includes(list)).map((list) => [list, stats[list] ?? []]);
  return {
    lines: lists.flatMap(([list, rows]) => rows.map(({ value, country, visits }) => [kindOf(list), country ? `${value}, ${country}` : value, visits])),
    isCut: lists.some(([, rows]) => rows.length >= VALUES_MAX),
  };
}

/** Says that a file is saved, and what it lacks. */
export function tellSaved(name, isCut) {
  toast(isCut ? text.cut(name, VALUES_MAX) : text.saved(name), isCut ? { seconds: 12 } : {});
}

/** Saves the visits of a link by day, and their breakdowns. */
export async function saveLinkVisits({ visits, query, name }) {
  try {
    const { lines, isCut } = await breakdownLines(query);
    const rows = [
      ["kind", "name", "visits", "bots"],
      ...visits.perDay.map(({ date, total, bots }) => ["day", date.slice(0, 10), total, bots]),
      ...lines.map((line) => [...line, ""]),
    ];
    saveCsv(rows.map(csvLine), name);
    tellSaved(name, isCut);
  } catch (error) {
    toastError(error, text.failed);
  }
}

/** The columns of a file of single visits, and what is in them. */
const COLUMNS = {
  date: (visit) => visit.date,
  visitedUrl: (visit) => visit.visitedUrl,
  redirectUrl: (visit) => visit.redirectUrl,
  referrer: (visit) => visit.referer,
  country: ({ visitLocation }) => visitLocation?.countryName,
  region: ({ visitLocation }) => visitLocation?.regionName,
  city: ({ visitLocation }) => visitLocation?.cityName,
  device: (visit) => visit.device,
  operatingSystem: (visit) => visit.operatingSystem,
  browser: (visit) => visit.browser,
  language: (visit) => visit.language,
  bot: (visit) => visit.potentialBot,
  utmSource: ({ utm }) => utm?.source,
  utmMedium: ({ utm }) => utm?.medium,
  utmCampaign: ({ utm }) => utm?.campaign,
  utmTerm: ({ utm }) => utm?.term,
  utmContent: ({ utm }) => utm?.content,
  userAgent: (visit) => visit.userAgent,
  address: (visit) => visit.address,
};

/** Reads single visits page by page, and saves them. A toast shows progress and can stop it. `path` and `query` are those of the API. */
export async function saveSingleVisits({ path, query, name }) {
  const stop = new AbortController();
  const told = toast(text.begun, { seconds: 0, action: { name: "stop", label: common.stop, run: () => stop.abort() } });
  try {
    const { parts, count, isWhole } = await readVisits(path, query, stop.signal, (so, all) => told.say(text.progress(so, all)));
    saveCsv(parts, name);
    toast(isWhole ? text.done(count, name) : text.doneInPart(count, name), isWhole ? {} : { kind: "bad", seconds: 12 });
  } catch (error) {
    toastError(error, text.failed);
  } finally {
    told.close();
  }
}

/** A later visit would move all others to other pages, so that the list ends now. */
function endingNow(query) {
  const now = new Date().toISOString();
  return { ...query, endDate: query.endDate && query.endDate < now ? query.endDate : now };
}

async function readVisits(path, query, signal, onPage) {
  const asked = endingNow(query);
  // Blobs may leave the memory, texts may not.
  const parts = [new Blob([csvLine(Object.keys(COLUMNS))])];
  let [count, isWhole, pages] = [0, true, 1];
  for (let page = 1; page <= pages; page += 1) {
    const { visits: { data, pagination } } = await get(path, { query: { ...asked, page, itemsPerPage: PER_PAGE }, signal });
    parts.push(new Blob(data.map((visit) => csvLine(Object.values(COLUMNS).map((read) => read(visit) ?? "")))));
    count += data.length;
    pages = pagination.pagesCount;
    isWhole &&= pagination.complete !== false;
    onPage(count, pagination.totalItems);
  }
  return { parts, count, isWhole };
}
