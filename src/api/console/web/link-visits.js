// The visits of one link in a period: how many there are, when, of whom, and as files.

import { get } from "./api.js";
import { breakdowns, logHint, visitStats } from "./breakdowns.js";
import { visitsSince } from "./changes.js";
import { button, copyButton, fill, h, iconState } from "./dom.js";
import * as format from "./format.js";
import { referrersCard } from "./link-cards.js";
import { stateOf } from "./link-parts.js";
import { openMenu } from "./menu.js";
import { reloader, sourcesNote, tiles } from "./parts.js";
import { LINK_PERIODS, apiQuery, beginningAt, periodOf, periodPicker, queryBefore, withPeriod } from "./period.js";
import { hasAllLinks } from "./rights.js";
import { page as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { usage } from "./strings-traffic.js";
import { LINK_FILTERS, filterChips, filtersOf, visitsOfLink, withFilters } from "./visit-filters.js";
import { comparedWith, visitsCard } from "./visits-card.js";
import { saveLinkVisits, saveSingleVisits } from "./visits-export.js";
import { visitsList } from "./visits-list.js";

const GROUPS = ["sources", "places", "campaigns", "technology", "languages", "destinations"];

/** The size of the chart, in pixels: with it, the column of the numbers is as high as that of the facts. */
const CHART = { height: 190 };

/**
 * The visits of a link, for the page with this `context`: `{ periods, counts, about, single, save, referrers, exports(), load(), loadLogged(), update(), leave() }`, the first six elements.
 * `exports()` gives the items of a menu with files of them. `load(link)` gets the counts, with
 * their referrers; `link` is a promise of the link, or of null. Until its first visit, one card takes the place of all others. `loadLogged()` what the visit log has, which takes longer; `update()` follows the address. Each part has its own error, and tries again by itself.
 */
export function linkVisits(named, context) {
  const { signal } = context;
  const state = { plots: [], shown: null, link: null, referrers: null, isLoaded: false, isUnvisited: false };
  const readState = () => {
    state.period = periodOf(context.query, LINK_PERIODS);
    state.filters = filtersOf(context.query, LINK_FILTERS);
  };
  readState();
  const change = (params) => {
    context.setQuery(params);
    update();
  };
  const picker = periodPicker((chosen) => change(withPeriod(context.query, chosen)), LINK_PERIODS);
  const chips = filterChips((name) => change(withFilters(context.query, { [name]: "" })));
  const exports = () => exportsOf(named, state, about);
  const save = button(usage.export, () => openMenu(save, exports()), { "data-action": "export-visits", "aria-haspopup": "menu", "aria-expanded": "false", disabled: true });
  const host = h("div", { class: "stack visit-counts" });
  // Their card stands alone while the breakdowns have none of referrers.
  const referrers = h("div", { hidden: true }, referrersCard(null));
  const about = breakdowns({
    query: () => ({ shortCode: named.shortCode, domain: named.domain, ...apiQuery(state.period), ...state.filters }),
    groups: GROUPS,
    signal,
    filters: () => state.filters,
    allReferrers: () => state.referrers,
    isWanted: (group, stats) => group !== "destinations" || hasDestinations(stats, state.filters),
    onPick(part) {
      change(withFilters(context.query, part));
      chips.reveal();
    },
  });
  const single = visitsList({ source: () => visitsOfLink(named, { ...apiQuery(state.period), ...state.filters }), signal });
  const clear = () => {
    state.plots.forEach((plot) => plot.destroy());
    state.plots = [];
  };
  const loadCounts = reloader(host, {
    signal,
    lines: 8,
    async fetch(ends) {
      const asked = counts(named, state, ends);
      state.referrers = asked.then((found) => found.referrers, () => null);
      try {
        return await asked;
      } catch (error) {
        if (error.name !== "AbortError") {
          state.isUnvisited = false;
          // The error is shown once, in place of the chart.
          fill(referrers);
          arrange();
        }
        throw error;
      }
    },
    render(found) {
      clear();
      state.shown = found;
      state.isUnvisited = found.link?.visitsSummary.total === 0 && found.visits.summary.total === 0;
      fill(referrers, referrersCard(found.referrers));
      arrange();
      save.disabled = false;
      return state.isUnvisited ? unvisitedCard(found.link, hint) : countsOf(found, state);
    },
  });
  const load = (link) => {
    state.link = link;
    return loadCounts();
  };
  const show = () => {
    picker.set(state.period);
    chips.set(state.filters);
  };
  // While no visits are logged, one card says so.
  const hint = h("p", { class: "soft small" }, logHint());
  const arrange = () => {
    picker.element.hidden = about.element.hidden = state.isUnvisited;
    hint.hidden = about.isOn();
    single.element.hidden = state.isUnvisited || !about.isOn();
    referrers.hidden = state.isUnvisited || !state.isLoaded || about.hasCards() || referrers.childElementCount === 0;
  };
  arrange();
  const loadAbout = async () => {
    await about.load();
    state.isLoaded = true;
    arrange();
  };
  const loadLogged = () => Promise.all([loadAbout(), hasAllLinks() && single.load()]);
  const update = () => {
    readState();
    show();
    const loading = loadCounts();
    loadLogged();
    return loading;
  };
  show();
  const element = h("section", { class: "stack", "aria-label": text.visits }, chips.element, host);
  return { periods: picker.element, counts: element, about: about.element, single: single.element, save, exports, referrers, load, loadLogged, update, leave: clear };
}

/** Whether the card of destinations has more to tell than the head of the page: several of them, or the one that a filter names. */
const hasDestinations = ({ destinations = [] }, filters) => destinations.length > 1 || "destination" in filters;

/**
 * The counts of a period and of the one before, which the node has without its visit log. Those of filters come from the log, without the period before. A period in which the link
 * did not exist from its start on is not compared with.
 */
async function counts({ shortCode, domain }, { period, filters, link: asked }, signal) {
  const ask = (query) => get(`/admin/api/visits/${encodeURIComponent(shortCode)}`, { query: { ...query, domain }, signal });
  const earlier = queryBefore(period);
  const [all, before, logged, link] = await Promise.all([
    ask(apiQuery(period)), earlier && ask(earlier).catch(() => null), loggedCounts({ shortCode, domain, ...apiQuery(period) }, filters, signal), asked]);
  const isComparable = logged === null && earlier && !(Date.parse(earlier.startDate) < Date.parse(link?.dateCreated));
  const visits = logged ?? all.visits;
  return {
    link,
    visits,
    referrers: all.visits.referrers,
    sources: all.sources,
    before: isComparable ? before?.visits ?? null : null,
    period: beginningAt(period, visits.perDay[0]?.date),
    note: logged !== null ? usage.filtered : hasFilters(filters) ? text.notFiltered : null,
  };
}

const hasFilters = (filters) => Object.keys(filters).length > 0;

/** The visits that match all filters, as the node counts visits otherwise; null without filters, and while no visits are logged. */
async function loggedCounts(query, filters, signal) {
  if (!hasFilters(filters)) {
    return null;
  }
  const { enabled, total, bots, perDay } = await visitStats({ ...query, ...filters }, { limit: 1, withoutBots: false, signal });
  return enabled ? { summary: { total, bots }, perDay, perHour: [] } : null;
}

/** The card of a link without visits. `hint` stands below while no visits are logged. */
function unvisitedCard(link, hint) {
  const state = stateOf(link) === "active" ? iconState("usage", text.unvisited, text.unvisitedText, copyButton(link.shortUrl, common.copy, { named: true })) : iconState("usage", text.unvisited);
  state.append(hint);
  return h("div", { class: "card link-unvisited" }, state);
}

function countsOf({ visits, sources, before, period, note }, state) {
  const { total, bots } = visits.summary;
  return [
    sourcesNote(sources),
    tiles([
      [usage.visits, format.number(total), visitsSince(visits, before, period)],
      [usage.people, format.number(total - bots)],
      [usage.botVisits, format.number(bots), total > 0 && format.percent(bots, total)],
    ]),
    before && comparedWith(period, visits),
    visitsCard(visits, before, period, (plot) => state.plots.push(plot), { note: note && h("p", { class: "soft small" }, note), size: CHART }),
  ];
}

/** The items of a menu with what can be saved: nothing before the counts are known, and single visits only where they are logged. */
function exportsOf(named, { shown, filters }, about) {
  if (shown === null) {
    return [];
  }
  // That of another period may still be on its way: a file has the counts that the page shows.
  const { period } = shown;
  const { from, to } = period;
  const name = (kind) => `${kind}-${named.shortCode.replaceAll("/", "-")}-${from}-${to}.csv`;
  const query = { shortCode: named.shortCode, domain: named.domain, ...apiQuery(period), ...filters };
  const { path, query: asked } = visitsOfLink(named, { ...apiQuery(period), ...filters });
  return [
    [text.exportCounts, () => saveLinkVisits({ visits: shown.visits, query, name: name("visits") }), { name: "export-counts" }],
    about.isOn() && [text.exportSingle, () => saveSingleVisits({ path, query: asked, name: name("single-visits") }), { name: "export-single" }],
  ].filter(Boolean);
}
