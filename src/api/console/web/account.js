// Who is signed in: the menu in the corner of the header, and the dialog with all sessions.

import { del, get, setSession, withQuery } from "./api.js";
import { openDialog } from "./dialog.js";
import { actionButton, badge, button, emptyState, fill, h, loadInto, outside, pageLink, regionTable, row } from "./dom.js";
import { instant, relative, time } from "./format.js";
import { icon } from "./icons.js";
import { openMenu } from "./menu.js";
import { session as text } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";
import { agentName } from "./user-agents.js";

/** What the corner of the header shows. */
let drawn = null;

/**
 * Takes up a session, and draws it in the corner of the header, or a notice below the header while no key exists. The page reads the session
 * again whenever it gets the focus: as long as the corner would look the same, its button keeps the focus and its menu.
 */
export function showSession(session) {
  setSession(session);
  const facts = JSON.stringify([session.open, session.app, session.keyName, session.keyId]);
  if (facts === drawn) {
    return;
  }
  drawn = facts;
  document.querySelector(".top .open-notice")?.remove();
  const host = document.getElementById("account");
  if (session.open) {
    fill(host);
    document.querySelector(".top").append(openNotice());
    return;
  }
  // The letter is drawn by the style sheet: it is no part of the button's name.
  const name = session.keyName ?? session.app;
  const face = h("span", { class: "avatar", "data-letter": [...name][0]?.toUpperCase(), "aria-hidden": "true" });
  const opener = button([face, outside(name), icon("down")], () => showMenu(opener, session),
    { kind: "quiet", "data-action": "account", "aria-haspopup": "menu", "aria-expanded": "false", "aria-label": text.account(name), title: text.signedIn(session.keyId) });
  fill(host, opener);
}

function showMenu(opener, { app, keyId, keyName }) {
  openMenu(opener, [
    [[icon("person"), text.sessions], showSessions, { name: "sessions" }],
    [[icon("out"), text.signOut], () => signOut(), { name: "sign-out" }],
  ], { head: [outside(keyName ?? app), h("span", { class: "mono soft" }, keyId)] });
}

function openNotice() {
  return h("aside", { class: "notice warn open-notice", "aria-label": text.openLabel }, text.openNotice,
    pageLink("/admin/apps", text.openLink), text.openEnd);
}

/** Ends the session, and leads to the page on which one signs in. The next session begins on the page `next`, if there is one. */
export async function signOut(next = "") {
  try {
    await del("/admin/api/session");
    location.assign(withQuery("/admin/sign-in", { next }));
  } catch (error) {
    toastError(error, text.stillSignedIn);
  }
}

/** Shows all sessions in a dialog. */
export function showSessions() {
  const host = h("div", { class: "sessions" });
  openDialog(text.sessions, [h("p", { class: "soft" }, text.intro), host], { wide: true });
  const reload = () => loadInto(host, () => get("/admin/api/session"), ({ sessions, ends }) => sessionList(sessions, ends, reload), { lines: 5 });
  reload();
}

const nowrap = (content) => ({ content, class: "nowrap" });

function sessionList(sessions, ends, reload) {
  const end = (path, said) => async () => {
    try {
      await del(path);
      toast(said);
      await reload();
    } catch (error) {
      toastError(error, text.notEnded);
    }
  };
  const rows = sessions.map((one) => row(
    nowrap([outside(one.app), " ", one.keyName ? outside(one.keyName, { class: "soft", title: one.keyId }) : h("code", null, one.keyId)]),
    nowrap([one.address ?? text.unknown, " ", outside(agentName(one.userAgent), { class: "soft", title: one.userAgent })]), nowrap(time(one.since)), nowrap(relative(one.lastSeen)),
    one.current ? badge(text.current, "good") : actionButton(text.end, end(`/admin/api/sessions/${encodeURIComponent(one.id)}`, text.ended), { "data-action": "end", "aria-label": text.endOf(one.app, instant(Date.parse(one.since))) })));
  const columns = text.columns.map((title, at) => ({ title, hidden: at === text.columns.length - 1 }));
  const others = sessions.length > 1;
  return [
    regionTable(text.sessions, columns, rows).element,
    h("p", { class: "soft" }, text.expires, relative(ends), "."),
    others ? h("p", null, actionButton(text.endOthers, end("/admin/api/sessions", text.endedOthers), { kind: "danger", "data-action": "end-others" }))
      : emptyState(text.alone, text.aloneText),
  ];
}
