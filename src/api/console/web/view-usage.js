// Analytics: visits and new links of a period and of the one before; by country, device and campaign; by link, referrer, app and domain.

import { get } from "./api.js";
import { breakdowns } from "./breakdowns.js";
import { actionButton, button, h, outside, pageHead } from "./dom.js";
import { reloader, sourcesNote } from "./parts.js";
import { apiQuery, periodOf, periodPicker, queryBefore } from "./period.js";
import { seesService } from "./rights.js";
import { pages } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";
import { byAppCard, byDomainCard, madeCard, referrersCard, topLinksCard, totals, visitsCard } from "./usage-cards.js";
import { saveUsage } from "./usage-export.js";
import { visitsList } from "./visits-list.js";

export async function show(main, context) {
  const host = h("div", { class: "stack" });
  let plots = [];
  const clear = () => {
    plots.forEach((plot) => plot.destroy());
    plots = [];
  };
  let period = periodOf(context.query);
  let shown = null;
  const visitors = breakdowns({ query: () => apiQuery(period), groups: ["places", "technology", "languages", "campaigns"], signal: context.signal });
  const single = visitsList({ path: "/rest/v3/visits/non-orphan", query: () => apiQuery(period), hasLinks: true, signal: context.signal });
  const load = reloader(host, {
    signal: context.signal,
    lines: 14,
    async fetch(signal) {
      if (!seesService()) {
        return { usage: null, before: null };
      }
      const ask = (query) => get("/admin/api/usage", { query, signal });
      const [usage, before] = await Promise.all([ask(apiQuery(period)), ask(queryBefore(period)).catch(() => null)]);
      return { usage, before };
    },
    render({ usage, before }) {
      clear();
      if (usage === null) {
        return [h("p", { class: "soft" }, text.ownOnly), visitors.element, single.element];
      }
      shown = { usage, period };
      save.disabled = false;
      return content(usage, before, period, { visitors: visitors.element, single: single.element, keep: (plot) => plots.push(plot) });
    },
  });
  const update = () => {
    period = periodOf(context.query);
    picker.set(period);
    visitors.load();
    single.load();
    return load();
  };
  const picker = periodPicker((params) => {
    context.setQuery(params);
    update();
  });
  const save = button(text.export, () => saveUsage(shown), { "data-action": "export-csv", disabled: true });
  main.append(pageHead(pages.usage, seesService() && save, actionButton(text.refresh, update, { "data-action": "refresh" })), picker.element, host);
  update();
  return { leave: clear, update };
}

function content(usage, before, period, { visitors, single, keep }) {
  return [
    usage.notes.map((note) => h("p", { class: "notice" }, outside(note))),
    sourcesNote(usage.sources),
    totals(usage, before, period),
    visitsCard(usage.visits, period, keep),
    h("div", { class: "cards" }, topLinksCard(usage.topLinks), referrersCard(usage.visits)),
    visitors,
    madeCard(usage.links, period, keep),
    h("div", { class: "cards" }, byAppCard(usage.links.byApp), byDomainCard(usage.links.byDomain)),
    single,
    h("p", { class: "soft" }, text.note),
  ];
}
