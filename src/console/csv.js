// CSV (RFC 4180) read and written: quotes, commas and line breaks within cells, any line ends, a byte order mark.

/** The rows of a text, each with the number of its first line, from 1. Empty lines are left out. */
export function* parseCsv(text) {
  let at = text.startsWith("\ufeff") ? 1 : 0;
  let line = 1;
  while (at < text.length) {
    const begin = line;
    const cells = [];
    for (let ended = false; !ended;) {
      const cell = readCell(text, at);
      line += cell.lines;
      cells.push(cell.text);
      at = cell.end;
      ended = text[at] !== ",";
      at += 1;
    }
    if (text[at - 1] === "\r" && text[at] === "\n") {
      at += 1;
    }
    line += 1;
    if (cells.length > 1 || cells[0] !== "") {
      yield { line: begin, cells };
    }
  }
}

/** A cell, where it ends, and how many lines end within it. */
function readCell(text, at) {
  if (text[at] !== "\"") {
    const end = nextOf(text, at);
    return { text: text.slice(at, end), end, lines: 0 };
  }
  let end = at + 1;
  let read = "";
  for (;;) {
    const quote = text.indexOf("\"", end);
    if (quote < 0) {
      read += text.slice(end);
      end = text.length;
      break;
    }
    read += text.slice(end, quote);
    end = quote + 1;
    if (text[end] !== "\"") {
      break;
    }
    read += "\"";
    end += 1;
  }
  // Whatever stands between the quote and the comma belongs to nothing; it is kept so that nothing is lost unseen.
  const rest = nextOf(text, end);
  return { text: read + text.slice(end, rest), end: rest, lines: read.split(/\r\n|\r|\n/).length - 1 };
}

/** Where the next comma or line end stands. */
function nextOf(text, at) {
  const found = /[,\r\n]/g;
  found.lastIndex = at;
  return found.exec(text)?.index ?? text.length;
}

/** A cell as it is written. One that a spreadsheet would calculate gets an apostrophe before it. */
export function csvCell(value) {
  const text = value === null || value === undefined ? "" : Array.isArray(value) ? value.join("|") : String(value);
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll("\"", "\"\"")}"` : plain;
}

/** A line of cells. */
export function csvLine(values) {
  return `${values.map(csvCell).join(",")}\r\n`;
}

const COLUMNS = ["shortCode", "longUrl", "title", "tags", "domain", "app", "dateCreated", "validSince", "validUntil", "maxVisits", "redirectStatus", "archived"];

/** Links of an export as lines, with the head that names the cells. */
export const toCsv = { head: csvLine(COLUMNS), line: (link) => csvLine(COLUMNS.map((name) => link[name])) };
