// Actions on one or many links: archive, restore, add and remove tags, delete; each with an undo.

import { del, get, keyOf, linkPath, patch } from "./api.js";
import { choicesField } from "./choices.js";
import { callOff, deleteLater, undoSeconds } from "./deletes.js";
import { confirmDialog, formDialog } from "./dialog.js";
import { expiryField } from "./expiry-field.js";
import { instant } from "./format.js";
import { forMany, tellFailed } from "./many.js";
import { hasAllLinks } from "./rights.js";
import { actions as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { tagsField } from "./tags-field.js";
import { toast } from "./toast.js";

/** Changes links by `bodyOf(link)`, and offers to put back what `undoOf(link, answer)` says. `onChange(links)` gets them as they are then. */
async function change(links, { doing, done: said, bodyOf, undoOf, onChange }) {
  const answers = new Map();
  const send = (body) => async (link) => answers.set(keyOf(link), await patch(linkPath(link), await body(link)));
  const { done, failed } = await forMany(links, doing, send(bodyOf));
  onChange([...answers.values()]);
  tellFailed(failed);
  if (done.length === 0) {
    return;
  }
  const undo = async () => {
    const changed = new Map(answers);
    answers.clear();
    const back = await forMany(done, text.undoing, send((link) => undoOf(link, changed.get(keyOf(link)))));
    onChange([...answers.values()]);
    tellFailed(back.failed);
    if (back.done.length > 0) {
      toast(text.reverted(text.named(back.done)));
    }
  };
  toast(text.done(text.named(done), said), { seconds: 10, action: { name: "undo", label: common.undo, run: undo } });
}

/** Archives links, or restores them. */
export function archive(links, archived, onChange) {
  return change(links, {
    doing: archived ? text.archiving : text.restoring,
    done: archived ? text.archived : text.restored,
    bodyOf: () => ({ archived }),
    undoOf: (link) => ({ archived: link.archived }),
    onChange(changed) {
      callOff(changed);
      onChange(changed);
    },
  });
}

/** Asks when links expire, and sets that for all of them. */
export async function setExpiry(links, onChange) {
  const expires = expiryField(null, { isNew: false, lifetime: null });
  // "Never" as the first choice would take the expiry away from all links with one press of Enter.
  expires.kind.input.value = "date";
  expires.kind.input.addEventListener("change", () => expires.show());
  expires.show();
  const chosen = await formDialog(text.askExpiry(links.length), {
    fields: [expires],
    action: text.setExpiry,
    submit: async ({ validUntil }) => {
      expires.check();
      return { validUntil };
    },
  });
  if (!chosen) {
    return;
  }
  await change(links, {
    doing: text.settingExpiry,
    done: chosen.validUntil === null ? text.neverExpire : text.expireOn(instant(Date.parse(chosen.validUntil))),
    bodyOf: () => chosen,
    undoOf: (link) => ({ validUntil: link.meta.validUntil }),
    onChange,
  });
}

/** Asks for tags and adds them to links. */
export async function addTags(links, onChange) {
  const tags = await formDialog(text.askTags(links.length), {
    fields: [tagsField({ label: text.tags, required: true, hint: text.tagsHint })],
    action: text.add,
    submit: async (values) => values.tags,
  });
  if (tags?.length > 0) {
    await retag(links, { doing: text.tagging, done: text.tagged }, (now) => [...new Set([...now, ...tags])], onChange);
  }
}

/** Edits the tags of links. Somebody else may have changed them since the links were listed, so each link is read first, and the undo takes back only this edit. */
function retag(links, messages, edited, onChange) {
  const before = new Map();
  return change(links, {
    ...messages,
    async bodyOf(link) {
      const now = await get(linkPath(link));
      before.set(keyOf(link), now.tags);
      return { tags: edited(now.tags) };
    },
    // The node normalises tags, so its answer says which of them were added.
    async undoOf(link, answer) {
      const [old, now] = [before.get(keyOf(link)), await get(linkPath(link))];
      const kept = now.tags.filter((one) => old.includes(one) || !answer.tags.includes(one));
      const removed = old.filter((one) => !answer.tags.includes(one));
      return { tags: [...new Set([...kept, ...removed])] };
    },
    onChange,
  });
}

/** Asks which of their tags to take away from links. */
export async function removeTags(links, onChange) {
  const counts = new Map();
  links.flatMap((link) => link.tags).forEach((one) => counts.set(one, (counts.get(one) ?? 0) + 1));
  if (counts.size === 0) {
    toast(text.noTags);
    return;
  }
  const options = [...counts].sort(([one], [other]) => one.localeCompare(other)).map(([one, many]) => [one, links.length > 1 ? text.onLinks(one, many) : one]);
  const tags = await formDialog(text.askUntag(links.length), {
    fields: [choicesField({ name: "tags", label: text.tags, options, hint: text.untagHint })],
    action: text.removeTags,
    submit: async (values) => values.tags,
  });
  if (tags?.length > 0) {
    const tagged = links.filter((link) => link.tags.some((one) => tags.includes(one)));
    await retag(tagged, { doing: text.untagging, done: text.untagged }, (now) => now.filter((one) => !tags.includes(one)), onChange);
  }
}

/** Deletes links for good, after a question. */
async function removeNow(links, onChange) {
  if (!await confirmDialog(text.askDelete(links), text.askDeleteNow(links.length), { action: text.deleteAction(links.length) })) {
    return false;
  }
  const { done, failed } = await forMany(links, text.deleting, (link) => del(linkPath(link)));
  tellFailed(failed);
  if (done.length > 0) {
    toast(text.deletedNow(text.named(done)));
  }
  onChange();
  return true;
}

/**
 * Deletes links; that can be undone for a while, unless the node does not store all links: then it cannot delete later. Asks first
 * where there is more than one, or no undo. Resolves to whether it was done.
 */
export async function remove(links, onChange) {
  if (!hasAllLinks()) {
    return removeNow(links, onChange);
  }
  const isMeant = links.length === 1 || await confirmDialog(text.askDelete(links), text.askDeleteText(undoSeconds(links.length)), { action: text.deleteAction(links.length) });
  if (isMeant) {
    await deleteLater(links, onChange);
  }
  return isMeant;
}
