// The dialogs of apps and keys: a new key, one that follows another, and the end of keys.
// `page` is what the view knows: `{ session, apps, domains, reload }`.

import { del, post } from "./api.js";
import { confirmDialog, formDialog, openDialog } from "./dialog.js";
import { button, copyButton, h, outside } from "./dom.js";
import { field, fromLocalInput } from "./field.js";
import { choicesField, radioField } from "./choices.js";
import * as format from "./format.js";
import { ROLES } from "./roles.js";
import { toast, toastError } from "./toast.js";

const DAY_MS = 86_400_000;
const ENDS = [["", "Never"], ["30", "In 30 days"], ["90", "In 90 days"], ["365", "In a year"], ["own", "At a time of my own"]];
const GRACES = [["0", "At once"], ["3600", "After an hour"], ["86400", "After a day"], ["604800", "After 7 days"], ["2592000", "After 30 days"]];

/** Makes a key of an app, which may be new, and shows it. */
export async function newKey(page, app = "") {
  const isFirst = page.session.open;
  const fields = isFirst ? firstKeyFields(app) : keyFields(page, app);
  const made = await formDialog(app === "" ? "New key" : `New key of ${app}`, {
    fields: fields.all,
    intro: isFirst ? "The first key closes this node to everyone without one. It has the role admin and holds until it is revoked, so that you can sign in to this console with it and make the others." : undefined,
    action: "Make the key",
    wide: true,
    submit: (values) => post("/apps", fields.read(values)).catch((error) => {
      throw values.expires === "own" ? ofOwnEnd(error) : error;
    }),
  });
  if (made) {
    await showOnce(`The key of ${made.app}`, made, isFirst && "From now on this console asks for a key. Copy this one, then sign in with it.");
    if (isFirst) {
      // The session, the header and the notices are others now.
      location.reload();
      return;
    }
    await page.reload();
  }
}

/** With any other role, an end or a limit nobody could sign in any more. */
function firstKeyFields(app) {
  return { all: [appField(app)], read: ({ app: name }) => ({ app: name.trim(), role: "admin" }) };
}

function appField(app) {
  return field({ name: "app", label: "App", value: app, required: true, maxlength: 64, autocapitalize: "none", autocomplete: "off", spellcheck: "false", hint: "The program or person that uses the key. Small letters, digits, and . _ - after the first." });
}

function keyFields(page, app) {
  const until = field({ name: "until", label: "Ends at", type: "datetime-local" });
  until.element.hidden = true;
  const ends = field({
    name: "expires", label: "Ends", type: "select", options: ENDS, onchange: () => {
      until.element.hidden = ends.input.value !== "own";
    },
  });
  const rate = field({ name: "createsPerSecond", label: "Links a second", type: "number", min: 1, max: 1_000_000, step: 1, inputmode: "numeric", hint: "How many links the app may make a second on each node. Empty: as the node says for all." });
  const names = page.domains.map((one) => (one.isDefault ? ["DEFAULT", `${one.domain} (default)`] : [one.domain, one.domain]));
  const domains = names.length > 1 && choicesField({ name: "domains", label: "Domains", options: names, hint: "Links elsewhere are not there for this key. None chosen: all domains." });
  const all = [
    appField(app),
    radioField({ name: "role", label: "Role", options: ROLES, value: "write-own" }),
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
function grantOf({ app, role, expires, until, createsPerSecond, domains }) {
  if (expires === "own" && until === "") {
    const reason = "Say when it ends, or choose that it does not.";
    throw Object.assign(new Error(reason), { reasons: [["until", reason]] });
  }
  const inDays = () => new Date(Date.now() + Number(expires) * DAY_MS).toISOString();
  return {
    app: app.trim(),
    role,
    expires: expires === "own" ? fromLocalInput(until) : expires === "" ? null : inDays(),
    createsPerSecond: createsPerSecond === "" ? null : Number(createsPerSecond),
    domains: domains?.length > 0 ? domains : null,
  };
}

/** Makes a key that follows another, which holds for a while. */
export async function rotateKey(page, { app }, key) {
  const isOwn = key.id === page.session.keyId;
  const made = await formDialog(`Rotate the key ${key.id}`, {
    fields: [field({ name: "graceSeconds", label: "The old key ends", type: "select", options: GRACES, value: "86400", read: Number })],
    intro: `A new key of ${app} is made with the same role, domains, rate and end. Put it where the app reads it before the old one ends.${
      isOwn ? " You are signed in with the old key: sign in with the new one before then." : ""}`,
    action: "Make the new key",
    submit: ({ graceSeconds }) => post(`/apps/${encodeURIComponent(app)}/rotate`, { id: key.id, graceSeconds }),
  });
  if (made) {
    await showOnce(`The new key of ${app}`, made, `It follows ${key.id}.`);
    await page.reload();
  }
}

/** Shows a key, which nobody can do again. */
async function showOnce(title, { key, id }, more) {
  const shown = h("output", { class: "secret mono" }, key);
  const dialog = openDialog(title, [
    h("p", null, "This is the only time that the key is shown: carom keeps nothing from which it could be told again. Copy it to where the app reads it."),
    h("div", { class: "secret-line" }, shown, copyButton(key, "Copy the key")),
    h("p", { class: "soft" }, "Programs send it in the header ", h("code", null, "X-Api-Key"), ". In lists it is called ", h("code", null, id), "."),
    more && h("p", null, outside(more)),
  ], {
    actions: [button("I have copied it", () => dialog.close(), { kind: "primary" })],
    wide: true,
    mayLeave: () => confirmDialog("Have you copied the key?", "It is shown nowhere again.", { action: "I have copied it", kind: "primary" }),
  });
  getSelection().selectAllChildren(shown);
  dialog.element.querySelector(".copy button").focus();
  await dialog.closed;
}

/** Ends a key for good. */
export async function revokeKey(page, { app, keys }, key) {
  const others = keys.filter((one) => one.valid && one.id !== key.id).length;
  const left = others === 0
    ? `It is the only key of ${app}: nothing that ${app} asks for is answered any more.`
    : `${app} has ${format.count(others, "other key")} that still ${others === 1 ? "holds" : "hold"}.`;
  await revoke(page, `Revoke the key ${key.id} of ${app}?`, left, [key], `/apps/${encodeURIComponent(app)}/keys/${encodeURIComponent(key.id)}`);
}

/** Ends all keys of an app for good. */
export async function revokeApp(page, { app, keys }) {
  const valid = keys.filter((one) => one.valid);
  const left = `That ends ${format.count(valid.length, "key")}: nothing that ${app} asks for is answered any more. Its links stay and go on to redirect.`;
  await revoke(page, `Revoke all keys of ${app}?`, left, valid, `/apps/${encodeURIComponent(app)}`);
}

async function revoke(page, title, left, ending, path) {
  const text = [`Whoever uses ${ending.length === 1 ? "it" : "them"} is refused at once, and this cannot be undone.`, left, ...warnings(page, ending)].join(" ");
  if (!(await confirmDialog(title, text, { action: "Revoke" }))) {
    return;
  }
  try {
    const { revoked } = await del(path);
    toast(`${format.count(revoked.length, "key")} revoked.`);
  } catch (error) {
    toastError(error, "Nothing was revoked.");
  }
  await page.reload();
}

/** What else ends with these keys. */
function warnings({ session, apps }, ending) {
  const isEnding = (key) => ending.some((one) => one.id === key.id);
  const admins = apps.flatMap((app) => app.keys).filter((key) => key.valid && key.role === "admin");
  const isLastAdmin = admins.length > 0 && admins.every(isEnding);
  return [
    ending.some((key) => key.id === session.keyId) && "You are signed in with this key: you will be signed out.",
    isLastAdmin && "No other key has the role admin: nobody can sign in here until one is made with `carom app add NAME --role admin` on the machine.",
  ].filter(Boolean);
}
