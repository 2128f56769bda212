// The editor of a link's redirect rules: a dialog with all rules in their order, each with its conditions and its destination.

import { linkPath, post } from "./api.js";
import { formDialog } from "./dialog.js";
import { button, fill, h, setText, uniqueId } from "./dom.js";
import { destinationField } from "./field.js";
import { conditionForm, FIRST_CONDITION } from "./rule-conditions.js";
import { draftTry } from "./rules-try.js";
import { common } from "./strings-shell.js";
import { rules as text } from "./strings-rules.js";
import { toast, toastError } from "./toast.js";

const plain = (rules) => rules.map(({ longUrl, conditions }) => ({
  longUrl, conditions: conditions.map(({ type, matchKey, matchValue }) => ({ type, matchKey, matchValue })),
}));

/** Asks for other rules of a link and saves them, with an undo; `onChange()` is called after both. */
export async function editRules(link, rules, onChange) {
  const editor = new RulesEditor(rules);
  const save = (wanted) => post(linkPath(link, "/redirect-rules"), { redirectRules: wanted });
  const saved = await formDialog(text.editTitle(link.shortCode), { fields: [editor, draftTry(link, editor)], intro: text.intro, action: text.save, wide: true, submit: () => save(editor.value()) });
  if (!saved) {
    return;
  }
  onChange();
  const undo = async () => {
    try {
      await save(plain(rules));
      toast(text.restored);
      onChange();
    } catch (error) {
      toastError(error, text.notRestored);
    }
  };
  toast(text.saved(saved.redirectRules.length), { seconds: 10, action: { name: "undo", label: common.undo, run: undo } });
}

/** All rules as fields of a form: their names are the paths that the node uses in its errors. */
class RulesEditor {
  constructor(rules) {
    this.list = h("ol", { class: "rule-forms" });
    this.none = h("p", { class: "soft" }, text.noRules);
    this.said = h("p", { class: "visually-hidden", role: "status" });
    this.adding = button(text.addRule, () => this.add(), { "data-action": "add-rule" });
    this.rules = rules.length > 0 ? rules.map((rule) => this.ruleForm(rule)) : [this.ruleForm({ longUrl: "", conditions: [FIRST_CONDITION] })];
    this.element = h("div", { class: "stack" }, this.list, this.none, h("p", null, this.adding), this.said);
    fill(this.list, this.rules.map((rule) => rule.element));
    this.number();
  }

  ruleForm(rule) {
    const form = ruleForm(rule, { move: (by) => this.move(form, by), remove: () => this.remove(form) });
    return form;
  }

  /** The control that gets the focus at first. */
  get input() {
    return this.rules[0].conditions[0].type.input;
  }

  get fields() {
    return this.rules.flatMap((rule, at) => rule.fields(`redirectRules[${at}]`));
  }

  value() {
    return this.rules.map((rule) => rule.value());
  }

  number() {
    this.none.hidden = this.rules.length > 0;
    this.rules.forEach((rule, at) => rule.number(at + 1, this.rules.length));
  }

  add() {
    const rule = this.ruleForm({ longUrl: "", conditions: [FIRST_CONDITION] });
    this.rules.push(rule);
    this.list.append(rule.element);
    this.number();
    rule.conditions[0].type.input.focus();
  }

  remove(rule) {
    const at = this.rules.indexOf(rule);
    this.rules.splice(at, 1);
    rule.element.remove();
    this.number();
    (this.rules[Math.min(at, this.rules.length - 1)]?.removal ?? this.adding).focus();
    setText(this.said, text.removed(at + 1, this.rules.length));
  }

  /** Moves a rule by one place. The focus stays on the button, or on the other one at an end of the list. */
  move(rule, by) {
    const from = this.rules.indexOf(rule);
    const to = from + by;
    if (to < 0 || to >= this.rules.length) {
      return;
    }
    this.rules.splice(from, 1);
    this.rules.splice(to, 0, rule);
    this.list.insertBefore(rule.element, this.rules[to + 1]?.element ?? null);
    this.number();
    const wanted = by < 0 ? rule.up : rule.down;
    (wanted.disabled ? (by < 0 ? rule.down : rule.up) : wanted).focus();
    rule.element.scrollIntoView({ block: "nearest" });
    setText(this.said, text.moved(from + 1, to + 1));
  }
}

/** A rule that is edited. */
function ruleForm({ longUrl, conditions }, { move, remove }) {
  const title = h("h3", { id: uniqueId("rule") });
  const up = button("↑", () => move(-1), { kind: "icon", "data-action": "move-up" });
  const down = button("↓", () => move(1), { kind: "icon", "data-action": "move-down" });
  const removal = button(text.removeRule, remove, { kind: "quiet remove", "data-action": "remove-rule" });
  const url = destinationField({ label: text.sendTo, value: longUrl });
  const list = h("ul", { class: "condition-forms", "aria-label": text.conditions });
  const adding = button(text.addCondition, () => add(FIRST_CONDITION).type.input.focus(), { kind: "quiet", "data-action": "add-condition" });
  const own = [];
  let place = 0;
  const label = () => own.forEach((condition, at) => {
    condition.removal.hidden = own.length === 1;
    condition.removal.setAttribute("aria-label", text.removeCondition(at + 1, place));
  });
  const add = (condition) => {
    const form = conditionForm(condition, () => {
      own.splice(own.indexOf(form), 1);
      form.element.remove();
      label();
      adding.focus();
    });
    own.push(form);
    list.append(form.element);
    label();
    return form;
  };
  conditions.forEach(add);
  return {
    element: h("li", { class: "rule-form" }, h("div", { role: "group", "aria-labelledby": title.id },
      h("div", { class: "rule-head" }, title, up, down, removal),
      h("p", { class: "rule-part", "aria-hidden": "true" }, text.conditions), list, adding, url.element)),
    conditions: own,
    up,
    down,
    removal,
    number(to, all) {
      place = to;
      setText(title, text.rule(place));
      [[up, text.up, place === 1], [down, text.down, place === all], [removal, text.remove, false]].forEach(([control, name, isOff]) => {
        control.setAttribute("aria-label", name(place));
        control.title = name(place);
        control.disabled = isOff;
      });
      label();
    },
    fields: (path) => [...own.flatMap((condition, at) => condition.fields(`${path}.conditions[${at}]`)), { ...url, name: `${path}.longUrl` }],
    value: () => ({ longUrl: url.value(), conditions: own.map((condition) => condition.value()) }),
  };
}
