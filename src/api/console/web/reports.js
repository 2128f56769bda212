// Questions that Analytics answers at once: each is an address, which the overview and the palette offer.

import { hasAllLinks, seesService } from "./rights.js";
import { reports as text } from "./strings-shell.js";

/** Cards of the whole service. Other keys have them only while visits are logged. */
const OF_SERVICE = ["links", "referrers"];

/** Cards that need all links, or the visit log, which needs them. */
const OF_ALL_LINKS = ["campaigns", "links", "places"];

/** The questions: `{ name, title, path }`. `name` is that of the card with the answer, about the last seven days. */
export function reports() {
  const isKnown = ([name]) => (seesService() || !OF_SERVICE.includes(name)) && (hasAllLinks() || !OF_ALL_LINKS.includes(name));
  return Object.entries(text.titles).filter(isKnown).map(([name, title]) => ({ name, title, path: `/admin/usage?period=7d&show=${name}` }));
}
