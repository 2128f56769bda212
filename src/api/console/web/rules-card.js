// The card with the redirect rules of a link: what they say, their editor and the try-out.

import { button, card, emptyState, h, targetLink } from "./dom.js";
import { conditionText } from "./rule-conditions.js";
import { editRules } from "./rules-editor.js";
import { rulesTry } from "./rules-try.js";
import { mayWrite } from "./rights.js";
import { rules as text } from "./strings-rules.js";
import { common } from "./strings-shell.js";

/** Whether a card of rules has little to say: there are none, or they could not be read. */
export const isShort = (told) => told === null || told.redirectRules.length === 0;

/** The rules of a link, or `null` where they could not be read; `onChange()` is called after a change. */
export function rulesCard(link, told, onChange) {
  if (told === null) {
    return card(text.title, { id: "rules" }, emptyState(text.unavailable, text.unavailableText));
  }
  const rules = told.redirectRules;
  const edit = (label, props) => mayWrite() && button(label, () => editRules(link, rules, onChange), { "data-action": "edit-rules", ...props });
  if (rules.length === 0) {
    return card(text.title, { id: "rules", beside: edit(text.addFirst), fold: common.none }, h("p", { class: "soft small" }, text.noneText));
  }
  const items = rules.map(({ conditions, longUrl }) => h("li", null,
    h("p", { class: "rule-says" }, conditions.map((condition, at) => [at > 0 && h("span", { class: "soft" }, text.and), h("span", { class: "wrap" }, conditionText(condition))])),
    h("p", { class: "rule-goes" }, targetLink(longUrl, { class: "wrap" }))));
  const otherwise = h("p", { class: "rule-otherwise" }, h("span", null, text.otherwise), h("span", { class: "rule-goes" }, targetLink(told.defaultLongUrl, { class: "wrap" })));
  return card(text.title, { id: "rules", beside: edit(text.edit), fold: text.counts(rules.length) },
    h("p", { class: "soft small" }, text.note), h("ol", { class: "rules", "aria-label": text.list }, items), otherwise, rulesTry(link));
}
