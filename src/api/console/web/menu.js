// A small menu under a button: a popover, which closes with Escape or a click elsewhere.

import { button, h } from "./dom.js";
import { icon } from "./icons.js";
import { common } from "./strings-shell.js";

const MARGIN = 4;

/** Opens a menu of `[label, action, { name, kind }]` under a button, which closes it, too. `head` stands above the items. */
export function openMenu(anchor, items, { head } = {}) {
  if (anchor.popoverTargetElement) {
    // It is open, and the browser closes what its button belongs to.
    return;
  }
  const menu = h("div", { class: "menu", popover: "auto", role: "menu", "aria-label": anchor.getAttribute("aria-label") });
  const entries = items.map(([label, action, { name, kind }]) => button(label, () => {
    menu.hidePopover();
    anchor.focus();
    action();
  }, { kind: `quiet ${kind ?? ""}`, "data-action": name, role: "menuitem" }));
  menu.append(...(head ? [h("div", { class: "menu-head" }, head)] : []), ...entries);
  openBelow(anchor, menu);
}

/** Opens a panel of ticks, whose choices show at once, under a button, which closes it, too. */
export function openTicks(anchor, label, ticks) {
  if (!anchor.popoverTargetElement) {
    openBelow(anchor, h("div", { class: "menu ticks", popover: "auto", role: "group", "aria-label": label }, ticks));
  }
}

function openBelow(anchor, menu) {
  menu.addEventListener("keydown", moveFocus);
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState === "closed") {
      anchor.setAttribute("aria-expanded", "false");
      anchor.popoverTargetElement = null;
      menu.remove();
    }
  });
  anchor.setAttribute("aria-expanded", "true");
  anchor.after(menu);
  menu.showPopover();
  place(menu, anchor.getBoundingClientRect());
  controlsOf(menu)[0].focus();
  // From the next press on: the one that opened it is not over yet.
  setTimeout(() => {
    anchor.popoverTargetElement = menu.isConnected ? menu : null;
  });
}

/** The button of the actions that a phone has no room for beside the title of a page. `itemsOf()` returns them when it is pressed. */
export function pageMenu(itemsOf) {
  const more = button(icon("more"), () => openMenu(more, itemsOf()), { kind: "icon only-on-phone", "data-action": "page-menu", "aria-label": common.moreActions, "aria-haspopup": "menu", "aria-expanded": "false" });
  return more;
}

/** Places a popover under a button that is `at` a rectangle, or above it where there is no room below. */
export function place(menu, at) {
  const { width, height } = menu.getBoundingClientRect();
  const below = at.bottom + MARGIN + height <= innerHeight;
  menu.style.left = `${Math.max(MARGIN, Math.min(at.right - width, innerWidth - width - MARGIN))}px`;
  menu.style.top = `${below ? at.bottom + MARGIN : Math.max(MARGIN, at.top - height - MARGIN)}px`;
}

const controlsOf = (menu) => [...menu.querySelectorAll("[role=menuitem], input:enabled")];

function moveFocus(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  const items = controlsOf(event.currentTarget);
  if (event.key in steps) {
    event.preventDefault();
    event.stopPropagation();
    const now = items.indexOf(document.activeElement);
    items[(now + steps[event.key] + items.length) % items.length].focus();
  }
}
