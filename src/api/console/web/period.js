// A period of days, as the node counts them: in UTC.

import { fill, h } from "./dom.js";
import { periods as text } from "./strings-traffic.js";

export const DAY_MS = 86_400_000;
export const HOUR_MS = 3_600_000;

const PRESETS = [["today", 1], ["7d", 7], ["30d", 30], ["90d", 90], ["365d", 365]];
const USUAL = "30d";
const FIRST_DAY = "1970-01-01";
// Longer ones would be tables that nobody reads.
const DAYS_MAX = 3_660;

const dayOf = (ms) => new Date(ms).toISOString().slice(0, 10);
const startOf = (day) => Date.parse(`${day}T00:00:00Z`);

/** A day as `2026-11-22`, which is in the calendar. */
export function isDay(text) {
  return /^\d{4}-\d{2}-\d{2}$/.test(text ?? "") && !Number.isNaN(startOf(text)) && dayOf(startOf(text)) === text;
}

/** Why two texts are no first and last day, or null. */
function wrongDays(from, to) {
  if (!isDay(from) || !isDay(to) || from < FIRST_DAY) {
    return text.choose;
  }
  if (from > to) {
    return text.reversed;
  }
  return startOf(to) - startOf(from) > DAYS_MAX * DAY_MS ? text.tooLong : null;
}

/** The period that a query names, or else the usual one: `{ name, from, to, days }`; `from` and `to` are its first and last day. */
export function periodOf(query) {
  const [from, to] = [query.get("from"), query.get("to")];
  if (wrongDays(from, to) === null) {
    return { name: "own", from, to, days: (startOf(to) - startOf(from)) / DAY_MS + 1 };
  }
  const wanted = query.get("period") ?? USUAL;
  const [name, days] = PRESETS.find(([known]) => known === wanted) ?? PRESETS.find(([known]) => known === USUAL);
  const today = Date.now();
  return { name, from: dayOf(today - (days - 1) * DAY_MS), to: dayOf(today), days };
}

/** The period just before another one, as long as that. */
function periodBefore({ from, days }) {
  const at = (back) => dayOf(startOf(from) - back * DAY_MS);
  return { name: "own", from: at(days), to: at(1), days };
}

/** Whether the last day of a period is not over. */
export function isRunning({ from, to }, now = Date.now()) {
  return from <= dayOf(now) && dayOf(now) <= to;
}

/** The query of an API call about the period just before. For a running period it ends as long ago as that period lasts: both are equally far. */
export function queryBefore(period, now = Date.now()) {
  const query = apiQuery(periodBefore(period));
  return isRunning(period, now) ? { ...query, endDate: new Date(now - period.days * DAY_MS).toISOString() } : query;
}

/** The query of an API call about a period. */
export function apiQuery({ from, to }) {
  return { startDate: `${from}T00:00:00Z`, endDate: `${to}T23:59:59.999Z` };
}

/** The starts of all steps of a period that have begun, in milliseconds. */
export function stepsOf({ from, to }, step) {
  const end = Math.min(startOf(to) + DAY_MS, Date.now());
  const steps = [];
  for (let at = startOf(from); at < end; at += step) {
    steps.push(at);
  }
  return steps;
}

/** Controls that choose a period: `{ element, set(period) }`. `onChange(params)` gets the query of what was chosen. */
export function periodPicker(onChange) {
  const buttons = PRESETS.map(([name]) =>
    h("button", { type: "button", class: "button", "data-period": name, onclick: () => onChange(new URLSearchParams({ period: name })) }, text.names[name]));
  const [from, to] = [text.first, text.last].map((label) => h("input", { type: "date", "aria-label": label, min: FIRST_DAY, required: true }));
  const wrong = h("p", { class: "error", role: "alert", hidden: true });
  const say = (why) => {
    wrong.hidden = why === null;
    fill(wrong, why);
  };
  const chosen = () => {
    const why = wrongDays(from.value, to.value);
    // While a year is typed its first digits are a year as well, and no mistake yet.
    const isTyping = from.value < FIRST_DAY || to.value < FIRST_DAY;
    say(isTyping ? null : why);
    if (why === null) {
      onChange(new URLSearchParams({ from: from.value, to: to.value }));
    }
  };
  [from, to].forEach((input) => input.addEventListener("change", chosen));
  const element = h("div", { class: "period" },
    h("div", { class: "segments", role: "group", "aria-label": text.label }, buttons),
    h("div", { class: "line" }, from, h("span", { class: "soft" }, text.to), to), wrong);
  return {
    element,
    set(period) {
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.period === period.name)));
      [from.value, to.value] = [period.from, period.to];
      say(null);
    },
  };
}
