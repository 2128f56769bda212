// Tags: the links and visits of each, filtered and sorted; for keys that may change all links, with what renames, merges and deletes them.

import { get, withQuery } from "./api.js";
import { button, card, emptyState, h, iconState, outside, pageHead, pageLink, regionTable, row, setText } from "./dom.js";
import { joinTags } from "./field.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { openMenu } from "./menu.js";
import { filterClearer, filterField, numberOr, onBar, reloader } from "./parts.js";
import { hasAllLinks, mayRetag } from "./rights.js";
import { missingHere } from "./shared-home.js";
import { common, pages, sharedHome } from "./strings-shell.js";
import { tags as text } from "./strings-tags.js";
import { units } from "./strings-traffic.js";
import { deleteTag, renameTag } from "./tag-actions.js";

const PER_PAGE = 100;
const WAIT_MS = 200;

/** The order that nobody has chosen: by visits, or by name where the node does not sort by visits. */
const [USUAL_SORT, OTHER_SORT] = ["visits-DESC", "tag-ASC"];

/** What the address says: the filter, the order, which is `null` for the usual one, and the page. */
function stateOf(query) {
  const [sort, page] = [query.get("sort"), Number(query.get("page"))];
  return { q: query.get("q") ?? "", sort: Object.hasOwn(text.sorts, sort) ? sort : null, page: Number.isSafeInteger(page) && page > 0 ? page : 1 };
}

/** The query of the address for a state. */
function paramsOf({ q, sort, page }) {
  const usual = { q: "", sort: null, page: 1 };
  return new URLSearchParams(Object.entries({ q, sort, page }).filter(([name, value]) => value !== usual[name]));
}

export async function show(main, context) {
  if (!hasAllLinks()) {
    const toLinks = pageLink("/admin/links", sharedHome.toLinks, { class: "button" });
    main.append(pageHead(pages.tags), h("div", { class: "card", "data-missing": "all-links" }, missingHere(sharedHome.tags, sharedHome.ofTags, toLinks)));
    return null;
  }
  const { signal } = context;
  const host = h("div", { class: "stack" });
  const status = h("p", { class: "list-status", role: "status" });
  let state = stateOf(context.query);
  let timer;
  const change = (part, { isTyped = false } = {}) => {
    const before = state;
    // What was typed just before goes along.
    state = { ...state, q: filter.value, page: 1, ...part };
    context.setQuery(paramsOf(state), { replace: isTyped && before.q !== "" });
    update({ isTyped });
  };
  const filter = filterField({
    label: text.filter, placeholder: text.filter, value: state.q, signal,
    onInput(typed) {
      clearTimeout(timer);
      timer = setTimeout(() => change({ q: typed }, { isTyped: true }), WAIT_MS);
    },
  });
  const sort = h("select", { "data-action": "sort", onchange: () => change({ sort: sort.value }) }, Object.entries(text.sorts).map(([value, said]) => h("option", { value }, said)));
  const clearer = filterClearer(filter, () => {
    filter.value = "";
    change({ q: "" });
  });
  const load = reloader(host, {
    signal,
    lines: 10,
    async fetch(ends) {
      setText(status, "");
      return tagsOf(state, ends);
    },
    render: (found) => {
      setText(status, found.wrongOrder ? "" : text.found(found.pagination.totalItems));
      sort.value = found.sort;
      return content(found, { state, change, clear: clearer.clear, reload: () => !signal.aborted && load(), go: context.go });
    },
  });
  const update = ({ isTyped = false } = {}) => {
    if (!isTyped) {
      clearTimeout(timer);
      filter.value = state.q;
    }
    sort.value = state.sort ?? USUAL_SORT;
    clearer.set(state.q !== "");
    return load();
  };
  main.append(pageHead(pages.tags), h("div", { class: "toolbar" }, filter, h("label", { class: "tick order" }, h("span", null, text.sort), sort), clearer.element, status), host);
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  update();
  return {
    update() {
      state = stateOf(context.query);
      update();
    },
  };
}

/** A page of tags, and their order. Sorts by name where nobody has chosen an order and the node cannot sort by visits. */
async function tagsOf({ sort, ...asked }, signal) {
  const found = await tagsBy(sort ?? USUAL_SORT, asked, signal);
  return found.wrongOrder && sort === null ? tagsBy(OTHER_SORT, asked, signal) : found;
}

/** A page of tags, which have hyphens for spaces. The node sorts by visits only where the tags have not too many links. */
async function tagsBy(sort, { q, page }, signal) {
  try {
    const { tags } = await get("/rest/v3/tags/stats", { query: { searchTerm: q.trim().replaceAll(" ", "-"), orderBy: sort, page, itemsPerPage: PER_PAGE }, signal });
    return { ...tags, sort };
  } catch (error) {
    if (error.fields?.includes("orderBy")) {
      return { sort, wrongOrder: true };
    }
    throw error;
  }
}

function content(found, { state, change, clear, reload, go }) {
  if (found.wrongOrder) {
    return h("div", { class: "card" }, emptyState(text.cannotSort, text.cannotSortText, button(text.byName, () => change({ sort: OTHER_SORT }), { kind: "primary", "data-action": "sort-by-name" })));
  }
  const { data, pagination, sort } = found;
  if (data.length === 0) {
    return h("div", { class: "card" }, nothing(state, { change, clear }));
  }
  const withActions = mayRetag();
  const largest = Math.max(...data.map(({ visitsSummary }) => visitsSummary?.total ?? 0));
  const columns = [
    { title: text.columns.tag }, { title: text.columns.links, class: "num" }, { title: text.columns.visits, class: "num" }, { title: text.columns.bots, class: "num" },
    { title: text.columns.actions, hidden: true },
  ];
  const { element, table } = regionTable(text.label, columns, data.map((one) => tagRow(one, largest, withActions, { reload, go })));
  table.classList.add("tag-table", "rows");
  return [card(text.sortedBy[sort], { beside: h("small", null, text.allTime) }, element), pagerOf(pagination, change)];
}

function nothing({ q, page }, { change, clear }) {
  if (page > 1) {
    return emptyState(text.nothing, null, button(text.previous, () => change({ page: page - 1 }), { "data-action": "previous" }));
  }
  return q.trim() === "" ? iconState("tags", text.empty, text.emptyText, pageLink("/admin/links", text.toLinks, { class: "button" }))
    : iconState("search", text.nothing, text.nothingText, button(common.clearFilter, clear, { "data-action": "clear-filter" }));
}

/** The row of a tag, on a bar that compares its visits with those of the `largest`. */
function tagRow(one, largest, withActions, { reload, go }) {
  const { tag, shortUrlsCount, visitsSummary } = one;
  const links = withQuery("/admin/links", { tags: joinTags([tag]) });
  const num = (shown, role, label) => ({ content: shown, class: `num unit ${role}`, label });
  const items = [
    [text.analytics, () => go(withQuery("/admin/usage", { tag })), { name: "tag-analytics" }],
    ...(withActions ? [
      [text.rename, () => renameTag(one, reload), { name: "rename-tag" }],
      [text.delete, () => deleteTag(one, reload), { name: "delete-tag", kind: "danger" }],
    ] : []),
  ];
  const menu = button(icon("more"), () => openMenu(menu, items), { kind: "icon menu-button", "data-action": "tag-menu", "aria-label": text.actionsFor(tag), "aria-haspopup": "menu", "aria-expanded": "false" });
  return row(
    { content: onBar(visitsSummary?.total, largest, pageLink(links, outside(tag, { class: "tag", title: tag }), { class: "pick", "data-action": "tag-links" })), class: "fluid lead" },
    num(pageLink(links, format.number(shortUrlsCount), { "aria-label": text.linksOf(tag, shortUrlsCount) }), "fact", units.links(shortUrlsCount)),
    num(numberOr(visitsSummary?.total, text.notCounted), "figure", units.visits(visitsSummary?.total)),
    num(numberOr(visitsSummary?.bots, text.notCounted), "fact", units.botVisits),
    { content: menu, class: "tag-menu" });
}

function pagerOf({ currentPage, pagesCount, totalItems, itemsInCurrentPage }, change) {
  if (pagesCount <= 1) {
    return null;
  }
  const first = (currentPage - 1) * PER_PAGE + 1;
  return h("nav", { class: "pager", "aria-label": text.pages },
    button(text.previous, () => change({ page: currentPage - 1 }), { "data-action": "previous", disabled: currentPage <= 1 }),
    button(text.next, () => change({ page: currentPage + 1 }), { "data-action": "next", disabled: currentPage >= pagesCount }),
    h("span", { class: "soft" }, text.shown(first, first + itemsInCurrentPage - 1, totalItems)));
}
