// The line below the list: which page it is, the one before and the next, and how long pages are.

import { button, h, setText } from "./dom.js";
import { SIZES } from "./links-query.js";

/** The pager, `{ element, set(now), hide() }`: `on` has `previous()`, `next()` and `size(text)`. */
export function pager(on) {
  const previous = button("Previous", on.previous, { disabled: true });
  const next = button("Next", on.next, { disabled: true });
  const where = h("span", { class: "soft" });
  const size = h("select", { "aria-label": "Links on a page", onchange: () => on.size(size.value) }, SIZES.map((one) => h("option", { value: one }, `${one} on a page`)));
  const element = h("nav", { class: "pager", "aria-label": "Pages of links" }, previous, where, next, size);
  // Until it is known how long the list is, it would jump.
  const hide = () => element.classList.add("unknown");
  const set = (now) => {
    element.classList.remove("unknown");
    const held = [previous, next].find((one) => one === document.activeElement);
    previous.disabled = now.page === 1;
    next.disabled = !now.hasNext;
    setText(where, `Page ${now.page}`);
    size.value = now.size;
    // A button that is off would drop the focus.
    if (held?.disabled) {
      ([previous, next].find((one) => !one.disabled) ?? size).focus();
    }
  };
  return { element, set, hide };
}
