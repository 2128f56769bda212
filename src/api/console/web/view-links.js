// The list of links: searched, filtered, sorted, page by page; and what can be done with one or many of them.

import { button, card, copyText, emptyState, errorState, fill, h, iconState, pageHead, pageLink, setText } from "./dom.js";
import { openDialog } from "./dialog.js";
import { createDialog, editDialog, onCreated } from "./link-form.js";
import { linkOpener } from "./link-opener.js";
import { keyOf } from "./api.js";
import { isBeingDeleted, onDeleted } from "./deletes.js";
import { clock } from "./format.js";
import { detailPath, openQr } from "./link-parts.js";
import { addTags, archive, remove, removeTags, setExpiry } from "./links-actions.js";
import { linksBar } from "./links-bar.js";
import { hasAllLinks, mayWrite } from "./rights.js";
import { exportCsv, exportLines } from "./links-export.js";
import { chooseColumns } from "./links-columns.js";
import { listKeys } from "./links-keys.js";
import { pager } from "./links-pager.js";
import { readPage } from "./links-pages.js";
import { filterCount, filterOf, paramsOf, withoutFilters } from "./links-query.js";
import { savedMenu } from "./links-saved.js";
import { LinksTable, keyList } from "./links-table.js";
import { openMenu, pageMenu } from "./menu.js";
import { missingHere } from "./shared-home.js";
import { actions, list as text, opener } from "./strings-links.js";
import { common, pages, sharedHome } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";

/** The longest wait before a list that the node sorts is asked for again, in seconds. */
const SORTING_ASKED_S = 5;

export async function show(main, context) {
  if (!hasAllLinks()) {
    showOpener(main, context);
    return null;
  }
  const list = new LinkList(context);
  main.append(list.head, list.bar.element, list.line, list.table.element, list.pager.element);
  const reload = () => list.load();
  const offs = [listKeys(list), onCreated(reload), onDeleted(reload)];
  list.restore();
  return {
    leave() {
      offs.forEach((off) => off());
      list.bar.stop();
      list.request?.abort();
    },
    update: () => list.restore(),
  };
}

/** The page where the node cannot list links: a form that opens a single one. */
function showOpener(main, { go }) {
  main.append(
    pageHead(pages.links, mayWrite() && [pageLink("/admin/import", text.import, { class: "button" }), button(text.create, () => createDialog(), { kind: "primary", "data-action": "new-link" })]),
    card(opener.title, {}, linkOpener(go)),
    h("div", { class: "card", "data-missing": "all-links" }, missingHere(sharedHome.links, sharedHome.ofLinks)));
}

class LinkList {
  constructor(context) {
    this.context = context;
    this.filter = filterOf(context.query);
    this.links = [];
    /** Where the pages begin that were seen so far; the last one is shown. */
    this.cursors = [null];
    this.next = null;
    this.request = null;
    this.saved = savedMenu({ query: () => paramsOf(this.filter).toString(), apply: (query) => this.apply(filterOf(new URLSearchParams(query))) });
    const columns = button(text.openColumns, () => chooseColumns(columns, this.table.table), { "data-action": "columns", "aria-expanded": "false" });
    this.bar = linksBar((part, { isTyped }) => this.change(part, { replace: isTyped && this.filter.q !== "" }), this.saved.opener, columns);
    this.table = new LinksTable({ sort: (field) => this.sortBy(field), select: (links) => this.showSelection(links), menu: (link) => this.menuOf(link) });
    this.pager = pager({
      previous: () => this.turn(this.cursors.slice(0, -1)),
      next: () => this.turn([...this.cursors, this.next]),
      size: (size) => this.change({ size }, {}),
    });
    this.status = h("p", { role: "status", class: "list-status" });
    this.further = h("span", { class: "line" });
    this.selection = h("div", { class: "line", hidden: true });
    this.line = h("div", { class: "list-line" }, this.status, this.further, this.selection);
    this.head = this.drawHead();
  }

  drawHead() {
    const exports = button(text.export, () => openMenu(exports, [
      ["CSV", () => exportCsv(this.filter), { name: "export-csv" }], ["NDJSON", () => exportLines(this.filter), { name: "export-ndjson" }],
    ]), { "data-action": "export", "aria-haspopup": "menu", "aria-expanded": "false" });
    return pageHead(pages.links, button(text.shortcuts, () => openDialog(text.shortcutsTitle, keyList()), { kind: "quiet", "data-action": "shortcuts", "aria-keyshortcuts": "?" }),
      exports, mayWrite() && pageLink("/admin/import", text.import, { class: "button" }), mayWrite() && button(text.create, () => createDialog(), { kind: "primary", "data-action": "new-link", "aria-keyshortcuts": "c" }),
      pageMenu(() => this.pageActions()));
  }

  /** What a phone has no room for beside the title. */
  pageActions() {
    return [
      ...(mayWrite() ? [[text.selectLinks, () => this.table.startSelecting(), { name: "select" }]] : []),
      [text.exportAs("CSV"), () => exportCsv(this.filter), { name: "export-csv" }],
      [text.exportAs("NDJSON"), () => exportLines(this.filter), { name: "export-ndjson" }],
      ...(mayWrite() ? [[text.import, () => this.context.go("/admin/import"), { name: "import" }]] : []),
    ];
  }

  /** Shows what the address says, as after a reload or a step back. */
  restore() {
    this.filter = filterOf(this.context.query);
    this.cursors = history.state?.cursors ?? [null];
    this.bar.set(this.filter, { isMeant: true });
    this.table.clear();
    this.load();
  }

  /** Changes a part of the filter, or, with nothing, takes all filters away. */
  change(part, { replace = false }) {
    this.filter = part === null ? withoutFilters(this.filter) : { ...this.filter, ...part };
    this.cursors = [null];
    this.context.setQuery(paramsOf(this.filter), { replace });
    if (part === null) {
      this.bar.set(this.filter, { isMeant: true });
    }
    this.table.clear();
    this.load();
  }

  /** Sets a whole filter, as a saved one. */
  apply(filter) {
    this.filter = filter;
    this.cursors = [null];
    this.context.setQuery(paramsOf(filter));
    this.bar.set(filter, { isMeant: true });
    this.table.clear();
    this.load();
  }

  sortBy(field) {
    const isSame = this.filter.sort === `${field}-DESC`;
    this.change({ sort: isSame && field !== "visits" ? `${field}-ASC` : `${field}-DESC` }, {});
  }

  turn(cursors) {
    // A second click while a page is on its way would turn one that nobody has seen.
    if (this.isLoading) {
      return;
    }
    this.cursors = cursors;
    // Who comes back from the page of a link finds the same page of the list.
    history.replaceState({ cursors }, "");
    this.load();
    this.line.scrollIntoView({ block: "start" });
  }

  /** Loads the page; the old rows stay until the new ones are there, and so does what is shown while the node sorts the list. */
  async load({ isSorting = false } = {}) {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    this.isLoading = true;
    this.bar.set(this.filter);
    this.saved.update();
    this.table.setSort(this.filter.sort);
    this.table.setBusy(true);
    if (this.links.length === 0 && !isSorting) {
      this.table.showSkeleton();
      this.pager.hide();
    }
    if (!isSorting) {
      setText(this.status, text.searching);
    }
    fill(this.further);
    try {
      const page = await this.read(request, { cursor: this.cursors.at(-1) });
      this.showPage(page, page.links);
    } catch (error) {
      this.showError(error, request, isSorting);
    }
  }

  read(request, { before = () => [], ...options }) {
    let isEnough = false;
    const stop = button(common.stop, () => { isEnough = true; }, { kind: "quiet", "data-action": "stop" });
    return readPage(this.filter, {
      ...options,
      signal: request.signal,
      shouldStop: () => isEnough,
      onPart: (links) => {
        // What is found is shown at once, whatever else there may be.
        const found = [...before(), ...links];
        if (found.length > 0) {
          this.table.setLinks(found);
        }
        setText(this.status, text.searchingOn(found.length));
        fill(this.further, stop);
      },
    });
  }

  showPage(page, links) {
    this.isLoading = false;
    this.links = links;
    this.page = page;
    this.next = page.next;
    this.table.setBusy(false);
    if (links.length === 0) {
      this.table.showNothing(this.nothing(page));
    } else {
      this.table.setLinks(links);
    }
    this.showCount();
    fill(this.further, page.isOpen && this.furtherButton());
    const hasNext = page.next !== null && !page.isOpen;
    this.pager.set({ page: this.cursors.length, hasNext, isEmpty: links.length === 0 && this.cursors.length === 1 && !hasNext, links: links.length, size: this.filter.size });
  }

  /** Says how many links there are, without those of this page that are being deleted. */
  showCount() {
    const { page } = this;
    const leaving = this.links.filter(isBeingDeleted).length;
    const found = page.isExact ? text.found(page.total, leaving) : this.isRanked() ? text.foundRanked(page.total) : text.foundPart(page.total);
    setText(this.status, page.sortedAt === undefined ? found : text.foundAsOf(found, clock(Date.parse(page.sortedAt))));
    this.status.title = text.took(page.millis);
  }

  /** Goes on filling the page that is shown. */
  async lookFurther() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    const kept = this.links.length;
    // They may be changed meanwhile.
    const before = () => this.links.slice(0, kept);
    try {
      const page = await this.read(request, { before, cursor: this.next, size: Number(this.filter.size) - kept });
      this.showPage(page, [...before(), ...page.links]);
    } catch (error) {
      if (error.name !== "AbortError" && request === this.request) {
        // What was found stays.
        this.showPage(this.page, before());
        toastError(error, text.furtherFailed);
      }
    }
  }

  /** Whether the node takes the first pages from a ranking, and counts the links only for the pages behind it. */
  isRanked() {
    return this.filter.sort === "visits-DESC";
  }

  newestFirst() {
    return button(text.newestFirst, () => this.change({ sort: "dateCreated-DESC" }, {}), { kind: "primary", "data-action": "newest-first" });
  }

  furtherButton() {
    return button(text.further, () => this.lookFurther(), { "data-action": "search-further" });
  }

  nothing(page) {
    const { from, to } = this.filter;
    if (from !== "" && to !== "" && from > to) {
      return emptyState(text.datesSwapped, text.datesSwappedText, button(text.swapDates, () => this.change({ from: to, to: from }, {}), { "data-action": "swap-dates" }));
    }
    if (page.isOpen) {
      return emptyState(text.nothingYet, text.nothingYetText, this.furtherButton());
    }
    if (this.filter.q !== "" || filterCount(this.filter) > 0) {
      return iconState("search", text.nothing, text.nothingText, button(text.clearAll, () => this.change(null, {}), { "data-action": "clear-all" }));
    }
    if (!mayWrite()) {
      return iconState("links", text.empty, text.emptyReadOnly);
    }
    return iconState("links", text.empty, text.emptyText, button(text.create, () => createDialog(), { kind: "primary", "data-action": "first-link" }), pageLink("/admin/import", text.import, { class: "button" }));
  }

  /** Shows how far the node has sorted the list, and asks again when it may be done. A busy node may not say how far it is. */
  showSorting({ problem, retryAfter }, request) {
    if (!this.sorting?.isConnected) {
      this.sorting = emptyState("", text.sortingText, this.newestFirst());
      this.table.showNothing(this.sorting);
    }
    if (problem?.sortedPercent !== undefined) {
      // The button keeps the focus.
      setText(this.sorting.querySelector(".state-title"), text.sorting(problem.sortedPercent));
    }
    const timer = setTimeout(() => this.load({ isSorting: true }), 1_000 * Math.min(retryAfter ?? SORTING_ASKED_S, SORTING_ASKED_S));
    request.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  }

  showError(error, request, wasSorting = false) {
    if (error.name === "AbortError" || request !== this.request) {
      return;
    }
    this.isLoading = false;
    this.links = [];
    this.table.setBusy(false);
    setText(this.status, "");
    fill(this.further);
    const isSorting = error.problem?.sortedPercent !== undefined || wasSorting && error.status === 503 && this.sorting?.isConnected;
    if (isSorting) {
      this.showSorting(error, request);
    } else {
      this.table.showNothing(errorState(error, () => this.load()));
    }
    this.pager.set({ page: this.cursors.length, hasNext: false, isEmpty: false, links: 0, size: this.filter.size });
  }

  showSelection(links) {
    const many = links.length;
    const isOn = many > 0 || this.table.isSelecting;
    this.selection.hidden = !isOn;
    this.status.hidden = this.further.hidden = isOn;
    this.selection.dataset.selected = many;
    if (many === 0) {
      fill(this.selection, isOn && [h("b", { role: "status" }, text.selectHint), button(common.cancel, () => this.table.clear(), { kind: "quiet", "data-action": "clear-selection" })]);
      return;
    }
    const changed = (done) => this.changed(done);
    fill(this.selection, h("b", { role: "status" }, text.selected(many)),
      // What was done to them since they were selected counts.
      button(actions.archive, () => archive(this.table.selection(), true, changed), { "data-action": "archive" }),
      button(actions.restore, () => archive(this.table.selection(), false, changed), { "data-action": "restore" }),
      button(actions.addTags, () => addTags(this.table.selection(), changed), { "data-action": "add-tags" }),
      button(actions.removeTags, () => removeTags(this.table.selection(), changed), { "data-action": "remove-tags" }),
      button(actions.setExpiry, () => setExpiry(this.table.selection(), changed), { "data-action": "set-expiry" }),
      button(actions.delete, () => this.remove(this.table.selection()), { kind: "danger", "data-action": "delete" }),
      button(text.clearSelection, () => this.table.clear(), { kind: "quiet", "data-action": "clear-selection" }));
  }

  menuOf(link) {
    const changed = (done) => this.changed(done);
    const uses = [
      [actions.details, () => this.context.go(detailPath(link)), { name: "details" }],
      [actions.visit, () => window.open(link.shortUrl, "_blank", "noopener,noreferrer"), { name: "visit" }],
      [actions.qr, () => openQr(link), { name: "qr" }],
      [actions.copy, async () => toast(await copyText(link.shortUrl) ? common.copied : common.notCopied), { name: "copy-url" }],
    ];
    if (!mayWrite()) {
      return uses;
    }
    if (isBeingDeleted(link)) {
      return [uses[0], [actions.restore, () => archive([link], false, changed), { name: "restore" }]];
    }
    return [
      ...uses,
      [actions.edit, () => editDialog(link, (now) => this.changed([now])), { name: "edit" }],
      [link.archived ? actions.restore : actions.archive, () => archive([link], !link.archived, changed), { name: link.archived ? "restore" : "archive" }],
      [actions.addTags, () => addTags([link], changed), { name: "add-tags" }],
      ...(link.tags.length > 0 ? [[actions.removeTags, () => removeTags([link], changed), { name: "remove-tags" }]] : []),
      [actions.delete, () => this.remove([link]), { name: "delete", kind: "danger" }],
    ];
  }

  /** Draws links as they are now, where they are. */
  changed(links) {
    const now = new Map(links.map((link) => [keyOf(link), link]));
    this.links = this.links.map((link) => now.get(keyOf(link)) ?? link);
    links.forEach((link) => this.table.replace(link));
    if (!this.isLoading && this.links.length > 0) {
      this.showCount();
    }
  }

  async remove(links) {
    if (await remove(links, () => this.load())) {
      this.table.clear();
    }
  }
}
