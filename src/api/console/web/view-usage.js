// Usage: visits and new links of a period, by link, referrer, app and domain.

import { get } from "./api.js";
import { actionButton, h, outside, pageHead } from "./dom.js";
import { reloader, sourcesNote } from "./parts.js";
import { apiQuery, periodOf, periodPicker } from "./period.js";
import { pages } from "./strings-shell.js";
import { usage as text } from "./strings-traffic.js";
import { byAppCard, byDomainCard, madeCard, referrersCard, topLinksCard, totals, visitsCard } from "./usage-cards.js";

export async function show(main, context) {
  const host = h("div", { class: "stack" });
  let plots = [];
  const clear = () => {
    plots.forEach((plot) => plot.destroy());
    plots = [];
  };
  let period = periodOf(context.query);
  const load = reloader(host, {
    signal: context.signal,
    lines: 14,
    fetch: (signal) => get("/admin/api/usage", { query: apiQuery(period), signal }),
    render(usage) {
      clear();
      return content(usage, period, (plot) => plots.push(plot));
    },
  });
  const update = () => {
    period = periodOf(context.query);
    picker.set(period);
    return load();
  };
  const picker = periodPicker((params) => {
    context.setQuery(params);
    update();
  });
  main.append(pageHead(pages.usage, actionButton(text.refresh, update, { "data-action": "refresh" })), picker.element, host);
  update();
  return { leave: clear, update };
}

function content(usage, period, keep) {
  return [
    usage.notes.map((note) => h("p", { class: "notice" }, outside(note))),
    sourcesNote(usage.sources),
    totals(usage),
    visitsCard(usage.visits, period, keep),
    madeCard(usage.links, period, keep),
    h("div", { class: "cards" }, topLinksCard(usage.topLinks), referrersCard(usage.visits)),
    h("div", { class: "cards" }, byAppCard(usage.links.byApp), byDomainCard(usage.links.byDomain)),
    h("p", { class: "soft" }, text.note),
  ];
}
