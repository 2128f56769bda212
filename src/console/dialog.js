// Dialogs: native <dialog> elements, which keep the focus, close with Escape and give the focus back.

import { button, busyWhile, fill, h, outside, uniqueId } from "./dom.js";

/** Opens a dialog; returns `{ element, close(value), closed }`, where `closed` resolves to the value it was closed with. */
export function openDialog(title, body, { actions = [], wide = false } = {}) {
  const heading = uniqueId("dialog");
  const foot = actions.length > 0 && h("div", { class: "dialog-foot" }, actions);
  const element = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading },
    h("div", { class: "dialog-head" },
      h("h2", { id: heading }, title),
      button("×", () => close(), { kind: "icon", "aria-label": "Close" })),
    h("div", { class: "dialog-body" }, body), foot);
  let value;
  const close = (told) => {
    value = told;
    element.close();
  };
  const closed = new Promise((resolve) => {
    element.addEventListener("close", () => {
      element.remove();
      resolve(value);
    }, { once: true });
  });
  document.body.append(element);
  element.showModal();
  return { element, close, closed };
}

/** Asks a question; resolves to whether it was answered with the action. */
export async function confirmDialog(title, text, { action = "Go on", kind = "danger" } = {}) {
  const yes = button(action, () => dialog.close(true), { kind });
  const no = button("Cancel", () => dialog.close(false));
  const dialog = openDialog(title, h("p", null, outside(text)), { actions: [no, yes] });
  no.focus();
  return (await dialog.closed) === true;
}

/** A form in a dialog. `fields` are of `field()`; `submit(values)` may throw an ApiError, whose fields are shown beside theirs. Resolves to what `submit` gave, or undefined. */
export function formDialog(title, { fields, intro, action = "Save", submit, wide = false }) {
  const said = h("div", { class: "form-error", role: "alert" });
  const send = button(action, null, { kind: "primary", type: "submit" });
  const form = h("form", { novalidate: true, method: "dialog" }, intro && h("p", { class: "soft" }, intro), said,
    h("div", { class: "fields" }, fields.map((one) => one.element ?? one)),
    h("div", { class: "dialog-foot" }, button("Cancel", () => dialog.close()), send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busyWhile(send, async () => {
      const done = await submitFields(fields, said, submit);
      if (done) {
        dialog.close(done.result);
      }
    });
  });
  const dialog = openDialog(title, form, { wide });
  fields.find((one) => one.input)?.input.focus();
  return dialog.closed;
}

/** Sends the values of fields; shows what is wrong with them. Gives `{ result }` when it went well. */
export async function submitFields(fields, said, submit) {
  const inputs = fields.flatMap((one) => one.fields ?? one).filter((one) => one.name);
  inputs.forEach((one) => one.setError(null));
  fill(said);
  // A browser gives nothing for what it cannot read, which would stand for an empty field.
  const unread = inputs.filter((one) => one.input?.validity?.badInput);
  if (unread.length > 0) {
    unread.forEach((one) => one.setError("This is not complete, or no number or date."));
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

function showErrors(inputs, said, error) {
  const reasons = new Map(error.reasons ?? []);
  const wrong = inputs.filter((one) => reasons.has(one.name));
  wrong.forEach((one) => {
    one.setError(reasons.get(one.name));
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
