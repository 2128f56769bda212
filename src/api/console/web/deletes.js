// Deletes that can still be undone. The node archives a link at once, so that it leads nowhere, and deletes it when the time is
// over, whether a page is open or not. Any change of `archived` calls that off.

import { del, keyOf, linkPath, patch, withQuery } from "./api.js";
import { forMany, tellFailed } from "./many.js";
import { actions } from "./strings-links.js";
import { toast, toastUntil } from "./toast.js";

const KEY = "carom.console.deletes";
const WAIT_SECONDS = 20;
/** Links that are deleted in a second at least: the undo of many is offered when the last of them is scheduled. */
const SCHEDULED_PER_SECOND = 20;
/** How long a delete of so many links can be undone, in seconds. The question before it and the message after it say the same. */
export const undoSeconds = (links) => WAIT_SECONDS + Math.floor(links / SCHEDULED_PER_SECOND);
/** How long after its time a link is looked for again. */
const GONE_AFTER_MS = 1_500;

let timer;
let lookAt = Infinity;
const listeners = new Set();

/** Calls `listener()` when a link that was shown as being deleted should be gone; returns what ends that. */
export function onDeleted(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Whether a link waits to be deleted. Pages that ask this hear of its end by `onDeleted`. */
export function isBeingDeleted({ archived, deletesAt }) {
  const isWaiting = archived && deletesAt !== undefined;
  if (isWaiting) {
    lookAgain(Date.parse(deletesAt) + GONE_AFTER_MS);
  }
  return isWaiting;
}

function lookAgain(at) {
  if (at >= lookAt) {
    return;
  }
  lookAt = at;
  clearTimeout(timer);
  timer = setTimeout(() => {
    lookAt = Infinity;
    listeners.forEach((listener) => listener());
  }, Math.max(at - Date.now(), GONE_AFTER_MS));
}

/** What this browser has deleted and can still undo. Only offers depend on it. */
function waiting() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter(({ at }) => at > Date.now()) : [];
  } catch {
    return [];
  }
}

/** Takes entries out of what waits, and puts others in. Each time from the storage: other pages write it, too. */
function change(out, into = []) {
  const gone = new Set(out.map(keyOf));
  localStorage.setItem(KEY, JSON.stringify([...waiting().filter((entry) => !gone.has(keyOf(entry))), ...into]));
}

/** Deletes links after a time in which that can be undone. `onChange` hears when they are archived, and when restored. */
export async function deleteLater(links, onChange) {
  const entries = links.map(({ shortCode, domain, archived }) => ({ shortCode, domain, archived }));
  const after = undoSeconds(entries.length);
  const { done, failed } = await forMany(entries, actions.deleting, async (entry) => {
    const path = withQuery(`/admin/api/links/${encodeURIComponent(entry.shortCode)}`, { domain: entry.domain, after });
    // By the clock of this browser, which may differ from that of the node. The node starts to count later.
    const at = Date.now() + after * 1000;
    await del(path);
    entry.at = at;
  });
  tellFailed(failed);
  if (done.length > 0) {
    change(done, done);
    withdraw(done);
    offerUndo(done, onChange);
  }
  onChange();
}

/** Offers once more to undo what was deleted on a page that was left meanwhile. */
export function offerUndoAgain() {
  const entries = waiting();
  if (entries.length > 0 && firstOf(entries) - Date.now() > 2_000) {
    offerUndo(entries, () => listeners.forEach((listener) => listener()));
  }
}

/** Withdraws the offer to undo for links whose `archived` somebody here has changed in another way, which calls their deletion off. */
export function callOff(links) {
  change(links);
  withdraw(links);
}

/** The offers that are shown: `{ entries, message }`. */
const offers = new Set();

/** Takes links out of the offers that are shown. */
function withdraw(links) {
  const gone = new Set(links.map(keyOf));
  for (const offer of offers) {
    const left = offer.entries.filter((entry) => !gone.has(keyOf(entry)));
    if (left.length === 0) {
      offers.delete(offer);
      offer.message.close();
    } else if (left.length < offer.entries.length) {
      offer.entries = left;
      offer.message.say(actions.deletedLater(left));
    }
  }
}

/** When the first of some links is deleted. */
const firstOf = (entries) => Math.min(...entries.map(({ at }) => at));

function offerUndo(entries, onChange) {
  const offer = { entries };
  const run = () => {
    offers.delete(offer);
    undo(offer.entries, onChange);
  };
  const over = () => {
    offers.delete(offer);
    return actions.deletedNow(actions.named(offer.entries));
  };
  offer.message = toastUntil(firstOf(entries), actions.deletedLater(entries), { action: { name: "undo-delete", labelOf: actions.undoFor, run }, over });
  offers.add(offer);
}

async function undo(entries, onChange) {
  const gone = [];
  change(entries);
  const { done, failed } = await forMany(entries, actions.restoring, async (entry) => {
    try {
      await patch(linkPath(entry), { archived: entry.archived });
    } catch (error) {
      if (error.status !== 404) {
        throw error;
      }
      gone.push(entry);
    }
  });
  tellFailed(failed);
  const restored = done.filter((entry) => !gone.includes(entry));
  if (restored.length > 0) {
    toast(actions.done(actions.named(restored), actions.restored));
  }
  if (gone.length > 0) {
    toast(actions.deletedAlready(gone.length), { kind: "bad" });
  }
  onChange();
}
