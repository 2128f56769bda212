// Fields with several controls: one of some choices with a sentence each, or any of some. Shaped as those of field.js.

import { h, outside, setText, uniqueId } from "./dom.js";

/** One of some: `options` are `[value, title, what it means]`. With `hasCodes`, the value stands beside its title. */
export function radioField({ name, label, options, value, hasCodes = true }) {
  const inputs = options.map(([choice]) => h("input", { type: "radio", name, id: uniqueId("choice"), value: choice, checked: choice === value }));
  const lines = options.map(([choice, title, meaning], index) =>
    h("div", { class: "choice" }, inputs[index], h("label", { for: inputs[index].id },
      h("span", { class: "choice-title" }, h("b", null, title), hasCodes && [" ", h("small", null, h("code", null, choice))]), h("small", null, meaning))));
  return group({ name, label, inputs, lines, value: () => inputs.find((one) => one.checked)?.value ?? null });
}

/** Any of some: `options` are `[value, text]`. */
export function choicesField({ name, label, options, hint }) {
  const inputs = options.map(([choice]) => h("input", { type: "checkbox", id: uniqueId("choice"), value: choice }));
  const lines = options.map(([, text], index) =>
    h("div", { class: "choice" }, inputs[index], h("label", { for: inputs[index].id }, outside(text))));
  return group({ name, label, hint, inputs, lines, value: () => inputs.filter((one) => one.checked).map((one) => one.value) });
}

function group({ name, label, hint, inputs, lines, value }) {
  const error = h("p", { class: "error", id: uniqueId("error"), hidden: true });
  const element = h("fieldset", { class: "choices", "aria-describedby": error.id }, h("legend", null, label), h("div", { class: "choice-list" }, lines), hint && h("small", null, hint), error);
  const setError = (text) => {
    setText(error, text ?? "");
    error.hidden = !text;
  };
  return { name, element, input: inputs[0], value, setError };
}
