// A field for a date and its time of day, which has 24 hours in every browser.

import { h } from "./dom.js";
import { field, fromLocalInput, toLocalInput } from "./field.js";
import { form as text } from "./strings-links.js";

/** A time of day as it is typed, such as "9:30", "0930" or "9": as "09:30". Null for any other text. */
function readTime(typed) {
  const [, hours, minutes = "0"] = /^(\d{1,2})(?:[:.]?(\d{2}))?$/.exec(typed.trim()) ?? [];
  const isTime = Number(hours) < 24 && Number(minutes) < 60;
  return isTime ? `${hours.padStart(2, "0")}:${minutes.padStart(2, "0")}` : null;
}

/**
 * A field as in field.js, whose value is an instant, or null without a date. `value` is the instant at first, `usual` the time of day
 * of a date that somebody chooses, and `date` the part with the date. `wrong()` says what is wrong with the time of day, or null.
 */
export function dateTimeField({ name, label, value: instant, usual, hint, min }) {
  const [day = "", at = usual] = toLocalInput(instant).split("T").filter(Boolean);
  const date = field({ name, label, type: "date", value: day, hint, min });
  const time = field({ name: `${name}Time`, label: text.time, value: at, maxlength: 5, inputmode: "numeric", autocomplete: "off", placeholder: usual });
  const element = h("div", { class: "date-and-time" }, date.element, time.element);
  const isWrong = () => date.value() !== "" && readTime(time.value()) === null;
  const wrong = () => (isWrong() ? text.timeWrong : null);
  const setError = (said) => {
    const isOfTime = isWrong();
    date.setError(isOfTime ? null : said);
    time.setError(isOfTime ? said : null);
  };
  element.addEventListener("input", () => setError(null));
  element.addEventListener("change", () => {
    time.input.value = readTime(time.value()) ?? time.value();
    setError(wrong());
  });
  return {
    name,
    label,
    element,
    date,
    get input() {
      return isWrong() ? time.input : date.input;
    },
    value: () => (date.value() === "" ? null : fromLocalInput(`${date.value()}T${readTime(time.value()) ?? usual}`)),
    setError,
    wrong,
  };
}
