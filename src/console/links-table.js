// The table of links: rows that can be chosen, gone through by keyboard, and acted on.

import { badge, button, clipped, copyButton, fill, h, outside, pageLink, regionTable, targetLink } from "./dom.js";
import * as format from "./format.js";
import { linkPage } from "./link-page.js";

const COLUMNS = [
  { title: "Choose", hidden: true }, { title: "Short URL" }, { title: "Leads to" }, { title: "Tags" }, { title: "App" },
  { title: "State" }, { title: "Visits", class: "num" }, { title: "Created" }, { title: "Ends" }, { title: "Actions", hidden: true },
];

/** Tags of a row; how many more there are is told. */
const SHOWN_TAGS = 2;

/** What becomes of who follows a link now, as far as a list knows it: `[text, kind]`. */
export function stateOf(link, now = Date.now()) {
  const { validSince, validUntil, maxVisits } = link.meta;
  if (link.archived) {
    return ["archived", "warn"];
  }
  if (validUntil && Date.parse(validUntil) <= now) {
    return ["ended", "bad"];
  }
  if (maxVisits && link.visitsSummary.total >= maxVisits) {
    return ["used up", "bad"];
  }
  return validSince && Date.parse(validSince) > now ? ["scheduled", ""] : ["active", "good"];
}

/** The table. `actions`: `{ open(link), edit(link), archive(link), remove(link), choose(links) }`. */
export function linksTable(actions) {
  const all = h("input", { type: "checkbox", "aria-label": "Choose all of this page" });
  const { element, table, body } = regionTable("Links, one a row", COLUMNS);
  fill(table.tHead.rows[0].cells[0], all);
  const page = { links: [], rows: [], boxes: [], last: null };
  const told = () => {
    const chosen = page.links.filter((_, index) => page.boxes[index].checked);
    all.checked = chosen.length > 0 && chosen.length === page.links.length;
    all.indeterminate = chosen.length > 0 && !all.checked;
    page.rows.forEach((row, index) => row.classList.toggle("chosen", page.boxes[index].checked));
    actions.choose(chosen);
  };
  all.addEventListener("change", () => {
    page.boxes.forEach((box) => {
      box.checked = all.checked;
    });
    told();
  });
  // With shift, everything from the last one on becomes as this one.
  body.addEventListener("click", (event) => {
    const at = page.boxes.indexOf(event.target);
    if (at >= 0) {
      const [from, to] = event.shiftKey && page.last !== null ? [Math.min(at, page.last), Math.max(at, page.last)] : [at, at];
      page.boxes.slice(from, to + 1).forEach((box) => {
        box.checked = event.target.checked;
      });
      page.last = at;
      told();
    }
  });
  return {
    element,
    set(links) {
      const built = links.map((link) => linkRow(link, actions));
      Object.assign(page, { links, rows: built.map((one) => one.row), boxes: built.map((one) => one.box), last: null });
      fill(body, page.rows);
      told();
    },
    keys: keysOf(page, actions),
  };
}

function linkRow(link, actions) {
  const [state, kind] = stateOf(link);
  const box = h("input", { type: "checkbox", "aria-label": `Choose ${link.shortCode}` });
  const name = link.shortUrl.replace(/^https?:\/\//, "");
  const row = h("tr", { tabindex: "-1" },
    h("td", null, box),
    h("td", { class: "short-url" }, pageLink(linkPage(link), outside(name), { class: "mono" }), copyButton(link.shortUrl)),
    h("td", { class: "fluid" }, link.title && clipped(link.title), targetLink(link.longUrl, { class: "clipped soft small", title: link.longUrl })),
    h("td", { class: "tags" }, link.tags.slice(0, SHOWN_TAGS).map((tag) => [pageLink(`/admin/links?tags=${encodeURIComponent(tag)}`, outside(tag), { class: "badge" }), " "]),
      link.tags.length > SHOWN_TAGS && h("span", { class: "soft", title: link.tags.slice(SHOWN_TAGS).join(", ") }, `+${link.tags.length - SHOWN_TAGS}`)),
    h("td", { class: "app" }, link.app && clipped(link.app)),
    h("td", null, badge(state, kind)),
    h("td", { class: "num" }, format.number(link.visitsSummary.total), link.meta.maxVisits && h("small", null, ` of ${format.short(link.meta.maxVisits)}`)),
    h("td", { class: "nowrap" }, format.date(link.dateCreated)),
    h("td", { class: "nowrap" }, link.meta.validUntil ? format.date(link.meta.validUntil) : h("span", { class: "soft" }, "never")),
    h("td", null, h("div", { class: "row-actions" },
      button("Edit", () => actions.edit(link), { kind: "quiet", "aria-label": `Edit ${link.shortCode}` }),
      button(link.archived ? "Bring back" : "Archive", () => actions.archive(link), { kind: "quiet", "aria-label": `${link.archived ? "Bring back" : "Archive"} ${link.shortCode}` }),
      button("Delete", () => actions.remove(link), { kind: "quiet bad-text", "aria-label": `Delete ${link.shortCode}` }))));
  return { row, box };
}

/** What keys do while nobody types: j and k or the arrows move between rows, Enter opens, x chooses, e edits. */
function keysOf(page, actions) {
  const move = (by) => {
    const at = page.rows.indexOf(document.activeElement?.closest("tr"));
    const next = at < 0 ? (by > 0 ? 0 : page.rows.length - 1) : Math.min(Math.max(at + by, 0), page.rows.length - 1);
    page.rows[next]?.focus();
    page.rows[next]?.scrollIntoView({ block: "nearest" });
  };
  const here = () => page.rows.indexOf(document.activeElement);
  return {
    j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
    Enter: () => here() >= 0 && actions.open(page.links[here()]),
    x: () => page.boxes[here()]?.click(),
    e: () => here() >= 0 && actions.edit(page.links[here()]),
  };
}
