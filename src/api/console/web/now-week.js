// The last seven days on the overview: the number of visits beside its chart, the most visited links and the newest ones, and ways to what Analytics knows of them.

import { get } from "./api.js";
import { visitsSince } from "./changes.js";
import { button, card, facts, h, iconState, pageLink, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { createDialog } from "./link-form.js";
import { numberOr, reloader } from "./parts.js";
import { DAY_MS, apiQuery, periodOf, queryBefore, stepsOf } from "./period.js";
import { reports } from "./reports.js";
import { hasAllLinks } from "./rights.js";
import { common, palette } from "./strings-shell.js";
import { usage, week as text } from "./strings-traffic.js";
import { linkCell, topLinksCard } from "./usage-cards.js";
import { visitsCard } from "./visits-card.js";

/** The query of Analytics for the same days. */
const QUERY = new URLSearchParams({ period: "7d" });

/** Links in each list. */
const SHOWN = 5;

/** The size of the chart, in pixels: the largest one of the page, with seven bars. */
const CHART = { height: 240, barWidth: 48 };

/** How often the numbers are asked for again, for a page that stays open. */
const REFRESH_MS = 300_000;

/** How long after a failure they are asked for again, once the server is there. */
const RETRY_MS = 10_000;

/** The section: `{ element, load(), update(), destroy() }`. */
export function weekSection() {
  const ends = new AbortController();
  const host = h("div", { class: "stack" });
  const element = h("section", { class: "week", "aria-label": text.title }, host);
  let plots = [];
  let askedAt = 0;
  const clear = () => {
    plots.forEach((plot) => plot.destroy());
    plots = [];
  };
  const ask = reloader(host, {
    signal: ends.signal,
    lines: 10,
    fetch: numbers,
    render(found) {
      clear();
      return content(found, (plot) => plots.push(plot));
    },
  });
  const load = () => {
    askedAt = Date.now();
    return ask();
  };
  return {
    element,
    load,
    update(_status, state) {
      const wait = host.querySelector(":scope > .state.bad") ? RETRY_MS : REFRESH_MS;
      // A list that has the focus stays as it is.
      if (state === "live" && Date.now() - askedAt > wait && !host.contains(document.activeElement)) {
        load();
      }
    },
    destroy() {
      ends.abort();
      clear();
    },
  };
}

async function numbers(signal) {
  const period = periodOf(QUERY);
  const ask = (query) => get("/admin/api/usage", { query, signal });
  const newest = () => get("/rest/v3/short-urls", { query: { itemsPerPage: SHOWN }, signal }).then(({ shortUrls }) => shortUrls.data);
  const [usage, before, links] = await Promise.all([
    ask(apiQuery(period)),
    ask(queryBefore(period)).catch(() => null),
    // Links that are still being counted leave the rest as it is.
    hasAllLinks() ? newest().catch(() => null) : null,
  ]);
  return { period, usage, before, links };
}

function content({ period, usage: found, before, links }, keep) {
  const top = found.topLinks.slice(0, SHOWN);
  const newest = links !== null && links.length > 0 && newLinksCard(links);
  if (found.visits.perDay.length > 0) {
    return [hero(found, before, period, keep), (top.length > 0 || newest) && h("div", { class: "cards" }, top.length > 0 && mostVisitedCard(top), newest)];
  }
  const none = links !== null && links.length === 0 ? firstSteps() : iconState("usage", text.noVisits, text.noVisitsText, ...(newest ? [] : [pageLink("/admin/links", usage.toLinks, { class: "button" })]));
  return h("div", { class: "cards" }, h("div", { class: "card hero-none" }, none), newest);
}

/** What the overview is about: the visits of the week in one number, and their chart beside it. */
function hero({ visits, links }, before, period, keep) {
  const { total, bots } = visits.summary;
  const change = visitsSince(visits, before?.visits, period);
  const today = stepsOf(period, DAY_MS).at(-1);
  const ofToday = visits.perDay.find(({ date }) => Date.parse(date) === today)?.total ?? 0;
  return h("div", { class: "card hero" },
    h("div", { class: "hero-figures" },
      h("div", null,
        h("h2", null, text.title),
        h("p", { class: "week-total" }, h("b", null, format.number(total)), " ", text.visits(total)),
        // The change says to screen readers what it is compared with.
        change && h("p", { class: "week-change" }, change, " ", h("small", { "aria-hidden": "true" }, text.compared))),
      facts([
        // Those of the week stand below its number.
        [usage.people, format.percent(total - bots, total)],
        [text.newLinks, hasAllLinks() ? numberOr(links.created, usage.counting) : undefined],
        // On the first day it would be the number above.
        [text.today, ofToday < total ? format.number(ofToday) : undefined],
      ])),
    visitsCard(visits, before?.visits, period, keep, { size: CHART }),
    reportLinks());
}

/** Ways to the answers that Analytics has about the same days. That about links is at its card. */
function reportLinks() {
  const links = reports().filter(({ name }) => name !== "links").map(({ name, title, path }) => h("li", null, pageLink(path, title, { class: "button", "data-action": `report-${name}` })));
  return h("div", { class: "reports" }, h("ul", { class: "plain" }, links));
}

/** What a node without links begins with. */
function firstSteps() {
  return iconState("links", text.noLinks, text.noLinksText,
    button(palette.newLink, () => createDialog(), { kind: "primary", "data-action": "first-link" }), pageLink("/admin/import", text.toImport, { class: "button" }));
}

/** The most visited links, with the way to all of them. */
function mostVisitedCard(links) {
  const element = topLinksCard(links, QUERY);
  const all = reports().find(({ name }) => name === "links");
  if (all) {
    element.querySelector(".card-head").append(pageLink(all.path, text.allVisited, { "data-action": "report-links" }));
  }
  return element;
}

/** The newest links. Each leads to its page. */
function newLinksCard(links) {
  const rows = links.map((link) => row({ content: linkCell(link, QUERY), class: "fluid" }, { content: format.relative(link.dateCreated), class: "num nowrap" }));
  const { element, table } = regionTable(common.asTable(text.newLinks), [{ title: text.link }, { title: text.created, class: "num" }], rows);
  table.classList.add("shares");
  return card(text.newLinks, { beside: pageLink("/admin/links", text.allLinks), fold: format.relative(links[0].dateCreated) }, element);
}
