// Links: a table over all of them, with a search, filters, and what can be done to one or many.

import { get, lineBatches, send, withQuery } from "./api.js";
import { toCsv } from "./csv.js";
import { onDelete } from "./deletes.js";
import { confirmDialog, formDialog, openDialog } from "./dialog.js";
import { actionButton, button, card, emptyState, errorState, fill, h, loadingState, pageHead, pageLink, setText } from "./dom.js";
import { field, splitTags } from "./field.js";
import * as format from "./format.js";
import { changeMany, deleteLinks, setArchived } from "./link-actions.js";
import { createLink, editLink, knownDomains } from "./link-form.js";
import { linkPage } from "./link-page.js";
import { filterOf, filters, isFiltered, listQuery, queryOf, wantedOf } from "./links-query.js";
import { linksTable } from "./links-table.js";
import { toastError } from "./toast.js";

/** Answers that are asked for one after the other while a page is not full: a search looks for a quarter of a second each time. */
const STEPS_MAX = 40;
/** Rows of a CSV that are held in memory before it is offered. */
const CSV_MAX = 1_000_000;

const KEYS = [["/", "search"], ["j, k or arrows", "next and previous link"], ["Enter", "open the link"], ["x", "choose the link"], ["e", "edit the link"], ["?", "this list"]];

export async function show(main, context) {
  const page = new LinksPage(context);
  main.append(pageHead("Links", page.headActions()));
  const host = h("div", { class: "stack" }, loadingState(10));
  main.append(host);
  const [domains, apps] = await Promise.all([knownDomains(context.signal), knownApps(context.signal)]);
  page.draw(host, { domains, apps });
  await page.load();
  return { leave: () => page.leave(), update: () => page.follow() };
}

async function knownApps(signal) {
  const told = await get("/apps", { signal }).catch(() => ({ apps: [] }));
  return told.apps.map(({ app }) => app);
}

class LinksPage {
  constructor(context) {
    this.context = context;
    this.wanted = wantedOf(context.query);
    // Where the pages before this one begin; the first begins nowhere.
    this.cursors = [undefined];
    this.next = null;
    this.chosen = [];
    this.domains = [];
    this.said = h("p", { class: "soft list-said", role: "status" });
    this.result = h("div");
  }

  headActions() {
    return [
      button("Keys", () => showKeys(), { kind: "quiet" }),
      pageLink("/admin/import", "Import", { class: "button" }),
      button("Export", () => this.exportAll()),
      button("New link", () => this.create(), { kind: "primary" }),
    ];
  }

  draw(host, { domains, apps }) {
    const { signal } = this.context;
    this.domains = domains;
    this.filters = filters(this.wanted, (changes, options) => this.choose(changes, options), signal, { domains, apps });
    this.table = linksTable({
      open: (link) => this.context.go(linkPage(link)),
      edit: (link) => this.reloadAfter(editLink(link, () => this.load())),
      archive: (link) => this.reloadAfter(setArchived(link, !link.archived, () => this.load())),
      remove: (link) => deleteLinks([link]),
      choose: (links) => this.drawBulk(links),
    });
    this.bulk = h("div", { class: "bulk line", hidden: true });
    this.back = button("Previous", () => this.turn(-1));
    this.forth = button("Next", () => this.turn(1));
    fill(host, this.filters.element, card("All links", { className: "list-card", beside: this.said }, this.bulk, this.result),
      h("div", { class: "line pager" }, this.back, this.forth));
    this.filters.show();
    this.endDeletes = onDelete(() => this.load());
    document.addEventListener("keydown", (event) => this.press(event), { signal });
  }

  leave() {
    this.endDeletes?.();
    this.under?.abort();
  }

  /** The address has changed by going back or forward. */
  follow() {
    Object.assign(this.wanted, wantedOf(this.context.query));
    this.filters.show();
    this.restart();
  }

  choose(changes, { isAnew = false } = {}) {
    Object.assign(this.wanted, changes);
    this.context.setQuery(queryOf(this.wanted), { replace: "searchTerm" in changes && !isAnew });
    if (isAnew || !("searchTerm" in changes)) {
      this.filters.show();
    }
    this.restart();
  }

  restart() {
    this.cursors = [undefined];
    this.load();
  }

  turn(by) {
    if (by > 0) {
      this.cursors.push(this.next);
    } else {
      this.cursors.pop();
    }
    this.load();
    this.result.scrollIntoView({ block: "nearest" });
  }

  async reloadAfter(done) {
    if (await done) {
      await this.load();
    }
  }

  async create() {
    const link = await createLink(this.domains);
    if (link) {
      this.context.go(linkPage(link));
    }
  }

  /** Loads the page that the last cursor begins. What was there stays until the first rows come. */
  async load() {
    this.under?.abort();
    const own = new AbortController();
    this.under = own;
    const signal = AbortSignal.any([own.signal, this.context.signal]);
    const began = performance.now();
    this.result.setAttribute("aria-busy", "true");
    if (this.result.childElementCount === 0) {
      fill(this.result, loadingState(10));
    }
    try {
      await this.collect(signal, began);
    } catch (error) {
      if (error.name !== "AbortError") {
        fill(this.result, errorState(error, () => this.load()));
        setText(this.said, "");
      }
    } finally {
      if (this.under === own) {
        this.result.removeAttribute("aria-busy");
      }
    }
  }

  /** A search may have looked at some links only: it goes on by itself while the page is not full, and shows what it has. */
  async collect(signal, began) {
    const size = Number(this.wanted.size || 50);
    const links = [];
    let cursor = this.cursors.at(-1);
    for (let step = 1; ; step += 1) {
      const { data, pagination } = (await get("/rest/v3/short-urls", { query: { ...listQuery(this.wanted, cursor), itemsPerPage: size - links.length }, signal })).shortUrls;
      links.push(...data);
      cursor = pagination.cursor;
      const isDone = cursor === null || links.length >= size || pagination.complete;
      const goesOn = !isDone && step < STEPS_MAX;
      this.showPage(links, { ...pagination, goesOn, isDone, ms: performance.now() - began });
      if (!goesOn) {
        return;
      }
    }
  }

  showPage(links, { cursor, complete, totalItems, goesOn, isDone, ms }) {
    this.next = cursor;
    this.table.set(links);
    if (links.length === 0 && isDone) {
      fill(this.result, isFiltered(this.wanted)
        ? emptyState("No link is like that", "Take filters away, or search for something else.", button("Clear filters", () => this.choose(Object.fromEntries(Object.keys(this.wanted).map((name) => [name, ""])), { isAnew: true })))
        : emptyState("No links yet", "Make the first one here, by the API, or import a file.", button("New link", () => this.create(), { kind: "primary" }), pageLink("/admin/import", "Import a file", { class: "button" })));
    } else if (links.length > 0 && this.result.firstElementChild !== this.table.element) {
      fill(this.result, this.table.element);
    } else if (links.length === 0) {
      fill(this.result, loadingState(6, "Searching…"));
    }
    const found = complete ? format.count(totalItems, "link") : `at least ${format.count(Math.max(totalItems, links.length), "link")}`;
    const more = goesOn ? ", searching on…" : !isDone && links.length === 0 ? ", nothing found in the newest links" : "";
    setText(this.said, `${found}${more} · ${format.number(ms)} ms`);
    this.back.disabled = this.cursors.length === 1;
    this.forth.disabled = cursor === null;
    setText(this.forth, !isDone && !goesOn ? "Look further" : "Next");
    if (!goesOn && !isDone && links.length === 0) {
      fill(this.result, emptyState("Nothing so far", "The newest links were looked through. Older ones can be looked through as well.", button("Look further", () => this.turn(1), { kind: "primary" })));
    }
  }

  /** What can be done to those that are chosen. */
  drawBulk(links) {
    this.chosen = links;
    this.bulk.hidden = links.length === 0;
    if (links.length === 0) {
      return;
    }
    const many = (label, change) => actionButton(label, () => this.changeChosen(change));
    fill(this.bulk, h("b", null, `${format.count(links.length, "link")} chosen`),
      many("Archive", () => ({ archived: true })), many("Bring back", () => ({ archived: false })),
      button("Add tags", () => this.tagChosen()), button("Delete", () => this.deleteChosen(), { kind: "danger" }));
  }

  async changeChosen(change) {
    const links = this.chosen;
    const bar = h("progress", { max: links.length, value: 0, "aria-label": "Links changed" });
    this.bulk.append(bar);
    await changeMany(links, change, (done) => {
      bar.value = done;
    });
    await this.load();
  }

  async tagChosen() {
    const tags = await formDialog(`Add tags to ${format.count(this.chosen.length, "link")}`, {
      fields: [field({ name: "tags", label: "Tags", hint: "With commas between them.", read: splitTags })],
      action: "Add", submit: ({ tags: typed }) => typed,
    });
    if (tags?.length > 0) {
      await this.changeChosen((link) => ({ tags: [...new Set([...link.tags, ...tags])] }));
    }
  }

  async deleteChosen() {
    const links = this.chosen;
    const isSure = links.length === 1 || await confirmDialog(`Delete ${format.count(links.length, "link")}?`, "They lead nowhere at once. You can bring them back for some seconds.", { action: "Delete" });
    if (isSure) {
      await deleteLinks(links);
    }
  }

  /** Everything that the filters leave, in the browser's hands. */
  async exportAll() {
    const query = filterOf(this.wanted);
    const path = withQuery("/rest/v3/short-urls/export", query);
    const csv = actionButton("As CSV", async () => {
      dialog.close();
      await saveCsv(path, this.context.signal).catch((error) => toastError(error, "Nothing was exported."));
    });
    const lines = h("a", { class: "button primary", href: path, download: "links.ndjson", onclick: () => setTimeout(() => dialog.close()) }, "As NDJSON");
    const which = isFiltered(this.wanted) ? "All links that the filters leave" : "All links";
    const dialog = openDialog("Export", h("p", null, `${which}, one a line. NDJSON can be imported again with everything that a link has; CSV opens in a spreadsheet.`), { actions: [csv, lines] });
  }

  press(event) {
    const isTyping = event.target.closest?.("input:not([type=checkbox]), select, textarea, dialog, button, a, summary");
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) {
      return;
    }
    const act = event.key === "?" ? showKeys : this.table.keys[event.key];
    const isMove = ["j", "k", "?"].includes(event.key);
    if (act && (!isTyping || (isMove && !event.target.closest("input:not([type=checkbox]), select, textarea")))) {
      event.preventDefault();
      act();
    }
  }
}

function showKeys() {
  openDialog("Keys", h("dl", { class: "facts" }, KEYS.map(([key, does]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, does)))));
}

/** Reads an export and offers it as a file that spreadsheets open. */
async function saveCsv(path, signal) {
  const response = await send("GET", path, { timeout: 0, signal });
  const pieces = [toCsv.head];
  let links = 0;
  for await (const batch of lineBatches(response)) {
    const problem = batch.find((line) => line.error !== undefined);
    if (problem) {
      throw new Error(problem.error.detail);
    }
    links += batch.length;
    if (links > CSV_MAX) {
      throw new Error(`There are more than ${format.number(CSV_MAX)}: narrow the filters, or export them as NDJSON.`);
    }
    pieces.push(batch.map(toCsv.line).join(""));
  }
  const url = URL.createObjectURL(new Blob(pieces, { type: "text/csv" }));
  h("a", { href: url, download: "links.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
