// Apps and keys: the apps that use the API, what each key allows, and what each app has done.

import { currentSession, get } from "./api.js";
import { newKey, revokeApp, revokeKey, rotateKey } from "./app-dialogs.js";
import { badge, button, card, fill, h, iconState, outside, pageHead, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { openMenu } from "./menu.js";
import { domainName, filterClearer, filterField, reloader, settingLink } from "./parts.js";
import { roleWords, stateOf } from "./roles.js";
import { apps as text } from "./strings-access.js";
import { common, pages } from "./strings-shell.js";

// More cards than this nobody reads one by one, and they slow the page down.
const SHOWN_MAX = 100;
const ENDS_SOON_MS = 14 * 86_400_000;

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, hidden: name === "actions", class: `col-${name}` }));

export async function show(main, { signal, query, setQuery }) {
  const wanted = { text: query.get("filter") ?? "", withEnded: query.get("ended") === "1" };
  const page = { get session() { return currentSession(); }, apps: [], domains: [] };
  const host = h("div", { class: "stack" });
  const list = h("div", { class: "stack" });
  const draw = () => {
    fill(list, appCards(page, wanted, bar.clear));
    bar.set(wanted);
  };
  const choose = (changes) => {
    Object.assign(wanted, changes);
    setQuery(queryOf(wanted), { replace: true });
    draw();
  };
  page.reload = reloader(host, {
    signal,
    fetch: fetchApps,
    render(data) {
      Object.assign(page, data);
      add.disabled = false;
      // Without a key, the button below is the only one.
      add.hidden = page.apps.length === 0;
      bar.element.hidden = page.apps.length === 0;
      draw();
      return page.apps.length === 0 ? noKeys(page) : list;
    },
  });
  const add = button(text.new, () => newKey(page), { kind: "primary", "data-action": "new-key", disabled: true, hidden: currentSession()?.open });
  const bar = toolbar(wanted, choose, signal);
  main.append(pageHead(pages.apps, add), bar.element, host);
  await page.reload();
}

async function fetchApps(signal) {
  const [{ apps }, domains] = await Promise.all([
    get("/apps", { signal }),
    // Only the dialog for a new key wants them; it does without.
    get("/rest/v3/domains", { signal }).catch(() => ({ domains: { data: [] } })),
  ]);
  return { apps, domains: domains.domains.data };
}

function toolbar({ text: typed, withEnded }, choose, signal) {
  const filter = filterField({
    label: text.filter, placeholder: text.filterPlaceholder, value: typed, signal, onInput: (now) => choose({ text: now }),
  });
  const ended = h("input", { type: "checkbox", checked: withEnded, onchange: () => choose({ withEnded: ended.checked }) });
  const clearer = filterClearer(filter, () => {
    filter.value = "";
    choose({ text: "" });
  });
  return {
    element: h("div", { class: "toolbar" }, filter, h("label", { class: "tick" }, ended, text.showEnded), clearer.element),
    clear: clearer.clear,
    set: (wanted) => clearer.set(wanted.text !== ""),
  };
}

/** What is chosen is kept in the address, so that it can be sent to somebody. */
function queryOf({ text: typed, withEnded }) {
  const params = new URLSearchParams();
  if (typed !== "") {
    params.set("filter", typed);
  }
  if (withEnded) {
    params.set("ended", "1");
  }
  return params;
}

function noKeys(page) {
  return iconState("apps", text.open, text.openText, button(text.first, () => newKey(page), { kind: "primary", "data-action": "first-key" }));
}

function appCards(page, { text: typed, withEnded }, clear) {
  const wanted = typed.trim().toLowerCase();
  const isRole = (role) => role === wanted || roleWords(role).title.toLowerCase().includes(wanted);
  const isFound = (app) => wanted === "" || app.app.includes(wanted) || app.keys.some((key) => key.id.startsWith(wanted) || isRole(key.role) || (key.name ?? "").toLowerCase().includes(wanted));
  const found = page.apps.filter((app) => isFound(app) && (withEnded || app.keys.some((key) => key.valid)));
  if (found.length === 0) {
    return iconState("search", text.nothing, withEnded ? text.nothingText : text.nothingHidden, ...(wanted === "" ? [] : [button(common.clearFilter, clear, { "data-action": "clear-filter" })]));
  }
  const more = found.length - SHOWN_MAX;
  return [
    found.slice(0, SHOWN_MAX).map((app) => appCard(page, app, withEnded)),
    more > 0 && h("p", { class: "soft" }, text.more(more)),
    h("p", { class: "soft" }, text.note, settingLink("limits.creates_per_second"), "."),
  ];
}

function appCard(page, app, withEnded) {
  const valid = app.keys.filter((key) => key.valid);
  const past = app.keys.length - valid.length;
  const newestFirst = (a, b) => Number(b.valid) - Number(a.valid) || b.created.localeCompare(a.created);
  const shown = (withEnded ? app.keys : valid).toSorted(newestFirst);
  const actions = h("div", { class: "line" },
    button([icon("plus"), text.new], () => newKey(page, app.app), { kind: "quiet add", "data-action": "add-key", "aria-label": text.newFor(app.app) }),
    valid.length > 1 && button(text.revokeAll, () => revokeApp(page, app), { kind: "danger", "data-action": "revoke-all", "aria-label": text.revokeAllOf(app.app) }));
  return card(outside(app.app), { beside: actions, className: "keys" },
    doings(app),
    keyTable(page, app, shown),
    !withEnded && past > 0 && h("p", { class: "soft small" }, text.hidden(past)));
}

function keyTable(page, app, keys) {
  const { element, table } = regionTable(text.keysOf(app.app), COLUMNS, keys.map((key) => keyRow(page, app, key)));
  table.classList.add("rows");
  return element;
}

/** What an app has done on this node, in one line. Refusals are in it only if there were some. */
function doings(app) {
  const refused = (said, many) => many > 0 && h("span", { class: "warn-text" }, said(many));
  const all = [
    app.requests > 0 ? text.doings.requests(app.requests) : text.doings.none,
    app.creates > 0 && text.doings.creates(app.creates),
    refused(text.doings.limited, app.limited),
    refused(text.doings.forbidden, app.forbidden),
    app.lastSeen && h("span", null, text.doings.last, format.relative(app.lastSeen)),
    app.appVersion && h("span", null, text.doings.version, outside(app.appVersion)),
  ].filter(Boolean);
  return h("p", { class: "soft doings" }, all.map((one, at) => [at > 0 && " · ", one]));
}

/** A key by its name, where it has one, and its ID. */
function keyCell(key, isOwn) {
  return h("div", null, key.name && h("div", { class: "key-name" }, outside(key.name)),
    h("div", { class: "line-tight" }, h("code", null, key.id), isOwn && badge(text.yours, "good")));
}

/** What holds for a key where nobody has chosen anything else. A phone leaves it out. */
const usual = (said) => ({ content: h("span", { class: "soft" }, said), class: "not-on-phone" });

function keyRow(page, app, key) {
  const isOwn = key.id === page.session.keyId;
  const made = row(
    { content: keyCell(key, isOwn), class: "wrap lead" },
    { content: roleOf(key.role), class: "fact" },
    key.domains === null ? usual(text.allDomains) : { content: h("ul", { class: "plain" }, key.domains.map((domain) => h("li", null, domainName(domain)))), class: "wrap fact" },
    key.createsPerSecond === null ? usual(text.default) : { content: text.perSecond(key.createsPerSecond), class: "fact" },
    { content: format.relative(key.created), class: "nowrap fact named" },
    endOf(key),
    { content: key.valid && actionsOf(page, app, key), class: "key-actions" });
  made.classList.toggle("past", !key.valid);
  return made;
}

/** Two buttons; on a phone, a menu of the same actions. */
function actionsOf(page, app, key) {
  const [rotate, revoke] = [() => rotateKey(page, app, key), () => revokeKey(page, app, key)];
  const named = text.keyNamed(key);
  const items = [[text.rotate, rotate, { name: "rotate" }], [text.revoke, revoke, { name: "revoke", kind: "danger" }]];
  const menu = button(icon("more"), () => openMenu(menu, items), { kind: "icon only-on-phone", "data-action": "key-menu", "aria-label": text.actionsFor(named, app.app), "aria-haspopup": "menu", "aria-expanded": "false" });
  return [
    h("div", { class: "row-actions not-on-phone" },
      button(text.rotate, rotate, { "data-action": "rotate", "aria-label": text.rotateOf(named, app.app) }),
      button(text.revoke, revoke, { kind: "danger", "data-action": "revoke", "aria-label": text.revokeOf(named, app.app) })),
    menu,
  ];
}

/** The role of a key by its title; its name and what it allows are in the tooltip. */
function roleOf(role) {
  const { title, meaning } = roleWords(role);
  return h("span", { title: `${role}: ${meaning}` }, title);
}

/** The cell with the end of a key: when it expires, soon in the colour of a warning, or since when it is not valid, with its state. */
function endOf(key) {
  if (!key.valid) {
    return { content: [badge(...stateOf(key)), h("small", { class: "meaning" }, format.relative(key.revoked ?? key.expires))], class: "nowrap fact" };
  }
  if (!key.expires) {
    return usual(text.never);
  }
  const isSoon = Date.parse(key.expires) - Date.now() < ENDS_SOON_MS;
  return { content: h("span", { class: isSoon ? "warn-text" : "" }, format.relative(key.expires)), class: "nowrap fact named" };
}
