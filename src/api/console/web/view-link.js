// One link: everything that is known of it, how it is used, and who has changed what.

import { get, linkPath } from "./api.js";
import { badge, button, card, copyButton, emptyState, errorState, fill, h, loadingState, outside, pageHead, pageLink, setText, targetLink } from "./dom.js";
import { factsCard, historyCard } from "./link-cards.js";
import { createDialog, editDialog, onCreated } from "./link-form.js";
import { icon } from "./icons.js";
import { openQr, stateBadge, stateOf } from "./link-parts.js";
import { linkVisits } from "./link-visits.js";
import { archive, remove } from "./links-actions.js";
import { openMenu } from "./menu.js";
import { isBeingDeleted, onDeleted } from "./deletes.js";
import { hasAllLinks, mayManage, mayWrite } from "./rights.js";
import { isShort, rulesCard } from "./rules-card.js";
import { missingHere } from "./shared-home.js";
import { actions, page as text, states } from "./strings-links.js";
import { common, pages, sharedHome } from "./strings-shell.js";

/** How long the page waits for the counts of visits. With them, nothing below moves; without, it does not wait for them any longer. */
const COUNTS_WAIT_MS = 300;

export async function show(main, context) {
  const named = { shortCode: context.params.code, domain: context.query.get("domain") };
  const buttons = h("div", { class: "line" });
  const host = h("div", { class: "stack" }, placeholder());
  const title = outside(named.shortCode, { class: "code" });
  main.append(pageHead(title, buttons), host);
  context.setTitle(named.shortCode);
  const visits = linkVisits(named, context);
  const page = { named, title, buttons, host, visits, setTitle: context.setTitle, signal: context.signal, isDeleted: false };
  const offDeleted = onDeleted(() => page.isDeleted && load(page));
  const update = () => {
    if (context.query.get("domain") === named.domain) {
      visits.update();
    } else {
      // The same code on another domain is another link.
      context.go(location.pathname + location.search, { replace: true });
    }
  };
  const leave = () => {
    offDeleted();
    visits.leave();
  };
  context.signal.addEventListener("abort", leave, { once: true });
  load(page);
  return { update };
}

/** Returns empty boxes of about the sizes of the cards. They are shown while the link loads. */
function placeholder() {
  const box = (lines) => h("div", { class: "card" }, h("div", { class: "loading", "aria-hidden": "true" }, Array.from({ length: lines }, () => h("div", { class: "skeleton" }))));
  return [h("div", { class: "card" }, loadingState(2)), h("div", { class: "link-page" }, h("div", { class: "stack" }, box(3), box(10)), h("div", { class: "stack" }, box(11)))];
}

/** Loads all of a link; what an earlier load still brings is dropped. */
async function load(page) {
  const { named, visits } = page;
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
    const asked = ask(linkPath(named));
    const [link, told, rules] = await Promise.all([
      asked,
      hasAllLinks() ? ask(historyPath(named), { domain: named.domain }).catch(nothing) : null,
      ask(linkPath(named, "/redirect-rules")).catch(nothing),
      Promise.race([visits.load(asked.catch(() => null)), new Promise((resolve) => setTimeout(resolve, COUNTS_WAIT_MS))]),
    ]);
    draw(page, { link, told, rules });
  } catch (error) {
    if (error.name !== "AbortError") {
      await showMissing(page, error);
    }
  }
}

const historyPath = ({ shortCode }) => `/admin/api/history/${encodeURIComponent(shortCode)}`;

/** A deleted link as its history has it, for the form of a new one. An expiry that has passed is left out. */
function linkFrom(named, { changes }) {
  const fields = Object.fromEntries(changes.map(({ field, from }) => [field, from]));
  const { validSince = null, validUntil = null, maxVisits = null } = fields;
  const isPast = validUntil !== null && Date.parse(validUntil) <= Date.now();
  return {
    ...named, title: null, tags: [], redirectStatus: 302, cacheSeconds: null, forwardQuery: true, crawlable: false, ...fields,
    meta: { validSince, validUntil: isPast ? undefined : validUntil, maxVisits },
  };
}

/** The button that creates a deleted link again, as far as its history knows it; the page then shows the new link. */
function againButton(page, edit) {
  const link = linkFrom(page.named, edit);
  const create = async () => {
    const off = onCreated(() => !page.signal.aborted && load(page));
    await createDialog("", link);
    off();
  };
  return mayWrite() && link.longUrl && button(text.createAgain, create, { "data-action": "create-again" });
}

/** A link that is gone may have left its history. */
async function showMissing(page, error) {
  const { named, buttons, host, signal } = page;
  keepFocus(buttons, () => fill(buttons));
  const told = error.status === 404 && hasAllLinks()
    ? await get(historyPath(named), { query: { domain: named.domain }, signal }).catch(() => null)
    : null;
  const isDeleted = told?.history[0]?.what === "deleted";
  const state = isDeleted
    ? emptyState(text.deleted(actions.named([named])), text.deletedText)
    : error.status === 404 ? errorState({ title: text.missing, detail: text.missingText(named) }) : errorState(error, () => location.reload());
  state.append(h("p", null, isDeleted && againButton(page, told.history[0]), pageLink("/admin/links", hasAllLinks() ? text.toList : pages.links, { class: "button" })));
  fill(host, state, told?.history.length > 0 && historyCard(told.history));
}

/** Redraws buttons. The focus stays with the same action; if that is gone, it stays at the same position, or else moves to the heading. */
function keepFocus(buttons, draw) {
  const all = [...buttons.children];
  const at = all.indexOf(document.activeElement);
  draw();
  if (at >= 0) {
    (buttons.querySelector(`[data-action="${all[at].dataset.action}"]`) ?? buttons.children[at] ?? document.querySelector("h1")).focus();
  }
}

function draw(page, { link, told, rules }) {
  const history = told?.history ?? null;
  // An undo may come when the page has been left.
  const again = () => !page.signal.aborted && load(page);
  const edit = () => editDialog(link, again);
  page.isDeleted = isBeingDeleted(link);
  drawButtons(page, link, { edit, again });
  setText(page.title, link.title ?? link.shortCode);
  page.title.classList.toggle("code", link.title === null);
  page.setTitle(link.title ?? link.shortCode);
  const { periods, counts, about, single, referrers, loadLogged } = page.visits;
  const ruled = rulesCard(link, rules, again);
  fill(page.host,
    headOf(link, edit), periods,
    h("div", { class: "link-page" },
      h("div", { class: "stack" }, counts),
      h("div", { class: "stack" }, factsCard(link), isShort(rules) && ruled)),
    // Rules have long URLs, which need the whole width.
    !isShort(rules) && ruled,
    // Below all else, since they load last.
    about, referrers, hasAllLinks() && single, hasAllLinks() ? historyCard(history, link) : noHistory());
  loadLogged();
}

/** The actions of the page: to restore a link that is archived, to edit it, and a menu of those that are wanted less often. */
function drawButtons({ buttons, visits }, link, { edit, again }) {
  if (!mayWrite()) {
    keepFocus(buttons, () => fill(buttons, visits.save));
    return;
  }
  const move = () => archive([link], !link.archived, again);
  const items = () => [
    ...visits.exports().map(([label, run, props]) => [text.exportOf(label), run, props]),
    ...(link.archived ? [] : [[actions.archive, move, { name: "archive" }]]),
    [actions.delete, () => remove([link], again), { name: "delete", kind: "danger" }],
  ];
  const more = button(icon("more"), () => openMenu(more, items()), { kind: "icon", "data-action": "link-menu", "aria-label": text.more, "aria-haspopup": "menu", "aria-expanded": "false" });
  keepFocus(buttons, () => fill(buttons, link.archived && button(actions.restore, move, { "data-action": "restore" }), button(actions.edit, edit, { kind: "primary", "data-action": "edit" }), more));
}

function noHistory() {
  return card(text.history, {}, missingHere(sharedHome.history, sharedHome.ofHistory));
}

/** The reason why a link does not redirect now, with advice to keys that may change it; nothing if it redirects. */
function obstacle(link) {
  const state = isBeingDeleted(link) ? "deleting" : stateOf(link);
  const said = [text.obstacles[state]?.(link.meta), mayWrite() && text.remedies[state]].filter(Boolean);
  return said.length > 0 && h("p", { class: "notice warn", "data-obstacle": "" }, said.join(" "));
}

/** The short URL with its state and what is wanted of it, and the destination. */
function headOf(link, edit) {
  return h("div", { class: "link-head card stack" },
    h("div", { class: "line" },
      targetLink(link.shortUrl, { class: "mono short" }, link.shortUrl.replace(/^https?:\/\//, "")), stateBadge(link), link.private && badge(states.private),
      h("div", { class: "link-uses" },
        copyButton(link.shortUrl, common.copy, { named: true }),
        button([icon("qr"), actions.qr], () => openQr(link), { "data-action": "qr", "aria-haspopup": "dialog" }),
        h("a", { class: "button", href: link.shortUrl, target: "_blank", rel: "noreferrer noopener", "data-action": "open" }, icon("open"), actions.visit))),
    h("p", { class: "line destination" }, h("span", { class: "soft" }, text.destination), targetLink(link.longUrl, { class: "wrap long" }),
      mayWrite() && button(icon("edit"), edit, { kind: "icon", "data-action": "edit-destination", "aria-label": text.editDestination, title: text.editDestination })),
    obstacle(link),
    link.blocked && h("p", { class: "notice warn" }, text.blocked, mayManage() && pageLink("/admin/lists", text.toRules)));
}
