// The conditions of redirect rules: the fields of each type, and the sentence that says what it matches.

import { countryChoices, countryName } from "./countries.js";
import { button, fill, h } from "./dom.js";
import { field, fromLocalInput, toLocalInput } from "./field.js";
import { instant, zoneName } from "./format.js";
import { conditions as text } from "./strings-rules.js";

const TYPED = { autocomplete: "off", spellcheck: "false", maxlength: 255 };

/** The field of a value. `props` are those of `field()`. */
const valueField = (props) => (value) => field({ name: "matchValue", value: value ?? "", ...props });

/** The field of the name of a query parameter. */
const keyField = (key) => field({ name: "matchKey", label: text.parameter, value: key ?? "", ...TYPED });

/** A date in the viewer's zone. An instant that nobody touches keeps its seconds and its zone. */
function dateField(label) {
  return (value) => {
    const before = toLocalInput(value);
    const read = (typed) => (typed === before && value ? value : fromLocalInput(typed));
    return field({ name: "matchValue", label, type: "datetime-local", value: before, hint: text.zone(zoneName()), read });
  };
}

/** The fields of each type: `key` and `value` make them, with what they hold at first. */
const FIELDS = {
  device: { value: (value) => field({ name: "matchValue", label: text.device, type: "select", options: text.devices, value: value || "mobile" }) },
  browser: { value: (value) => field({ name: "matchValue", label: text.browser, type: "select", options: text.browsers, value: value || "chrome" }) },
  language: { value: valueField({ label: text.language, hint: text.languageHint, placeholder: "en-GB", ...TYPED, read: (typed) => typed.trim() }) },
  "geolocation-country-code": {
    value: (value) => field({ name: "matchValue", label: text.country, type: "select", options: [["", text.chooseCountry], ...countryChoices()], value: value ?? "", hint: text.placeHint }),
  },
  "geolocation-city-name": { value: valueField({ label: text.city, hint: text.cityHint, ...TYPED, read: (typed) => typed.trim() }) },
  "query-param": { key: keyField, value: valueField({ label: text.value, ...TYPED }) },
  "any-value-query-param": { key: keyField },
  "valueless-query-param": { key: keyField },
  "ip-address": { value: valueField({ label: text.address, hint: text.addressHint, ...TYPED, read: (typed) => typed.trim() }) },
  "before-date": { value: dateField(text.before) },
  "after-date": { value: dateField(text.after) },
  weight: { value: valueField({ label: text.percent, type: "number", min: 1, max: 100, step: 1, hint: text.percentHint }) },
};

/** The condition with which a new rule begins. */
export const FIRST_CONDITION = { type: "device", matchKey: null, matchValue: "mobile" };

/** A condition that is edited: `{ element, type, removal, fields(path), value() }`. `remove()` is called by its button. */
export function conditionForm({ type, matchKey, matchValue }, remove) {
  const host = h("div", { class: "condition-fields" });
  const kind = field({ name: "type", label: text.type, type: "select", options: text.types, value: type });
  let shown = [];
  const draw = (key, value) => {
    const of = FIELDS[kind.value()];
    shown = [of.key?.(key), of.value?.(value)].filter(Boolean);
    fill(host, shown.map((one) => one.element));
  };
  const valueOf = (name) => shown.find((one) => one.name === name)?.value() ?? null;
  draw(matchKey, matchValue);
  // The name of a parameter stays when another question is asked about it.
  kind.input.addEventListener("change", () => draw(valueOf("matchKey"), null));
  const removal = button(text.remove, remove, { kind: "quiet remove", "data-action": "remove-condition" });
  return {
    element: h("li", { class: "condition" }, kind.element, host, removal),
    type: kind,
    removal,
    fields: (path) => [kind, ...shown].map((one) => ({ ...one, name: `${path}.${one.name}` })),
    value: () => ({ type: kind.value(), matchKey: valueOf("matchKey"), matchValue: valueOf("matchValue") }),
  };
}

/** Text from outside within a sentence, isolated from the direction of the words around it. */
const isolated = (text) => `\u2068${text ?? ""}\u2069`;

/** What a condition matches, as a sentence. */
export function conditionText({ type, matchKey, matchValue }) {
  const named = (options) => options.find(([value]) => value === matchValue)?.[1] ?? isolated(matchValue);
  const shown = {
    device: () => named(text.devices),
    browser: () => named(text.browsers),
    "geolocation-country-code": () => countryName(matchValue),
    "before-date": () => instant(Date.parse(matchValue)),
    "after-date": () => instant(Date.parse(matchValue)),
  };
  return text.says[type]?.((shown[type] ?? (() => isolated(matchValue)))(), isolated(matchKey)) ?? type;
}
