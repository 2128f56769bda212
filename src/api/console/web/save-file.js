// Files that the browser saves.

import { h } from "./dom.js";

/** A blob stays this long: the browser may still read it. */
const BLOB_MS = 60_000;

/** Saves what an address leads to. */
export function saveFrom(url, name) {
  const link = h("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}

/** Saves texts or blobs, one behind the other, as a CSV file. */
export function saveCsv(parts, name) {
  const url = URL.createObjectURL(new Blob(parts, { type: "text/csv;charset=utf-8" }));
  saveFrom(url, name);
  setTimeout(() => URL.revokeObjectURL(url), BLOB_MS);
}
