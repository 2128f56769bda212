// The field that says when links expire: after some days, on a date, or never.

import { dateTimeField } from "./date-time-field.js";
import { h, setText } from "./dom.js";
import { field, toLocalInput } from "./field.js";
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
  const today = toLocalInput(new Date().toISOString()).slice(0, 10);
  const when = dateTimeField({ name: "validUntil", label: text.expiresAt, value: validUntil, usual: LAST_MINUTE, min: today });
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
  const show = (starts = null) => {
    startMs = Date.parse(starts) || 0;
    when.element.hidden = !isOnDate();
    tell();
  };
  const atFirst = when.value();
  const wrong = () => {
    if (!isOnDate()) {
      return null;
    }
    const until = when.value();
    const isPast = until !== atFirst && Date.parse(until) <= Date.now();
    return when.wrong() ?? (until === null ? text.dateMissing : isPast ? text.datePast : null);
  };
  when.date.input.setAttribute("aria-describedby", `${hint.id} ${when.date.input.getAttribute("aria-describedby")}`);
  const setError = (said) => {
    kind.setError(isOnDate() ? null : said);
    when.setError(isOnDate() ? said : null);
  };
  when.element.addEventListener("input", tell);
  when.element.addEventListener("change", () => setError(when.value() === null ? null : wrong()));
  return {
    name: "validUntil",
    label: text.expires,
    element: h("div", { class: "pair" }, kind.element, when.element),
    kind,
    show,
    get input() {
      return isOnDate() ? when.input : kind.input;
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
