// One link: everything that is known of it, how it is used, and who has changed what.

import { get, linkPath } from "./api.js";
import { onDelete } from "./deletes.js";
import { badge, button, copyButton, errorState, fill, h, loadingState, outside, pageHead, pageLink, setText, targetLink } from "./dom.js";
import { deleteLinks, setArchived } from "./link-actions.js";
import { factsCard, historyCard, qrCard, referrersCard, visitsCards } from "./link-cards.js";
import { editLink } from "./link-form.js";
import { stateOf } from "./links-table.js";

const DAY_MS = 86_400_000;

export async function show(main, context) {
  const named = { shortCode: context.params.code, domain: context.query.get("domain") };
  const actions = h("div", { class: "line" });
  const host = h("div", { class: "stack" }, loadingState(12));
  const plots = [];
  main.append(pageHead(outside(named.shortCode), actions), host);
  context.setTitle(named.shortCode);
  const page = { named, actions, host, plots, signal: context.signal, go: context.go };
  const endDeletes = onDelete((links) => links.some((link) => link.shortCode === named.shortCode) && load(page));
  await load(page);
  return () => {
    endDeletes();
    plots.forEach((plot) => plot.destroy());
  };
}

async function load(page) {
  const { named, host, signal, plots } = page;
  const ask = (path, query) => get(path, { query, signal });
  try {
    const [link, visits, { history }] = await Promise.all([
      ask(linkPath(named)),
      ask(linkPath(named, "/visits"), { startDate: new Date(Date.now() - 90 * DAY_MS).toISOString() }).then((told) => told.visits, () => null),
      ask(`/admin/api/history/${encodeURIComponent(named.shortCode)}`, { domain: named.domain }).catch(() => ({ history: null })),
    ]);
    plots.splice(0).forEach((plot) => plot.destroy());
    draw(page, link, visits, history);
  } catch (error) {
    if (error.name !== "AbortError") {
      await showMissing(page, error);
    }
  }
}

/** A link that is gone may have left its history. */
async function showMissing({ named, actions, host, signal }, error) {
  fill(actions);
  const told = error.status === 404
    ? await get(`/admin/api/history/${encodeURIComponent(named.shortCode)}`, { query: { domain: named.domain }, signal }).catch(() => null)
    : null;
  fill(host, errorState(error, error.status === 404 ? undefined : () => location.reload()),
    told?.history.length > 0 && historyCard(told.history), h("p", null, pageLink("/admin/links", "To all links")));
}

function draw(page, link, visits, history) {
  const again = () => load(page);
  const change = async (done) => {
    if (await done) {
      await again();
    }
  };
  fill(page.actions,
    button("Edit", () => change(editLink(link, again)), { kind: "primary" }),
    button(link.archived ? "Bring back" : "Archive", () => change(setArchived(link, !link.archived, again))),
    button("Delete", () => deleteLinks([link]), { kind: "danger" }));
  const [state, kind] = stateOf(link);
  const title = h("p", { class: "link-title" });
  setText(title, link.title ?? "");
  title.hidden = link.title === null;
  fill(page.host,
    h("div", { class: "link-head stack" },
      h("p", { class: "line" }, targetLink(link.shortUrl, { class: "mono short" }), copyButton(link.shortUrl), badge(state, kind), link.private && badge("private"), title),
      h("p", { class: "wrap" }, "leads to ", targetLink(link.longUrl, { class: "wrap" }))),
    h("div", { class: "cards" }, factsCard(link), qrCard(link)),
    visits === null ? h("p", { class: "notice" }, "Visits cannot be told at present.") : [visitsCards(visits, page.plots), referrersCard(visits.referrers)],
    historyCard(history, link));
}
