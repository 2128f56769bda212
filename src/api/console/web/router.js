// Routes: a path leads to a view, which is loaded when it is first wanted.

import { signOut } from "./account.js";
import { currentSession, unreachable } from "./api.js";
import { backFromDialog } from "./dialog.js";
import { actionButton, emptyState, errorState, fill, h, loadingState, pageHead, pageLink } from "./dom.js";
import { showCurrentPage } from "./navigation.js";
import { firstPage, hasAllLinks, isForWriters, mayOpen } from "./rights.js";
import { pages, shell } from "./strings-shell.js";

/**
 * Views are modules with `show(main, context)`, which builds its DOM into `main` and may return a function that cleans up,
 * or `{ leave, update }`: `update()` is called when only the query has changed by going back or forward. On a phone, pages that are `isBehind` have no place of their own in the bar.
 * A page that `needsAllLinks` is in no navigation on a node that does not store them, and says so itself.
 */
const ROUTES = [
  { path: /^\/admin\/?$/, nav: "/admin/", icon: "overview", title: pages.overview, load: () => import("./view-now.js") },
  { path: /^\/admin\/links$/, nav: "/admin/links", icon: "links", title: pages.links, load: () => import("./view-links.js") },
  { path: /^\/admin\/links\/(?<code>[^/]+)$/, parent: "/admin/links", title: pages.link, load: () => import("./view-link.js") },
  { path: /^\/admin\/tags$/, nav: "/admin/tags", icon: "tags", title: pages.tags, isBehind: true, needsAllLinks: true, load: () => import("./view-tags.js") },
  { path: /^\/admin\/usage$/, nav: "/admin/usage", icon: "usage", title: pages.usage, load: () => import("./view-usage.js") },
  { path: /^\/admin\/import$/, nav: "/admin/import", icon: "imports", title: pages.import, load: () => import("./view-import.js") },
  { path: /^\/admin\/apps$/, nav: "/admin/apps", icon: "apps", title: pages.apps, load: () => import("./view-apps.js") },
  { path: /^\/admin\/domains$/, nav: "/admin/domains", icon: "domains", title: pages.domains, load: () => import("./view-domains.js") },
  { path: /^\/admin\/lists$/, nav: "/admin/lists", icon: "lists", title: pages.rules, load: () => import("./view-lists.js") },
  { path: /^\/admin\/fleet$/, nav: "/admin/fleet", icon: "fleet", title: pages.fleet, load: () => import("./view-fleet.js") },
  { path: /^\/admin\/settings$/, nav: "/admin/settings", icon: "settings", title: pages.settings, load: () => import("./view-settings.js") },
];

let service = "carom";
let shown = null;

/** The pages of the navigation that the key of the session may open, in their order: `{ path, title, icon, isBehind, at }`. */
export function navigation() {
  const isOffered = ({ path, needsAllLinks }) => mayOpen(path) && (hasAllLinks() || !needsAllLinks);
  return ROUTES.filter((route) => route.nav).map(({ nav, title, icon, isBehind = false, needsAllLinks = false }, at) => ({ path: nav, title, icon, isBehind, needsAllLinks, at })).filter(isOffered);
}

/** Begins to route: shows what the address says, and follows links and the history. */
export async function startRouter() {
  service = currentSession().title;
  document.addEventListener("click", follow);
  window.addEventListener("popstate", goBack);
  await route({ isFirst: true });
  // The others are had before they are wanted: a node that is away then does not keep anybody from them.
  ROUTES.forEach((one) => one.load().catch(() => {}));
}

/** Goes to a path of the console. */
export async function go(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  return route({});
}

/** Writes another query into the address, without redrawing the page. */
function setQuery(params, { replace = false } = {}) {
  const text = params.toString();
  const path = text === "" ? location.pathname : `${location.pathname}?${text}`;
  if (path !== location.pathname + location.search) {
    history[replace ? "replaceState" : "pushState"](null, "", path);
  }
}

/** Plain clicks on links within the console are answered here, all others by the browser. */
function follow(event) {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !isPlain || event.defaultPrevented || link.target !== "" || link.hasAttribute("download")) {
    return;
  }
  const url = new URL(link.href);
  const isOurs = url.origin === location.origin && ROUTES.some((route) => route.path.test(url.pathname));
  if (isOurs && url.hash === "") {
    event.preventDefault();
    go(url.pathname + url.search);
  }
}

/** Follows the browser, which has gone back or forward already. */
async function goBack() {
  if (backFromDialog()) {
    return;
  }
  if (shown?.path === location.pathname && shown.update) {
    shown.update();
    return;
  }
  await route({});
}

/**
 * Shows the page again for a key with other rights, after the navigation was drawn again. An open dialog keeps what was typed,
 * and the page below it: the page follows once the dialog is closed.
 */
export async function followRights() {
  const dialog = document.querySelector("dialog[open]");
  if (dialog) {
    markCurrent(ROUTES.find((one) => one.path.test(location.pathname)));
    dialog.addEventListener("close", followRights, { once: true });
  } else {
    await route({});
  }
}

async function route({ isFirst = false }) {
  if (/^\/admin\/?$/.test(location.pathname) && firstPage() !== "/admin/") {
    history.replaceState(null, "", firstPage());
  }
  const path = location.pathname;
  shown?.left.abort();
  shown?.leave?.();
  const found = isSound(path) ? ROUTES.find((one) => one.path.test(path)) : undefined;
  const page = { path, left: new AbortController() };
  shown = page;
  const main = document.getElementById("main");
  markCurrent(found);
  setTitle(found?.title ?? shell.notFound);
  window.scrollTo(0, 0);
  if (!found) {
    fill(main, ...noPage(shell.notFound, shell.notFoundTitle, shell.notFoundText));
    return;
  }
  const wanted = found.nav ?? found.parent;
  if (!mayOpen(wanted)) {
    fill(main, ...noPage(found.title, isForWriters(wanted) ? shell.notAllowedToWrite : shell.notAllowed, shell.notAllowedText, otherKey()));
    return;
  }
  await showView(found, page, main, isFirst);
}

/** The content in place of a page: the reason, and the way to the first page that the key may open. */
function noPage(heading, title, text, action = null) {
  const first = firstPage();
  const { title: name } = ROUTES.find((one) => one.path.test(first));
  const back = pageLink(first, shell.backTo(name), { class: "button", "data-action": "back" });
  return [pageHead(heading), h("div", { class: "card" }, emptyState(title, text, h("span", { class: "line" }, back, action)))];
}

/** Ends the session. The next one begins on the page that the address names. */
function otherKey() {
  return actionButton(shell.otherKey, () => signOut(location.pathname + location.search), { "data-action": "other-key" });
}

/** Whether a path can be read: one that somebody has cut may end within a character. */
function isSound(path) {
  try {
    return decodeURIComponent(path) !== "";
  } catch {
    return false;
  }
}

async function showView(found, page, main, isFirst) {
  fill(main, pageHead(found.title), loadingState(8));
  try {
    const view = await found.load().catch(() => {
      throw unreachable();
    });
    if (shown !== page) {
      return;
    }
    fill(main);
    const built = view.show(main, contextOf(found, page));
    // A view builds its heading before it waits for anything, so that the focus has somewhere to go.
    if (!isFirst) {
      main.querySelector("h1")?.focus({ preventScroll: true });
    }
    take(page, await built);
  } catch (error) {
    if (shown === page && error.name !== "AbortError") {
      fill(main, pageHead(found.title), errorState(error, () => location.reload()));
    }
  }
}

/** A view that was left while it was being built is cleaned up at once. */
function take(page, built) {
  const { leave, update } = typeof built === "function" ? { leave: built } : built ?? {};
  if (shown === page) {
    Object.assign(page, { leave, update });
  } else {
    leave?.();
  }
}

function contextOf(found, page) {
  const groups = found.path.exec(page.path).groups ?? {};
  return {
    get session() {
      return currentSession();
    },
    params: Object.fromEntries(Object.entries(groups).map(([name, value]) => [name, decodeURIComponent(value)])),
    get query() {
      return new URLSearchParams(location.search);
    },
    signal: page.left.signal,
    go,
    /** Nothing of a view that was left may write into the address of the next one. */
    setQuery: (...args) => shown === page && setQuery(...args),
    setTitle,
  };
}

function setTitle(title) {
  document.title = shell.title(title, service);
}

function markCurrent(found) {
  const current = found?.nav ?? found?.parent;
  showCurrentPage(current);
}
