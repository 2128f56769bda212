// The search and the filters above the list of links.

import { get } from "./api.js";
import { button, fill, h, outside, uniqueId } from "./dom.js";
import { joinTags, markEmpty, splitTags, withEmptyMark } from "./field.js";
import { icon } from "./icons.js";
import { STATE_CHOICES } from "./link-parts.js";
import { filterCount } from "./links-query.js";
import { mayManage } from "./rights.js";
import { bar as text } from "./strings-links.js";
import { tagsField } from "./tags-field.js";

const WAIT_MS = 200;
const FILTERS = ["state", "domain", "app", "tags", "from", "to"];

/**
 * The bar: `{ element, search, set(filter, { isMeant }), stop() }`; `onChange(part, { isTyped })` gets what was changed; `more` stands beside the
 * button of the filters. Text that
 * is being typed is left alone by `set`, unless it is meant to be replaced.
 */
export function linksBar(onChange, ...more) {
  const search = h("input", { type: "search", placeholder: text.placeholder, "aria-label": text.search, "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", maxlength: 512 });
  const controls = {
    state: select(text.state, [["", text.anyState], ...STATE_CHOICES]),
    domain: select(text.domain, [["", text.allDomains]]),
    app: select(text.app, [["", text.allApps]]),
    tags: tagsFilter(),
    tagsMode: select(text.tagsMode, text.tagsModes),
    from: labelled(text.from, withEmptyMark(h("input", { type: "date" }))),
    to: labelled(text.to, withEmptyMark(h("input", { type: "date" }))),
  };
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => onChange({ q: search.value }, { isTyped: true }), WAIT_MS);
  });
  const stop = () => clearTimeout(timer);
  // What was typed just before goes along.
  const change = (part) => {
    stop();
    onChange(part && { q: search.value, ...part }, {});
  };
  for (const [name, { input }] of Object.entries(controls)) {
    input.addEventListener("change", () => change({ [name]: input.value }));
  }
  const panel = h("div", { class: "filters", id: uniqueId("filters"), hidden: true },
    ["state", "domain", "app", "tags", "tagsMode"].map((name) => controls[name].element), h("div", { class: "filter-days" }, controls.from.element, controls.to.element));
  const toggle = button(text.filters(0), () => {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
  }, { "data-action": "filters", "aria-controls": panel.id, "aria-expanded": String(!panel.hidden) });
  const clear = button(text.clear, () => {
    // This button goes with the filters.
    toggle.focus();
    change(null);
  }, { kind: "quiet", "data-action": "clear" });
  const chips = h("ul", { class: "chips", "aria-label": text.active });
  const active = h("div", { class: "line", hidden: true }, chips, clear);
  // On a phone, rows are no columns whose heads could sort them.
  const order = select(text.sort, Object.entries(text.sorts));
  order.input.dataset.action = "sort";
  order.input.addEventListener("change", () => change({ sort: order.input.value }));
  order.element.classList.add("order", "only-on-phone");
  const set = (filter, { isMeant = false } = {}) => {
    if (isMeant) {
      stop();
    }
    if (isMeant || document.activeElement !== search) {
      search.value = filter.q;
    }
    const shown = Object.entries(controls).filter(([, { element }]) => isMeant || !element.contains(document.activeElement));
    shown.forEach(([name, { input }]) => choose(input, filter[name]));
    choose(order.input, filter.sort);
    // One tag is any and all of them.
    controls.tagsMode.element.hidden = splitTags(filter.tags).length < 2;
    const filters = filterCount(filter);
    toggle.textContent = text.filters(filters);
    active.hidden = filters === 0;
    drawChips(chips, controls, filter, (name) => {
      // A field that has the focus would keep its value.
      search.focus();
      change({ [name]: "" });
    });
  };
  // The node names its apps to admins only: other keys would find nothing to choose.
  controls.app.element.hidden = !mayManage();
  loadChoices(controls);
  return { element: h("search", { class: "links-bar" }, h("div", { class: "search-line" }, h("span", { class: "search-field" }, icon("search"), search), toggle, more, order.element), active, panel), search, set, stop };
}

/** What each filter says, with a button that takes it away. */
function drawChips(host, controls, filter, take) {
  const set = FILTERS.filter((name) => filter[name] !== "");
  fill(host, set.map((name) => {
    const { input, label } = controls[name];
    const said = input.selectedOptions?.[0]?.textContent ?? filter[name];
    return h("li", null, h("span", null, h("span", { class: "soft" }, `${label}: `), outside(said)),
      button(icon("cross"), () => take(name), { kind: "icon", "data-action": `without-${name}`, "aria-label": text.without(label) }));
  }));
}

function labelled(label, input) {
  input.id = uniqueId("filter");
  return { label, input, element: h("div", { class: "field" }, h("label", { for: input.id }, label), input) };
}

/** The filter by tags: its `input` stands for the whole field, whose value is a text as in the address. */
function tagsFilter() {
  const changes = new EventTarget();
  const { label, element, set, value } = tagsField({ label: text.tags, placeholder: text.tagsPlaceholder, onChips: () => changes.dispatchEvent(new Event("change")) });
  const input = {
    addEventListener: (name, listener) => changes.addEventListener(name, listener),
    get value() {
      return joinTags(value());
    },
    set value(tags) {
      set(splitTags(tags));
    },
  };
  return { label, input, element };
}

function select(label, options) {
  return labelled(label, h("select", null, options.map(([value, said]) => h("option", { value }, said))));
}

/** Chooses a value; one that is not among the options, as of an address from elsewhere, becomes one. */
function choose(input, value) {
  if (input.localName === "select" && ![...input.options].some((option) => option.value === value)) {
    input.append(h("option", { value }, outside(value)));
  }
  input.value = value;
  if (input.type === "date") {
    markEmpty(input);
  }
}

/** Domains and apps, as far as they are told: without them the list works, too. */
async function loadChoices({ domain, app }) {
  const add = (input, values) => {
    const chosen = input.value;
    const known = new Set([...input.options].map((option) => option.value));
    input.append(...values.filter(([value]) => !known.has(value)).map(([value, said]) => h("option", { value }, outside(said))));
    input.value = chosen;
  };
  const [domains, apps] = await Promise.allSettled([get("/rest/v3/domains"), mayManage() ? get("/apps") : { apps: [] }]);
  if (domains.status === "fulfilled") {
    add(domain.input, domains.value.domains.data.map((one) => [one.isDefault ? "DEFAULT" : one.domain, one.domain]));
  }
  if (apps.status === "fulfilled") {
    add(app.input, apps.value.apps.map((one) => [one.app, one.app]));
  }
}
