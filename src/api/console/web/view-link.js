// One link: everything that is known of it, how it is used, and who has changed what.

import { get, linkPath } from "./api.js";
import { badge, button, copyButton, errorState, fill, h, loadingState, outside, pageHead, pageLink, setText, targetLink } from "./dom.js";
import { factsCard, historyCard, qrCard, referrersCard, visitsCards } from "./link-cards.js";
import { editDialog } from "./link-form.js";
import { stateBadge } from "./link-parts.js";
import { archive, remove } from "./links-actions.js";
import { isBeingDeleted, onDeleted } from "./deletes.js";
import { sourcesNote } from "./parts.js";
import { actions, page as text, states } from "./strings-links.js";

const DAY_MS = 86_400_000;

export async function show(main, context) {
  const named = { shortCode: context.params.code, domain: context.query.get("domain") };
  const buttons = h("div", { class: "line" });
  const host = h("div", { class: "stack" }, loadingState(12));
  const plots = [];
  main.append(pageHead(outside(named.shortCode, { class: "code" }), buttons), host);
  context.setTitle(named.shortCode);
  const page = { named, buttons, host, plots, signal: context.signal, isDeleted: false };
  const offDeleted = onDeleted(() => page.isDeleted && load(page));
  await load(page);
  return () => {
    offDeleted();
    plots.forEach((plot) => plot.destroy());
  };
}

/** Loads all of a link; what an earlier load still brings is dropped. */
async function load(page) {
  const { named, host, plots } = page;
  page.loading?.abort();
  page.loading = new AbortController();
  const signal = AbortSignal.any([page.signal, page.loading.signal]);
  const ask = (path, query) => get(path, { query, signal });
  try {
    const nothing = (error) => {
      if (error.name === "AbortError") {
        throw error;
      }
      return null;
    };
    const [link, visits, told] = await Promise.all([
      ask(linkPath(named)),
      ask(linkPath(named, "/visits"), { startDate: new Date(Date.now() - 90 * DAY_MS).toISOString(), itemsPerPage: 1 }).then((told) => told.visits, nothing),
      ask(`/admin/api/history/${encodeURIComponent(named.shortCode)}`, { domain: named.domain }).catch(nothing),
    ]);
    plots.splice(0).forEach((plot) => plot.destroy());
    draw(page, link, visits, told);
  } catch (error) {
    if (error.name !== "AbortError") {
      await showMissing(page, error);
    }
  }
}

/** A link that is gone may have left its history. */
async function showMissing({ named, buttons, host, signal }, error) {
  keepFocus(buttons, () => fill(buttons));
  const told = error.status === 404
    ? await get(`/admin/api/history/${encodeURIComponent(named.shortCode)}`, { query: { domain: named.domain }, signal }).catch(() => null)
    : null;
  fill(host, errorState(error, error.status === 404 ? undefined : () => location.reload()),
    told?.history.length > 0 && historyCard(told.history), h("p", null, pageLink("/admin/links", text.toList)));
}

/** Redraws buttons. The focus stays at the same position, or moves to the heading if that button is gone. */
function keepFocus(buttons, draw) {
  const at = [...buttons.children].indexOf(document.activeElement);
  draw();
  if (at >= 0) {
    (buttons.children[at] ?? document.querySelector("h1")).focus();
  }
}

function draw(page, link, visits, told) {
  const [history, sources] = [told?.history ?? null, told?.sources];
  // An undo may come when the page has been left.
  const again = () => !page.signal.aborted && load(page);
  page.isDeleted = isBeingDeleted(link);
  keepFocus(page.buttons, () => fill(page.buttons,
    button(actions.edit, () => editDialog(link, again), { kind: "primary", "data-action": "edit" }),
    button(link.archived ? actions.restore : actions.archive, () => archive([link], !link.archived, again), { "data-action": link.archived ? "restore" : "archive" }),
    button(actions.delete, () => remove([link], again), { kind: "danger", "data-action": "delete" })));
  const title = h("p", { class: "link-title" });
  setText(title, link.title ?? "");
  title.hidden = link.title === null;
  fill(page.host,
    h("div", { class: "link-head stack" },
      h("p", { class: "line" }, targetLink(link.shortUrl, { class: "mono short" }), copyButton(link.shortUrl), stateBadge(link), link.private && badge(states.private), title),
      h("p", { class: "wrap destination" }, text.destination, targetLink(link.longUrl, { class: "wrap long" })),
      link.blocked && h("p", { class: "notice warn" }, text.blocked, pageLink("/admin/lists", text.toRules))),
    h("div", { class: "cards" }, factsCard(link), qrCard(link)),
    visits === null ? h("p", { class: "notice no-visits" }, text.noVisits) : [sourcesNote(sources), visitsCards(visits, page.plots), referrersCard(visits.referrers)],
    historyCard(history, link));
}
