// Numbers, sizes and times for people.

import { h, setText } from "./dom.js";

const NONE = "–";
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const grouped = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const [whole, tenths, hundredths] = [0, 1, 2].map(grouped);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number with commas between its thousands; a dash for no number. */
export function number(value, digits = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) {
    return NONE;
  }
  const format = [whole, tenths, hundredths][digits] ?? grouped(digits);
  return format.format(value);
}

/** A URL without its scheme, where there is little room for it. */
export const bareUrl = (url) => (url ?? "").replace(/^https?:\/\//i, "");

/** The beginning of a text; an ellipsis says that there was more. */
export function cut(text, most) {
  const signs = [...text];
  return signs.length > most ? `${signs.slice(0, most - 1).join("").trimEnd()}…` : text;
}

/** A value of the settings: a text, or a list of texts, without the quotes that it has in a file. */
export function settingValue(value) {
  try {
    const read = JSON.parse(value);
    return typeof read === "string" || Array.isArray(read) ? read : value;
  } catch {
    // A text with other quotes stays as it is.
    return value;
  }
}

/** A number in few characters, as on an axis: 1.2K, 3M. */
export function short(value) {
  return value === null || value === undefined ? NONE : compact.format(value);
}

/** A number with its noun: "1 link", "2 links". */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function percent(part, all) {
  return all > 0 ? `${number((part / all) * 100, part / all < 0.1 ? 1 : 0)}%` : NONE;
}

/** How long: the two largest units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) {
    return NONE;
  }
  if (seconds < 1) {
    return `${number(seconds * 1000)} ms`;
  }
  if (seconds >= 400 * DAY) {
    return `${number(seconds / (365.25 * DAY), seconds < 10 * 365 * DAY ? 1 : 0)} years`;
  }
  const units = [["d", DAY], ["h", HOUR], ["min", MINUTE], ["s", 1]];
  let rest = Math.floor(seconds);
  const parts = [];
  for (const [name, size] of units) {
    const times = Math.floor(rest / size);
    rest -= times * size;
    if (times > 0 || parts.length > 0) {
      parts.push(times > 0 ? `${number(times)} ${name}` : "");
    }
  }
  return parts.slice(0, 2).filter((part) => part !== "").join(" ");
}

/** A latency: µs, ms or s with about three digits. */
export function micros(value) {
  if (value === null || value === undefined) {
    return NONE;
  }
  const [scaled, unit] = value < 1_000 ? [value, "µs"] : value < 1_000_000 ? [value / 1_000, "ms"] : [value / 1_000_000, "s"];
  return `${number(scaled, scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${unit}`;
}

export function bytes(value) {
  if (value === null || value === undefined) {
    return NONE;
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const step = value < 1 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), units.length - 1);
  const scaled = value / 1024 ** step;
  return `${number(scaled, step > 0 && scaled < 100 ? 1 : 0)} ${units[step]}`;
}

// Times are in the viewer's zone, and each names it in short, as the public pages name theirs. Days of statistics are in UTC.
const dayAndTime = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const weekdayAndTime = new Intl.DateTimeFormat("en-GB", { weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
const shortDayAndTime = new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const timeOfDay = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
const localDay = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric" });
const utcDay = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "numeric", timeZone: "UTC" });

function utc(at) {
  return `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function timeElement(iso, text) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) {
    return h("span", null, iso ?? NONE);
  }
  return h("time", { datetime: iso, title: utc(at) }, text(at));
}

/** An instant in the viewer's zone, which it names, with the UTC on hover. */
export function time(iso) {
  return iso ? timeElement(iso, (at) => dayAndTime.format(at)) : h("span", null, NONE);
}

/** An instant for a column whose heading names the zone: "1 Dec, 03:59", and the year only where it is not the present one. */
export function shortTime(iso) {
  const now = new Date();
  return timeElement(iso, (at) => {
    const isThisYear = at.getFullYear() === now.getFullYear();
    return isThisYear ? shortDayAndTime.format(at) : `${localDay.format(at)}, ${shortDayAndTime.format(at).split(", ").at(-1)}`;
  });
}

/** The viewer's zone at an instant in short, as "UTC" or "CET"; nothing for what is no instant. */
export function zoneAt(iso) {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? "" : dayAndTime.formatToParts(at).find(({ type }) => type === "timeZoneName").value;
}

/** The day of an instant in the viewer's zone, with the time on hover. */
export function date(iso) {
  const element = timeElement(iso, (at) => localDay.format(at));
  element.title = `${dayAndTime.format(new Date(iso))} (${element.title})`;
  return element;
}

/** An instant by the time since or until it ("4 min ago"), with both times on hover. */
export function relative(iso) {
  if (!iso) {
    return h("span", null, NONE);
  }
  const element = timeElement(iso, (at) => ago(at.getTime()));
  element.title = `${dayAndTime.format(new Date(iso))} (${element.title})`;
  return element;
}

/** Updates the text of an element made by `relative`. */
export function updateRelative(element) {
  setText(element, ago(new Date(element.dateTime).getTime()));
}

/** How long ago, or in how long. */
export function ago(ms, now = Date.now()) {
  const seconds = Math.round((now - ms) / 1000);
  const size = Math.abs(seconds);
  if (size < 5) {
    return "now";
  }
  const about = size >= DAY ? Math.round(size / DAY) * DAY : size >= HOUR ? Math.round(size / HOUR) * HOUR : size >= MINUTE ? Math.round(size / MINUTE) * MINUTE : size;
  return seconds > 0 ? `${duration(about)} ago` : `in ${duration(about)}`;
}

/** The name of the viewer's time zone, as "Europe/Berlin". */
export function zoneName() {
  return new Intl.DateTimeFormat("en").resolvedOptions().timeZone;
}

/** The time of day of an instant in milliseconds, with the viewer's zone. */
export function clock(ms) {
  return timeOfDay.format(ms);
}

/** The day of an instant in milliseconds, in UTC, as the node counts days. */
export function day(ms) {
  return utcDay.format(ms);
}

/** The days between two instants in milliseconds, in UTC: "2 Nov – 1 Dec 2026". */
export function days(first, last) {
  // Some spaces around the dash are thin ones.
  return utcDay.formatRange(first, last).replaceAll("\u2009", " ");
}

/** Day and hour of an instant in milliseconds, in UTC. */
export function hour(ms) {
  return `${utcDay.format(ms)}, ${new Date(ms).toISOString().slice(11, 16)} UTC`;
}

/** The day of an instant in milliseconds, in the viewer's zone. */
export function dayHere(ms) {
  return localDay.format(ms);
}

/** Day and time of an instant in milliseconds, with the viewer's zone. */
export function instant(ms) {
  return dayAndTime.format(ms);
}

/** As `instant`, with the weekday: "Fri 4 Dec 2026, 23:59 UTC". */
export function weekdayInstant(ms) {
  // Some browsers put a comma after the weekday as well.
  return weekdayAndTime.format(ms).replace(/^(\p{L}+),/u, "$1");
}
