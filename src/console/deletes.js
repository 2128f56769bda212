// Deletes that can still be undone. A link is archived at once, so that it leads nowhere, and deleted when the time is over.
// What waits is kept in local storage: a page that is closed leaves the rest to the next page of the console that is opened.

import { del, get, keyOf, linkPath, patch } from "./api.js";
import { count } from "./format.js";
import { forMany, tellFailed } from "./many.js";
import { toast } from "./toast.js";

const KEY = "carom.console.deletes";
const WAIT_MS = 20_000;
/** While links are being archived, those that are wait for the others; a page that is closed meanwhile leaves them for so long. */
const ARCHIVING_MS = 600_000;

let timer;
const listeners = new Set();

/** Calls `listener()` whenever a link has been removed for good; returns what ends that. */
export function onDeleted(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether a link waits to be deleted, as far as this browser knows. */
export function isBeingDeleted(link) {
  return link.archived && waiting().some((entry) => keyOf(entry) === keyOf(link));
}

function waiting() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept : [];
  } catch {
    return [];
  }
}

/** Takes entries out of what waits, and puts others in. Each time from the storage: other pages write it, too. */
function change(out, into = []) {
  const gone = new Set(out.map(keyOf));
  localStorage.setItem(KEY, JSON.stringify([...waiting().filter((entry) => !gone.has(keyOf(entry))), ...into]));
}

function later(entries, waitMs) {
  const due = entries.map((entry) => ({ ...entry, at: Date.now() + waitMs }));
  change(entries, due);
  schedule();
}

/** Archives links now, and deletes them when nobody has undone that. `onChange` hears when they are archived, and when brought back. */
export async function deleteLater(links, onChange) {
  const entries = links.map(({ shortCode, domain, archived, dateCreated }) => ({ shortCode, domain, archived, dateCreated }));
  const { done, failed } = await forMany(entries, "Deleting", async (entry) => {
    await patch(linkPath(entry), { archived: true });
    later([entry], ARCHIVING_MS);
  });
  tellFailed(failed);
  if (done.length > 0) {
    // The time to undo begins when all are archived, and the offer is there.
    later(done, WAIT_MS);
    offerUndo(done, WAIT_MS, onChange);
  }
  onChange();
}

/** Offers once more to undo what was deleted on a page that was left meanwhile. */
export function offerUndoAgain() {
  const entries = waiting();
  const left = Math.min(...entries.map(({ at }) => at)) - Date.now();
  if (entries.length > 0 && left > 2_000 && left <= WAIT_MS) {
    offerUndo(entries, left, () => listeners.forEach((listener) => listener()));
  }
}

/** Links that somebody here has brought back in another way than by the undo are not deleted. */
export function keepAfterAll(links) {
  change(links);
}

function offerUndo(entries, leftMs, onChange) {
  const seconds = Math.floor(leftMs / 1000);
  const what = entries.length === 1 ? `${entries[0].shortCode} is deleted. It no longer redirects, and is` : `${count(entries.length, "link")} are deleted. They no longer redirect, and are`;
  toast(`${what} removed for good in ${seconds} s; if you close the console before, then when it is opened next.`, {
    seconds, action: { label: `Undo (${seconds} s)`, run: () => undo(entries, onChange) },
  });
}

async function undo(entries, onChange) {
  const still = new Set(waiting().map(keyOf));
  const kept = entries.filter((entry) => still.has(keyOf(entry)));
  change(kept);
  const { failed } = await forMany(kept, "Bringing back", (entry) => patch(linkPath(entry), { archived: entry.archived }));
  tellFailed(failed);
  if (kept.length < entries.length) {
    toast(`${count(entries.length - kept.length, "link")} had been removed already.`, { kind: "bad" });
  }
  onChange();
}

function schedule() {
  clearTimeout(timer);
  const next = Math.min(...waiting().map((entry) => entry.at));
  if (Number.isFinite(next)) {
    timer = setTimeout(finishDeletes, Math.max(next - Date.now(), 500));
  }
}

/** Deletes what has waited long enough, of this page and of those before it. */
export async function finishDeletes() {
  const due = waiting().filter(({ at }) => at <= Date.now());
  for (const entry of due) {
    // Another page may have undone or finished it meanwhile.
    if (waiting().some((one) => keyOf(one) === keyOf(entry) && one.at <= Date.now())) {
      await finish(entry);
    }
  }
  if (due.length > 0) {
    listeners.forEach((listener) => listener());
  }
  schedule();
}

/** Only what is still as it was left is deleted: others may have brought the link back meanwhile, or made another one under its code. */
async function finish(entry) {
  try {
    const now = await get(linkPath(entry));
    const isSame = now.archived && now.dateCreated === entry.dateCreated;
    if (isSame) {
      await del(linkPath(entry));
    } else {
      toast(`${entry.shortCode} was not deleted: somebody has brought it back meanwhile, or made another link of that code.`, { kind: "bad", seconds: 0 });
    }
    change([entry]);
  } catch (error) {
    if (error.status === 404) {
      change([entry]);
    } else if (error.status === 403) {
      change([entry]);
      toast(`${entry.shortCode} was archived, but not deleted. ${error.detail}`, { kind: "bad", seconds: 0 });
    } else {
      later([entry], WAIT_MS);
    }
  }
}
