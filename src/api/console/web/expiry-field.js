// The field that says when links expire: after some days, on a date, or never.

import { h, setText } from "./dom.js";
import { field, fromLocalInput, toLocalInput } from "./field.js";
import { count, dayHere, duration, instant, weekdayInstant, zoneName } from "./format.js";
import { DAY_MS } from "./period.js";
import { form as text } from "./strings-links.js";

/** Lifetimes of the list, in days. */
const LIFETIMES = [1, 7, 30];

const [DAY_SECONDS, YEAR_DAYS] = [86_400, 365];

/** Below this lifetime, the hint has the time of day as well. */
const DAYS_FROM_SECONDS = 3 * DAY_SECONDS;

/** The time of day of a date that somebody chooses: its last minute. */
const LAST_MINUTE = "23:59";

/** When a new link expires by default. `lifetime` is in seconds. */
function defaultExpiry(lifetime, startMs) {
  const ends = startMs + lifetime * 1000;
  return lifetime < DAYS_FROM_SECONDS ? instant(ends) : dayHere(ends);
}

/** A lifetime in seconds: in whole years or days, if it is so many. */
function lifetimeText(seconds) {
  const days = seconds / DAY_SECONDS;
  if (!Number.isInteger(days)) {
    return duration(seconds);
  }
  return days % YEAR_DAYS === 0 ? count(days / YEAR_DAYS, "year") : count(days, "day");
}

/** A time of day as it is typed, such as "9:30", "0930" or "9": as "09:30". Null for any other text. */
function readTime(typed) {
  const [, hours, minutes = "0"] = /^(\d{1,2})(?:[:.]?(\d{2}))?$/.exec(typed.trim()) ?? [];
  const isTime = Number(hours) < 24 && Number(minutes) < 60;
  return isTime ? `${hours.padStart(2, "0")}:${minutes.padStart(2, "0")}` : null;
}

/** The fields for a date and its time of day, which has 24 hours in every browser: `{ element, date, value() }`. The value is null without a date. */
function dateAndTime(validUntil) {
  const [day = "", at = LAST_MINUTE] = toLocalInput(validUntil).split("T").filter(Boolean);
  const date = field({ name: "validUntil", label: text.expiresAt, type: "date", value: day, min: toLocalInput(new Date().toISOString()).slice(0, 10) });
  const time = field({ name: "expiresTime", label: text.expiresTime, value: at, maxlength: 5, inputmode: "numeric", autocomplete: "off", placeholder: LAST_MINUTE });
  const value = () => (date.value() === "" ? null : fromLocalInput(`${date.value()}T${readTime(time.value()) ?? LAST_MINUTE}`));
  return { element: h("div", { class: "date-and-time" }, date.element, time.element), date, time, value };
}

/**
 * The field for the expiry `validUntil`: never, after some days or on a date, and for new links also after the default `lifetime` in
 * seconds: `null` if that is never, `undefined` if it is unknown. Lifetimes count from the start that `show` gets. `check()` throws if
 * the date is missing, or is new and past: a link that has expired is soon deleted.
 */
export function expiryField(validUntil, { isNew, lifetime }) {
  const { never, date: onDate, usual, inDays } = text.expiresChoices;
  const choices = [...LIFETIMES.map((days) => [String(days), inDays(days)]), ["date", onDate], ["never", never]];
  const options = isNew && lifetime !== null ? [["default", usual(lifetime && lifetimeText(lifetime))], ...choices] : choices;
  const first = validUntil ? "date" : isNew && lifetime !== null ? "default" : "never";
  const kind = field({ name: "expires", label: text.expires, type: "select", options, value: first, hint: " " });
  const when = dateAndTime(validUntil);
  let startMs = 0;
  const from = () => Math.max(Date.now(), startMs);
  const isOnDate = () => kind.value() === "date";
  const value = () => {
    const days = Number(kind.value());
    return isOnDate() ? when.value() : days > 0 ? new Date(Math.floor((from() + days * DAY_MS) / 1000) * 1000).toISOString() : null;
  };
  const hint = kind.element.querySelector("small");
  const tell = () => {
    const isDefault = kind.value() === "default" && lifetime;
    const none = isDefault ? text.expiresOn(defaultExpiry(lifetime, from())) : isOnDate() ? text.zone(zoneName()) : "";
    const ends = Date.parse(value());
    setText(hint, ends > Date.now() ? text.expiresOn(weekdayInstant(ends)) : none);
  };
  const show = (starts = "") => {
    startMs = Date.parse(starts) || 0;
    when.element.hidden = !isOnDate();
    tell();
  };
  const atFirst = when.value();
  const isTimeWrong = () => isOnDate() && readTime(when.time.value()) === null;
  const wrong = () => {
    if (isTimeWrong()) {
      return text.timeWrong;
    }
    const until = isOnDate() ? when.value() : undefined;
    const isPast = until !== atFirst && Date.parse(until) <= Date.now();
    return until === null ? text.dateMissing : isPast ? text.datePast : null;
  };
  when.date.input.setAttribute("aria-describedby", `${hint.id} ${when.date.input.getAttribute("aria-describedby")}`);
  const setError = (said) => {
    const at = !isOnDate() ? kind : isTimeWrong() ? when.time : when.date;
    [kind, when.date, when.time].forEach((one) => one.setError(one === at ? said : null));
  };
  when.element.addEventListener("input", () => {
    setError(null);
    tell();
  });
  when.element.addEventListener("change", () => {
    when.time.input.value = readTime(when.time.value()) ?? when.time.value();
    setError(when.value() === null && !isTimeWrong() ? null : wrong());
  });
  return {
    name: "validUntil",
    label: text.expires,
    element: h("div", { class: "pair" }, kind.element, when.element),
    kind,
    show,
    get input() {
      return !isOnDate() ? kind.input : isTimeWrong() ? when.time.input : when.date.input;
    },
    isNever: () => kind.value() === "never" && lifetime !== null,
    value,
    setError,
    check() {
      const reason = wrong();
      if (reason) {
        throw Object.assign(new Error(reason), { reasons: [["validUntil", reason]] });
      }
    },
  };
}
