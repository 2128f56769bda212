// Breakdowns of visits: by country, device, campaign and the like, each as a list with share bars.

import { get } from "./api.js";
import { card, emptyState, fill, h, outside, regionTable, row } from "./dom.js";
import { countryName } from "./countries.js";
import * as format from "./format.js";
import { reloader, settingLink } from "./parts.js";
import { common } from "./strings-shell.js";
import { breakdowns as text } from "./strings-visits.js";

const STATS = "/rest/v3/visits/stats";

/** The cards, each with the lists of the node's answer that it shows. */
const GROUPS = {
  places: ["countries", "cities"],
  technology: ["devices", "browsers", "operatingSystems"],
  languages: ["languages"],
  sources: ["referrers"],
  campaigns: ["utmSources", "utmMediums", "utmCampaigns", "utmTerms", "utmContents"],
  destinations: ["destinations"],
};

/** The list that each card shows, as it was chosen last. */
const chosen = new Map();

let isWithoutBots = false;

/**
 * The breakdowns of what `query()` says, for the cards `groups`: `{ element, load() }`.
 */
export function breakdowns({ query, groups, signal }) {
  const host = h("div", { class: "stack" });
  const tick = h("input", { type: "checkbox", checked: isWithoutBots, "data-action": "exclude-bots" });
  const element = h("section", { class: "stack breakdowns", "aria-label": text.title },
    h("div", { class: "section-head" }, h("h2", null, text.title), h("label", { class: "tick" }, tick, text.excludeBots)), host);
  const load = reloader(host, {
    signal,
    lines: 8,
    async fetch(ends) {
      const asked = { ...query(), excludeBots: String(isWithoutBots) };
      return (await get(STATS, { query: asked, signal: ends })).visitStats;
    },
    render: (stats) => content(stats, groups),
  });
  tick.addEventListener("change", () => {
    isWithoutBots = tick.checked;
    load();
  });
  return { element, load };
}

function content(stats, groups) {
  if (!stats.enabled) {
    return h("div", { class: "card" }, emptyState(text.off, [text.offText, settingLink("visits.log")]));
  }
  if (stats.total === 0) {
    return h("div", { class: "card" }, emptyState(text.none, text.noneText));
  }
  return [
    !stats.complete && h("p", { class: "notice warn" }, text.incomplete),
    h("div", { class: "cards" }, groups.map((group) => groupCard(group, GROUPS[group], stats))),
    stats.since && h("p", { class: "soft small" }, text.since(format.instant(Date.parse(stats.since)))),
  ];
}

/** A card of one or several lists, one of which is shown. */
function groupCard(group, names, stats) {
  const host = h("div");
  const buttons = names.map((name) => h("button", { type: "button", class: "button", "data-part": name, onclick: () => show(name) }, text.parts[name]));
  const show = (name) => {
    chosen.set(group, name);
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.part === name)));
    fill(host, shareTable(name, stats[name] ?? [], stats.total));
  };
  const first = names.find((name) => name === chosen.get(group)) ?? names.find((name) => isKnown(stats[name])) ?? names[0];
  show(first);
  const beside = names.length > 1 && h("div", { class: "segments small", role: "group", "aria-label": text.groups[group] }, buttons);
  return card(text.groups[group], { beside, className: "breakdown" }, host);
}

/** Whether a list says more than that nothing is known. */
function isKnown(rows) {
  return rows?.some(({ value }) => value !== "") ?? false;
}

/** The visits of each value, with a bar as long as its share of all. */
export function shareTable(name, rows, total) {
  if (!isKnown(rows) && name !== "referrers") {
    const why = name.startsWith("utm") ? text.nothingText.utm : text.nothingText[name] ?? text.nothingText.other;
    return emptyState(text.nothing, why);
  }
  const columns = [{ title: text.parts[name] }, { title: text.visits, class: "num" }, { title: text.share, class: "num" }];
  const lines = rows.map((one) => row(
    { content: shareBar(nameOf(name, one), one.visits, total), class: "fluid" },
    { content: format.number(one.visits), class: "num" },
    { content: format.percent(one.visits, total), class: "num soft" }));
  const { element, table } = regionTable(common.asTable(text.parts[name]), columns, lines);
  table.classList.add("shares");
  return element;
}

/** A name on a bar as long as a share. */
function shareBar(name, part, all) {
  const share = all > 0 ? Math.min(1, part / all) : 0;
  return h("span", { class: "share" }, h("i", { style: { width: `${share * 100}%` } }), outside(name, { class: "clipped", title: name }));
}

const languages = new Intl.DisplayNames(["en"], { type: "language" });

/** The name of a value for people. */
function nameOf(list, { value, label, country }) {
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
