// Builds the DOM. All text goes through text nodes, so that nothing from outside is ever read as markup.

import { icon } from "./icons.js";
import { common, errors } from "./strings-shell.js";

const PROPERTIES = new Set(["checked", "disabled", "hidden", "indeterminate", "multiple", "open", "readOnly", "required", "selected", "value"]);

/** An element: attributes, properties and `on…` listeners by name, then children (nodes, texts, lists of them, or nothing). */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  element.append(...flat(children));
  for (const [name, value] of Object.entries(props ?? {})) {
    setProp(element, name, value);
  }
  return element;
}

function setProp(element, name, value) {
  if (value === undefined || value === null) {
    return;
  }
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (name === "style") {
    // Through the CSSOM: the content security policy forbids style attributes.
    Object.entries(value).forEach(([rule, set]) => element.style.setProperty(rule, set));
  } else if (PROPERTIES.has(name)) {
    element[name] = value;
  } else if (value === true) {
    element.setAttribute(name, "");
  } else if (value !== false) {
    element.setAttribute(name, value);
  }
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Puts other children into an element. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Sets a text where it differs: a node that stays the same keeps a selection within it. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) {
    node.textContent = wanted;
  }
}

let ids = 0;

/** An id that no other element has. */
export function uniqueId(prefix = "id") {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** A button. `kind`: "primary", "danger", "quiet" or nothing. */
export function button(label, onclick, { kind = "", ...props } = {}) {
  return h("button", { type: "button", class: `button ${kind}`.trim(), onclick, ...props }, label);
}

/** A button that is off, and says so, while its action runs. */
export function actionButton(label, action, props) {
  const element = button(label, () => busyWhile(element, action), props);
  return element;
}

/** Keeps a button off while something runs. */
export async function busyWhile(element, action) {
  if (element.getAttribute("aria-busy") === "true") {
    return;
  }
  element.setAttribute("aria-busy", "true");
  element.disabled = true;
  try {
    await action();
  } finally {
    element.removeAttribute("aria-busy");
    element.disabled = false;
  }
}

/** Text from outside, isolated from the direction of what is around it. */
export function outside(text, props) {
  return h("bdi", props, text);
}

/** Text that is cut at the end of its line; all of it is in the title. */
export function clipped(text, className = "") {
  return h("bdi", { class: `clipped ${className}`.trim(), title: text }, text);
}

/** A link to a target of the service: only http and https lead anywhere, all else stays text. */
export function targetLink(url, props = {}, text = url) {
  if (!/^https?:\/\//i.test(url)) {
    return outside(text, props);
  }
  return h("a", { href: url, rel: "noreferrer noopener", target: "_blank", ...props }, outside(text));
}

/** A link within the console; the router takes it. */
export function pageLink(path, text, props) {
  return h("a", { href: path, ...props }, text);
}

/** A button that copies a text and says so for a moment. With `named`, its label can be seen; `kind` is that of such a button. */
export function copyButton(text, label = common.copy, { named = false, kind = "" } = {}) {
  const face = h("span", { class: "copy-icon" }, icon("copy"));
  const said = h("span", { class: "visually-hidden", role: "status" });
  const copy = async () => {
    const copied = await copyText(text);
    face.dataset.copied = copied ? "yes" : "no";
    fill(face, icon(copied ? "check" : "cross"));
    said.textContent = copied ? common.copied : common.notCopied;
    setTimeout(() => {
      delete face.dataset.copied;
      fill(face, icon("copy"));
      said.textContent = "";
    }, 1500);
  };
  return h("span", { class: "copy" }, button([face, named && label], copy, { kind: named ? kind : "icon", "data-action": "copy", "aria-label": `${label} ${text}`, title: named ? null : label }), said);
}

/** Copies a text; resolves to whether that worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** The clipboard is only there for https and localhost, and an admin listener is often plain http. */
function copyBySelection(text) {
  const area = h("textarea", { class: "visually-hidden", readOnly: true, value: text, "aria-label": common.textToCopy });
  const focused = document.activeElement;
  (focused?.closest("dialog") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}

/** The page's heading with what belongs beside it. */
export function pageHead(title, ...beside) {
  return h("div", { class: "page-head" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "page-actions" }, beside));
}

/**
 * A card with a heading, which can have the focus if the card has an `id`. `beside` stands at the other end of the heading's line. With `fold`, a summary of the content, a phone
 * shows the heading with this summary alone, until somebody opens the card.
 */
export function card(title, { id, beside, className = "", fold } = {}, ...children) {
  const head = h("div", { class: "card-head" }, h("h2", { tabindex: id ? "-1" : null }, title), beside);
  const element = h("section", { class: `card ${className}`.trim(), id }, head, children);
  if (fold) {
    addFold(element, head, title, fold);
  }
  return element;
}

/** The titles of the cards that are open on a phone. They stay open when their content is loaded again. */
const unfolded = new Set();

function addFold(element, head, title, summary) {
  element.classList.add("folds");
  head.append(h("button", { type: "button", class: "fold", "data-action": "fold", onclick: () => setFold(element, title, !unfolded.has(title)) },
    h("span", { class: "visually-hidden" }, title, ": "), h("span", { class: "fold-summary" }, summary)));
  setFold(element, title, unfolded.has(title));
}

function setFold(element, title, isOpen) {
  unfolded[isOpen ? "add" : "delete"](title);
  element.toggleAttribute("data-folded", !isOpen);
  element.querySelector(".fold").setAttribute("aria-expanded", String(isOpen));
}

/** Opens a card that a phone shows folded. */
export function unfold(element) {
  if (element.hasAttribute("data-folded")) {
    element.querySelector(".fold").click();
  }
}

/** A button that only phones show, while `host` has no `data-all`: the style of the host leaves out a part of it there until then. */
export function moreOnPhone(host, label, action) {
  return button(label, () => {
    host.dataset.all = "";
    host.tabIndex = -1;
    host.focus({ preventScroll: true });
  }, { kind: "quiet more-on-phone", "data-action": action });
}

/** With more columns than these, the rows of a table become cards on a phone. */
const CARD_COLUMNS_MIN = 3;

/** Gives each cell the title of its column, which stands before it where rows are cards. */
function labelCells(body, columns) {
  for (const line of body.rows) {
    [...line.cells].forEach((cell, at) => {
      const { title, hidden } = columns[at] ?? {};
      if (cell.colSpan === 1 && !hidden && typeof title === "string" && !cell.dataset.label) {
        cell.dataset.label = title;
      }
    });
  }
}

/** A table that scrolls within its own region. Columns: `{ title, class, hidden }`; `hidden` titles are for screen readers only. */
export function regionTable(label, columns, rows = []) {
  const head = columns.map(({ title, class: className, hidden, ...props }) =>
    h("th", { scope: "col", class: className, ...props }, hidden ? h("span", { class: "visually-hidden" }, title) : title));
  const body = h("tbody", null, rows);
  const labelAll = () => labelCells(body, columns);
  labelAll();
  new MutationObserver(labelAll).observe(body, { childList: true });
  const table = h("table", { class: columns.length > CARD_COLUMNS_MIN ? "as-cards" : null }, h("thead", null, h("tr", null, head)), body);
  const element = h("div", { class: "region", role: "region", "aria-label": label, tabindex: "0" }, table);
  return { element, table, body };
}

/** A row of a table; a cell is a node, a text, or `{ content, class }`. */
export function row(...cells) {
  return h("tr", null, cells.map((cell) => {
    const plain = cell === null || cell === undefined || cell instanceof Node || typeof cell !== "object" || Array.isArray(cell);
    return plain ? h("td", null, cell) : h("td", { class: cell.class, "data-label": cell.label }, cell.content);
  }));
}

/** Names and values. Pairs whose value is `undefined` are left out. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined).map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** A small label. `kind`: "good", "warn", "bad" or nothing. */
export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}`.trim() }, text);
}

/** An empty state: what it means, and what to do next. */
export function emptyState(title, text, ...actions) {
  return h("div", { class: "state" }, h("p", { class: "state-title" }, title), text && h("p", null, text), actions.length > 0 && h("p", null, actions));
}

/** The empty state of a page or of a large part of it, with the icon of what will be there. */
export function iconState(name, title, text, ...actions) {
  const state = emptyState(title, text, ...actions);
  state.prepend(h("span", { class: "state-icon" }, icon(name)));
  return state;
}

/** An error state, with a button that tries again. */
export function errorState(error, retry) {
  const title = error.title ?? errors.failed;
  return h("div", { class: "state bad", role: "alert" },
    h("p", { class: "state-title" }, title),
    h("p", null, outside(error.detail ?? error.message ?? errors.unknownReason)),
    retry && h("p", null, button(common.tryAgain, retry, { "data-action": "retry" })));
}

/** A placeholder while content loads: grey lines of about its height. */
export function loadingState(lines = 4, text = common.loading) {
  const bars = Array.from({ length: lines }, () => h("div", { class: "skeleton" }));
  return h("div", { class: "loading", role: "status" }, h("span", { class: "visually-hidden" }, text), bars);
}

/** Shows `render(await fetch())` in a host, with a skeleton before it and a "Try again" when it fails. Returns what does it again. */
export function loadInto(host, fetch, render, { lines = 4 } = {}) {
  const run = async () => {
    fill(host, loadingState(lines));
    try {
      fill(host, render(await fetch()));
    } catch (error) {
      if (error.name !== "AbortError") {
        fill(host, errorState(error, run));
      }
    }
  };
  return run();
}
