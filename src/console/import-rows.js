// What a file holds, as links for the API: NDJSON line by line, CSV by the names in its first line.

import { csvReader } from "./csv.js";

const TEXTS = ["longUrl", "customSlug", "domain", "title", "validSince", "validUntil"];
const NUMBERS = ["maxVisits", "redirectStatus", "cacheSeconds"];
const FLAGS = ["crawlable", "forwardQuery", "archived", "private", "findIfExists"];
const OTHER_NAMES = { shortcode: "customSlug", slug: "customSlug", url: "longUrl", target: "longUrl", longurl: "longUrl" };
const KNOWN = [...TEXTS, ...NUMBERS, ...FLAGS, "tags"];
/** Told of a link by an export, and decided anew by an import. */
const PASSED_OVER = ["app", "appversion", "datecreated", "visits", "shorturl"];

/** The field of the API that a column means; `null` for one that is passed over, `undefined` for one that nobody knows. */
function fieldOf(title) {
  const plain = title.trim().toLowerCase().replace(/[\s_-]/g, "");
  const known = KNOWN.find((name) => name.toLowerCase() === plain);
  return known ?? OTHER_NAMES[plain] ?? (PASSED_OVER.includes(plain) ? null : undefined);
}

/**
 * Reads a file: `{ kind, columns, rows }`. A column is `{ title, field }`; a row is `{ line, fields }` or `{ line, error, text }`.
 */
export function readFile(name, text) {
  const first = text.replace(/^\ufeff/, "").trimStart()[0];
  return first === "{" || /\.(ndjson|jsonl|json)$/i.test(name) ? readLines(text) : readCsv(text);
}

function readLines(text) {
  const rows = [];
  text.replace(/^\ufeff/, "").split(/\r\n|\n|\r/).forEach((line, index) => {
    if (line.trim() !== "") {
      rows.push(readLine(line, index + 1));
    }
  });
  return { kind: "NDJSON", columns: [], rows };
}

function readLine(text, line) {
  try {
    const fields = JSON.parse(text);
    const isObject = fields !== null && typeof fields === "object" && !Array.isArray(fields);
    return isObject ? checked({ line, fields: ofExport(fields), text }) : { line, text, error: "is no JSON object" };
  } catch (error) {
    return { line, text, error: `is no JSON: ${error.message}` };
  }
}

/** What an export tells beyond what a request may say is left out; its code is the slug. */
function ofExport(fields) {
  const { shortCode, dateCreated, origin, defaultEnd, app, appVersion, ...rest } = fields;
  return shortCode === undefined || rest.customSlug !== undefined ? fields : { ...rest, customSlug: shortCode };
}

function readCsv(text) {
  const reader = csvReader();
  const [head, ...records] = [...reader.push(text), ...reader.end()];
  const columns = (head?.cells ?? []).map((title) => ({ title, field: fieldOf(title) }));
  const rows = records.map(({ line, cells, error }) => {
    const told = cells.join(",");
    return error ? { line, text: told, error } : checked({ line, fields: fieldsOf(columns, cells), text: told, extra: cells.length > columns.length });
  });
  return { kind: "CSV", columns, rows };
}

function fieldsOf(columns, cells) {
  const fields = {};
  columns.forEach(({ field }, index) => {
    const text = (cells[index] ?? "").trim();
    if (field && text !== "") {
      fields[field] = valueOf(field, text);
    }
  });
  return fields;
}

/** A cell as JSON has it. What is no number or flag stays text, so that the node says what is wrong with it. */
function valueOf(field, text) {
  if (field === "tags") {
    return text.split(/[,|]/).map((tag) => tag.trim()).filter((tag) => tag !== "");
  }
  if (NUMBERS.includes(field) && /^\d+$/.test(text)) {
    return Number(text);
  }
  if (FLAGS.includes(field) && /^(true|false|yes|no|1|0)$/i.test(text)) {
    return /^(true|yes|1)$/i.test(text);
  }
  return text;
}

function checked(row) {
  if (row.extra) {
    return { line: row.line, text: row.text, error: "has more cells than the first line has names" };
  }
  return row.fields.longUrl === undefined ? { line: row.line, text: row.text, error: "has no longUrl" } : row;
}
