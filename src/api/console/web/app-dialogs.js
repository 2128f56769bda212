// The dialogs of apps and keys: a new key, one that follows another, and the end of keys.
// `page` is what the view knows: `{ session, apps, domains, reload }`.

import { del, post } from "./api.js";
import { confirmDialog, formDialog, openDialog } from "./dialog.js";
import { button, copyButton, h, outside } from "./dom.js";
import { field, fromLocalInput } from "./field.js";
import { choicesField, radioField } from "./choices.js";
import { continueWith } from "./sign-in.js";
import { apps, keys as text, roles } from "./strings-access.js";
import { toast, toastError } from "./toast.js";

const DAY_MS = 86_400_000;
const APP_LEN_MAX = 64;
/** The name of an app, as the node allows it. */
const APP = /^[a-z0-9][a-z0-9._-]{0,63}$/;

/** Makes a key of an app, which may be new, and shows it. */
export async function newKey(page, app = "") {
  const isFirst = page.session.open;
  const fields = isFirst ? firstKeyFields(app) : keyFields(page, app);
  const made = await formDialog(isFirst ? text.firstTitle : app === "" ? apps.new : apps.newFor(app), {
    fields: fields.all,
    intro: isFirst ? text.firstIntro : undefined,
    action: isFirst ? text.firstAction : text.create,
    wide: true,
    discard: text.discard,
    submit: async (values) => {
      const wanted = fields.read(values);
      checkApp(wanted.app);
      const made = await post("/apps", wanted).catch((error) => {
        throw values.expires === "own" ? ofOwnEnd(error) : error;
      });
      return isFirst ? { ...made, isSignedIn: await continueWith(made.key) } : made;
    },
  });
  if (made && isFirst) {
    await showFirst(page, made);
  } else if (made) {
    await showOnce(text.made(made.app), made);
    await page.reload();
  }
}

/** Shows the first key. The browser has signed in with it, unless it refuses the cookie; then the sign-in page follows. */
async function showFirst(page, made) {
  if (made.isSignedIn) {
    page.reload();
  }
  await showOnce(text.made(made.app), made, made.isSignedIn ? text.madeFirst : text.madeFirstOnly);
  if (!made.isSignedIn) {
    location.reload();
  }
}

/** A valid name of an app that is close to what was typed; empty where nothing of that can be in one. */
function appNamed(typed) {
  const plain = typed.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return plain.replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+|-+$/g, "").slice(0, APP_LEN_MAX);
}

/** Throws an error with a valid suggestion if the name of an app is invalid. */
function checkApp(app) {
  if (!APP.test(app)) {
    const reason = text.appWrong(appNamed(app) || "anna-smith");
    throw Object.assign(new Error(reason), { reasons: [["app", reason]] });
  }
}

/** With any other role, an end or a limit nobody could sign in any more. */
function firstKeyFields(app) {
  return { all: ownerFields(app), read: ({ app: owner, name }) => ({ app: owner.trim(), name, role: "admin" }) };
}

/** The app, and the name of the key, from which an app that nobody has named gets its own. */
function ownerFields(app) {
  const [owner, name] = [appField(app), nameField()];
  let proposed = "";
  name.input.addEventListener("input", () => {
    if (owner.input.value === proposed) {
      proposed = appNamed(name.input.value);
      owner.input.value = proposed;
    }
  });
  return [owner, name];
}

function appField(app) {
  return field({ name: "app", label: text.app, value: app, required: true, maxlength: 64, autocapitalize: "none", autocomplete: "off", spellcheck: "false", hint: text.appHint });
}

function nameField() {
  return field({ name: "name", label: text.name, maxlength: 64, autocomplete: "off", hint: text.nameHint, read: (typed) => typed.trim() || null });
}

function keyFields(page, app) {
  const until = field({ name: "until", label: text.until, type: "datetime-local" });
  until.element.hidden = true;
  const ends = field({
    name: "expires", label: text.expires, type: "select", options: text.expiresChoices, onchange: () => {
      until.element.hidden = ends.input.value !== "own";
    },
  });
  const rate = field({ name: "createsPerSecond", label: text.rate, type: "number", min: 1, max: 1_000_000, step: 1, inputmode: "numeric", hint: text.rateHint });
  const names = page.domains.map((one) => (one.isDefault ? ["DEFAULT", text.defaultOf(one.domain)] : [one.domain, one.domain]));
  const domains = names.length > 1 && choicesField({ name: "domains", label: text.domains, options: names, hint: text.domainsHint });
  const all = [
    ...ownerFields(app),
    radioField({ name: "role", label: text.role, options: roles, value: "write-own" }),
    ends, until, rate, domains,
  ].filter(Boolean);
  return { all, read: (values) => grantOf(values) };
}

/** What is wrong with an end of one's own stands beside the field where it was typed. */
function ofOwnEnd(error) {
  const reasons = (error.reasons ?? []).map(([name, reason]) => [name === "expires" ? "until" : name, reason]);
  return Object.assign(new Error(error.message), { detail: error.detail, reasons });
}

/** What the API takes, of what was typed. */
function grantOf({ app, name, role, expires, until, createsPerSecond, domains }) {
  if (expires === "own" && until === "") {
    throw Object.assign(new Error(text.untilMissing), { reasons: [["until", text.untilMissing]] });
  }
  const inDays = () => new Date(Date.now() + Number(expires) * DAY_MS).toISOString();
  return {
    app: app.trim(),
    name,
    role,
    expires: expires === "own" ? fromLocalInput(until) : expires === "" ? null : inDays(),
    createsPerSecond: createsPerSecond === "" ? null : Number(createsPerSecond),
    domains: domains?.length > 0 ? domains : null,
  };
}

/** Makes a key that follows another, which holds for a while. */
export async function rotateKey(page, { app }, key) {
  const isOwn = key.id === page.session.keyId;
  const made = await formDialog(text.rotate(apps.keyNamed(key)), {
    fields: [field({ name: "graceSeconds", label: text.grace, type: "select", options: text.graces, value: "86400", read: Number })],
    intro: text.rotateIntro(app, isOwn),
    action: text.rotateAction,
    submit: ({ graceSeconds }) => post(`/apps/${encodeURIComponent(app)}/rotate`, { id: key.id, graceSeconds }),
  });
  if (made) {
    await showOnce(text.madeNew(app), made, text.replaces(apps.keyNamed(key)));
    await page.reload();
  }
}

/** Shows a key, which nobody can do again. */
async function showOnce(title, { key, id }, more) {
  const shown = h("output", { class: "secret mono" }, key);
  const [before, between, after] = text.header;
  const dialog = openDialog(title, [
    h("p", null, text.copyNow),
    h("div", { class: "secret-line" }, shown, copyButton(key, text.copy)),
    h("p", { class: "soft" }, before, h("code", null, "X-Api-Key"), between, h("code", null, id), after),
    more && h("p", null, outside(more)),
  ], {
    actions: [button(text.copied, () => dialog.close(), { kind: "primary", "data-action": "copied" })],
    wide: true,
    mayLeave: () => confirmDialog(text.askCopied, text.askCopiedText, { action: text.copied, kind: "primary" }),
  });
  getSelection().selectAllChildren(shown);
  dialog.element.querySelector(".copy button").focus();
  await dialog.closed;
}

/** Ends a key for good. */
export async function revokeKey(page, { app, keys }, key) {
  const others = keys.filter((one) => one.valid && one.id !== key.id).length;
  const left = others === 0 ? text.onlyKey(app) : text.otherKeys(app, others);
  const [named, path] = [apps.keyNamed(key), `/apps/${encodeURIComponent(app)}/keys/${encodeURIComponent(key.id)}`];
  await revoke(page, { title: text.askRevoke(named, app), action: text.revokeAction, left, ending: [key], path, done: () => text.revokedOne(named, app) });
}

/** Ends all keys of an app for good. */
export async function revokeApp(page, { app, keys }) {
  const valid = keys.filter((one) => one.valid);
  const path = `/apps/${encodeURIComponent(app)}`;
  await revoke(page, { title: text.askRevokeAll(app), action: apps.revokeAll, left: text.allKeys(app, valid.length), ending: valid, path, done: (ended) => text.revokedAll(app, ended) });
}

async function revoke(page, { title, action, left, ending, path, done }) {
  const said = [text.revokeNow(ending.length), left, ...warnings(page, ending)].join(" ");
  if (!(await confirmDialog(title, said, { action }))) {
    return;
  }
  try {
    const { revoked } = await del(path);
    toast(done(revoked.length));
  } catch (error) {
    toastError(error, text.notRevoked);
  }
  await page.reload();
}

/** What else ends with these keys. */
function warnings({ session, apps }, ending) {
  const isEnding = (key) => ending.some((one) => one.id === key.id);
  const admins = apps.flatMap((app) => app.keys).filter((key) => key.valid && key.role === "admin");
  const isLastAdmin = admins.length > 0 && admins.every(isEnding);
  return [
    ending.some((key) => key.id === session.keyId) && text.ownKey,
    isLastAdmin && text.lastAdmin,
  ].filter(Boolean);
}
