// A period of days, as the node counts them: in UTC.

import { button, fill, h, setText, uniqueId } from "./dom.js";
import { days as daysText } from "./format.js";
import { markEmpty, withEmptyMark } from "./field.js";
import { place } from "./menu.js";
import { periods as text } from "./strings-traffic.js";

export const DAY_MS = 86_400_000;
export const HOUR_MS = 3_600_000;

/** Days of each preset; of "all", as many as there are. "month" is the last calendar month. */
const DAYS = { today: 1, "7d": 7, "30d": 30, "90d": 90, "365d": 365, all: null };
/** The presets for the visits of all links, and for those of one. */
export const SERVICE_PERIODS = ["today", "7d", "30d", "month", "90d", "365d"];
export const LINK_PERIODS = [...SERVICE_PERIODS, "all"];
const USUAL = "30d";
/** The parameters of an address that name a period. */
const PARAMS = ["period", "from", "to"];
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

/** The period that a query names, or else the usual one: `{ name, from, to, days }`; `from` and `to` are its first and last day. `names` are the presets of the page. */
export function periodOf(query, names = SERVICE_PERIODS) {
  const [from, to] = [query.get("from"), query.get("to")];
  if (wrongDays(from, to) === null) {
    return { name: "own", from, to, days: (startOf(to) - startOf(from)) / DAY_MS + 1 };
  }
  const name = names.includes(query.get("period")) ? query.get("period") : USUAL;
  if (name === "month") {
    return monthBefore(new Date());
  }
  const [days, today] = [DAYS[name], Date.now()];
  return { name, from: days === null ? FIRST_DAY : dayOf(today - (days - 1) * DAY_MS), to: dayOf(today), days };
}

/** The calendar month before the one of an instant. */
function monthBefore(now) {
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()];
  const [first, last] = [Date.UTC(year, month - 1, 1), Date.UTC(year, month, 0)];
  return { name: "month", from: dayOf(first), to: dayOf(last), days: (last - first) / DAY_MS + 1 };
}

/** A period of all time, from the first day on that has anything, if there is one; any other period as it is. */
export function beginningAt(period, first) {
  if (period.name !== "all") {
    return period;
  }
  const { to } = period;
  const [latest, earliest] = [first && first < to ? first : to, dayOf(startOf(to) - (DAYS_MAX - 1) * DAY_MS)];
  const from = latest > earliest ? latest : earliest;
  return { ...period, from, days: (startOf(to) - startOf(from)) / DAY_MS + 1 };
}

/** The parameters of a query that name a period, as `[[name, value], …]`. */
export function periodIn(query) {
  return PARAMS.map((name) => [name, query.get(name)]).filter(([, value]) => value !== null);
}

/** The query of a page for another period, `chosen` in a picker. All else in it stays. */
export function withPeriod(query, chosen) {
  const params = new URLSearchParams(query);
  PARAMS.forEach((name) => params.delete(name));
  chosen.forEach((value, name) => params.set(name, value));
  return params;
}

/** Periods of as many days or more are compared by whole weeks, so that weekends lie on weekends. */
const DAYS_BY_WEEKS = 28;

/** By how many weeks the period that one is compared with is earlier; null for a short period, which is compared with the one just before. */
export const weeksBefore = ({ days }) => (days < DAYS_BY_WEEKS ? null : Math.ceil(days / 7));

/** By how many days the period that one is compared with is earlier. They do not overlap. */
export const daysBefore = (period) => (weeksBefore(period) === null ? period.days : weeksBefore(period) * 7);

/** The period that one is compared with. It is as long. */
function periodBefore(period) {
  const at = (day) => dayOf(startOf(day) - daysBefore(period) * DAY_MS);
  return { name: "own", from: at(period.from), to: at(period.to), days: period.days };
}

/** Whether the last day of a period is not over. */
export function isRunning({ from, to }, now = Date.now()) {
  return from <= dayOf(now) && dayOf(now) <= to;
}

/** By how many days an earlier day may be earlier for the server to have its single hours: it keeps those of 31 days, of which the first is not whole. */
const DAYS_WITH_HOURS = 30;

/** Which part of a period is compared: "whole" if it is over; else all up to the same "hour", or only its "days" that are over where the server no longer has the hours of the period before. */
export const extentOf = (period) => (!isRunning(period) ? "whole" : daysBefore(period) <= DAYS_WITH_HOURS ? "hour" : "days");

/** The API query for the period before, or null for all time. For a running period, the earlier one ends at the same time of day, so that both have the same length. */
export function queryBefore(period, now = Date.now()) {
  if (period.name === "all") {
    return null;
  }
  const query = apiQuery(periodBefore(period));
  return isRunning(period, now) ? { ...query, endDate: new Date(now - daysBefore(period) * DAY_MS).toISOString() } : query;
}

/** The query of an API call about a period. */
export function apiQuery({ name, from, to }) {
  return name === "all" ? {} : { startDate: `${from}T00:00:00Z`, endDate: `${to}T23:59:59.999Z` };
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
export function periodPicker(onChange, names = SERVICE_PERIODS) {
  const buttons = names.map((name) =>
    h("button", { type: "button", class: "button", "data-period": name, onclick: () => onChange(new URLSearchParams({ period: name })) }, text.names[name]));
  // On a phone, a list takes the place of the buttons. Its last entry opens the days.
  const choice = h("select", { class: "period-choice", "aria-label": text.label, "data-action": "period", onchange: () => choosePeriod(choice.value) }, [...names, "own"].map((name) => h("option", { value: name }, text.choices[name])));
  let shown = null;
  const days = daysPicker(onChange, () => {
    choice.value = shown.name;
  });
  const choosePeriod = (name) => (name === "own" ? days.open() : onChange(new URLSearchParams({ period: name })));
  return {
    element: h("div", { class: "period" }, h("div", { class: "segments", role: "group", "aria-label": text.label }, buttons), choice, days.element),
    set(period) {
      shown = period;
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.period === period.name)));
      choice.value = period.name;
      days.set(period);
    },
  };
}

/** A button with the days of a period, and the popover under it, in which others are chosen: `{ element, open(), set(period) }`. */
function daysPicker(onChange, onClose) {
  const [from, to] = ["from", "to"].map((name) => withEmptyMark(h("input", { type: "date", id: uniqueId("day"), name, min: FIRST_DAY, required: true })));
  const wrong = h("p", { class: "error", role: "alert", hidden: true });
  const say = (why) => {
    wrong.hidden = why === null;
    fill(wrong, why);
  };
  const apply = (event) => {
    event.preventDefault();
    const why = wrongDays(from.value, to.value);
    say(why);
    if (why === null) {
      popover.hidePopover();
      onChange(new URLSearchParams({ from: from.value, to: to.value }));
    }
  };
  const labelled = (label, input) => h("div", { class: "field" }, h("label", { for: input.id }, label), input);
  const popover = h("div", { class: "days", popover: "auto", role: "dialog", "aria-label": text.days },
    h("form", { novalidate: true, onsubmit: apply },
      h("div", { class: "pair" }, labelled(text.first, from), labelled(text.last, to)), wrong, button(text.apply, null, { type: "submit", kind: "primary", "data-action": "apply-days" })));
  const opener = button("", null, { "data-action": "days", "aria-haspopup": "dialog" });
  opener.popoverTargetElement = popover;
  let shown = null;
  const show = () => {
    [from.value, to.value] = shown.name === "all" ? ["", ""] : [shown.from, shown.to];
    [from, to].forEach(markEmpty);
    say(null);
  };
  popover.addEventListener("toggle", ({ newState }) => {
    if (newState === "closed") {
      show();
      onClose();
    } else {
      place(popover, opener.getBoundingClientRect());
      from.focus();
    }
  });
  return {
    element: h("div", null, opener, popover),
    open: () => popover.showPopover(),
    set(period) {
      shown = period;
      setText(opener, period.name === "all" ? text.choices.own : daysText(startOf(period.from), startOf(period.to)));
      show();
    },
  };
}
