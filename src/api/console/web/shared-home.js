// What pages say on a node that does not store all links, because their home is Redis (`links.home = "shared"`).

import { emptyState, h } from "./dom.js";
import { settingLink } from "./parts.js";
import { sharedHome as text } from "./strings-shell.js";

/** Says that this node cannot tell something, and which node can. `what` is the beginning of the sentence, in the plural. */
export function needsAllLinks(what) {
  const [before, after] = text.because;
  return [what, before, settingLink("links.home"), after];
}

/** The content of a card whose numbers need all links. */
export function missingHere(title, what, ...actions) {
  return emptyState(title, needsAllLinks(what), ...actions);
}

/** A note below what a page can show. */
export function missingNote(what) {
  return h("p", { class: "notice", "data-missing": "all-links" }, needsAllLinks(what));
}
