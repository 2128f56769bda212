// What is done to links from a list or from the page of one: archive, bring back, tag, delete. Many at once, a few at a time.

import { linkPath, patch } from "./api.js";
import { deleteLater } from "./deletes.js";
import { offerUndo } from "./link-form.js";
import { toast, toastError } from "./toast.js";

/** Requests under way at once: redirects go first, and the store takes them together anyway. */
const AT_ONCE = 8;

/** Archives a link or brings it back. Resolves to the link as it is then, or to undefined. */
export async function setArchived(link, archived, undone) {
  try {
    const changed = await patch(linkPath(link), { archived });
    offerUndo(link, changed, undone, archived ? "Archived: it leads nowhere until it is brought back." : "Brought back.");
    return changed;
  } catch (error) {
    toastError(error, "Nothing was changed.");
    return undefined;
  }
}

/** Deletes links, which can be undone for a while. */
export async function deleteLinks(links) {
  try {
    await deleteLater(links);
  } catch (error) {
    toastError(error, "Not all of them were deleted.");
  }
}

/** Changes many links, each by `change(link)`, and says how it went. `told(done)` hears how far it is. */
export async function changeMany(links, change, told) {
  const waiting = [...links];
  const failed = [];
  let done = 0;
  const work = async () => {
    for (let link = waiting.shift(); link !== undefined; link = waiting.shift()) {
      try {
        await patch(linkPath(link), change(link));
      } catch (error) {
        failed.push({ link, error });
      }
      done += 1;
      told(done);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failed.length > 0) {
    const { link, error } = failed[0];
    toastError(error, `${failed.length} of ${links.length} were not changed, the first of them ${link.shortCode}.`);
  } else {
    toast(`${links.length} changed.`);
  }
}
