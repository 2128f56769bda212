// The field for tags: each tag is a chip, and what is typed becomes one with a comma, with Enter or when the field is left.

import { button, h, outside } from "./dom.js";
import { field, splitTags } from "./field.js";
import { icon } from "./icons.js";
import { tagsField as text } from "./strings-tags.js";

/** The place of the last comma that ends a tag, or -1: a tag between quotes may hold commas. */
function lastComma(typed) {
  let [last, isQuoted, hasBegun] = [-1, false, false];
  [...typed].forEach((sign, at, signs) => {
    if (sign === "," && !isQuoted) {
      [last, hasBegun] = [signs.slice(0, at).join("").length, false];
      return;
    }
    // Two quotes within a tag stand for one: the second opens it again.
    if (sign === "\"" && (isQuoted || !hasBegun || signs[at - 1] === "\"")) {
      isQuoted = !isQuoted;
    }
    hasBegun ||= sign.trim() !== "";
  });
  return last;
}

/**
 * A field for tags, shaped as those of field.js, with `set(tags)`. `value` has the first tags; the value of the field is the list of all, with what is typed.
 * `onChips(tags)` is called when somebody has added or removed a chip.
 */
export function tagsField({ value = [], onChips = () => {}, ...props }) {
  const base = field({ name: "tags", autocomplete: "off", autocapitalize: "none", spellcheck: "false", ...props });
  const { input } = base;
  const list = h("ul", { class: "tag-chips", "aria-label": text.chosen });
  const said = h("span", { class: "visually-hidden", role: "status" });
  /** The chips, by their tags. */
  const chips = new Map();
  const drop = (tag) => {
    chips.get(tag).remove();
    chips.delete(tag);
    list.hidden = chips.size === 0;
  };
  const remove = (tag) => {
    drop(tag);
    said.textContent = text.removed(tag);
    input.focus();
    onChips([...chips.keys()]);
  };
  const add = (tags) => {
    for (const tag of tags.filter((one) => !chips.has(one))) {
      chips.set(tag, chipOf(tag, () => remove(tag)));
      list.append(chips.get(tag));
    }
    list.hidden = chips.size === 0;
  };
  const take = (end = input.value.length) => {
    const before = chips.size;
    add(splitTags(input.value.slice(0, end)));
    input.value = input.value.slice(end).replace(/^,?\s*/, "");
    if (chips.size > before) {
      onChips([...chips.keys()]);
    }
  };
  const set = (tags) => {
    [...chips.keys()].filter((tag) => !tags.includes(tag)).forEach(drop);
    add(tags);
  };
  input.addEventListener("input", ({ inputType }) => {
    const comma = lastComma(input.value);
    if (comma >= 0) {
      // What is pasted is complete, also after its last comma.
      take(inputType === "insertFromPaste" ? undefined : comma);
    }
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.isComposing && input.value.trim() !== "") {
      event.preventDefault();
      take();
    } else if (event.key === "Backspace" && input.value === "" && chips.size > 0) {
      event.preventDefault();
      remove([...chips.keys()].at(-1));
    }
  });
  input.addEventListener("blur", () => take());
  const box = h("div", { class: "tag-box", onclick: ({ target }) => target === box && input.focus() });
  input.replaceWith(box);
  box.append(list, input, said);
  add(value);
  return { ...base, set, value: () => [...new Set([...chips.keys(), ...splitTags(input.value)])] };
}

function chipOf(tag, remove) {
  return h("li", { class: "tag-chip" }, outside(tag, { title: tag }),
    button(icon("cross"), remove, { kind: "icon", "data-action": "remove-tag", "aria-label": text.remove(tag) }));
}
