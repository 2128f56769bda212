// The lines that an import rejected: the first ones as a table, all of them as a file.

import { csvLine } from "./csv.js";
import { button, card, clipped, h, outside, regionTable, row } from "./dom.js";
import { report, text } from "./strings-import.js";
import { common } from "./strings-shell.js";

const SHOWN = 100;

/** A card of lines `{ line, error, text }` of a file. */
export function refusedCard(title, refused, name) {
  const rows = refused.slice(0, SHOWN).map(({ line, error, text: content }) => row({ content: String(line), class: "num figure named" }, { content: outside(error), class: "wrap lead" }, { content: clipped(content ?? "", "mono"), class: "fluid fact" }));
  const columns = [{ title: text.line, class: "num" }, { title: report.reason }, { title: report.content }];
  const { element, table } = regionTable(common.asTable(title), columns, rows);
  // Reasons are too long for columns of a phone.
  table.classList.add("as-cards", "rows");
  return card(title, { beside: button(report.download, () => download(refused, name), { "data-action": "download-report" }), className: "rejected" },
    refused.length > rows.length && h("p", { class: "soft" }, report.part(rows.length, refused.length)),
    element);
}

function download(refused, name) {
  const pieces = [csvLine(["line", "reason", "content"]), ...refused.map(({ line, error, text: content }) => csvLine([line, error, content]))];
  const url = URL.createObjectURL(new Blob(pieces, { type: "text/csv" }));
  h("a", { href: url, download: `${name}-refused.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
