// Filters of visits: in the address of a page, in the words of the API, and as chips that take them away.

import { linkPath } from "./api.js";
import { countryName } from "./countries.js";
import { button, fill, h, outside } from "./dom.js";
import { icon } from "./icons.js";
import { common } from "./strings-shell.js";
import { breakdowns as text, filters as words } from "./strings-visits.js";

/** The filter of each list of a breakdown. */
const OF_LIST = {
  countries: "country", cities: "city", browsers: "browser", operatingSystems: "operatingSystem", devices: "device", languages: "language", referrers: "referrer",
  destinations: "destination", utmSources: "utmSource", utmMediums: "utmMedium", utmCampaigns: "utmCampaign", utmTerms: "utmTerm", utmContents: "utmContent",
};

/** All lists of a breakdown. */
export const LISTS = Object.keys(OF_LIST);

/** The filters of the visits of one link, and those of the visits of all links. */
export const LINK_FILTERS = Object.values(OF_LIST);
export const SERVICE_FILTERS = ["tag", "domain", "app", ...LINK_FILTERS];

/** The filters that an address names, as `{ name: value }`. */
export function filtersOf(query, names = SERVICE_FILTERS) {
  return Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value !== ""));
}

/** The query of a page with some filters set, or taken away where they are empty. All else in it stays. */
export function withFilters(query, part) {
  const params = new URLSearchParams(query);
  for (const [name, value] of Object.entries(part)) {
    if (value === "") {
      params.delete(name);
    } else {
      params.set(name, value);
    }
  }
  return params;
}

/** The filters that select the visits in a row of a list; null where the row has no value. */
export function filtersOfRow(list, { value, country }) {
  if (value === "") {
    return null;
  }
  return list === "cities" && country ? { city: value, country } : { [OF_LIST[list]]: value };
}

/** The name of a list in a file, where each line has one value. */
export const kindOf = (list) => OF_LIST[list];

/** The single visits of filters, as `{ path, query }` of the API. */
export function visitsOf({ tag, ...filters }) {
  return tag === undefined ? { path: "/rest/v3/visits/non-orphan", query: filters } : { path: `/rest/v3/tags/${encodeURIComponent(tag)}/visits`, query: filters };
}

/** The single visits of a link, in the same form. */
export function visitsOfLink(link, filters) {
  return { path: linkPath(link, "/visits"), query: filters };
}

const languages = new Intl.DisplayNames(["en"], { type: "language" });

/** The name of a value of a list for people. */
export function nameOf(list, { value, label, country }) {
  if (value === "") {
    return text.unknown[list] ?? text.unknown.other;
  }
  switch (list) {
    case "countries":
      return label || countryName(value);
    case "cities":
      return country ? `${value}, ${countryName(country)}` : value;
    case "devices":
      return text.devices[value] ?? value;
    case "languages":
      try {
        return languages.of(value);
      } catch {
        return value;
      }
    default:
      return label ?? value;
  }
}

/** The value of a filter for people. */
function shownValue(name, value) {
  if (name === "domain" && value === "DEFAULT") {
    return common.defaultDomain;
  }
  const list = LISTS.find((one) => OF_LIST[one] === name);
  return list ? nameOf(list, { value }) : value;
}

/** Chips for the filters that are set: `{ element, set(filters), reveal() }`. `onRemove(name)` is called for the one that is taken away; `reveal()` scrolls to them where they are out of sight. */
export function filterChips(onRemove) {
  const element = h("ul", { class: "chips", "aria-label": words.active, hidden: true });
  const take = (name) => {
    onRemove(name);
    // The button is gone; the next Tab goes on from the page's heading.
    (element.querySelector("button") ?? document.querySelector("h1"))?.focus();
  };
  return {
    element,
    set(filters) {
      const set = Object.entries(filters);
      fill(element, set.map(([name, value]) => h("li", { "data-filter": name },
        h("span", null, h("span", { class: "soft" }, `${words.names[name]}: `), outside(shownValue(name, value))),
        button(icon("cross"), () => take(name), { kind: "icon", "data-action": `without-${name}`, "aria-label": words.without(words.names[name]) }))));
      element.hidden = set.length === 0;
    },
    reveal: () => element.scrollIntoView({ block: "nearest" }),
  };
}
