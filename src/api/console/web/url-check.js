// The question whether a URL would be accepted, answered while it is typed.

import { post } from "./api.js";
import { card, copyButton, errorState, facts, fill, h, outside } from "./dom.js";
import { field } from "./field.js";
import { check as text } from "./strings-access.js";

const PAUSE_MS = 350;

/** The card with the question. `signal` ends requests in flight when the view is left. */
export function urlCheck(signal) {
  const answer = h("div", { class: "verdict", "aria-live": "polite" });
  const asked = field({
    name: "longUrl", label: text.url, type: "text", inputmode: "url", placeholder: "https://example.org/page", autocomplete: "off", autocapitalize: "none", spellcheck: "false",
    hint: text.hint,
  });
  let [timer, current] = [undefined, null];
  const ask = async () => {
    clearTimeout(timer);
    current?.abort();
    const url = asked.input.value.trim();
    if (url === "") {
      answer.removeAttribute("aria-busy");
      fill(answer);
      return;
    }
    const own = new AbortController();
    current = own;
    answer.setAttribute("aria-busy", "true");
    const said = await verdictOn(url, AbortSignal.any([signal, own.signal]), ask);
    if (current === own && said !== null) {
      answer.removeAttribute("aria-busy");
      fill(answer, said);
    }
  };
  asked.input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  signal.addEventListener("abort", () => clearTimeout(timer));
  const form = h("form", { novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    ask();
  } }, asked.element);
  return card(text.title, {}, form, answer);
}

/** What is shown of the answer; null where nobody wants it any more. */
async function verdictOn(url, signal, again) {
  try {
    return verdict(await post("/admin/api/check-url", { longUrl: url }, { signal }));
  } catch (error) {
    return error.name === "AbortError" ? null : errorState(error, again);
  }
}

function verdict({ accepted, longUrl, reasons, allowList, blockList }) {
  return [
    h("p", { class: `verdict-said ${accepted ? "good" : "bad"}` }, accepted ? text.accepted : text.refused),
    reasons.length > 0 && h("ul", null, reasons.map((reason) => h("li", { class: "wrap" }, outside(reason)))),
    facts([
      [text.stored, longUrl === null ? undefined : h("div", { class: "line-tight" }, h("span", { class: "long mono" }, outside(longUrl)), copyButton(longUrl))],
      [text.allow, text.allowStates[allowList] ?? outside(allowList)],
      [text.block, text.blockStates[blockList] ?? outside(blockList)],
    ]),
  ];
}
