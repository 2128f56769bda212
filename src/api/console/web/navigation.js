// The navigation: in groups beside the page, and on a phone as a bar at the bottom with the rest behind its last button.

import { button, fill, h, setText } from "./dom.js";
import { icon } from "./icons.js";
import { shell } from "./strings-shell.js";

/** The groups: how many pages each has for an admin, in their order, and its heading. */
const GROUPS = [[1, null], [4, shell.groups.links], [3, shell.groups.access], [2, shell.groups.server]];

/** How many pages have a place of their own in the bar. */
const IN_BAR = 3;

let pages = [];
let inBar = [];
let more;

/** Draws the navigation with these pages: `{ path, title, icon, isBehind, at }`, where `at` is the place among all pages. Those that are `isBehind` are never in the bar. */
export function drawNavigation(all) {
  pages = all;
  inBar = all.filter((page) => !page.isBehind).slice(0, IN_BAR);
  let end = 0;
  const groups = GROUPS.map(([count, title], at) => {
    const first = end;
    end += count;
    const links = all.filter((page) => page.at >= first && page.at < first + count).map((page) => h("li", null, pageEntry(page)));
    if (links.length === 0) {
      return null;
    }
    const list = h("ul", { "aria-labelledby": title ? `nav-group-${at}` : null }, links);
    return [title && h("p", { class: "nav-title", id: `nav-group-${at}` }, title), list];
  });
  fill(document.getElementById("nav"), groups);
  more = button([icon("more"), h("span", null, shell.more)], toggle, { kind: "tab", "data-action": "more", "aria-label": shell.moreLabel, "aria-controls": "side", "aria-expanded": "false" });
  fill(document.getElementById("tabs"), inBar.map((page) => h("li", null, pageEntry(page))), h("li", null, more));
  for (const overview of document.querySelectorAll("#nav a[href='/admin/'], #tabs a[href='/admin/']")) {
    overview.append(h("span", { class: "alarm-count", hidden: true }));
  }
}

document.addEventListener("keydown", (event) => event.key === "Escape" && isOpen() && toggle());

// The page behind the open navigation is covered: a click there closes it, and does nothing else.
document.addEventListener("click", (event) => {
  if (isOpen() && !event.target.closest("#side, #tabs")) {
    event.preventDefault();
    event.stopPropagation();
    toggle();
  }
}, { capture: true });

function pageEntry({ path, title, icon: name }) {
  return h("a", { href: path }, icon(name), h("span", null, title));
}

const isOpen = () => more?.getAttribute("aria-expanded") === "true";

/** Says at the overview how many alarms stand. */
export function showAlarms(count) {
  for (const one of document.querySelectorAll(".alarm-count")) {
    one.hidden = count === 0;
    setText(one, count);
    one.setAttribute("aria-label", shell.alarms(count));
  }
}

function toggle() {
  const opens = !isOpen();
  more.setAttribute("aria-expanded", String(opens));
  document.getElementById("side").classList.toggle("open", opens);
  (opens ? document.querySelector("#nav a") : more).focus();
}

function close() {
  more?.setAttribute("aria-expanded", "false");
  document.getElementById("side").classList.remove("open");
}

/** Marks the page that is shown; on a phone, the last button of the bar if no other one leads there. */
export function showCurrentPage(path) {
  close();
  for (const link of document.querySelectorAll("#nav a, #tabs a")) {
    if (link.getAttribute("href") === path) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  const behind = pages.find((page) => page.path === path && !inBar.includes(page));
  more?.toggleAttribute("data-current", behind !== undefined);
  // It begins with what is seen, so that it can be spoken.
  more?.setAttribute("aria-label", behind ? shell.moreAt(behind.title) : shell.moreLabel);
}
