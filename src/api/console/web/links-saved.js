// Saved filters of the list of links, which this browser keeps: the menu that applies, adds and removes them.

import { formDialog } from "./dialog.js";
import { button } from "./dom.js";
import { field } from "./field.js";
import { keep, kept } from "./kept.js";
import { openMenu } from "./menu.js";
import { saved as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { toast } from "./toast.js";

const SAVED_MAX = 30;
const NAME_MAX = 60;

const isGood = (all) => Array.isArray(all) && all.every((one) => typeof one?.name === "string" && typeof one?.query === "string");

/** The saved filters, in the order of their names: `[{ name, query }]`. */
export const savedFilters = () => kept("saved-filters", isGood, []);

function store(all) {
  if (!keep("saved-filters", all.toSorted((one, other) => one.name.localeCompare(other.name)))) {
    toast(text.notKept);
  }
}

/**
 * The button with the menu of saved filters. `query()` is the present filter as a query, and `apply(query)` sets one. `update()` hides
 * the button while there is no filter, neither a saved one nor one to save.
 */
export function savedMenu({ query, apply }) {
  const opener = button(text.title, () => {
    const [all, now] = [savedFilters(), query()];
    const present = all.find((one) => one.query === now);
    openMenu(opener, [
      ...all.map((one) => [one === present ? text.chosen(one.name) : one.name, () => apply(one.query), { name: "apply-saved" }]),
      !present && now !== "" && [text.save, () => save(now), { name: "save-filter" }],
      present && [text.remove(present.name), () => remove(present, update), { name: "remove-saved", kind: "danger" }],
    ].filter(Boolean));
  }, { "data-action": "saved", "aria-haspopup": "menu", "aria-expanded": "false" });
  const update = () => {
    opener.hidden = query() === "" && savedFilters().length === 0;
  };
  return { opener, update };
}

async function save(query) {
  const all = savedFilters();
  if (all.length >= SAVED_MAX) {
    toast(text.tooMany(SAVED_MAX));
    return;
  }
  const done = await formDialog(text.save, {
    fields: [field({ name: "name", label: text.name, required: true, maxlength: NAME_MAX, autocomplete: "off", read: (typed) => typed.trim() })],
    intro: text.intro,
    action: text.save,
    async submit({ name }) {
      if (name === "") {
        throw Object.assign(new Error(text.nameMissing), { reasons: [["name", text.nameMissing]] });
      }
      return name;
    },
  });
  if (done) {
    store([...all.filter((one) => one.name !== done), { name: done, query }]);
    toast(text.done(done));
  }
}

function remove(present, update) {
  const all = savedFilters();
  const undo = () => {
    store(all);
    update();
  };
  store(all.filter((one) => one.name !== present.name));
  toast(text.removed(present.name), { seconds: 10, action: { name: "undo", label: common.undo, run: undo } });
}
