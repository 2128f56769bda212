// The line below the list: which page it is, the one before and the next, and how long pages are.

import { button, h, setText } from "./dom.js";
import { SIZES } from "./links-query.js";
import { list as text } from "./strings-links.js";

/**
 * The pager, `{ element, set(now), hide() }`: `on` has `previous()`, `next()` and `size(text)`. A list without links needs none, nor does one
 * that fits the shortest page. On a page without neighbours, only its length can be chosen.
 */
export function pager(on) {
  const previous = button(text.previous, on.previous, { "data-action": "previous", disabled: true });
  const next = button(text.next, on.next, { "data-action": "next", disabled: true });
  const where = h("span", { class: "soft" });
  const size = h("select", { "aria-label": text.pageSize, onchange: () => on.size(size.value) }, SIZES.map((one) => h("option", { value: one }, text.perPage(one))));
  const element = h("nav", { class: "pager", "aria-label": text.pages }, previous, where, next, size);
  // Until it is known how long the list is, it would jump.
  const hide = () => element.classList.add("unknown");
  const set = (now) => {
    element.classList.remove("unknown");
    const isAlone = now.page === 1 && !now.hasNext;
    element.hidden = now.isEmpty || (isAlone && now.links <= Number(SIZES[0]));
    const held = [previous, next].find((one) => one === document.activeElement);
    [previous, where, next].forEach((one) => { one.hidden = isAlone; });
    previous.disabled = now.page === 1;
    next.disabled = !now.hasNext;
    setText(where, text.page(now.page));
    element.dataset.page = now.page;
    size.value = now.size;
    // A button that is off would drop the focus.
    if (held?.disabled) {
      ([previous, next].find((one) => !one.disabled) ?? size).focus();
    }
  };
  return { element, set, hide };
}
