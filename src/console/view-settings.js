// Settings: those that hold, where each comes from, and what it is for. Secrets are never sent here.

import { get } from "./api.js";
import { badge, card, emptyState, fill, h, outside, pageHead, regionTable, row } from "./dom.js";
import * as format from "./format.js";
import { filterField, reloader } from "./parts.js";

const COLUMNS = [{ title: "Setting" }, { title: "Value" }, { title: "From" }, { title: "What it is for" }];
const CERTIFICATE_COLUMNS = [{ title: "Names" }, { title: "Valid until" }, { title: "File" }];
/** Settings of no table. */
const MAIN = "General";

export async function show(main, { query, setQuery, signal }) {
  const wanted = { text: query.get("filter") ?? "", onlySet: query.get("set") === "1" };
  const [host, list] = [h("div", { class: "stack" }), h("div", { class: "stack settings" })];
  let data = null;
  const draw = () => fill(list, content(data, wanted));
  const choose = (changes) => {
    Object.assign(wanted, changes);
    setQuery(new URLSearchParams([wanted.text && ["filter", wanted.text], wanted.onlySet && ["set", "1"]].filter(Boolean)), { replace: true });
    if (data !== null) {
      draw();
    }
  };
  const filter = filterField({ label: "Filter settings", placeholder: "Filter by name, value or purpose", value: wanted.text, signal, onInput: (text) => choose({ text }) });
  const only = h("input", { type: "checkbox", checked: wanted.onlySet, onchange: () => choose({ onlySet: only.checked }) });
  const load = reloader(host, {
    signal,
    lines: 14,
    fetch: fetchSettings,
    render(told) {
      data = told;
      draw();
      return list;
    },
  });
  main.append(pageHead("Settings"), h("p", { class: "soft" }, "What this node runs with. Change it in its settings file, its environment or its flags, and restart it."),
    h("div", { class: "toolbar" }, filter, h("label", { class: "tick" }, only, "Only those that were set")), host);
  await load();
}

async function fetchSettings(signal) {
  const [{ settings }, status] = await Promise.all([get("/admin/api/settings", { signal }), get("/status", { signal })]);
  return { settings, certificates: status.tls?.certificates ?? [] };
}

function content({ settings, certificates }, { text, onlySet }) {
  const sought = text.trim().toLowerCase();
  const has = ({ name, value, doc }) => [name, value ?? "", doc].some((one) => one.toLowerCase().includes(sought));
  const shown = settings.filter((one) => has(one) && (!onlySet || one.source !== "default"));
  const tables = Map.groupBy(shown, ({ name }) => (name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : MAIN));
  return [
    shown.length === 0 && emptyState("No setting is like that", "Search for a part of its name or of what it is for."),
    [...tables].map(([table, rows]) => card(table, {}, regionTable(`Settings of ${table}`, COLUMNS, rows.map(settingRow)).element)),
    sought === "" && certificates.length > 0 && certificatesCard(certificates),
  ];
}

function settingRow({ name, value, hidden, note, source, doc, kind }) {
  const shown = hidden ? badge("hidden", "warn") : value === null ? h("span", { class: "soft" }, "not set") : h("code", { class: "wrap" }, outside(value));
  return row(
    h("code", { class: "wrap" }, name),
    { content: [shown, note && h("small", { class: "wrap" }, " ", outside(note))], class: "wrap" },
    { content: source === "default" ? h("span", { class: "soft" }, "default") : outside(source), class: "wrap" },
    { content: [doc, h("small", null, ` (${kind})`)], class: "wrap" });
}

function certificatesCard(certificates) {
  const rows = certificates.map(({ names, validUntil, file }) => row({ content: outside(names.join(", ")), class: "wrap" }, format.time(validUntil), { content: outside(file), class: "wrap" }));
  return card("Certificates", {}, regionTable("Certificates, one a row", CERTIFICATE_COLUMNS, rows).element);
}
