// Who is signed in: the corner of the header, and the dialog with all sessions.

import { del, get, setSession } from "./api.js";
import { openDialog } from "./dialog.js";
import { actionButton, badge, button, emptyState, fill, h, loadInto, outside, pageLink, regionTable, row } from "./dom.js";
import { relative, time } from "./format.js";
import { icon } from "./icons.js";
import { session as text } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";
import { agentName } from "./user-agents.js";

/** Takes up a session, and draws it in the corner of the header; while there is no key at all, that is said. */
export function showSession(session) {
  setSession(session);
  document.querySelector(".top .open-notice")?.remove();
  const host = document.getElementById("account");
  if (session.open) {
    fill(host, badge(text.open, "warn"));
    document.querySelector(".top").append(openNotice());
    return;
  }
  const who = button([icon("person"), outside(session.app)], () => showSessions(), { kind: "quiet", "data-action": "sessions", "aria-haspopup": "dialog", title: text.signedIn(session.keyId) });
  fill(host, who, actionButton(text.signOut, signOut, { kind: "quiet", "data-action": "sign-out" }));
}

function openNotice() {
  return h("aside", { class: "notice warn open-notice", "aria-label": text.openLabel }, text.openNotice,
    pageLink("/admin/apps", text.openLink), text.openEnd);
}

async function signOut() {
  try {
    await del("/admin/api/session");
    location.assign("/admin/sign-in");
  } catch (error) {
    toastError(error, text.stillSignedIn);
  }
}

function showSessions() {
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
    nowrap([outside(one.app), " ", h("code", null, one.keyId)]),
    nowrap([one.address ?? text.unknown, " ", outside(agentName(one.userAgent), { class: "soft", title: one.userAgent })]), nowrap(time(one.since)), nowrap(relative(one.lastSeen)),
    one.current ? badge(text.current, "good") : actionButton(text.end, end(`/admin/api/sessions/${encodeURIComponent(one.id)}`, text.ended), { "data-action": "end", "aria-label": text.endOf(one.app, one.since) })));
  const columns = text.columns.map((title, at) => ({ title, hidden: at === text.columns.length - 1 }));
  const others = sessions.length > 1;
  return [
    regionTable(text.sessions, columns, rows).element,
    h("p", { class: "soft" }, text.expires, relative(ends), "."),
    others ? h("p", null, actionButton(text.endOthers, end("/admin/api/sessions", text.endedOthers), { kind: "danger", "data-action": "end-others" }))
      : emptyState(text.alone, text.aloneText),
  ];
}
