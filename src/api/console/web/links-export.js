// Exports of the links that a filter finds: NDJSON straight from the node, or CSV made of it here.

import { lineBatches, send, withQuery } from "./api.js";
import { baseUrls } from "./bases.js";
import { csvLine, joinCell } from "./csv.js";
import { conditions } from "./links-query.js";
import { saveCsv, saveFrom } from "./save-file.js";
import { exports as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";

/** The columns of the CSV. An import takes each, or passes over it (`import-rows.js`). */
export const COLUMNS = ["shortCode", "shortUrl", "domain", "longUrl", "title", "tags", "app", "dateCreated", "validSince", "validUntil", "maxVisits", "redirectStatus", "cacheSeconds", "forwardQuery", "crawlable", "archived"];
const PART_CHARS = 4 * 1024 * 1024;

function exportPath(filter) {
  return withQuery("/rest/v3/short-urls/export", conditions(filter));
}

/** Lets the browser save the NDJSON as it comes. */
export function exportLines(filter) {
  saveFrom(exportPath(filter), "links.ndjson");
}

/** Reads the export and saves it as CSV. A toast shows progress and can stop it. */
export async function exportCsv(filter) {
  const stop = new AbortController();
  const told = toast(text.begun, { seconds: 0, action: { name: "stop", label: common.stop, run: () => stop.abort() } });
  try {
    const { parts, links } = await readCsv(filter, stop.signal, (so) => told.say(text.progress(so)));
    saveCsv(parts, "links.csv");
    toast(text.done(links));
  } catch (error) {
    toastError(error, text.failed);
  } finally {
    told.close();
  }
}

async function readCsv(filter, signal, onLinks) {
  const [bases, response] = await Promise.all([baseUrls(signal), send("GET", exportPath(filter), { signal })]);
  // Those of a domain that is served no more lead nowhere.
  const shortUrl = ({ domain = null, shortCode }) => (bases.has(domain) ? `${bases.get(domain)}/${shortCode}` : "");
  // Blobs may leave the memory, texts may not.
  const parts = [];
  let [csv, links] = [csvLine(COLUMNS), 0];
  for await (const batch of lineBatches(response)) {
    for (const link of batch) {
      if (link.error) {
        throw Object.assign(new Error(link.error.detail), { detail: link.error.detail });
      }
      const told = { ...link, shortUrl: shortUrl(link) };
      csv += csvLine(COLUMNS.map((name) => cell(told[name])));
    }
    links += batch.length;
    if (csv.length > PART_CHARS) {
      parts.push(new Blob([csv]));
      csv = "";
    }
    onLinks(links);
  }
  return { parts: [...parts, csv], links };
}

function cell(value) {
  return Array.isArray(value) ? joinCell(value) : value ?? "";
}
