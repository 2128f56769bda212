// Fields of forms: a label, a control, a hint and the place of an error, tied together for screen readers.

import { h, outside, setText, uniqueId } from "./dom.js";
import { forms } from "./strings-shell.js";

/**
 * A field: `{ name, label, missing, element, input, value(), setError(text) }`. `missing` is what the field says if it must not be empty.
 * `type` is one of input's types, or "textarea", "select" (with `options`: texts or `[value, text]`), "checkbox".
 */
export function field({ name, label, hint, type = "text", options = [], value = "", required = false, missing, read, ...props }) {
  const id = uniqueId("field");
  const [hintId, errorId] = [`${id}-hint`, `${id}-error`];
  const error = h("p", { class: "error", id: errorId, hidden: true });
  const input = control(type, options, value, {
    id, name, "aria-describedby": hint ? `${hintId} ${errorId}` : errorId, "aria-required": required ? "true" : null, ...props,
  });
  const setError = (text) => {
    setText(error, text ?? "");
    error.hidden = !text;
    if (text) {
      input.setAttribute("aria-invalid", "true");
    } else {
      input.removeAttribute("aria-invalid");
    }
  };
  // What is wrong with a value is not wrong with the next one.
  input.addEventListener("input", () => setError(null));
  const caption = h("label", { for: id }, label);
  const about = hint && h("small", { id: hintId }, hint);
  const element = type === "checkbox"
    ? h("div", { class: "field check" }, input, h("div", null, caption, about, error))
    : h("div", { class: "field" }, caption, input, about, error);
  const plain = () => (type === "checkbox" ? input.checked : input.value);
  return { name, label, missing, element, input, value: () => (read ? read(plain()) : plain()), setError };
}

function control(type, options, value, props) {
  if (type === "textarea") {
    return h("textarea", { rows: 3, value, ...props });
  }
  if (type === "select") {
    const choices = options.map((option) => (Array.isArray(option) ? option : [option, option]));
    const select = h("select", props, choices.map(([choice, text]) => h("option", { value: choice }, outside(text))));
    // Without a value, the first choice is taken.
    if (value !== "") {
      select.value = value;
    }
    return select;
  }
  if (type === "checkbox") {
    return h("input", { type, checked: value === true, ...props });
  }
  const input = h("input", { type, value, ...props });
  return type.startsWith("date") ? withEmptyMark(input) : input;
}

/** Marks a field for a date while it is empty: it then shows a pattern, which no style can tell from a date. */
export function withEmptyMark(input) {
  ["input", "change"].forEach((event) => input.addEventListener(event, () => markEmpty(input)));
  markEmpty(input);
  return input;
}

/** Updates the mark after a script has set the date. */
export function markEmpty(input) {
  input.toggleAttribute("data-empty", input.value === "");
}

/** A name with a dot, which may have a port, a path and so on: a URL without its scheme. */
const NO_SCHEME = /^(?:[\p{L}\p{N}_-]+\.)+[\p{L}\p{N}-]+\.?(?::\d+)?(?:[/?#].*)?$/u;

/** A field for a destination. One without a scheme gets `https://`, as in the address bar of a browser. */
export function destinationField(props) {
  const read = (typed) => (NO_SCHEME.test(typed.trim()) ? `https://${typed.trim()}` : typed.trim());
  return field({ name: "longUrl", type: "url", missing: forms.destinationMissing, placeholder: "https://example.com/…", autocomplete: "off", read, ...props });
}

/** Fields beside each other where there is room. */
export function beside(...fields) {
  return { fields, element: h("div", { class: "pair" }, fields.map((one) => one.element)) };
}

/** Fields that are folded until somebody wants them. */
export function fieldGroup(title, fields, open = false) {
  return { fields, element: h("details", { class: "group", open }, h("summary", null, title), h("div", { class: "fields" }, fields.map((one) => one.element))) };
}

/** The value of a `datetime-local` field for an instant, in the viewer's zone. */
export function toLocalInput(iso) {
  if (!iso) {
    return "";
  }
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** The instant of a `datetime-local` field, or null where it is empty. */
export function fromLocalInput(text) {
  const at = new Date(text);
  // What is no instant goes as it is: the node says what is wrong with it.
  return text === "" ? null : Number.isNaN(at.getTime()) ? text : at.toISOString();
}

/** Tags as they are typed: separated by commas; one that holds a comma stands between quotes, as in CSV. */
export function splitTags(text) {
  const tags = [...text.matchAll(/\s*"((?:[^"]|"")*)"\s*(?=,|$)|[^,]+/g)].map(([plain, quoted]) => (quoted?.replaceAll('""', '"') ?? plain).trim());
  return [...new Set(tags.filter((tag) => tag !== ""))];
}

/** The same the other way. */
export function joinTags(tags) {
  return tags.map((tag) => (/^"|,/.test(tag) ? `"${tag.replaceAll('"', '""')}"` : tag)).join(", ");
}

/** Milliseconds without input after which it counts as paused. */
const PAUSE_MS = 350;

/**
 * Work that follows input: `now()` does it at once, and `later()` once the input has paused. `run` gets a signal that ends with the
 * next run, or with `page`, the signal of the page.
 */
export function afterPause(run, page) {
  let [timer, current] = [undefined, null];
  const now = () => {
    clearTimeout(timer);
    current?.abort();
    current = new AbortController();
    return run(AbortSignal.any([page, current.signal]));
  };
  page.addEventListener("abort", () => clearTimeout(timer));
  return {
    now,
    later() {
      clearTimeout(timer);
      timer = setTimeout(now, PAUSE_MS);
    },
  };
}
