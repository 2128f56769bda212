// Breakdowns of visits: by country, device, campaign and the like, each as a list with share bars.

import { get } from "./api.js";
import { card, clipped, emptyState, fill, h, iconState, row } from "./dom.js";
import * as format from "./format.js";
import { bestOf, inColumns, onBar, reloader, restOf, settingLink, shareTable } from "./parts.js";
import { hasAllLinks } from "./rights.js";
import { common } from "./strings-shell.js";
import { breakdowns as text } from "./strings-visits.js";
import { filtersOfRow, nameOf } from "./visit-filters.js";

const STATS = "/rest/v3/visits/stats";

/** The cards, each with the lists of the node's answer that it shows. */
const GROUPS = {
  places: ["countries", "cities"],
  technology: ["devices", "browsers", "operatingSystems"],
  languages: ["languages"],
  sources: ["referrers", "allReferrers"],
  campaigns: ["utmCampaigns", "utmSources", "utmMediums", "utmTerms", "utmContents"],
  destinations: ["destinations"],
};

/** As many values the node gives of each list, unless it is asked for more. */
const SHOWN = 20;

/** As many of them are seen at first; more of campaigns, so that both columns of Analytics end near each other. */
const SEEN = 6;
const CAMPAIGNS_SEEN = 8;

/** The list that each card shows, as it was chosen last. */
const chosen = new Map();

let isWithoutBots = false;

/** Whether visits are logged, as the node said last. */
let isLogged = true;

/** The statistics of some visits; without bots where that was chosen, unless something else is said. `limit` is the number of values in each list. */
export async function visitStats(query, { limit, withoutBots = isWithoutBots, signal } = {}) {
  return (await get(STATS, { query: { ...query, excludeBots: String(withoutBots), limit }, signal })).visitStats;
}

/**
 * The breakdowns of what `query()` says, for the cards `groups`: `{ element, load(), isOn(), hasCards() }`. With `onPick(filters)`, a click on a row chooses its visits; `filters()` are those that
 * hold already. `isWanted(group, stats)` says whether a card has anything to tell. `allReferrers()`, a promise, has the referrers of all time where they are known, else null. `isOn()`
 * is false once it is known that no visits are logged, also from an earlier page; `hasCards()` is true while there are cards.
 */
export function breakdowns({ query, groups, signal, onPick = null, filters = () => ({}), isWanted = () => true, allReferrers = () => null }) {
  let hasCards = false;
  const host = h("div", { class: "stack" });
  const tick = h("input", { type: "checkbox", checked: isWithoutBots, "data-action": "exclude-bots" });
  const choice = h("label", { class: "tick" }, tick, text.excludeBots);
  const element = h("section", { class: "stack breakdowns", id: "visitors", "aria-label": text.title },
    h("div", { class: "section-head" }, h("h2", { tabindex: "-1" }, text.title), choice), host);
  const load = reloader(host, {
    signal,
    lines: 8,
    async fetch(ends) {
      const [stats, hosts] = await Promise.all([visitStats(query(), { signal: ends }), allReferrers()]);
      isLogged = stats.enabled;
      hasCards = isLogged && stats.total > 0;
      choice.hidden = !isLogged;
      return hosts === null ? stats : { ...stats, allReferrers: hosts.map(({ host: value, total: visits }) => ({ value, visits })) };
    },
    render: (stats) => content(stats, { groups: groups.filter((group) => isWanted(group, stats)), onPick, filters: filters() }),
  });
  tick.addEventListener("change", () => {
    isWithoutBots = tick.checked;
    load();
  });
  return { element, load, isOn: () => isLogged, hasCards: () => hasCards };
}

/** Says that visitor statistics need the visit log, and leads to its setting. */
export function logHint() {
  const [before, after] = text.offShared;
  return hasAllLinks() ? [text.offText, settingLink("visits.log")] : [before, settingLink("links.home"), after];
}

function content(stats, { groups, onPick, filters }) {
  if (!stats.enabled) {
    return h("div", { class: "card" }, iconState("person", text.off, logHint()));
  }
  if (stats.total === 0) {
    const isFiltered = Object.keys(filters).length > 0;
    return h("div", { class: "card" }, isFiltered ? iconState("search", text.noneFiltered, text.noneFilteredText) : iconState("person", text.none, text.noneText));
  }
  // A row can be chosen once.
  const pick = (list, one) => {
    const part = filtersOfRow(list, one);
    return onPick === null || part === null || Object.keys(part).every((name) => name in filters) ? null : () => onPick(part);
  };
  return [
    !stats.complete && h("p", { class: "notice warn" }, text.incomplete),
    inColumns(groups.map((group) => groupCard(group, GROUPS[group].filter((name) => name !== "allReferrers" || name in stats), stats, pick))),
    stats.since && h("p", { class: "soft small" }, text.since(format.instant(Date.parse(stats.since)))),
  ];
}

/** A card of one or several lists, one of which is shown. */
function groupCard(group, names, stats, pick) {
  const [host, best] = [h("div"), h("span")];
  const buttons = names.map((name) => h("button", { type: "button", class: "button", "data-part": name, onclick: () => show(name) }, text.tabs[name] ?? text.parts[name]));
  const show = (name) => {
    chosen.set(group, name);
    buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.part === name)));
    const rows = stats[name] ?? [];
    const isOfPeriod = name !== "allReferrers";
    const [first] = namedOf(rows);
    fill(best, first ? bestOf(format.bareUrl(nameOf(name, first)), isOfPeriod ? format.percent(first.visits, stats.total) : format.number(first.visits)) : text.nothing);
    fill(host, listTable(name, rows, isOfPeriod ? stats.total : null, (one) => (isOfPeriod ? pick(name, one) : null)), isOfPeriod && rows.length >= SHOWN && h("p", { class: "soft small" }, text.more(SHOWN)));
  };
  const first = names.find((name) => name === chosen.get(group)) ?? names.find((name) => isKnown(stats[name])) ?? names[0];
  show(first);
  const beside = names.length > 1 && h("div", { class: "segments small", role: "group", "aria-label": text.groups[group] }, buttons);
  return card(text.groups[group], { id: `card-${group}`, beside, className: "breakdown", fold: best }, host);
}

/** Whether a list says more than that nothing is known. */
function isKnown(rows) {
  return namedOf(rows ?? []).length > 0;
}

/** The rows of a list that have a value. */
const namedOf = (rows) => rows.filter(({ value }) => value !== "");

/** The row of visits without a value, as without a referrer or a campaign, if there are any. */
const unnamedOf = (rows) => rows.find(({ value }) => value === "");

/** The visits of each value, and its share of `total`, if that is known. `pickOf(row)` is what a click on the value does, or null. */
function listTable(name, rows, total, pickOf) {
  if (!isKnown(rows) && name !== "referrers") {
    const why = name.startsWith("utm") ? text.nothingText.utm : text.nothingText[name] ?? text.nothingText.other;
    return emptyState(text.nothing, why);
  }
  const columns = [{ title: text.columns[name] }, { title: text.visits, class: "num" }, { title: text.share, class: "num" }].slice(0, total === null ? 2 : 3);
  const named = namedOf(rows);
  const whole = total ?? Math.max(...named.map(({ visits }) => visits));
  const line = (content, { visits }) => row(...[
    { content, class: "fluid" },
    { content: format.number(visits), class: "num" },
    { content: format.percent(visits, total), class: "num soft" },
  ].slice(0, columns.length));
  const lines = named.map((one) => line(onBar(one.visits, whole, pickable(nameOf(name, one), pickOf(one))), one));
  const unnamed = unnamedOf(rows);
  return shareTable(common.asTable(text.parts[name]), columns, lines, { shown: name.startsWith("utm") ? CAMPAIGNS_SEEN : SEEN, action: "all-rows", rest: unnamed && line(restOf(nameOf(name, unnamed), unnamed.visits, whole), unnamed) });
}

/** A name. With `pick`, it is a button. */
function pickable(name, pick) {
  const said = clipped(name);
  return pick === null ? said : h("button", { type: "button", class: "pick", "data-action": "filter-by", title: text.pick(name), onclick: pick }, said);
}
