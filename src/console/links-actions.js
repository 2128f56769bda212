// What can be done with links, one or many: archive, bring back, tag, delete; each with an undo.

import { get, keyOf, linkPath, patch } from "./api.js";
import { deleteLater, keepAfterAll } from "./deletes.js";
import { confirmDialog, formDialog } from "./dialog.js";
import { field, splitTags } from "./field.js";
import { count } from "./format.js";
import { forMany, tellFailed } from "./many.js";
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
    const back = await forMany(done, "Undoing", send((link) => undoOf(link, changed.get(keyOf(link)))));
    onChange([...answers.values()]);
    tellFailed(back.failed);
  };
  const what = done.length === 1 ? done[0].shortCode : count(done.length, "link");
  toast(`${what} ${said}.`, { seconds: 10, action: { label: "Undo", run: undo } });
}

/** Archives links, or brings them back. */
export function archive(links, archived, onChange) {
  if (!archived) {
    keepAfterAll(links);
  }
  return change(links, {
    doing: archived ? "Archiving" : "Bringing back",
    done: archived ? "archived" : "brought back",
    bodyOf: () => ({ archived }),
    undoOf: (link) => ({ archived: link.archived }),
    onChange,
  });
}

/** Asks for tags and adds them to links. */
export async function addTags(links, onChange) {
  const tags = await formDialog(`Add tags to ${count(links.length, "link")}`, {
    fields: [field({ name: "tags", label: "Tags", required: true, autocomplete: "off", hint: "Separated by commas. Tags that are there stay.", read: splitTags })],
    action: "Add",
    submit: async (values) => values.tags,
  });
  if (tags?.length > 0) {
    await tag(links, tags, onChange);
  }
}

/** Somebody else may have tagged a link since it was listed: it is read before, and the undo takes away only what this added. */
function tag(links, tags, onChange) {
  const before = new Map();
  return change(links, {
    doing: "Tagging",
    done: "tagged",
    async bodyOf(link) {
      const now = await get(linkPath(link));
      before.set(keyOf(link), now.tags);
      return { tags: [...new Set([...now.tags, ...tags])] };
    },
    // The node writes tags in its own way: its answer says which of them are new.
    async undoOf(link, answer) {
      const now = await get(linkPath(link));
      const added = answer.tags.filter((one) => !before.get(keyOf(link)).includes(one));
      return { tags: now.tags.filter((one) => !added.includes(one)) };
    },
    onChange,
  });
}

/** Deletes links; they can be had back for a while. Of more than one it is asked first. Resolves to whether it was done. */
export async function remove(links, onChange) {
  const text = "They stop redirecting at once. For 20 seconds you can undo that; then they are removed for good, with their visits.";
  const isMeant = links.length === 1 || await confirmDialog(`Delete ${count(links.length, "link")}?`, text, { action: "Delete" });
  if (isMeant) {
    await deleteLater(links, onChange);
  }
  return isMeant;
}
