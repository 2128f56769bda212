// Short messages in a corner, with at most one action. The region that holds them is live, so they are read out.

import { button, h, outside, setText } from "./dom.js";
import { common, errors } from "./strings-shell.js";

const SECONDS = 6;

/** Shows a message; returns `{ close, say }`. `seconds: 0` leaves it until it is closed. */
export function toast(text, { kind = "", action, seconds = SECONDS } = {}) {
  const words = outside(text);
  const element = h("div", { class: `toast ${kind}`.trim() }, h("p", null, words));
  let timer;
  const close = () => {
    clearTimeout(timer);
    element.remove();
  };
  const wait = () => {
    clearTimeout(timer);
    timer = seconds > 0 ? setTimeout(close, seconds * 1000) : undefined;
  };
  if (action) {
    element.append(button(action.label, () => {
      close();
      action.run();
    }, { kind: "quiet", "data-action": action.name }));
  }
  element.append(button("×", close, { kind: "icon", "aria-label": common.closeMessage }));
  // Who reads or reaches for it has all the time there is.
  element.addEventListener("pointerenter", () => clearTimeout(timer));
  element.addEventListener("pointerleave", wait);
  element.addEventListener("focusin", () => clearTimeout(timer));
  element.addEventListener("focusout", wait);
  shelf().append(element);
  wait();
  return { close, say: (other) => setText(words, other) };
}

/** Says that something failed, and why. */
export function toastError(error, what = errors.failedSentence) {
  if (error.name !== "AbortError") {
    toast(`${what} ${error.detail ?? error.message ?? ""}`.trim(), { kind: "bad", seconds: 12 });
  }
}

/** Toasts lie in the open dialog, if there is one: what is behind it cannot be reached. */
function shelf() {
  const region = document.getElementById("toasts");
  const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
  const home = dialog ?? document.body;
  if (region.parentElement !== home) {
    home.append(region);
    dialog?.addEventListener("close", () => document.body.append(region), { once: true });
  }
  return region;
}
