// The columns of the list of links that this browser shows: all, until somebody chooses.

import { h } from "./dom.js";
import { keep, kept } from "./kept.js";
import { openTicks } from "./menu.js";
import { list as text } from "./strings-links.js";

/** The columns that can be hidden, in their order. The short URL and the destination stay. */
const OPTIONAL = ["tags", "app", "state", "visits", "trend", "dateCreated"];

const isGood = (names) => Array.isArray(names) && names.every((name) => OPTIONAL.includes(name));

/** Hides the columns of a table that are not wanted. */
export function showColumns(table) {
  table.dataset.hidden = kept("hidden-columns", isGood, []).join(" ");
}

/** The columns that have nothing to show now, and so stay hidden, whatever was chosen. */
const emptyColumns = ({ dataset }) => ["app", "state"].filter((name) => `no${name[0].toUpperCase()}${name.slice(1)}s` in dataset);

/** Offers the columns below a button; each choice shows at once. */
export function chooseColumns(opener, table) {
  const hidden = new Set(kept("hidden-columns", isGood, []));
  const empty = emptyColumns(table);
  openTicks(opener, text.openColumns, OPTIONAL.map((name) => {
    const tick = h("input", { type: "checkbox", checked: !hidden.has(name) && !empty.includes(name), disabled: empty.includes(name), "data-column": name, onchange: () => {
      hidden[tick.checked ? "delete" : "add"](name);
      keep("hidden-columns", [...hidden]);
      table.dataset.hidden = [...hidden].join(" ");
    } });
    return h("label", { class: "tick" }, tick, text.columns[name], empty.includes(name) && h("small", null, text.columnEmpty));
  }));
}
