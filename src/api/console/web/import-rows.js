// What a file holds, as links for the API: NDJSON line by line, CSV by the names in its first line.

import { csvReader, splitCell } from "./csv.js";
import { cut } from "./format.js";
import { files, lines } from "./strings-import.js";

const TEXTS = ["longUrl", "customSlug", "domain", "title", "validSince", "validUntil"];
const NUMBERS = ["maxVisits", "redirectStatus", "cacheSeconds"];
const FLAGS = ["crawlable", "forwardQuery", "archived", "private", "findIfExists"];
const OTHER_NAMES = { shortcode: "customSlug", slug: "customSlug", url: "longUrl", target: "longUrl", longurl: "longUrl" };
/** The fields of a line that an import knows. */
export const KNOWN = [...TEXTS, ...NUMBERS, ...FLAGS, "tags"];
/** Columns of an export that an import ignores. */
const PASSED_OVER = ["app", "appversion", "datecreated", "visits", "shorturl"];

/** The field of the API that a column means; `null` for one that is passed over, `undefined` for one that nobody knows. */
function fieldOf(title) {
  const plain = title.trim().toLowerCase().replace(/[\s_-]/g, "");
  const known = KNOWN.find((name) => name.toLowerCase() === plain);
  return known ?? OTHER_NAMES[plain] ?? (PASSED_OVER.includes(plain) ? null : undefined);
}

/** What of a line that cannot be read is kept for the report. */
const SHOWN = 300;

/** An error about a whole file; `problem` names it for programs. */
function unreadable(problem, message) {
  return Object.assign(new Error(message), { problem });
}

/** The separators of cells that spreadsheets write. */
const SEPARATORS = [",", ";", "\t"];

/** The text of a file: UTF-8, or UTF-16 with its mark. Throws where it is neither, instead of storing what nobody meant. */
export function decode(bytes) {
  const [first, second] = new Uint8Array(bytes, 0, Math.min(2, bytes.byteLength));
  const isUtf16 = (first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff);
  try {
    return new TextDecoder(isUtf16 ? (first === 0xff ? "utf-16le" : "utf-16be") : "utf-8", { fatal: true }).decode(bytes);
  } catch {
    const text = new TextDecoder().decode(bytes);
    const line = text.slice(0, text.indexOf("\ufffd")).split(/\r\n|\n|\r/).length;
    throw unreadable("encoding", files.encoding(line));
  }
}

/**
 * Reads a file: `{ kind, columns, rows }`. A column is `{ title, field }`; a row is `{ line, fields }` or `{ line, error, text }`.
 * Throws an error with the reason if the file cannot be read.
 */
export function readFile(name, text) {
  const plain = text.replace(/^\ufeff/, "");
  const first = plain.trimStart()[0];
  if (first === undefined) {
    throw unreadable("empty", files.empty);
  }
  if (first === "[") {
    return readArray(plain);
  }
  return first === "{" || /\.(ndjson|jsonl|json)$/i.test(name) ? readLines(plain) : readCsv(plain);
}

/** One JSON array with all links; its lines are counted by links. */
function readArray(text) {
  let links;
  try {
    links = JSON.parse(text);
  } catch (error) {
    throw unreadable("bad-array", files.badArray(error.message));
  }
  return { kind: "JSON", columns: [], rows: links.map((fields, index) => rowOf(fields, index + 1, JSON.stringify(fields))) };
}

function readLines(text) {
  const rows = [];
  text.split(/\r\n|\n|\r/).forEach((line, index) => {
    if (line.trim() !== "") {
      rows.push(readLine(line, index + 1));
    }
  });
  if (rows.every((row) => row.error !== undefined) && isJson(text)) {
    throw unreadable("one-object", files.oneObject);
  }
  return { kind: "NDJSON", columns: [], rows };
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function readLine(text, line) {
  try {
    return rowOf(JSON.parse(text), line, text);
  } catch (error) {
    return { line, text, error: lines.notJson(error.message) };
  }
}

function rowOf(fields, line, text) {
  const isObject = fields !== null && typeof fields === "object" && !Array.isArray(fields);
  return isObject ? checked({ line, fields: ofExport(fields), text }) : { line, text, error: lines.notObject };
}

/** What an export tells beyond what a request may say is left out; its code is the slug. */
function ofExport(fields) {
  const { shortCode, dateCreated, origin, defaultEnd, app, appVersion, ...rest } = fields;
  return shortCode === undefined || rest.customSlug !== undefined ? fields : { ...rest, customSlug: shortCode };
}

/** What a spreadsheet writes into a line of its own to say what separates cells. */
const HINT = /^sep=([,;\t])\r?\n/i;

function readCsv(whole) {
  const hint = HINT.exec(whole);
  const text = whole.slice(hint?.[0].length ?? 0);
  const separator = hint?.[1] ?? separatorOf(text);
  const reader = csvReader(separator);
  const [head, ...records] = [...reader.push(text), ...reader.end()].map((one) => ({ ...one, line: one.line + (hint ? 1 : 0) }));
  if (head === undefined) {
    throw unreadable("empty", files.empty);
  }
  const columns = columnsOf(head.cells);
  if (records.length === 0) {
    throw unreadable("header-only", files.headerOnly);
  }
  const rows = records.map(({ line, cells, error }) => {
    const told = cells.join(separator);
    return error ? { line, text: cut(told, SHOWN), error } : checked({ line, fields: fieldsOf(columns, cells), text: told, extra: cells.slice(columns.length).some((cell) => cell.trim() !== "") });
  });
  return { kind: "CSV", columns, rows };
}

/** What separates the names in the first line: by which most of them are known. */
function separatorOf(text) {
  const head = /^[^\r\n]*/.exec(text.trimStart())[0];
  const known = (separator) => (csvReader(separator).push(`${head}\n`)[0]?.cells ?? []).filter(fieldOf).length;
  return SEPARATORS.reduce((best, one) => (known(one) > known(best) ? one : best));
}

function columnsOf(titles) {
  const columns = titles.map((title) => ({ title, field: fieldOf(title) }));
  const names = columns.map(({ field }) => field).filter(Boolean);
  if (!names.includes("longUrl")) {
    throw unreadable("no-long-url", files.noLongUrl(titles.map((title) => cut(title, 40)).slice(0, 12).join(", ")));
  }
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice) {
    const meant = columns.filter(({ field }) => field === twice).map(({ title }) => title);
    throw unreadable("twice", files.twice(twice, meant.join(", ")));
  }
  return columns;
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
    return splitCell(text);
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
    return { line: row.line, text: row.text, error: lines.tooManyCells };
  }
  const error = wrongDestination(row.fields.longUrl);
  return error === null ? row : { line: row.line, text: row.text, error };
}

/** What is wrong with a destination, by the rules of the node that need no settings; `null` for nothing. */
function wrongDestination(longUrl) {
  if (longUrl === undefined) {
    return lines.noLongUrl;
  }
  if (typeof longUrl !== "string") {
    return lines.noText;
  }
  // `URL` would drop tabs and line breaks.
  if (/\p{Cc}/u.test(longUrl)) {
    return lines.controlCharacter;
  }
  try {
    const { protocol, username, password } = new URL(longUrl);
    if (!["http:", "https:"].includes(protocol)) {
      return lines.noWebAddress(cut(longUrl, SHOWN));
    }
    return username !== "" || password !== "" ? lines.userName : null;
  } catch {
    return lines.noWebAddress(cut(longUrl, SHOWN));
  }
}
