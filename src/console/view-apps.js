// Apps and keys: who may call the API, what each key allows, and what each app has done.

import { currentSession, get } from "./api.js";
import { newKey, revokeApp, revokeKey, rotateKey } from "./app-dialogs.js";
import { badge, button, card, emptyState, facts, fill, h, outside, pageHead, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { domainName, filterField, reloader, settingLink } from "./parts.js";
import { roleText, stateOf } from "./roles.js";

// More cards than this nobody reads one by one, and they slow the page down.
const SHOWN_MAX = 100;
const ENDS_SOON_MS = 14 * 86_400_000;

const COLUMNS = [
  { title: "Key" }, { title: "Role" }, { title: "Domains" }, { title: "Links a second", class: "num" },
  { title: "Created" }, { title: "Ends" }, { title: "State" }, { title: "Actions", hidden: true },
];

export async function show(main, { signal, query, setQuery }) {
  const wanted = { text: query.get("filter") ?? "", withEnded: query.get("ended") === "1" };
  const page = { get session() { return currentSession(); }, apps: [], domains: [] };
  const host = h("div", { class: "stack" });
  const list = h("div", { class: "stack" });
  const draw = () => fill(list, appCards(page, wanted));
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
      bar.hidden = page.apps.length === 0;
      draw();
      return page.apps.length === 0 ? noKeys(page) : list;
    },
  });
  const add = button("New key", () => newKey(page), { kind: "primary", disabled: true });
  const bar = toolbar(wanted, choose, signal);
  main.append(pageHead("Apps and keys", add), bar, host);
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

function toolbar({ text, withEnded }, choose, signal) {
  const filter = filterField({
    label: "Filter apps and keys", placeholder: "Filter by app, key or role", value: text, signal, onInput: (typed) => choose({ text: typed }),
  });
  const ended = h("input", { type: "checkbox", checked: withEnded, onchange: () => choose({ withEnded: ended.checked }) });
  return h("div", { class: "toolbar" }, filter, h("label", { class: "tick" }, ended, "Keys that have ended, too"));
}

/** What is chosen is kept in the address, so that it can be sent to somebody. */
function queryOf({ text, withEnded }) {
  const params = new URLSearchParams();
  if (text !== "") {
    params.set("filter", text);
  }
  if (withEnded) {
    params.set("ended", "1");
  }
  return params;
}

function noKeys(page) {
  return emptyState("No keys yet: everyone may do everything",
    "As long as there are no keys, whoever reaches a listener of this node can make, change and delete links. "
    + "Make a key with the role admin for yourself first, then one for each program.",
    button("Make the first key", () => newKey(page), { kind: "primary" }));
}

function appCards(page, { text, withEnded }) {
  const wanted = text.trim().toLowerCase();
  const isFound = (app) => wanted === "" || app.app.includes(wanted) || app.keys.some((key) => key.id.startsWith(wanted) || key.role === wanted);
  const found = page.apps.filter((app) => isFound(app) && (withEnded || app.keys.some((key) => key.valid)));
  if (found.length === 0) {
    return emptyState("No app is shown", withEnded ? "Change the filter." : "Change the filter, or show keys that have ended, too.");
  }
  const more = found.length - SHOWN_MAX;
  return [
    found.slice(0, SHOWN_MAX).map((app) => appCard(page, app, withEnded)),
    more > 0 && h("p", { class: "soft" }, `${format.count(more, "more app")}. Filter to see others.`),
    h("p", { class: "soft" }, "What apps have done is counted on this node since it started. A key without a rate of its own has the default, ", settingLink("limits.creates_per_second"), "."),
  ];
}

function appCard(page, app, withEnded) {
  const valid = app.keys.filter((key) => key.valid);
  const past = app.keys.length - valid.length;
  const newestFirst = (a, b) => Number(b.valid) - Number(a.valid) || b.created.localeCompare(a.created);
  const shown = (withEnded ? app.keys : valid).toSorted(newestFirst);
  const actions = h("div", { class: "line" },
    button("Add a key", () => newKey(page, app.app), { "aria-label": `Add a key of ${app.app}` }),
    valid.length > 1 && button("Revoke all", () => revokeApp(page, app), { kind: "danger", "aria-label": `Revoke all keys of ${app.app}` }));
  return card(outside(app.app), { beside: actions, className: "keys" },
    doings(app),
    regionTable(`Keys of ${app.app}`, COLUMNS, shown.map((key) => keyRow(page, app, key))).element,
    !withEnded && past > 0 && h("p", { class: "soft small" }, `${format.count(past, "key")} that ended or ${past === 1 ? "was" : "were"} revoked: not shown.`));
}

/** What an app has done on this node. */
function doings(app) {
  return h("div", { class: "numbers" }, facts([
    ["Requests", format.number(app.requests)],
    ["Links made", format.number(app.creates)],
    ["Held back by the rate", format.number(app.limited)],
    ["Not allowed", format.number(app.forbidden)],
    ["Last request", app.lastSeen ? format.relative(app.lastSeen) : "none since the start"],
    ["Version", app.appVersion ? outside(app.appVersion) : undefined],
  ]));
}

function keyRow(page, app, key) {
  const [state, kind] = stateOf(key);
  const isOwn = key.id === page.session.keyId;
  const name = `the key ${key.id} of ${app.app}`;
  const actions = key.valid && h("div", { class: "row-actions" },
    button("Rotate", () => rotateKey(page, app, key), { "aria-label": `Rotate ${name}` }),
    button("Revoke", () => revokeKey(page, app, key), { kind: "danger", "aria-label": `Revoke ${name}` }));
  const made = row(
    { content: [h("code", null, key.id), isOwn && [" ", badge("yours", "good")]], class: "nowrap" },
    h("span", { title: roleText(key.role) }, key.role),
    { content: key.domains === null ? "all" : h("ul", { class: "plain" }, key.domains.map((domain) => h("li", null, domainName(domain)))), class: "wrap" },
    { content: key.createsPerSecond === null ? h("span", { class: "soft" }, "default") : format.number(key.createsPerSecond), class: "num" },
    { content: format.relative(key.created), class: "nowrap" },
    { content: endOf(key), class: "nowrap" },
    [badge(state, kind), key.revoked && h("small", { class: "meaning" }, format.relative(key.revoked))],
    actions);
  made.classList.toggle("past", !key.valid);
  return made;
}

function endOf(key) {
  if (!key.expires) {
    return "never";
  }
  const isSoon = key.valid && Date.parse(key.expires) - Date.now() < ENDS_SOON_MS;
  return h("span", { class: isSoon ? "warn-text" : "" }, format.relative(key.expires));
}
