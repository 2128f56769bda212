// Analytics: visits and new links of a period and of the one before; by link, tag, app and domain; by referrer, country, device and campaign. Filters narrow it to visits of the visit log.

import { get } from "./api.js";
import { breakdowns, visitStats } from "./breakdowns.js";
import { actionButton, button, h, iconState, outside, pageHead, pageLink, unfold } from "./dom.js";
import { joinTags } from "./field.js";
import { createDialog, onCreated } from "./link-form.js";
import { pageMenu } from "./menu.js";
import { inColumns, reloader, settingLink, sourcesNote } from "./parts.js";
import { apiQuery, periodOf, periodPicker, queryBefore, withPeriod } from "./period.js";
import { hasAllLinks, mayWrite, seesService } from "./rights.js";
import { missingNote } from "./shared-home.js";
import { pages, palette, sharedHome } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";
import { TAB, heroOf, mostVisitedCard, referrersCard, topLinksCard, totals, totalsOfFiltered } from "./usage-cards.js";
import { saveUsage } from "./usage-export.js";
import { filterChips, filtersOf, visitsOf, withFilters } from "./visit-filters.js";
import { visitsList } from "./visits-list.js";

const GROUPS = ["campaigns", "places", "technology", "languages"];

/** Tags that are shown. */
const TAGS = 8;

/** Links and referrers of filtered visits that are asked for: as many links as the node counts without filters. */
const TOP = 25;

/** Filters of links, as the list of links has them in its address. */
const OF_LINKS = { tag: (tag) => ["tags", joinTags([tag])], domain: (domain) => ["domain", domain], app: (app) => ["app", app] };

export async function show(main, context) {
  const { signal } = context;
  const host = h("div", { class: "stack" });
  const state = { plots: [], shown: null };
  const clear = () => {
    state.plots.forEach((plot) => plot.destroy());
    state.plots = [];
  };
  const change = (params) => {
    context.setQuery(params);
    update();
  };
  const query = () => ({ ...apiQuery(state.period), ...state.filters });
  const pick = (part) => {
    change(withFilters(context.query, part));
    // The page becomes shorter, and the row was far down.
    chips.reveal();
  };
  const chooseTab = (name) => context.setQuery(withFilters(context.query, { [TAB]: name, show: "" }));
  const visitors = breakdowns({ query, groups: GROUPS, signal, filters: () => state.filters, onPick: pick });
  const single = visitsList({ source: () => visitsOf(query()), hasLinks: true, signal });
  const load = reloader(host, {
    signal,
    lines: 14,
    fetch: (ends) => numbers(state, ends),
    render(found) {
      clear();
      state.shown = found;
      const parts = { visitors: visitors.element, single: single.element, keep: (plot) => state.plots.push(plot), most: () => mostVisitedCard(found.usage && { ...found.usage, tags: found.tags }, () => context.query, chooseTab) };
      return found.usage ? content(found, context.query, parts) : narrowContent(found, context.query, parts);
    },
  });
  // While no visits are logged, the card of visitors says so.
  const showSingle = () => {
    single.element.hidden = !visitors.isOn();
  };
  showSingle();
  const update = () => {
    [state.period, state.filters] = [periodOf(context.query), filtersOf(context.query)];
    picker.set(state.period);
    chips.set(state.filters);
    // Where the visit log cannot be on, nothing of it is asked.
    return Promise.all([load(), visitors.load().then(showSingle), hasAllLinks() && single.load()]);
  };
  const picker = periodPicker((chosen) => change(withPeriod(context.query, chosen)));
  const chips = filterChips((name) => change(withFilters(context.query, { [name]: "" })));
  const save = actionButton(text.export, () => saveUsage({ ...(isShown(state) ? state.shown : {}), period: state.period, query: query(), signal }), { "data-action": "export-csv" });
  const refresh = actionButton(text.refresh, update, { "data-action": "refresh" });
  const menu = pageMenu(() => [[text.refresh, () => refresh.click(), { name: "refresh" }], [text.export, () => save.click(), { name: "export-csv" }]]);
  main.append(pageHead(pages.usage, save, refresh, menu), picker.element, chips.element, host);
  const asked = context.query.get("show");
  update().then(() => asked && !signal.aborted && reveal(asked));
  const off = onCreated(update);
  const leave = () => {
    off();
    clear();
  };
  return { leave, update };
}

const hasFilters = (filters) => Object.keys(filters).length > 0;

/** Whether what is shown is of the period that is chosen, and not of the one before, while that is on its way. */
const isShown = ({ shown, period }) => shown?.period === period;

/** What the node counts in a period and the one before. With filters, and for a key that sees some links only, the visit log knows it. */
async function numbers({ period, filters }, signal) {
  const earlier = queryBefore(period);
  if (hasFilters(filters) || !seesService()) {
    const ask = (query, limit) => visitStats({ ...query, ...filters }, { limit, withoutBots: false, signal });
    // One after the other: the node answers one question about its log at a time, and the other cards ask as well.
    const now = await ask(apiQuery(period), TOP);
    const before = hasAll(now, earlier) ? await ask(earlier, 1).catch(() => null) : null;
    return { period, filters, now, before };
  }
  const ask = (query) => get("/admin/api/usage", { query, signal });
  const [usage, before, tags] = await Promise.all([ask(apiQuery(period)), ask(earlier).catch(() => null), hasAllLinks() ? topTags(signal) : undefined]);
  return { period, filters, usage, before, tags };
}

/** Whether the visit log reaches back to the start of a period: it may be younger, or its first visits were removed. */
const hasAll = ({ since }, { startDate }) => since !== null && Date.parse(since) <= Date.parse(startDate);

/** The most visited tags; null where they have too many links to be sorted, undefined where the node cannot list them. */
async function topTags(signal) {
  try {
    return (await get("/rest/v3/tags/stats", { query: { orderBy: "visits-DESC", itemsPerPage: TAGS }, signal })).tags.data;
  } catch (error) {
    return error.fields?.includes("orderBy") ? null : undefined;
  }
}

function content({ usage, before, period }, query, { visitors, single, keep, most }) {
  const hero = () => heroOf(totals(usage, before, period), { visits: usage.visits, before: before?.visits, period, keep });
  if (!hasAllLinks()) {
    return [
      missingNote(sharedHome.ofAnalytics),
      sourcesNote(usage.sources),
      hero(),
      referrersCard(usage.visits, query),
      visitors,
      h("p", { class: "soft" }, text.note),
    ];
  }
  const notes = [usage.notes.map((note) => h("p", { class: "notice" }, outside(note))), sourcesNote(usage.sources)];
  if (usage.visits.perDay.length === 0) {
    const { total } = usage.links;
    return [notes, total !== 0 && totals(usage, before, period), unvisited(total), total !== 0 && most()];
  }
  return [
    notes,
    hero(),
    inColumns(most(), referrersCard(usage.visits, query)),
    visitors,
    single,
    h("p", { class: "soft" }, text.note),
  ];
}

/** Replaces all cards about visits while there are none: says what will be here, and offers the next step. */
function unvisited(total) {
  const said = [total === 0 ? text.noVisitsYetText : text.noVisitsText, h("br"), text.noVisitsLog, settingLink("visits.log"), "."];
  const action = total !== 0 ? pageLink("/admin/links", text.toLinks, { class: "button" })
    : mayWrite() && button(palette.newLink, () => createDialog(), { kind: "primary", "data-action": "first-link" });
  return h("div", { class: "card usage-none" }, iconState("usage", total === 0 ? text.noVisitsYet : text.noVisits, said, ...[action].filter(Boolean)));
}

/** The page where the numbers of the service are not shown: with filters, or for a key that may not see them. */
function narrowContent({ filters, now, before, period }, query, { visitors, single, keep }) {
  const ofLinks = Object.entries(filters).filter(([name]) => name in OF_LINKS);
  const toLinks = new URLSearchParams(ofLinks.map(([name, value]) => OF_LINKS[name](value)));
  const numbers = now.enabled && totalsOfFiltered(now, before, period);
  return [
    now.total > 0 ? heroOf(numbers, { visits: now, before, period, keep }) : numbers,
    h("p", { class: "soft" }, hasFilters(filters) ? text.filtered : text.ownOnly,
      ofLinks.length > 0 && hasAllLinks() && [" ", pageLink(`/admin/links?${toLinks}`, text.linksWith(ofLinks.map(([name]) => name)))]),
    now.total > 0 && inColumns(topLinksCard(ofLog(now.links), query, now.total), referrersCard(referrersOf(now), query)),
    visitors,
    hasAllLinks() && single,
  ];
}

/** Links as the visit log counts them, in the form in which the node counts them otherwise. */
const ofLog = (links) => links.map(({ visits, bots, ...link }) => ({ link, visits: { total: visits, bots } }));

/** The same for referrers. */
const referrersOf = ({ referrers, total }) => ({
  referrers: referrers.filter(({ value }) => value !== "").map(({ value, visits }) => ({ host: value, total: visits })),
  direct: referrers.find(({ value }) => value === "")?.visits ?? 0,
  summary: { total },
});

/** Scrolls to the card that the URL names. While the visit log is off, scrolls to the notice that says so. */
function reveal(name) {
  const card = document.getElementById(`card-${name}`) ?? document.getElementById("visitors");
  if (card) {
    unfold(card);
    card.scrollIntoView({ block: "start" });
    card.querySelector("h2")?.focus({ preventScroll: true });
  }
}
