// Actions on a tag: rename, merge and delete it on all links.

import { get, request } from "./api.js";
import { confirmDialog, formDialog } from "./dialog.js";
import { field } from "./field.js";
import { common } from "./strings-shell.js";
import { tags as text } from "./strings-tags.js";
import { toast, toastError } from "./toast.js";

const TAGS = "/rest/v3/tags";

/** The name of a tag as the node writes it. */
const asTag = (typed) => typed.trim().toLowerCase().replaceAll(" ", "-");

/** How often a change continues where a request of the node had to end: each changes as many links as it can within its time. */
const ROUNDS = 100;

/** The tag with that name and its number of links, or undefined. The node searches for parts of names. */
async function tagNamed(name) {
  const { tags } = await get(`${TAGS}/stats`, { query: { searchTerm: name, orderBy: "tag", itemsPerPage: 1_000 } });
  return tags.data.find((one) => one.tag === name);
}

/** Sends a change again as long as the node says that it has changed some links and continues with the next request. */
async function untilDone(send) {
  for (let round = 1; ; round += 1) {
    try {
      return await send(round > 1);
    } catch (error) {
      const hasProgress = error.status === 503 && /^[1-9]\d* links have changed/.test(error.detail);
      if (!hasProgress || round >= ROUNDS) {
        throw error;
      }
    }
  }
}

/** Runs a change, with a message while it does. Resolves to whether it went well; `onChange()` is called either way, since some links may have changed. */
async function run(doing, change, onChange) {
  const told = toast(doing, { seconds: 0 });
  try {
    await change();
    return true;
  } catch (error) {
    toastError(error, text.notChanged);
    return false;
  } finally {
    told.close();
    onChange();
  }
}

/** The node ends a long change by itself, so that nothing here has to. */
const put = (oldName, newName, merge) => untilDone((again) => request("PUT", TAGS, { body: { oldName, newName, merge: merge || again }, timeout: 0 }));

/** Renames a tag, unless another one has the name, which somebody may have created meanwhile: then resolves to that. */
async function renameUnlessTaken(tag, newName, onChange) {
  try {
    await put(tag, newName, false);
    return undefined;
  } catch (error) {
    // The node names the old tag only where the new name is taken.
    if (error.status === 409 && error.problem.oldName !== undefined) {
      return { tag: newName, shortUrlsCount: null };
    }
    throw error;
  } finally {
    onChange();
  }
}

/** Asks for another name of a tag, and for a merge where that exists. */
export async function renameTag({ tag, shortUrlsCount }, onChange) {
  let existing;
  const newName = await formDialog(text.renameOf(tag), {
    fields: [field({ name: "newName", label: text.newName, value: tag, required: true, autocomplete: "off", spellcheck: "false", hint: text.newNameHint(shortUrlsCount), read: asTag })],
    action: text.renameAction,
    async submit({ newName: typed }) {
      if (typed === "" || typed === tag) {
        throw Object.assign(new Error(), { reasons: [["newName", typed === "" ? text.nameMissing : text.nameSame]] });
      }
      existing = await tagNamed(typed);
      if (existing === undefined) {
        existing = await renameUnlessTaken(tag, typed, onChange);
      }
      return typed;
    },
  });
  if (newName === undefined) {
    return;
  }
  if (existing === undefined) {
    const undo = () => run(text.renaming(newName), () => put(newName, tag, false), onChange);
    toast(text.renamed(tag, newName), { seconds: 10, action: { name: "undo", label: common.undo, run: undo } });
    return;
  }
  const isMeant = await confirmDialog(text.askMerge(tag, newName), text.askMergeText(tag, newName, shortUrlsCount, existing.shortUrlsCount), { action: text.merge });
  if (isMeant && await run(text.renaming(tag), () => put(tag, newName, true), onChange)) {
    toast(text.merged(tag, newName));
  }
}

/** Removes a tag from all links, after a question. */
export async function deleteTag({ tag, shortUrlsCount }, onChange) {
  const isMeant = await confirmDialog(text.askDelete(tag), text.askDeleteText(tag, shortUrlsCount), { action: text.deleteAction });
  const send = () => untilDone(() => request("DELETE", TAGS, { query: { "tags[]": [tag] }, timeout: 0 }));
  if (isMeant && await run(text.deleting(tag), send, onChange)) {
    toast(text.deleted(tag));
  }
}
