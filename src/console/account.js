// Who is signed in: the corner of the header, and the dialog with all sessions.

import { del, get, setSession } from "./api.js";
import { openDialog } from "./dialog.js";
import { actionButton, badge, button, emptyState, fill, h, loadInto, outside, pageLink, regionTable, row } from "./dom.js";
import { relative, time } from "./format.js";
import { toast, toastError } from "./toast.js";

/** Takes up a session, and draws it in the corner of the header; while there is no key at all, that is said. */
export function showSession(session) {
  setSession(session);
  document.querySelector(".top .open-notice")?.remove();
  const host = document.getElementById("account");
  if (session.open) {
    fill(host, badge("No keys: open to all", "warn"));
    document.querySelector(".top").append(openNotice());
    return;
  }
  const who = button(outside(session.app), () => showSessions(), { kind: "quiet", "aria-haspopup": "dialog", title: `Signed in with the key ${session.keyId}` });
  fill(host, who, actionButton("Sign out", signOut, { kind: "quiet" }));
}

function openNotice() {
  return h("aside", { class: "notice warn open-notice", "aria-label": "Nobody needs a key" }, "There are no API keys: whoever reaches this listener may do everything. ",
    pageLink("/admin/apps", "Make a key under Apps and keys"), " to close it.");
}

async function signOut() {
  try {
    await del("/admin/api/session");
    location.assign("/admin/sign-in");
  } catch (error) {
    toastError(error, "You are still signed in.");
  }
}

function showSessions() {
  const host = h("div", { class: "sessions" });
  openDialog("Sessions", [h("p", { class: "soft" }, "Who is signed in to this console, and since when."), host], { wide: true });
  const reload = () => loadInto(host, () => get("/admin/api/session"), ({ sessions, ends }) => sessionList(sessions, ends, reload), { lines: 5 });
  reload();
}

const nowrap = (content) => ({ content, class: "nowrap" });

/** What a browser is called, by its `User-Agent`: all of them name others, too, so that the order matters. */
function browserName(userAgent) {
  const called = (names) => names.find(([word]) => userAgent.includes(word))?.[1];
  const browser = called([["Edg/", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]]);
  const system = called([["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]]);
  return [browser ?? (userAgent.slice(0, 30) || "unnamed"), system].filter(Boolean).join(", ");
}

function sessionList(sessions, ends, reload) {
  const end = (path, said) => async () => {
    try {
      await del(path);
      toast(said);
      await reload();
    } catch (error) {
      toastError(error, "Nothing was ended.");
    }
  };
  const rows = sessions.map((one) => row(
    nowrap([outside(one.app), " ", h("code", null, one.keyId)]),
    nowrap([one.address ?? "unknown", " ", outside(browserName(one.userAgent), { class: "soft", title: one.userAgent })]), nowrap(time(one.since)), nowrap(relative(one.lastSeen)),
    one.current ? badge("This one", "good") : actionButton("End", end(`/admin/api/sessions/${encodeURIComponent(one.id)}`, "The session is ended."), { "aria-label": `End the session of ${one.app} since ${one.since}` })));
  const columns = [{ title: "App and key" }, { title: "From" }, { title: "Since" }, { title: "Last seen" }, { title: "End", hidden: true }];
  const others = sessions.length > 1;
  return [
    regionTable("Sessions", columns, rows).element,
    h("p", { class: "soft" }, "This session ends ", relative(ends), "."),
    others ? h("p", null, actionButton("End all others", end("/admin/api/sessions", "All other sessions are ended."), { kind: "danger" }))
      : emptyState("No other sessions", "Nobody else is signed in with a key."),
  ];
}
