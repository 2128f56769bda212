// The columns of the list of links that this browser shows: all, until somebody chooses.

import { openDialog } from "./dialog.js";
import { button, h } from "./dom.js";
import { keep, kept } from "./kept.js";
import { list as text } from "./strings-links.js";

/** The columns that can be hidden, in their order. The short URL and the destination stay. */
const OPTIONAL = ["tags", "app", "state", "visits", "trend", "dateCreated"];

const isGood = (names) => Array.isArray(names) && names.every((name) => OPTIONAL.includes(name));

/** Hides the columns of a table that are not wanted. */
export function showColumns(table) {
  table.dataset.hidden = kept("hidden-columns", isGood, []).join(" ");
}

/** Asks which columns to show; each choice shows at once. */
export function chooseColumns(table) {
  const hidden = new Set(kept("hidden-columns", isGood, []));
  const ticks = OPTIONAL.map((name) => {
    const tick = h("input", { type: "checkbox", checked: !hidden.has(name), "data-column": name, onchange: () => {
      hidden[tick.checked ? "delete" : "add"](name);
      keep("hidden-columns", [...hidden]);
      table.dataset.hidden = [...hidden].join(" ");
    } });
    return h("label", { class: "tick" }, tick, text.columns[name]);
  });
  const done = button(text.columnsDone, () => dialog.close(), { kind: "primary", "data-action": "done" });
  const dialog = openDialog(text.chooseColumns, h("div", { class: "stack" }, ticks, h("small", null, text.columnsHint)), { actions: [done] });
  dialog.element.querySelector("input").focus();
}
