// The last seven days on the overview: visits by day, the most visited links and the newest ones, and ways to what Analytics knows of them.

import { get } from "./api.js";
import { visitsSince } from "./changes.js";
import { button, card, emptyState, h, pageLink, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { createDialog } from "./link-form.js";
import { reloader } from "./parts.js";
import { apiQuery, periodOf, queryBefore } from "./period.js";
import { reports } from "./reports.js";
import { hasAllLinks } from "./rights.js";
import { common, palette } from "./strings-shell.js";
import { week as text } from "./strings-traffic.js";
import { linkCell, topLinksCard } from "./usage-cards.js";
import { visitsCard } from "./visits-card.js";

/** The query of Analytics for the same days. */
const QUERY = new URLSearchParams({ period: "7d" });

/** Links in each list. */
const SHOWN = 5;

/** How often the numbers are asked for again, for a page that stays open. */
const REFRESH_MS = 300_000;

/** How long after a failure they are asked for again, once the server is there. */
const RETRY_MS = 10_000;

/** The section: `{ element, load(), update(), destroy() }`. */
export function weekSection() {
  const ends = new AbortController();
  const host = h("div", { class: "stack" });
  const links = reports().map(({ name, title, path }) => h("li", null, pageLink(path, title, { class: "button", "data-action": `report-${name}` })));
  const element = h("section", { class: "stack week", "aria-label": text.title },
    h("div", { class: "section-head reports" }, h("h2", null, text.title), h("ul", { class: "plain line" }, links)), host);
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

function content({ period, usage: { visits, topLinks }, before, links }, keep) {
  const top = topLinks.slice(0, SHOWN);
  const change = visitsSince(visits, before?.visits, period);
  return [
    // The change says to screen readers what it is compared with. For others, the line of the chart is of whole days, so the basis is named here.
    visits.summary.total > 0 && h("p", { class: "line week-total" }, h("b", null, format.count(visits.summary.total, "visit")), change, change && h("small", { "aria-hidden": "true" }, text.compared)),
    visits.perDay.length > 0 ? visitsCard(visits, before?.visits, period, keep) : h("div", { class: "card" }, emptyState(text.noVisits, text.noVisitsText)),
    h("div", { class: "cards" }, top.length > 0 && topLinksCard(top, QUERY), links !== null && newLinksCard(links)),
  ];
}

/** The newest links. Each leads to its page. */
function newLinksCard(links) {
  if (links.length === 0) {
    return card(text.newLinks, {}, emptyState(text.noLinks, text.noLinksText, button(palette.newLink, () => createDialog(), { "data-action": "first-link" }), " ", pageLink("/admin/import", text.toImport, { class: "button" })));
  }
  const rows = links.map((link) => row({ content: linkCell(link, QUERY), class: "fluid" }, { content: format.relative(link.dateCreated), class: "nowrap" }));
  const { element, table } = regionTable(common.asTable(text.newLinks), [{ title: text.link }, { title: text.created }], rows);
  table.classList.add("shares");
  return card(text.newLinks, { fold: format.relative(links[0].dateCreated) }, element);
}
