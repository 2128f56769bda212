// Ways from the overview to what Analytics knows of the last seven days.

import { card, h, pageLink } from "./dom.js";
import { reports } from "./reports.js";
import { overview as text } from "./strings-traffic.js";

/** The card: `{ element, update() }`. It does not change. */
export function reportsCard() {
  const links = reports().map(({ name, title, path }) => h("li", null, pageLink(path, title, { class: "button", "data-action": `report-${name}` })));
  return { element: card(text.reports, { className: "reports" }, h("ul", { class: "plain line" }, links)), update() {} };
}
