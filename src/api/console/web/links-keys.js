// The keys of the list of links. They do nothing while somebody types or a dialog is open.

import { openDialog } from "./dialog.js";
import { createDialog } from "./link-form.js";
import { keyList } from "./links-table.js";
import { list as text } from "./strings-links.js";

/** Listens for keys on behalf of a list; returns what ends that. */
export function listKeys(list) {
  const actions = {
    "/": () => list.bar.search.focus(),
    "?": () => openDialog(text.shortcutsTitle, keyList()),
    c: () => createDialog(),
    j: () => list.table.step(1),
    k: () => list.table.step(-1),
    x: () => list.table.toggleCurrent(),
  };
  const arrows = { ArrowDown: 1, ArrowUp: -1 };
  const listen = (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], [popover]:popover-open")) {
      return;
    }
    // Arrows scroll the page elsewhere; in the table, and from the search down into it, they move between rows.
    if (key in arrows && (list.table.has(target) || (target === list.bar.search && key === "ArrowDown"))) {
      event.preventDefault();
      list.table.step(arrows[key]);
    } else if (!isTyping(target) && Object.hasOwn(actions, key)) {
      event.preventDefault();
      actions[key]();
    }
  };
  document.addEventListener("keydown", listen);
  return () => document.removeEventListener("keydown", listen);
}

function isTyping(target) {
  return target.matches?.("input:not([type=checkbox]), select, textarea");
}
