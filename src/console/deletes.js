// Deletes that can still be undone. A link is archived at once, so that it leads nowhere, and deleted when the time is over.
// What waits is kept in local storage: a page that is closed leaves the rest to the next page of the console that is opened.

import { ApiError, del, linkPath, patch } from "./api.js";
import { toast, toastError } from "./toast.js";

const KEY = "carom.console.deletes";
const LOCK = "carom.console.deletes";
const WAIT_MS = 20_000;

const listeners = new Set();

/** Calls `listener(link)` with each link that was deleted for good, or brought back. Returns what ends that. */
export function onDelete(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function waiting() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

function keep(entries) {
  localStorage.setItem(KEY, JSON.stringify(entries));
}

const isSame = (a, b) => a.shortCode === b.shortCode && a.domain === b.domain;

/** Archives a link now and deletes it when nobody has undone that. Throws what the node says to the first. */
export async function deleteLater(links) {
  const entries = links.map(({ shortCode, domain, archived }) => ({ shortCode, domain, archived, at: Date.now() + WAIT_MS }));
  // Kept before anything is sent: a page that is closed in between has asked for it all the same.
  keep([...waiting().filter((old) => !entries.some((entry) => isSame(old, entry))), ...entries]);
  const failed = await archiveAll(entries);
  const done = entries.filter((entry) => !failed.has(entry));
  if (done.length > 0) {
    offerUndo(done);
  }
  setTimeout(finishDeletes, WAIT_MS + 200);
  listeners.forEach((listener) => listener(done));
  if (failed.size > 0) {
    throw [...failed.values()][0];
  }
}

async function archiveAll(entries) {
  const failed = new Map();
  for (const entry of entries) {
    try {
      await patch(linkPath(entry), { archived: true });
    } catch (error) {
      failed.set(entry, error);
      forget([entry]);
    }
  }
  return failed;
}

function forget(entries) {
  keep(waiting().filter((old) => !entries.some((entry) => isSame(old, entry))));
}

function offerUndo(entries) {
  const seconds = WAIT_MS / 1000;
  const what = entries.length === 1 ? "Deleted: the link leads nowhere now" : `Deleted: ${entries.length} links lead nowhere now`;
  toast(`${what}, and for ${seconds} s you can bring ${entries.length === 1 ? "it" : "them"} back. If you close the console before, it deletes when it is next opened.`, {
    seconds, action: { label: "Undo", run: () => undo(entries) },
  });
}

async function undo(entries) {
  forget(entries);
  for (const entry of entries) {
    try {
      await patch(linkPath(entry), { archived: entry.archived });
    } catch (error) {
      toastError(error, `${entry.shortCode} could not be brought back.`);
    }
  }
  listeners.forEach((listener) => listener(entries));
}

/** Deletes what has waited long enough, of this page and of those before it; one page of the console at a time. */
export function finishDeletes() {
  const run = async () => {
    const due = waiting().filter((entry) => entry.at <= Date.now());
    for (const entry of due) {
      await finish(entry);
    }
    const next = Math.min(...waiting().map((entry) => entry.at));
    if (Number.isFinite(next)) {
      setTimeout(finishDeletes, Math.max(next - Date.now(), 1000));
    }
  };
  return navigator.locks ? navigator.locks.request(LOCK, run) : run();
}

async function finish(entry) {
  try {
    await del(linkPath(entry));
  } catch (error) {
    // One that is gone already is what was wanted; one that the node refuses stays archived, and is said.
    if (!(error instanceof ApiError) || (error.status !== 404 && error.status !== 403)) {
      postpone(entry);
      return;
    }
  }
  forget([entry]);
}

function postpone(entry) {
  keep(waiting().map((old) => (isSame(old, entry) ? { ...old, at: Date.now() + WAIT_MS } : old)));
}
