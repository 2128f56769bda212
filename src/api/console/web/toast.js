// Short messages in a corner, with at most one action. The region that holds them is live, so they are read out.

import { button, h, outside, setText } from "./dom.js";
import { icon } from "./icons.js";
import { common, errors } from "./strings-shell.js";

const SECONDS = 6;

/** Shows a message; returns `{ close, say, end }`. `seconds: 0` leaves it until it is closed; `end(text)` takes the action away. */
export function toast(text, { kind = "", action, seconds = SECONDS } = {}) {
  const words = outside(text);
  let timer;
  const close = () => {
    clearTimeout(timer);
    element.remove();
  };
  const wait = () => {
    clearTimeout(timer);
    timer = seconds > 0 ? setTimeout(close, seconds * 1000) : undefined;
  };
  const act = action && button(action.label, () => {
    close();
    action.run();
  }, { kind: "quiet", "data-action": action.name });
  const off = button(icon("cross"), () => close(), { kind: "icon", "aria-label": common.closeMessage });
  const element = h("div", { class: `toast ${kind}`.trim() }, h("p", null, words), act, off);
  const end = (other) => {
    const hadFocus = act.contains(document.activeElement);
    act.remove();
    setText(words, other);
    seconds = SECONDS;
    wait();
    if (hadFocus) {
      off.focus();
    }
  };
  // Who reads or reaches for it has all the time there is.
  element.addEventListener("pointerenter", () => clearTimeout(timer));
  element.addEventListener("pointerleave", wait);
  element.addEventListener("focusin", () => clearTimeout(timer));
  element.addEventListener("focusout", wait);
  shelf().append(element);
  wait();
  return { close, say: (other) => setText(words, other), end };
}

/**
 * Shows a message whose action is possible until `at`, by the clock of the browser. `action.labelOf(seconds)` counts down, also under a
 * pointer. Then the message says `over()`, without the action.
 */
export function toastUntil(at, text, { action, over }) {
  // A screen reader reads the label once, and not every second.
  const label = h("span", { "aria-live": "off" }, action.labelOf(secondsUntil(at)));
  const shown = toast(text, { seconds: 0, action: { ...action, label } });
  const tick = () => {
    const left = at - Date.now();
    if (left <= 0) {
      shown.end(over());
      return;
    }
    setText(label, action.labelOf(secondsUntil(at)));
    setTimeout(tick, left % 1000 || 1000);
  };
  tick();
  return shown;
}

const secondsUntil = (at) => Math.ceil((at - Date.now()) / 1000);

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
