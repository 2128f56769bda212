// The draft of the destination rules as text, in the syntax of the settings file. The node reads it while it is typed.

import { card } from "./dom.js";
import { afterPause, field } from "./field.js";
import { asText as text } from "./strings-hosts.js";

/** The card with the text: `{ element, input, read() }`. `read()` resolves to true if the text has no mistakes. */
export function rulesText(draft, signal) {
  const area = field({
    name: "toml", label: text.label, type: "textarea", rows: 16, class: "mono", value: draft.text, hint: text.hint, autocomplete: "off", autocapitalize: "none", spellcheck: "false",
  });
  const reading = afterPause(async (ends) => {
    try {
      await draft.read(area.input.value, ends);
      area.setError(null);
      return true;
    } catch (error) {
      if (error.name !== "AbortError") {
        area.setError(faultsOf(error));
      }
      return false;
    }
  }, signal);
  area.input.addEventListener("input", () => {
    draft.write(area.input.value);
    reading.later();
  });
  // An undo, or the end of a draft, brings another text.
  draft.follow(() => {
    if (area.input.value !== draft.text) {
      area.input.value = draft.text;
      area.setError(null);
    }
  }, signal);
  if (!draft.isRead) {
    reading.now();
  }
  return { element: card(text.title, { className: "rules-text" }, area.element), input: area.input, read: reading.now };
}

/** The mistakes in a text, one on each line. */
function faultsOf(error) {
  const faults = (error.reasons ?? []).map(([, reason]) => reason.charAt(0).toUpperCase() + reason.slice(1));
  return faults.length > 0 ? faults.join("\n") : error.detail ?? error.message;
}
