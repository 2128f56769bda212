// Questions that Analytics answers at once: each is an address, which the overview and the palette offer.

import { seesService } from "./rights.js";
import { reports as text } from "./strings-shell.js";

/** Cards that only a key for the whole service is shown. */
const OF_SERVICE = ["links", "referrers"];

/** The questions: `{ name, title, path }`. `name` is that of the card with the answer, about the last seven days. */
export function reports() {
  return Object.entries(text.titles).filter(([name]) => seesService() || !OF_SERVICE.includes(name)).map(([name, title]) => ({ name, title, path: `/admin/usage?period=7d&show=${name}` }));
}
