// The table of links: rows, sorting, selection, and moving between rows by keyboard.

import { button, clipped, fill, h, outside, regionTable, row, targetLink } from "./dom.js";
import { keyOf } from "./api.js";
import { date, number } from "./format.js";
import { shortUrlCell, stateBadge, tagList } from "./link-parts.js";
import { openMenu } from "./menu.js";

const SORTED = { shortCode: "Short URL", visits: "Visits", dateCreated: "Created, ends" };
const SKELETON_ROWS = 12;

/** The table: `on` has `sort(order)`, `select()`, `menu(link)` (the items of a row's menu). */
export function linksTable(on) {
  const selected = new Map();
  const all = h("input", { type: "checkbox", "aria-label": "Select all links of this page", onchange: () => selectAll(all.checked) });
  const sorts = Object.fromEntries(Object.entries(SORTED).map(([name, title]) => [name, button(title, () => on.sort(name), { kind: "sort" })]));
  const columns = [
    { title: all, class: "col-check" }, { title: sorts.shortCode, class: "col-short" }, { title: "Title and target" },
    { title: "Tags", class: "col-tags" }, { title: "App", class: "col-app" }, { title: "State", class: "col-state" },
    { title: sorts.visits, class: "num col-visits" }, { title: sorts.dateCreated, class: "col-dates" }, { title: "Actions", hidden: true, class: "col-menu" },
  ];
  const { element, table, body } = regionTable("Links", columns);
  table.classList.add("links");
  let rows = [];
  let anchor = -1;

  const told = () => {
    const here = rows.filter(({ link }) => selected.has(keyOf(link))).length;
    all.checked = here > 0 && here === rows.length;
    all.indeterminate = here > 0 && here < rows.length;
    on.select([...selected.values()]);
  };
  const mark = ({ link, check, element: line }, isOn) => {
    check.checked = isOn;
    line.classList.toggle("selected", isOn);
    selected[isOn ? "set" : "delete"](keyOf(link), link);
  };
  const selectAll = (isOn) => {
    rows.forEach((one) => mark(one, isOn));
    told();
  };
  const select = (index, isOn, isRange) => {
    const [from, to] = isRange && anchor >= 0 ? [Math.min(anchor, index), Math.max(anchor, index)] : [index, index];
    rows.slice(from, to + 1).forEach((one) => mark(one, isOn));
    anchor = index;
    told();
  };
  const lineOf = (link, index) => {
    const check = h("input", { type: "checkbox", checked: selected.has(keyOf(link)), "aria-label": `Select ${link.shortCode}` });
    check.addEventListener("click", (event) => select(index, check.checked, event.shiftKey));
    const line = linkRow(link, check, on.menu);
    line.classList.toggle("selected", check.checked);
    return { link, check, element: line };
  };
  const step = (by) => {
    const now = rows.findIndex((one) => one.element.contains(document.activeElement));
    const next = rows[now < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, now + by))];
    next?.element.querySelector("a").focus();
    next?.element.scrollIntoView({ block: "nearest" });
  };
  /** Where the focus is in a row, for the row of that link among others, or the one that takes its place. */
  const holdFocus = () => {
    const held = rows.findIndex((one) => one.element.contains(document.activeElement));
    if (held < 0) {
      return () => {};
    }
    const [key, at] = [keyOf(rows[held].link), controlsOf(rows[held]).indexOf(document.activeElement)];
    return () => {
      const now = rows.find((one) => keyOf(one.link) === key) ?? rows[Math.min(held, rows.length - 1)];
      (now ? controlsOf(now)[at] ?? now.check : element).focus();
    };
  };
  const toggleCurrent = () => {
    const now = rows.findIndex((one) => one.element.contains(document.activeElement));
    if (now >= 0) {
      select(now, !rows[now].check.checked, false);
    }
  };
  return {
    element,
    step,
    toggleCurrent,
    has: (node) => body.contains(node),
    /** The links that are selected, as they are now. */
    selection: () => [...selected.values()],
    clear() {
      selected.clear();
      selectAll(false);
    },
    setBusy: (isBusy) => table.setAttribute("aria-busy", String(isBusy)),
    showSkeleton: () => fill(body, skeleton()),
    showNothing(state) {
      const giveFocusBack = holdFocus();
      rows = [];
      giveFocusBack();
      fill(body, h("tr", null, h("td", { colspan: columns.length }, state)));
      told();
    },
    setLinks(links) {
      const giveFocusBack = holdFocus();
      rows = links.map(lineOf);
      anchor = -1;
      fill(body, rows.map((one) => one.element));
      giveFocusBack();
      told();
    },
    /** Draws a link anew where it is. */
    replace(link) {
      const index = rows.findIndex((one) => keyOf(one.link) === keyOf(link));
      if (index < 0) {
        return;
      }
      const old = rows[index];
      const at = controlsOf(old).indexOf(document.activeElement);
      if (selected.has(keyOf(link))) {
        selected.set(keyOf(link), link);
      }
      rows[index] = lineOf(link, index);
      old.element.replaceWith(rows[index].element);
      controlsOf(rows[index])[at]?.focus();
    },
    setSort(sort) {
      const [field, direction] = sort.split("-");
      for (const [name, head] of Object.entries(sorts)) {
        const order = name === field ? (direction === "ASC" ? "ascending" : "descending") : "none";
        head.closest("th").setAttribute("aria-sort", order);
      }
    },
  };
}

const controlsOf = ({ element }) => [...element.querySelectorAll("a, button, input")];

function linkRow(link, check, menuOf) {
  const menu = button("⋯", () => openMenu(menu, menuOf(link)), { kind: "icon menu-button", "aria-label": `Actions for ${link.shortCode}`, "aria-haspopup": "menu", "aria-expanded": "false" });
  return row(
    { content: check, class: "col-check" },
    { content: shortUrlCell(link) },
    { content: [link.title && clipped(link.title, "title"), targetLink(link.longUrl, { class: "target", title: link.longUrl })] },
    tagList(link.tags, 3),
    link.app === null ? "–" : clipped(link.app),
    stateBadge(link),
    { content: number(link.visitsSummary.total), class: "num" },
    { content: [date(link.dateCreated), link.meta.validUntil && h("span", { class: "soft" }, "ends ", date(link.meta.validUntil))], class: "dates" },
    { content: menu, class: "col-menu" });
}

function skeleton() {
  return Array.from({ length: SKELETON_ROWS }, () => h("tr", { "aria-hidden": "true" }, h("td", { colspan: 9 }, h("div", { class: "skeleton row-skeleton" }))));
}

/** The keys of the list, for the dialog that tells them. */
export const KEYS = [["/", "Search"], ["j or ↓", "Next link"], ["k or ↑", "Link before"], ["Enter", "Open the link's page"], ["x", "Select the link"], ["c", "New link"], ["?", "These keys"]];

export function keyList() {
  return h("dl", { class: "facts" }, KEYS.map(([key, text]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, outside(text)))));
}
