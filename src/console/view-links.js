// The list of links: searched, filtered, sorted, page by page; and what can be done with one or many of them.

import { button, emptyState, errorState, fill, h, pageHead, pageLink, setText } from "./dom.js";
import { openDialog } from "./dialog.js";
import { count, number } from "./format.js";
import { createDialog, editDialog } from "./link-form.js";
import { keyOf } from "./api.js";
import { onDeleted } from "./deletes.js";
import { detailPath } from "./link-parts.js";
import { addTags, archive, remove } from "./links-actions.js";
import { linksBar } from "./links-bar.js";
import { exportCsv, exportLines } from "./links-export.js";
import { listKeys } from "./links-keys.js";
import { pager } from "./links-pager.js";
import { readPage } from "./links-pages.js";
import { filterCount, filterOf, paramsOf, withoutFilters } from "./links-query.js";
import { LinksTable, keyList } from "./links-table.js";
import { openMenu } from "./menu.js";
import { toastError } from "./toast.js";

export async function show(main, context) {
  const list = new LinkList(context);
  main.append(list.head, list.bar.element, list.line, list.table.element, list.pager.element);
  const offKeys = listKeys(list);
  const offDeleted = onDeleted(() => list.load());
  list.restore();
  return {
    leave() {
      offKeys();
      offDeleted();
      list.bar.stop();
      list.request?.abort();
    },
    update: () => list.restore(),
  };
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
    this.bar = linksBar((part, { isTyped }) => this.change(part, { replace: isTyped && this.filter.q !== "" }));
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
    const exports = button("Export", () => openMenu(exports, [
      ["CSV", () => exportCsv(this.filter)], ["NDJSON", () => exportLines(this.filter)],
    ]), { "aria-haspopup": "menu", "aria-expanded": "false" });
    return pageHead("Links", button("Keys", () => openDialog("Keys", keyList()), { kind: "quiet", "aria-keyshortcuts": "?" }),
      exports, pageLink("/admin/import", "Import", { class: "button" }), button("New link", () => this.create(), { kind: "primary", "aria-keyshortcuts": "c" }));
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

  /** Loads the page; the old rows stay until the new ones are there. */
  async load() {
    this.request?.abort();
    const request = new AbortController();
    this.request = request;
    this.isLoading = true;
    this.bar.set(this.filter);
    this.table.setSort(this.filter.sort);
    this.table.setBusy(true);
    if (this.links.length === 0) {
      this.table.showSkeleton();
      this.pager.hide();
    }
    setText(this.status, "Looking…");
    fill(this.further);
    try {
      const page = await this.read(request, { cursor: this.cursors.at(-1) });
      this.showPage(page, page.links);
    } catch (error) {
      this.showError(error, request);
    }
  }

  read(request, { before = () => [], ...options }) {
    let isEnough = false;
    const stop = button("Stop", () => { isEnough = true; }, { kind: "quiet" });
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
        setText(this.status, `Looking further: ${count(found.length, "link")} on this page so far…`);
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
    const many = page.isExact ? count(page.total, "link") : this.isRanked(page) ? `${count(page.total, "link")} that were followed most` : `At least ${count(page.total, "link")}`;
    setText(this.status, `${many} · ${number(page.millis)} ms${page.isOpen ? " · not all were looked through" : ""}`);
    fill(this.further, page.isOpen && button("Look further", () => this.lookFurther()));
    this.pager.set({ page: this.cursors.length, hasNext: page.next !== null && !page.isOpen, size: this.filter.size });
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
        toastError(error, "It could not look further.");
      }
    }
  }

  /** Whether these are not all, but those among the links of the node that are followed most: it does not sort more by visits. */
  isRanked(page) {
    return this.filter.sort === "visits-DESC" && !page.isExact;
  }

  newestFirst() {
    return button("The newest first", () => this.change({ sort: "dateCreated-DESC" }, {}), { kind: "primary" });
  }

  nothing(page) {
    if (this.isRanked(page)) {
      return emptyState("None of these links is among those that were followed most", "They are too many to be sorted by visits. Narrow the list with a filter, or let the newest come first.", this.newestFirst());
    }
    const { from, to } = this.filter;
    if (from !== "" && to !== "" && from > to) {
      return emptyState("The dates are the wrong way round", "No link was created after the first and before the last of them.", button("Swap them", () => this.change({ from: to, to: from }, {})));
    }
    if (page.isOpen) {
      return emptyState("Nothing found so far", "Not all links were looked through. Look further, or narrow the search with a filter.", button("Look further", () => this.lookFurther()));
    }
    if (this.filter.q !== "" || filterCount(this.filter) > 0) {
      return emptyState("No link is like that", "Search for something else, or take the filters away.", button("Clear search and filters", () => this.change(null, {})));
    }
    return emptyState("There are no links yet", "Make the first one, or import many from a file.", button("New link", () => this.create(), { kind: "primary" }), " ", pageLink("/admin/import", "Import", { class: "button" }));
  }

  tooMany() {
    return emptyState("Too many links for this order", "The node sorts some thousands at most. Narrow the list with a filter, or let the newest come first.", this.newestFirst());
  }

  showError(error, request) {
    if (error.name === "AbortError" || request !== this.request) {
      return;
    }
    this.isLoading = false;
    this.links = [];
    this.table.setBusy(false);
    setText(this.status, "");
    fill(this.further);
    this.table.showNothing(error.fields?.includes("orderBy") ? this.tooMany() : errorState(error, () => this.load()));
    this.pager.set({ page: this.cursors.length, hasNext: false, size: this.filter.size });
  }

  showSelection(links) {
    const many = links.length;
    this.selection.hidden = many === 0;
    this.status.hidden = this.further.hidden = many > 0;
    if (many === 0) {
      fill(this.selection);
      return;
    }
    const changed = (done) => this.changed(done);
    fill(this.selection, h("b", { role: "status" }, `${number(many)} selected`),
      // What was done to them since they were selected counts.
      button("Archive", () => archive(this.table.selection(), true, changed)),
      button("Bring back", () => archive(this.table.selection(), false, changed)),
      button("Add tags", () => addTags(this.table.selection(), changed)),
      button("Delete", () => this.remove(this.table.selection()), { kind: "danger" }),
      button("Clear selection", () => this.table.clear(), { kind: "quiet" }));
  }

  menuOf(link) {
    const changed = (done) => this.changed(done);
    return [
      ["Open", () => this.context.go(detailPath(link))],
      ["Edit", () => editDialog(link, (now) => this.changed([now]))],
      [link.archived ? "Bring back" : "Archive", () => archive([link], !link.archived, changed)],
      ["Add tags", () => addTags([link], changed)],
      ["Delete", () => this.remove([link]), "danger"],
    ];
  }

  /** Draws links as they are now, where they are. */
  changed(links) {
    const now = new Map(links.map((link) => [keyOf(link), link]));
    this.links = this.links.map((link) => now.get(keyOf(link)) ?? link);
    links.forEach((link) => this.table.replace(link));
  }

  async remove(links) {
    if (await remove(links, () => this.load())) {
      this.table.clear();
    }
  }

  /** Its choices are loaded first: a second press meanwhile means the same dialog. */
  async create() {
    if (this.isCreating) {
      return;
    }
    this.isCreating = true;
    const made = await createDialog().finally(() => { this.isCreating = false; });
    if (made) {
      this.load();
    }
  }
}
