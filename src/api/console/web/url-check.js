// The question whether a URL would be accepted, answered while it is typed: by the rules in force, or by a draft of them.

import { post } from "./api.js";
import { card, copyButton, errorState, facts, fill, h, outside, setText } from "./dom.js";
import { afterPause, field } from "./field.js";
import { check as text } from "./strings-hosts.js";

/** The card with the question. `draft` has the rules if they were changed; `signal` ends requests in flight when the view is left. */
export function urlCheck(draft, signal) {
  const answer = h("div", { class: "verdict", "aria-live": "polite" });
  const asked = field({
    name: "longUrl", label: text.url, type: "text", inputmode: "url", placeholder: "https://example.org/page", autocomplete: "off", autocapitalize: "none", spellcheck: "false",
    hint: text.hint,
  });
  const asking = afterPause(async (ends) => {
    const url = asked.input.value.trim();
    if (url === "") {
      answer.removeAttribute("aria-busy");
      fill(answer);
      return;
    }
    if (!draft.isRead) {
      // Once the node has read the text, it is asked again.
      answer.removeAttribute("aria-busy");
      fill(answer, draft.isFaulty && h("p", { class: "soft" }, text.unread));
      return;
    }
    answer.setAttribute("aria-busy", "true");
    const said = await verdictOn(url, draft, ends, asking.now);
    if (!ends.aborted && said !== null) {
      answer.removeAttribute("aria-busy");
      fill(answer, said);
    }
  }, signal);
  asked.input.addEventListener("input", asking.later);
  const hint = asked.element.querySelector("small");
  const follow = () => {
    setText(hint, draft.isChanged ? text.hintDraft : text.hint);
    if (asked.input.value.trim() !== "") {
      asking.now();
    }
  };
  follow();
  draft.follow(follow, signal);
  const form = h("form", { class: "url-check", novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    asking.now();
  } }, asked.element);
  return card(text.title, {}, form, answer);
}

/** What is shown of the answer; null where nobody wants it any more. */
async function verdictOn(url, draft, signal, again) {
  const rules = draft.isChanged ? { rules: draft.rules } : {};
  try {
    return verdict(await post("/admin/api/check-url", { longUrl: url, ...rules }, { signal }));
  } catch (error) {
    return error.name === "AbortError" ? null : errorState(error, again);
  }
}

function verdict({ accepted, longUrl, reasons, allowList, blockList }) {
  return [
    h("p", { class: `verdict-said ${accepted === null ? "warn" : accepted ? "good" : "bad"}` }, accepted === null ? text.unknown : accepted ? text.accepted : text.refused),
    reasons.length > 0 && h("ul", null, reasons.map((reason) => h("li", { class: "wrap" }, outside(reason)))),
    facts([
      [text.stored, longUrl === null ? undefined : h("div", { class: "line-tight" }, h("span", { class: "long mono" }, outside(longUrl)), copyButton(longUrl))],
      [text.allow, text.allowStates[allowList] ?? outside(allowList)],
      [text.block, text.blockStates[blockList] ?? outside(blockList)],
    ]),
  ];
}
