// What was refused of an import: the first lines as a table, all of them as a file.

import { csvLine } from "./csv.js";
import { button, card, clipped, h, outside, regionTable, row } from "./dom.js";
import * as format from "./format.js";

const SHOWN = 100;

/** A card of lines `{ line, error, text }` of a file. */
export function refusedCard(title, refused, name) {
  const rows = refused.slice(0, SHOWN).map(({ line, error, text }) => row({ content: String(line), class: "num" }, { content: outside(error), class: "wrap" }, { content: clipped(text ?? ""), class: "fluid" }));
  const columns = [{ title: "Line", class: "num" }, { title: "Reason" }, { title: "Content" }];
  return card(title, { beside: button("Download the report", () => download(refused, name)) },
    refused.length > rows.length && h("p", { class: "soft" }, `The first ${rows.length} of ${format.number(refused.length)}; the report has all of them.`),
    regionTable(`${title}, one a row`, columns, rows).element);
}

function download(refused, name) {
  const pieces = [csvLine(["line", "reason", "content"]), ...refused.map(({ line, error, text }) => csvLine([line, error, text]))];
  const url = URL.createObjectURL(new Blob(pieces, { type: "text/csv" }));
  h("a", { href: url, download: `${name}-refused.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
