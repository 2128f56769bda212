// What a list of links is asked for: in the address of the page, so that it can be shared, and in the API's words.

import { splitTags } from "./field.js";
import { STATE_CHOICES } from "./link-parts.js";
import { isDay } from "./period.js";

export const SIZES = ["50", "100", "500"];
const DEFAULTS = { q: "", tags: "", tagsMode: "any", domain: "", app: "", state: "", from: "", to: "", sort: "dateCreated-DESC", size: "50" };
const TERM_MAX = 512;
const SORTS = ["dateCreated", "shortCode", "visits"];

/** The filter that an address says; what it does not say, or says wrong, is as usual. */
export function filterOf(params) {
  const filter = Object.fromEntries(Object.entries(DEFAULTS).map(([name, usual]) => [name, params.get(name) ?? usual]));
  const [field, direction] = filter.sort.split("-");
  const isSort = SORTS.includes(field) && ["ASC", "DESC"].includes(direction);
  const isGood = {
    sort: isSort,
    size: SIZES.includes(filter.size),
    state: STATE_CHOICES.some(([state]) => state === filter.state),
    tagsMode: ["any", "all"].includes(filter.tagsMode),
    q: [...filter.q].length <= TERM_MAX,
    from: isDay(filter.from),
    to: isDay(filter.to),
  };
  return Object.fromEntries(Object.entries(filter).map(([name, value]) => [name, isGood[name] ?? true ? value : DEFAULTS[name]]));
}

/** The query of the address for a filter. */
export function paramsOf(filter) {
  return new URLSearchParams(Object.entries(filter).filter(([name, value]) => value !== DEFAULTS[name]));
}

/** How many filters are set, besides the search. */
export function filterCount({ tags, domain, app, state, from, to }) {
  return [tags, domain, app, state, from, to].filter((value) => value !== "").length;
}

/** The same filter without anything that leaves links out. */
export function withoutFilters({ sort, size }) {
  return { ...DEFAULTS, sort, size };
}

/** The start or end of a day in the viewer's zone, as an instant; empty where no day is set. */
function localDay(day, time) {
  return day === "" ? "" : new Date(`${day}${time}`).toISOString();
}

/** The conditions of a filter, as parameters of the API. */
export function conditions(filter) {
  const tags = splitTags(filter.tags);
  return {
    searchTerm: filter.q.trim(),
    "tags[]": tags,
    tagsMode: tags.length > 1 ? filter.tagsMode : "",
    domain: filter.domain,
    app: filter.app,
    state: filter.state,
    startDate: localDay(filter.from, "T00:00:00"),
    endDate: localDay(filter.to, "T23:59:59.999"),
  };
}

/** All parameters of the list but the cursor and the length of a page. */
export function listParams(filter) {
  // Without an order, a link that is meant by its code comes before those that only hold what is searched for.
  return { ...conditions(filter), orderBy: filter.sort === DEFAULTS.sort ? "" : filter.sort };
}
