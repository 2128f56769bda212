// The try-out of redirect rules: a form that describes a visitor, and the destination that the visitor would get.

import { get, linkPath, post, withQuery } from "./api.js";
import { countryChoices } from "./countries.js";
import { submitFields } from "./dialog.js";
import { button, busyWhile, fill, h, targetLink } from "./dom.js";
import { field, fromLocalInput } from "./field.js";
import { conditionText } from "./rule-conditions.js";
import { tryOut as text } from "./strings-rules.js";

const AGENTS = {
  none: "",
  own: navigator.userAgent,
  android: "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36",
  ios: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
  windows: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
  macos: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
  linux: "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
  chromeos: "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
};

function visitorFields() {
  const typed = { autocomplete: "off", spellcheck: "false", read: (value) => value.trim() };
  return [
    field({ name: "userAgent", label: text.device, type: "select", options: Object.entries(text.devices), value: "none", read: (device) => AGENTS[device] }),
    field({ name: "acceptLanguage", label: text.languages, hint: text.languagesHint, ...typed }),
    field({ name: "query", label: text.query, placeholder: text.queryPlaceholder, ...typed }),
    field({ name: "ipAddress", label: text.address, placeholder: "192.0.2.7", ...typed }),
    field({ name: "country", label: text.country, type: "select", options: [["", text.anyCountry]] }),
    field({ name: "city", label: text.city, ...typed }),
    field({ name: "date", label: text.date, type: "datetime-local", hint: text.dateHint, read: fromLocalInput }),
  ];
}

/** The try-out of the saved rules of a link, folded until somebody wants it. */
export function rulesTry(link) {
  return tryForm(text.intro, (visitor) => get(linkPath(link, "/redirect-rules/try"), { query: visitor }));
}

/** The try-out of rules that an editor has, before they are saved. Their errors stand beside their fields. */
export function draftTry(link, editor) {
  const path = `/admin/api/try-rules/${encodeURIComponent(link.shortCode)}`;
  return tryForm(text.introDraft, (visitor) => post(withQuery(path, { ...visitor, domain: link.domain }), { redirectRules: editor.value() }), editor);
}

/** A form for a visitor, which `ask(visitor)` sends. It is no form of HTML, because it may stand in one. */
function tryForm(intro, ask, editor) {
  const fields = visitorFields();
  const said = h("div", { class: "form-error", role: "alert" });
  const result = h("div", { class: "try-result", role: "status" });
  const visitor = () => Object.fromEntries(fields.map((one) => [one.name, one.value()]));
  const run = () => busyWhile(send, async () => {
    const tried = await submitFields(editor ? [...fields, editor] : fields, said, () => ask(visitor()));
    fill(result, tried && resultOf(tried.result));
  });
  const send = button(text.action, run, { "data-action": "try" });
  const form = h("div", { class: "try-form" }, h("p", { class: "soft" }, intro),
    h("div", { class: "pair" }, fields.map((one) => one.element)), said, h("p", null, send), result);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input")) {
      event.preventDefault();
      run();
    }
  });
  // The result is of the rules as they were.
  editor?.element.addEventListener("input", () => fill(result));
  editor?.element.addEventListener("click", (event) => event.target.closest("button") && fill(result));
  const details = h("details", { class: "try" }, h("summary", { "data-action": "open-try" }, text.title), form);
  const country = fields.find((one) => one.name === "country").input;
  details.addEventListener("toggle", () => country.append(...countryChoices().map(([code, name]) => h("option", { value: code }, name))), { once: true });
  return details;
}

/** The destination, and which conditions match. */
function resultOf({ longUrl, priority, redirectRules }) {
  const list = redirectRules.map((rule, at) => {
    const isLater = priority !== null && at + 1 > priority;
    const about = rule.conditions.map((condition) => {
      const mark = isLater ? text.unchecked : condition.matches ? text.matches : text.doesNot;
      return h("li", { class: isLater ? "later" : condition.matches ? "match" : "no-match" }, conditionText(condition), h("span", { class: "visually-hidden" }, `: ${mark}`));
    });
    return h("li", null, h("ul", { class: "try-conditions" }, about));
  });
  return [
    h("p", { class: "wrap try-destination" }, text.gets, targetLink(longUrl, { class: "wrap" })),
    h("p", { class: "soft" }, priority === null ? text.byNone : text.byRule(priority)),
    h("ol", { class: "try-rules" }, list),
  ];
}
