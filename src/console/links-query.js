// Which links are listed: what the filters say, kept in the address, and as the API wants it.

import { field } from "./field.js";
import { button, h } from "./dom.js";
import { filterField } from "./parts.js";

export const STATES = [["active", "Active"], ["scheduled", "Scheduled"], ["ended", "Ended"], ["archived", "Archived"], ["usedUp", "Used up"]];
const ORDERS = [["", "Newest first"], ["dateCreated-ASC", "Oldest first"], ["shortCode-ASC", "By code"], ["visits-DESC", "Most visited"]];
const SIZES = ["50", "100", "500"];
const NAMES = ["searchTerm", "tags", "app", "domain", "state", "startDate", "endDate", "orderBy", "size"];

/** What the address asks for. */
export function wantedOf(query) {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
}

/** The address of what is asked for. */
export function queryOf(wanted) {
  return new URLSearchParams(NAMES.filter((name) => wanted[name] !== "").map((name) => [name, wanted[name]]));
}

/** Whether anything but all links is asked for. */
export function isFiltered(wanted) {
  return NAMES.slice(0, -2).some((name) => wanted[name] !== "");
}

/** The filters as the API names them, for lists and exports. Days are those of the viewer. */
export function filterOf({ tags, startDate, endDate, searchTerm, app, domain, state }) {
  const names = tags.split(",").map((tag) => tag.trim()).filter((tag) => tag !== "");
  return {
    searchTerm, app, domain, state,
    "tags[]": names,
    tagsMode: names.length > 1 ? "all" : "",
    startDate: startDate && new Date(`${startDate}T00:00:00`).toISOString(),
    endDate: endDate && new Date(`${endDate}T23:59:59.999`).toISOString(),
  };
}

/** The same for a page of a list. */
export function listQuery(wanted, cursor) {
  return { ...filterOf(wanted), orderBy: wanted.orderBy, itemsPerPage: wanted.size || SIZES[0], cursor };
}

/** The search field, and the filters behind a fold on small screens. `choose(changes)` hears what is chosen. */
export function filters(wanted, choose, signal, { apps, domains }) {
  const search = filterField({
    label: "Search links", placeholder: "Search code, URL, title or tag  ( / )", value: wanted.searchTerm, signal,
    onInput: later((text) => choose({ searchTerm: text.trim() })),
  });
  const pick = (name, label, options) => field({ name, label, type: "select", options, value: wanted[name], onchange: (event) => choose({ [name]: event.target.value }) });
  const type = (name, label, props) => field({ name, label, value: wanted[name], onchange: (event) => choose({ [name]: event.target.value.trim() }), ...props });
  const known = (all, value) => [["", "any"], ...all, ...(value !== "" && !all.some((one) => (Array.isArray(one) ? one[0] : one) === value) ? [value] : [])];
  const fields = [
    pick("state", "State", known(STATES, wanted.state)),
    type("tags", "Tags", { placeholder: "all of them, with commas" }),
    pick("app", "App", known(apps, wanted.app)),
    pick("domain", "Domain", known(domains.map(({ domain, isDefault }) => (isDefault ? ["DEFAULT", domain] : domain)), wanted.domain)),
    type("startDate", "Created from", { type: "date" }),
    type("endDate", "Created to", { type: "date" }),
    pick("orderBy", "Order", ORDERS),
    pick("size", "Links a page", [["", SIZES[0]], ...SIZES.slice(1)]),
  ];
  const clear = button("Clear filters", () => choose(Object.fromEntries(NAMES.map((name) => [name, ""])), { isAnew: true }), { kind: "quiet" });
  const fold = h("details", { class: "filters", open: matchMedia("(min-width: 48rem)").matches },
    h("summary", null, "Filters"), h("div", { class: "filter-fields" }, fields.map((one) => one.element), clear));
  return {
    element: h("div", { class: "stack" }, search, fold),
    search,
    show() {
      search.value = wanted.searchTerm;
      fields.forEach((one) => {
        one.input.value = wanted[one.name];
      });
      clear.hidden = !isFiltered(wanted);
    },
  };
}

/** Calls back when nobody has typed for a moment. */
function later(call, ms = 200) {
  let timer;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(text), ms);
  };
}
