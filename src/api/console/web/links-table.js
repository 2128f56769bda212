// The table of links: rows, sorting, selection, and moving between rows by keyboard.

import { button, clipped, fill, h, outside, pageLink, regionTable, row, targetLink } from "./dom.js";
import { keyOf } from "./api.js";
import { isBeingDeleted } from "./deletes.js";
import { bareUrl, date, number } from "./format.js";
import { icon } from "./icons.js";
import { detailPath, hasNotableExpiry, hasNotableState, shortUrlCell, stateBadge, tagList } from "./link-parts.js";
import { showColumns } from "./links-columns.js";
import { trendOf } from "./links-trend.js";
import { openMenu } from "./menu.js";
import { PALETTE_KEYS } from "./palette.js";
import { mayWrite } from "./rights.js";
import { list as text } from "./strings-links.js";
import { palette } from "./strings-shell.js";

const SORTED = ["shortCode", "visits", "dateCreated"];
const SKELETON_ROWS = 12;

/** The table. `on` has `sort(field)`, `select(links)`, which gets all that are selected, and `menu(link)`, the items of a row's menu. */
export class LinksTable {
  constructor(on) {
    this.on = on;
    /** The selected links of all pages, by `keyOf`. */
    this.selected = new Map();
    /** Whether a phone shows the boxes that select, although no link is selected. */
    this.isSelecting = false;
    /** What is shown: `{ link, check, element }`. */
    this.rows = [];
    /** The row from which a range is selected. */
    this.anchor = -1;
    this.all = h("input", { type: "checkbox", "aria-label": text.selectAll, onchange: () => this.selectAll(this.all.checked) });
    this.sorts = Object.fromEntries(SORTED.map((name) => [name, button(text.columns[name], () => on.sort(name), { kind: "sort" })]));
    this.columns = columnsOf(this.all, this.sorts);
    const { element, table, body } = regionTable(text.label, this.columns);
    table.classList.add("links");
    table.classList.toggle("read-only", !mayWrite());
    ["data-no-expiries", "data-no-states"].forEach((name) => table.toggleAttribute(name, true));
    showColumns(table);
    Object.assign(this, { element, table, body });
  }

  /** The links that are selected, as they were when they were last shown. */
  selection() {
    return [...this.selected.values()];
  }

  /** Ends the selection. */
  clear() {
    this.isSelecting = false;
    this.selected.clear();
    this.selectAll(false);
  }

  /** Shows the boxes that select on a phone, where rows have no room for them otherwise. */
  startSelecting() {
    this.isSelecting = true;
    this.tell();
    this.all.focus();
  }

  setBusy(isBusy) {
    this.table.setAttribute("aria-busy", String(isBusy));
  }

  setSort(sort) {
    const [field, direction] = sort.split("-");
    for (const [name, head] of Object.entries(this.sorts)) {
      const order = name === field ? (direction === "ASC" ? "ascending" : "descending") : "none";
      head.closest("th").setAttribute("aria-sort", order);
    }
  }

  showSkeleton() {
    fill(this.body, skeleton(this.shownColumns()));
  }

  showNothing(state) {
    const giveFocusBack = this.holdFocus();
    this.rows = [];
    giveFocusBack();
    fill(this.body, h("tr", null, h("td", { colspan: this.shownColumns() }, state)));
    this.tell();
  }

  setLinks(links) {
    const giveFocusBack = this.holdFocus();
    this.rows = links.map((link, index) => this.rowOf(link, index));
    this.fitColumns();
    this.anchor = -1;
    fill(this.body, this.rows.map((one) => one.element));
    giveFocusBack();
    this.tell();
  }

  /** A column without anything to say gives its room to the destination, and so do dates without an expiry. */
  fitColumns() {
    this.table.toggleAttribute("data-no-states", !this.rows.some(({ link }) => hasNotableState(link)));
    this.table.toggleAttribute("data-no-apps", this.rows.every(({ link }) => link.app === null));
    this.table.toggleAttribute("data-no-expiries", !this.rows.some(({ link }) => hasNotableExpiry(link)));
  }

  /** The number of columns that are not hidden: a cell over more of them would add one. */
  shownColumns() {
    return [...this.table.tHead.rows[0].cells].filter((head) => getComputedStyle(head).display !== "none").length;
  }

  /** Redraws the row of a link. */
  replace(link) {
    const index = this.rows.findIndex((one) => keyOf(one.link) === keyOf(link));
    if (index < 0) {
      return;
    }
    const old = this.rows[index];
    const at = controlsOf(old).indexOf(document.activeElement);
    this.rows[index] = this.rowOf(link, index);
    old.element.replaceWith(this.rows[index].element);
    this.fitColumns();
    controlsOf(this.rows[index])[at]?.focus();
  }

  rowOf(link, index) {
    const isSelected = this.selected.has(keyOf(link));
    if (isSelected) {
      this.selected.set(keyOf(link), link);
    }
    const check = h("input", { type: "checkbox", checked: isSelected, "aria-label": text.select(link.shortCode) });
    check.addEventListener("click", (event) => this.select(index, check.checked, event.shiftKey));
    const element = linkRow(link, check, this.on.menu);
    element.classList.toggle("selected", isSelected);
    return { link, check, element };
  }

  select(index, isOn, isRange) {
    const { anchor } = this;
    const [from, to] = isRange && anchor >= 0 ? [Math.min(anchor, index), Math.max(anchor, index)] : [index, index];
    this.rows.slice(from, to + 1).forEach((one) => this.mark(one, isOn));
    this.anchor = index;
    this.tell();
  }

  selectAll(isOn) {
    this.rows.forEach((one) => this.mark(one, isOn));
    this.tell();
  }

  mark({ link, check, element }, isOn) {
    check.checked = isOn;
    element.classList.toggle("selected", isOn);
    this.selected[isOn ? "set" : "delete"](keyOf(link), link);
  }

  /** Updates the checkbox of the header and notifies the listener of the selection. */
  tell() {
    const here = this.rows.filter(({ link }) => this.selected.has(keyOf(link))).length;
    this.all.checked = here > 0 && here === this.rows.length;
    this.all.indeterminate = here > 0 && here < this.rows.length;
    this.table.toggleAttribute("data-selecting", this.isSelecting || this.selected.size > 0);
    this.on.select(this.selection());
  }

  has(node) {
    return this.body.contains(node);
  }

  /** The row that has the focus; -1 where none has. */
  get current() {
    return this.rows.findIndex((one) => one.element.contains(document.activeElement));
  }

  /** Moves the focus to another row. */
  step(by) {
    const { current, rows } = this;
    const next = rows[current < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, current + by))];
    next?.element.querySelector("a").focus();
    next?.element.scrollIntoView({ block: "nearest" });
  }

  toggleCurrent() {
    const { current } = this;
    if (current >= 0 && mayWrite()) {
      this.select(current, !this.rows[current].check.checked, false);
    }
  }

  /** Remembers where the focus is in a row; returns what gives it to the row of the same link later, or to the one in its place. */
  holdFocus() {
    const held = this.current;
    if (held < 0) {
      return () => {};
    }
    const [key, at] = [keyOf(this.rows[held].link), controlsOf(this.rows[held]).indexOf(document.activeElement)];
    return () => {
      const now = this.rows.find((one) => keyOf(one.link) === key) ?? this.rows[Math.min(held, this.rows.length - 1)];
      (now ? controlsOf(now)[at] ?? now.check : this.element).focus();
    };
  }
}

function columnsOf(all, sorts) {
  return [
    { title: h("label", { class: "select-all" }, all, h("span", { class: "only-on-phone" }, text.selectAllShort)), class: "col-check" }, { title: sorts.shortCode, class: "col-short" }, { title: text.columns.destination },
    { title: text.columns.tags, class: "col-tags" }, { title: text.columns.app, class: "col-app" }, { title: text.columns.state, class: "col-state" },
    { title: sorts.visits, class: "num col-visits" }, { title: h("span", { title: text.trendScale }, text.columns.trend), class: "col-trend" }, { title: sorts.dateCreated, class: "col-dates" }, { title: text.columns.actions, hidden: true, class: "col-menu" },
  ];
}

const controlsOf = ({ element }) => [...element.querySelectorAll("a, button, input")];

function linkRow(link, check, menuOf) {
  const menu = button(icon("more"), () => openMenu(menu, menuOf(link)), { kind: "icon menu-button", "data-action": "menu", "data-code": link.shortCode, "aria-label": text.menu(link.shortCode), "aria-haspopup": "menu", "aria-expanded": "false" });
  return row(
    { content: check, class: "col-check" },
    { content: shortUrlCell(link), class: "cell-short" },
    { content: [titleLink(link), targetLink(link.longUrl, { class: "target", title: link.longUrl }, bareUrl(link.longUrl))], class: "cell-target" },
    { content: tagList(link.tags, 3), class: "cell-tags" },
    { content: link.app === null ? "–" : clipped(link.app), class: "cell-app" },
    { content: !isBeingDeleted(link) && stateBadge(link), class: "cell-state" },
    { content: number(link.visitsSummary.total), class: "num cell-visits", label: text.visitsLower },
    { content: trendOf(link), class: "cell-trend" },
    { content: [date(link.dateCreated), hasNotableExpiry(link) && h("span", { class: "soft expires" }, Date.parse(link.meta.validUntil) > Date.now() ? text.expires : text.expired, date(link.meta.validUntil))], class: "dates" },
    { content: menu, class: "col-menu" });
}

/** The title of a link, which leads to its page; nothing without a title. On a phone, it also has the destination, which is no target of its own there. */
function titleLink(link) {
  return link.title && pageLink(detailPath(link), outside(link.title), { class: "title", title: link.title, "data-destination": bareUrl(link.longUrl) });
}

function skeleton(columns) {
  return Array.from({ length: SKELETON_ROWS }, () => h("tr", { "aria-hidden": "true" }, h("td", { colspan: columns }, h("div", { class: "skeleton row-skeleton" }))));
}

/** The keyboard shortcuts of the list, and that of the palette. */
export function keyList() {
  return h("dl", { class: "facts" }, [...text.keys, [PALETTE_KEYS, palette.title]].map(([key, said]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, outside(said)))));
}
