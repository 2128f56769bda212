// CSV as of RFC 4180: cells in quotes may hold commas, quotes (doubled) and ends of lines. Lines end with LF, CRLF or CR.

import { lines } from "./strings-import.js";

/** Texts that a spreadsheet would take for a formula. They get an apostrophe in front, which reading takes away again. */
const FORMULA = /^'*[=+\-@\t\r]/;
const GUARDED = /^'(?='*[=+\-@\t\r])/;

/** One line of CSV, with its end. */
export function csvLine(cells) {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

function csvCell(value) {
  const text = String(value);
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Texts in one cell, with `|` between them. One that holds what separates texts stands between quotes. */
export function joinCell(texts) {
  return texts.map((text) => (/[,|]|^"/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join("|");
}

/** The same the other way; commas separate as well. */
export function splitCell(cell) {
  const found = cell.matchAll(/\s*"((?:[^"]|"")*)"\s*(?=[,|]|$)|[^,|]+/g);
  return [...found].map(([plain, quoted]) => (quoted?.replaceAll('""', '"') ?? plain).trim()).filter((text) => text !== "");
}

/**
 * Reads CSV that comes in pieces. `push(text)` and `end()` give the records that are whole by then: `{ line, cells, error }`,
 * where `line` is that on which a record begins, from 1, and `error` says what is wrong with it. Empty lines are no records.
 * Cells are separated by commas, or by what else is said: spreadsheets of some countries write semicolons.
 */
export function csvReader(separator = ",") {
  let state = "start";
  let cell = "";
  let cells = [];
  let line = 1;
  let begins = 1;
  let error = null;
  let afterCr = false;
  let isFirst = true;
  let records = [];

  const endCell = () => {
    cells.push(cell.replace(GUARDED, ""));
    cell = "";
    state = "start";
  };
  const endRecord = () => {
    endCell();
    if (cells.length > 1 || cells[0] !== "" || error) {
      records.push({ line: begins, cells, error });
    }
    [cells, error, begins] = [[], null, line];
  };
  const inQuotes = (char) => {
    if (char === '"') {
      state = "quote";
    } else {
      cell += char;
      line += char === "\n" ? 1 : 0;
    }
  };
  const outsideQuotes = (char) => {
    if (char === '"' && state === "start") {
      state = "quoted";
    } else if (char === '"' && state === "quote") {
      cell += char;
      state = "quoted";
    } else if (char === separator) {
      endCell();
    } else if (char === "\n" || char === "\r") {
      line += 1;
      endRecord();
    } else {
      error = state === "quote" ? lines.afterQuote : error;
      cell += char;
      state = "plain";
    }
  };
  const take = (char) => {
    const isPaired = afterCr && char === "\n";
    afterCr = char === "\r" && state !== "quoted";
    if (isPaired) {
      return;
    }
    (state === "quoted" ? inQuotes : outsideQuotes)(char);
  };
  const taken = () => {
    const whole = records;
    records = [];
    return whole;
  };
  return {
    push(text) {
      const from = isFirst && text.startsWith("\ufeff") ? 1 : 0;
      isFirst = isFirst && text === "";
      for (let index = from; index < text.length; index += 1) {
        take(text[index]);
      }
      return taken();
    },
    end() {
      if (state === "quoted") {
        const swallowed = line - begins;
        error = swallowed === 0 ? lines.unclosed : lines.unclosedLong(swallowed);
      }
      if (cell !== "" || cells.length > 0 || error) {
        endRecord();
      }
      return taken();
    },
  };
}
