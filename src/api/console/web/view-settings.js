// The effective settings, each with its source, and the certificates in use.

import { get } from "./api.js";
import { badge, button, fill, h, iconState, outside, pageHead, regionTable, row } from "./dom.js";
import { certificates } from "./certificates.js";
import { number, settingValue } from "./format.js";
import { icon } from "./icons.js";
import { breakable, filterClearer, filterField, reloader } from "./parts.js";
import { settings as text } from "./strings-access.js";
import { common, pages } from "./strings-shell.js";

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, class: `col-${name}` }));

export async function show(main, { signal, query, setQuery }) {
  const wanted = { text: query.get("filter") ?? "", onlySet: query.get("set") === "1" };
  const [host, list, tls] = [h("div", { class: "stack" }), h("div", { class: "stack" }), h("div", { class: "stack" })];
  let [settings, rulesSaved] = [[], null];
  const draw = () => {
    fill(list, savedRules(rulesSaved), tables(settings, wanted, bar.clear));
    bar.set(wanted);
    // Certificates are no answer to a filter of settings.
    tls.hidden = isFiltered(wanted);
  };
  const choose = (changes) => {
    Object.assign(wanted, changes);
    setQuery(queryOf(wanted), { replace: true });
    draw();
  };
  const bar = toolbar(wanted, choose, signal);
  const load = reloader(host, {
    signal,
    lines: 16,
    fetch: (own) => get("/admin/api/settings", { signal: own }),
    render(data) {
      ({ settings, rulesSaved } = data);
      draw();
      return list;
    },
  });
  // The lower part waits for the upper one, so that nothing moves.
  tls.hidden = true;
  main.append(pageHead(pages.settings), bar.element, host, tls);
  load().then(() => location.hash !== "" && document.getElementById(location.hash.slice(1))?.scrollIntoView());
  return certificates(tls);
}

/** Says that saved destination rules apply in place of those of the settings, if some do. */
const savedRules = (at) => at !== null && h("p", { class: "soft" }, text.rulesSaved, h("a", { href: "/admin/lists" }, pages.rules), ".");

function toolbar({ text: typed, onlySet }, choose, signal) {
  const filter = filterField({
    label: text.filter, placeholder: text.filterPlaceholder, value: typed, signal, onInput: (now) => choose({ text: now }),
  });
  const set = h("input", { type: "checkbox", checked: onlySet, onchange: () => choose({ onlySet: set.checked }) });
  const clearer = filterClearer(filter, () => {
    [filter.value, set.checked] = ["", false];
    choose({ text: "", onlySet: false });
  });
  return {
    element: h("div", { class: "toolbar" }, filter, h("label", { class: "tick" }, set, text.changed), clearer.element),
    clear: clearer.clear,
    set: (wanted) => clearer.set(isFiltered(wanted)),
  };
}

const isFiltered = ({ text: typed, onlySet }) => typed !== "" || onlySet;

/** What is chosen is kept in the address, so that it can be sent to somebody. */
function queryOf({ text: typed, onlySet }) {
  const params = new URLSearchParams();
  if (typed !== "") {
    params.set("filter", typed);
  }
  if (onlySet) {
    params.set("set", "1");
  }
  return params;
}

const isSet = (setting) => setting.source !== "default";
const tableOf = ({ name }) => (name.includes(".") ? name.slice(0, name.indexOf(".")) : "");

function tables(settings, { text: typed, onlySet }, clear) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const isIn = (text) => words.every((word) => text.toLowerCase().includes(word));
  const matches = settings.filter((one) => (!onlySet || isSet(one)) && isIn([one.name, one.value ?? "", one.source, one.doc].join(" ")));
  // Names that match come first, and so do their sections.
  const found = [...matches.filter(({ name }) => isIn(name)), ...matches.filter(({ name }) => !isIn(name))];
  if (found.length === 0) {
    return onlySet && words.length === 0
      ? iconState("settings", text.noneChanged, text.noneChangedText, button(text.showAll, clear, { "data-action": "show-all" }))
      : iconState("search", text.nothing, onlySet ? text.nothingChangedText : text.nothingText, button(common.clearFilter, clear, { "data-action": "clear-filter" }));
  }
  const groups = Map.groupBy(found, tableOf);
  // Settings that were searched for are shown at once. All others begin folded: each section names those that somebody changed.
  const isSearch = onlySet || words.length > 0 || groups.size === 1;
  const sections = [...groups].map(([table, rows]) => section(table, rows, { words, isOpen: isSearch || location.hash === `#${idOf(table)}`, isWhole: !isSearch }));
  return [
    h("div", { class: "toolbar" },
      h("p", { class: "soft", role: "status" }, text.found(found.length, settings.length)),
      groups.size > 1 && [sectionChoice([...groups.keys()]), !isSearch && unfoldButton(sections)]),
    h("div", { class: "joined" }, sections),
  ];
}

function unfoldButton(sections) {
  return button(text.unfold, () => sections.forEach((one) => { one.open = true; }), { "data-action": "unfold" });
}

const idOf = (table) => `settings-${table || "general"}`;

/** Unfolds the section that is chosen, and scrolls to it. The focus stays, so that the arrow keys lead on to the next one. */
function sectionChoice(tables) {
  const show = () => {
    const chosen = document.getElementById(choice.value);
    if (chosen) {
      chosen.open = true;
      chosen.scrollIntoView();
    }
  };
  const choice = h("select", { "aria-label": text.section, "data-action": "section", onchange: show },
    h("option", { value: "" }, text.section),
    tables.map((table) => h("option", { value: idOf(table) }, text.sectionName(table))));
  return choice;
}

/** The settings of a table of the file, which can be folded. */
function section(table, settings, { words, isOpen, isWhole }) {
  // While only some settings are shown, their rows say which of them are changed.
  const changed = isWhole ? settings.filter(isSet) : [];
  const region = regionTable(text.label(table), COLUMNS, settings.map((one) => settingRow(one, words)));
  // Names, values and descriptions are too long for columns of a phone.
  region.table.classList.add("as-cards");
  return h("details", { id: idOf(table), class: "card settings", open: isOpen },
    h("summary", null, icon("down"), h("h2", null, text.sectionName(table)), h("code", { class: "soft" }, table), h("span", { class: "soft contents" }, text.contents(table)), h("small", { class: "counts" }, text.count(settings.length), changed.length > 0 && h("span", { class: "not-on-phone" }, text.changedCount(changed.length))),
      changed.length > 0 && h("small", { class: "changed-names" }, text.changedNames(changed.map(({ name }) => name.slice(table.length + (table === "" ? 0 : 1)))))),
    region.element);
}

/** A text whose parts are made by `part`, those that were searched for in marks. */
function marked(text, words, part = (one) => one) {
  if (words.length === 0) {
    return part(text);
  }
  const any = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "i");
  return text.split(any).map((one, at) => (at % 2 === 1 ? h("mark", null, part(one)) : part(one)));
}

/** A text with commas between the thousands of its numbers, but not of ports and parts of addresses. */
const grouped = (text) => text.replace(/(?<![\w.:/])\d{4,}(?![\w.:/])/g, (digits) => number(Number(digits)));

function settingRow(setting, words) {
  const { name, doc, kind, source } = setting;
  const made = row(
    { content: [h("code", null, marked(name, words, breakable)), h("div", { class: "about" }, marked(doc, words), h("small", { class: "meaning" }, text.format(grouped(kind))))], class: "wrap" },
    { content: valueOf(setting), class: "wrap value" },
    { content: sourceOf(source), class: isSet(setting) ? "wrap source" : "source not-on-phone" });
  made.classList.toggle("set", isSet(setting));
  return made;
}

/** The source of a value: its kind, then the name of the variable or flag, or the path and line of the file. */
function sourceOf(source) {
  const [first, name] = source.split(" ", 2);
  const [kind, place] = first in text.sources ? [text.sources[first], name] : [text.file, source];
  return [kind, place && [" ", h("small", { class: "meaning" }, h("code", null, outside(breakable(place))))]];
}

/** A value for people, without quotes where something is left. One of a range of numbers is a number. */
function textOf(value, kind) {
  const read = settingValue(value);
  return /^\d+$/.test(value) && / to \d/.test(kind) ? grouped(value) : (Array.isArray(read) ? read.join(", ") : read) || value;
}

function valueOf({ value, kind, hidden, note }) {
  if (hidden) {
    return [badge(text.hidden), note && h("small", { class: "meaning" }, outside(note))];
  }
  const shown = value === null ? h("span", { class: "soft" }, note ? outside(note) : text.notSet) : h("div", { class: "long mono" }, outside(textOf(value, kind)));
  return [shown, value !== null && note && h("small", { class: "meaning" }, outside(note))];
}
