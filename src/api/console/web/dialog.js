// Dialogs: native <dialog> elements, which keep the focus, close with Escape and give the focus back.

import { button, busyWhile, fill, h, outside, uniqueId } from "./dom.js";
import { icon } from "./icons.js";
import { common, forms } from "./strings-shell.js";

/** Dialogs that are open, the uppermost last, each with the address that it stands over. */
const open = [];

/**
 * Going back with a dialog open is meant for the dialog: it is closed, and the page under it stays. Returns whether there was one.
 */
export function backFromDialog() {
  const top = open.at(-1);
  if (top) {
    history.pushState(top.state, "", top.address);
    top.leave();
  }
  return top !== undefined;
}

/**
 * Opens a dialog; returns `{ element, close(value), closed }`, where `closed` resolves to the value it was closed with. `mayLeave()`
 * is asked, and may resolve to `false`, where somebody closes it without an answer.
 */
export function openDialog(title, body, { actions = [], wide = false, mayLeave = async () => true } = {}) {
  const heading = uniqueId("dialog");
  const foot = actions.length > 0 && h("div", { class: "dialog-foot" }, actions);
  const element = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading },
    h("div", { class: "dialog-head" },
      h("h2", { id: heading }, title),
      button(icon("cross"), () => leave(), { kind: "icon", "data-action": "close", "aria-label": common.close })),
    h("div", { class: "dialog-body" }, body), foot);
  let value;
  const close = (told) => {
    value = told;
    element.close();
  };
  const leave = async () => {
    if (await mayLeave()) {
      close();
    }
  };
  const entry = { leave, state: history.state, address: location.href };
  const closed = new Promise((resolve) => {
    element.addEventListener("close", () => {
      open.splice(open.indexOf(entry), 1);
      element.remove();
      resolve(value);
    }, { once: true });
  });
  element.addEventListener("cancel", (event) => {
    event.preventDefault();
    leave();
  });
  open.push(entry);
  document.body.append(element);
  element.showModal();
  return { element, close, closed };
}

/** Asks a question; resolves to whether it was answered with the action. */
export async function confirmDialog(title, text, { action = common.confirm, kind = "danger", cancel = common.cancel } = {}) {
  const yes = button(action, () => dialog.close(true), { kind, "data-action": "confirm" });
  const no = button(cancel, () => dialog.close(false), { "data-action": "cancel" });
  const dialog = openDialog(title, h("p", null, outside(text)), { actions: [no, yes] });
  no.focus();
  return (await dialog.closed) === true;
}

/**
 * A form in a dialog. `fields` are of `field()`; `submit(values)` may throw an ApiError, whose fields are shown beside theirs. `discard`
 * has the words of the question before a changed form is closed. Resolves to what `submit` gave, or undefined.
 */
export function formDialog(title, { fields, intro, action = common.save, submit, wide = false, discard = forms.discard }) {
  const said = h("div", { class: "form-error", role: "alert" });
  const send = button(action, null, { kind: "primary", type: "submit", "data-action": "submit" });
  const form = h("form", { novalidate: true, method: "dialog" }, intro && h("p", { class: "soft" }, intro), said,
    h("div", { class: "fields" }, fields.map((one) => one.element ?? one)),
    h("div", { class: "dialog-foot" }, button(common.cancel, () => dialog.close(), { "data-action": "cancel" }), send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busyWhile(send, async () => {
      const done = await submitFields(fields, said, submit);
      if (done) {
        dialog.close(done.result);
      }
    });
  });
  const valuesNow = () => JSON.stringify(inputsOf(fields).map((one) => [one.name, one.value()]));
  const atFirst = valuesNow();
  const mayLeave = async () => valuesNow() === atFirst
    || confirmDialog(discard.title, discard.text, { action: discard.title, cancel: forms.keepEditing });
  const dialog = openDialog(title, form, { wide, mayLeave });
  fields.find((one) => one.input)?.input.focus();
  return dialog.closed;
}

/** The fields of a form, also of its groups. */
function inputsOf(fields) {
  return fields.flatMap((one) => one.fields ?? one).filter((one) => one.name);
}

/** Sends the values of fields; shows what is wrong with them. Gives `{ result }` when it went well. */
export async function submitFields(fields, said, submit) {
  const inputs = inputsOf(fields);
  inputs.forEach((one) => one.setError(null));
  fill(said);
  // A browser gives nothing for what it cannot read, which would stand for an empty field.
  const unread = inputs.filter((one) => one.input?.validity?.badInput);
  if (unread.length > 0) {
    unread.forEach((one) => one.setError(forms.incomplete));
    unread[0].input.focus();
    return null;
  }
  try {
    const values = Object.fromEntries(inputs.map((one) => [one.name, one.value()]));
    return { result: await submit(values) };
  } catch (error) {
    showErrors(inputs, said, error);
    return null;
  }
}

/** A reason of the node, with the fields named as they are here. */
function inWordsOf(inputs, reason) {
  const labels = new Map(inputs.map(({ name, label }) => [name, label]));
  return reason.replace(/\b[a-z]+[A-Z]\w*\b/g, (name) => (labels.has(name) ? `“${labels.get(name)}”` : name));
}

/** A reason as a sentence: those of the node begin with a verb, because the name of a field stands before it. */
function asSentence(reason, missing = forms.missing) {
  if (reason === "is empty") {
    return missing;
  }
  return /^[a-z]/.test(reason) ? forms.wrong(reason.replace(/\.$/, "")) : reason;
}

function showErrors(inputs, said, error) {
  const reasons = new Map(error.reasons ?? []);
  const wrong = inputs.filter((one) => reasons.has(one.name));
  wrong.forEach((one) => {
    one.setError(asSentence(inWordsOf(inputs, reasons.get(one.name)), one.missing));
    reasons.delete(one.name);
  });
  const rest = [...reasons].map(([name, reason]) => `${name}: ${reason}`).join("; ");
  const text = wrong.length > 0 ? rest : error.detail ?? error.message;
  if (text) {
    fill(said, h("p", null, outside(text)));
  }
  const first = wrong[0]?.input;
  const folded = first?.closest("details");
  if (folded) {
    folded.open = true;
  }
  first?.focus();
}
