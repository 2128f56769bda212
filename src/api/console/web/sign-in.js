// What happens when the session is over: to the sign-in page and back, or, where that would lose somebody's work, a dialog on the page.

import { showSession } from "./account.js";
import { confirmDialog, formDialog } from "./dialog.js";
import { h } from "./dom.js";
import { field } from "./field.js";
import { setSessionEnded, startLive, stopLive } from "./live.js";
import { signIn as text } from "./strings-shell.js";

let asked = null;

/** Resolves when somebody is signed in again, or never, where the page is left for that. However many ask, it happens once. */
export function signIn() {
  setSessionEnded(true);
  asked ??= signInOnce().finally(() => {
    asked = null;
    setSessionEnded(false);
  });
  return asked;
}

async function signInOnce() {
  // A key that is shown once stays until it was copied: the first one of a node ends what was open to all.
  const shown = document.querySelector("dialog[open] .secret")?.closest("dialog");
  if (shown) {
    await new Promise((resolve) => shown.addEventListener("close", resolve, { once: true }));
  }
  let [isIn, mayLeave] = [false, false];
  while (hasWork() && !isIn && !mayLeave) {
    isIn = await signInHere();
    mayLeave = !isIn && (await confirmDialog(text.leave, text.leaveText, { action: text.leaveAction }));
  }
  if (!isIn) {
    location.assign(`/admin/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
    return new Promise(() => {});
  }
  return undefined;
}

/** Signs in with the first key of the node, which ends the open access and the stream of the status with it. Resolves to whether that went well. */
export async function continueWith(key) {
  stopLive();
  try {
    return await enter(key);
  } catch {
    return false;
  } finally {
    startLive();
  }
}

/** Takes up the session that the browser has now: that of another page that was signed in since. Resolves to whether it has one; `signal` ends the request. Not as other requests go, which may wait for this one. */
export async function renewSession(signal) {
  const told = await fetch("/admin/api/session", { headers: { Accept: "application/json" }, signal });
  if (told.ok) {
    showSession(await told.json());
  }
  return told.ok;
}

/** Whether there is something on the page that was typed or chosen: in a dialog, or where a view says so. */
function hasWork() {
  return document.querySelector("dialog[open], [data-work]") !== null;
}

/** Whether somebody is signed in then: they may rather not. */
function signInHere() {
  return formDialog(text.title, {
    fields: [
      // Password managers look for a name.
      h("input", { type: "text", value: "console", autocomplete: "username", "aria-label": text.managers, hidden: true }),
      field({ name: "key", label: text.key, type: "password", required: true, autocomplete: "current-password", spellcheck: "false" }),
    ],
    intro: text.intro,
    action: text.action,
    submit: ({ key }) => enter(key),
  });
}

async function enter(key) {
  const body = new URLSearchParams({ key, next: "/admin/" });
  const answer = await fetch("/admin/sign-in", { method: "POST", body, redirect: "manual" }).catch(() => null);
  // Who is let in is led on.
  if (answer?.type !== "opaqueredirect") {
    const reason = answer === null ? text.unreachable : text.refusals[answer.status] ?? text.other(answer.status);
    throw Object.assign(new Error(reason), { reasons: [["key", reason]] });
  }
  if (!(await renewSession())) {
    throw new Error(text.noCookie);
  }
  return true;
}
