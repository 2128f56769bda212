// The settings that hold, each with where it comes from, and the certificates in use.

import { get } from "./api.js";
import { badge, card, emptyState, fill, h, outside, pageHead, regionTable, row } from "./dom.js";
import { certificates } from "./certificates.js";
import * as format from "./format.js";
import { filterField, reloader } from "./parts.js";

const COLUMNS = [{ title: "Setting" }, { title: "Value" }, { title: "Source" }, { title: "What it does" }];
const TOP = "At the top of the file";

export async function show(main, { signal, query, setQuery }) {
  const wanted = { text: query.get("filter") ?? "", onlySet: query.get("set") === "1" };
  const [host, list, tls] = [h("div", { class: "stack" }), h("div", { class: "stack" }), h("div", { class: "stack" })];
  let settings = [];
  const draw = () => fill(list, tables(settings, wanted));
  const choose = (changes) => {
    Object.assign(wanted, changes);
    setQuery(queryOf(wanted), { replace: true });
    draw();
  };
  const load = reloader(host, {
    signal,
    lines: 16,
    fetch: (own) => get("/admin/api/settings", { signal: own }),
    render(data) {
      settings = data.settings;
      draw();
      tls.hidden = false;
      return list;
    },
  });
  // What stands below waits for what stands above, so that nothing moves.
  tls.hidden = true;
  main.append(pageHead("Settings"), toolbar(wanted, choose, signal), host, tls);
  load();
  return certificates(tls);
}

function toolbar({ text, onlySet }, choose, signal) {
  const filter = filterField({
    label: "Filter settings", placeholder: "Filter by name, value or what it does", value: text, signal, onInput: (typed) => choose({ text: typed }),
  });
  const set = h("input", { type: "checkbox", checked: onlySet, onchange: () => choose({ onlySet: set.checked }) });
  return h("div", { class: "toolbar" }, filter, h("label", { class: "tick" }, set, "Only those that were set"));
}

/** What is chosen is kept in the address, so that it can be sent to somebody. */
function queryOf({ text, onlySet }) {
  const params = new URLSearchParams();
  if (text !== "") {
    params.set("filter", text);
  }
  if (onlySet) {
    params.set("set", "1");
  }
  return params;
}

const isSet = (setting) => setting.source !== "default";
const tableOf = ({ name }) => (name.includes(".") ? name.slice(0, name.indexOf(".")) : "");

function tables(settings, { text, onlySet }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const isFound = (one) => {
    const all = [one.name, one.value ?? "", one.source, one.doc].join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  };
  const found = settings.filter((one) => (!onlySet || isSet(one)) && isFound(one));
  if (found.length === 0) {
    return onlySet && words.length === 0
      ? emptyState("Nothing was set", "All settings have their defaults. They are set in the file that --config names, in the environment, or by flags.")
      : emptyState("No setting is like that", "Change the filter, or show all settings.");
  }
  const groups = Map.groupBy(found, tableOf);
  return [
    h("p", { class: "soft", role: "status" }, `${format.number(found.length)} of ${format.count(settings.length, "setting")}. Changes hold from the next start of the node.`),
    [...groups].map(([table, rows]) => tableCard(table, rows)),
  ];
}

function tableCard(table, settings) {
  const title = table === "" ? TOP : h("code", null, `[${table}]`);
  return card(title, { className: "settings" },
    regionTable(`Settings ${table === "" ? "at the top of the file" : `of ${table}`}, as a table`, COLUMNS, settings.map(settingRow)).element);
}

function settingRow(setting) {
  const { name, doc, kind, source } = setting;
  return row(
    { content: h("code", null, name), class: "wrap" },
    { content: valueOf(setting), class: "wrap" },
    { content: isSet(setting) ? outside(source) : h("span", { class: "soft" }, "default"), class: "wrap" },
    [doc, h("small", { class: "meaning" }, kind)]);
}

function valueOf({ value, hidden, note }) {
  if (hidden) {
    return [badge("hidden"), note && h("small", { class: "meaning" }, outside(note))];
  }
  const shown = value === null ? h("span", { class: "soft" }, note ? outside(note) : "not set") : h("div", { class: "long mono" }, outside(value));
  return [shown, value !== null && note && h("small", { class: "meaning" }, outside(note))];
}
