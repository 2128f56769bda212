// What the views of usage, apps, domains, lists, fleet and settings share.

import { button, clipped, copyButton, emptyState, errorState, fill, h, loadingState, outside, pageLink, regionTable, setText } from "./dom.js";
import * as format from "./format.js";
import { onLive } from "./live.js";
import { mayManage } from "./rights.js";
import { alarmText, common, errors, shell, sources as sourcesText } from "./strings-shell.js";

/** A name that breaks after its dots and underscores where its line is too short for it. */
export function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part, at) => (at > 0 ? [h("wbr"), part] : part));
}

/** Names of settings that are longer break in a sentence, where a phone has no room for them. */
const WHOLE_NAME_MAX = 28;

/** The name of a setting, or other words for it, which lead to it where the settings may be seen. */
export function settingLink(name, said = h("code", null, name.length > WHOLE_NAME_MAX ? breakable(name) : name)) {
  return !mayManage() ? said : pageLink(`/admin/settings?filter=${encodeURIComponent(name)}`, said);
}

/** Lines for a file, with a button that copies them. */
export function snippet(label, text) {
  return h("div", { class: "snippet" },
    h("pre", { tabindex: "0", role: "region", "aria-label": label }, h("code", null, text)), copyButton(text));
}

/** Large numbers side by side: `[[label, value, hint], …]`. */
export function tiles(all) {
  return h("dl", { class: "tiles" }, all.map(([label, value, hint]) =>
    h("div", { class: "tile" }, h("dt", null, label), h("dd", null, value, hint && h("small", null, hint)))));
}

/**
 * Cards in two columns, in their order in each: the first two beside each other, and the others below them so that the columns end as near to each other as they can. Each card ends
 * where its content does. Cards that are not there are left out. A narrow page has one column.
 */
export function inColumns(...cards) {
  const all = cards.flat().filter(Boolean);
  const stacks = matchMedia("(min-width: 66rem)").matches ? inTwo(all) : [all];
  return h("div", { class: "cards" }, stacks.filter((stack) => stack.length > 0).map((stack) => h("div", { class: "stack" }, stack)));
}

/** The cards of the left and of the right column. There are few, so all ways are tried. */
function inTwo(all) {
  const [first, second = null, ...others] = all;
  const heights = new Map(all.map((one) => [one, heightOf(one)]));
  const sum = (cards) => cards.reduce((total, one) => total + heights.get(one), 0);
  const ways = Array.from({ length: 2 ** others.length }, (_, way) => {
    const isRight = (_card, at) => (way >> at) % 2 === 1;
    const [left, right] = [[first, ...others.filter((...of) => !isRight(...of))], [second, ...others.filter(isRight)]].map((stack) => stack.filter(Boolean));
    return { stacks: [left, right], gap: Math.abs(sum(left) - sum(right)) };
  });
  return ways.reduce((best, one) => (one.gap < best.gap ? one : best)).stacks;
}

/** About how high a card is, in rows of a table: what is around its content, the rows, their second lines, an empty state and a button below. */
function heightOf(one) {
  const count = (selector) => one.querySelectorAll(selector).length;
  return 2.5 + count("tr") + 0.7 * count(".share-link, td .meaning") + 4 * count(".state") + count(".shares-more");
}

/** A number, or a dash whose tooltip says why it is missing. */
export function numberOr(value, why) {
  return value === null || value === undefined
    ? h("span", { title: why }, format.number(null), h("span", { class: "visually-hidden" }, ` ${why}`))
    : format.number(value);
}

/** Content on a bar that is as long as the part that its value is of `whole`: of all visits, or of the largest value where no shares are shown. */
export function onBar(value, whole, ...content) {
  const share = whole > 0 ? Math.max(0, Math.min(1, (value ?? 0) / whole)) : 0;
  return h("div", { class: "share" }, h("i", { style: { width: `${share * 100}%` } }), content);
}

/** Rows that a table of names on bars shows on a phone, where each is as high as a finger needs. */
const SHARES_ON_PHONE = 5;

/** A name and its value, as the summary of a list that begins with them. */
export const bestOf = (name, value) => [clipped(name), h("b", null, value)];

/** The name of what is left, on a grey bar. */
export function restOf(name, value, whole) {
  const rest = onBar(value, whole, clipped(name, "soft"));
  rest.classList.add("rest");
  return rest;
}

/**
 * A table of names on bars, with numbers. It shows its first rows, and a button that adds all others. `rest` is a row of what has no name: it is always seen, below the others, and the
 * button does not count it.
 */
export function shareTable(label, columns, rows, { shown, action, rest = null }) {
  const first = matchMedia("(max-width: 48rem)").matches ? Math.min(shown, SHARES_ON_PHONE) : shown;
  const { element, table, body } = regionTable(label, columns, [...rows.slice(0, first), rest].filter(Boolean));
  // Also with more columns, rows are no cards on a phone.
  table.className = "shares";
  const more = rows.length > first && h("p", { class: "shares-more" }, button(common.showAll(rows.length), () => {
    (rest ?? body)[rest ? "before" : "append"](...rows.slice(first));
    element.focus();
    more.remove();
  }, { kind: "quiet", "data-action": action }));
  return [element, more];
}

/** The name of a domain; links call the default one null, keys call it DEFAULT. */
export function domainName(name) {
  return name === null || name === "DEFAULT" ? h("span", { class: "soft" }, common.defaultDomain) : outside(name);
}

/**
 * Makes what loads a host: with a skeleton at first, later with the old content dimmed until the new is there, so that
 * nothing jumps. An answer that came too late is dropped. `fetch(signal)` gets the data, `render(data)` what is shown.
 */
export function reloader(host, { signal, fetch, render, lines = 6 }) {
  let current = null;
  let isFilled = false;
  host.tabIndex = -1;
  const show = (...content) => {
    // What had the focus is gone; the next Tab goes on from here, not from the top of the page.
    const hadFocus = host.contains(document.activeElement);
    fill(host, ...content);
    if (hadFocus) {
      host.focus({ preventScroll: true });
    }
  };
  const load = async () => {
    current?.abort();
    const own = new AbortController();
    current = own;
    host.setAttribute("aria-busy", "true");
    if (!isFilled) {
      show(loadingState(lines));
    }
    try {
      const data = await fetch(AbortSignal.any([signal, own.signal]));
      if (current === own) {
        show(render(data));
        isFilled = true;
      }
    } catch (error) {
      if (current === own && error.name !== "AbortError") {
        show(errorState(error, load));
        isFilled = false;
      }
    } finally {
      if (current === own) {
        host.removeAttribute("aria-busy");
      }
    }
  };
  return load;
}

/** Whether the values that are shown are old: the connection is lost, or the session has ended. */
export const isStale = (state, status) => status !== null && Object.hasOwn(shell.stale, state);

/** Says that the values are old, and of when. */
export const staleText = (state, heardAt) => shell.stale[state](format.clock(heardAt));

const NO_STATUS = { title: errors.noStatus, detail: errors.noStatusText };

/**
 * Keeps a host in step with the live status. `build(status)` gives `{ content, update }`; it is called again only when
 * `shapeOf(status)` is another, and `update(status, state)` each second and when the connection is lost. Returns what ends that.
 */
export function followStatus(host, shapeOf, build) {
  let shape = null;
  let update = null;
  const lost = h("p", { class: "notice bad lost", role: "status", hidden: true });
  return onLive(({ state, status, heardAt }) => {
    const wanted = status === null ? state : JSON.stringify(shapeOf(status));
    if (wanted !== shape) {
      shape = wanted;
      const built = status === null ? { content: state === "lost" ? errorState(NO_STATUS) : loadingState(6) } : build(status);
      fill(host, lost, built.content);
      update = built.update;
    }
    const isOld = isStale(state, status);
    host.classList.toggle("stale", isOld);
    lost.hidden = !isOld;
    setText(lost, isOld ? staleText(state, heardAt) : "");
    if (status !== null) {
      update?.(status, state);
    }
  });
}

/** A link to what to do about an alarm. */
export const runbookLink = (name) => h("a", { href: `/runbook/${encodeURIComponent(name)}`, target: "_blank" }, alarmText.remedy);

/** The active alarms whose name begins with one of the prefixes. */
export function alarmNotes(status, prefixes) {
  const active = status.alarms.filter((alarm) => alarm.cleared === null && prefixes.some((prefix) => alarm.name.startsWith(prefix)));
  return active.map(({ name, message, cause, remedy }) => h("p", { class: "notice bad" },
    [message, cause, remedy].filter(Boolean).map((one) => [outside(one), " "]), h("code", null, name), " · ", runbookLink(name)));
}

/** Names of nodes with commas between them, each with what `say(one)` adds. */
function nodeNames(nodes, say = () => "") {
  return nodes.map((one, index) => [index > 0 && ", ", outside(one.node ?? one), say(one)]);
}

/** Says why the counts of a node are missing, and since when. A reason that this version does not know is shown by its name. */
function reasonText({ reason, since }) {
  const instant = format.instant(Date.parse(since));
  const { reasons, otherReason } = sourcesText;
  return Object.hasOwn(reasons, reason) ? reasons[reason](instant) : otherReason(instant, reason);
}

/** Says which nodes of the fleet are in the counts of visits, and what these lack; nothing on a single node. */
export function sourcesNote(sources) {
  if (!sources) {
    return null;
  }
  const { nodes, lacks } = sources;
  return [
    lacks.length > 0 && h("p", { class: "notice warn lacks" }, sourcesText.lacks, nodeNames(lacks, reasonText)),
    h("p", { class: "soft sources" }, lacks.length > 0 ? sourcesText.some : sourcesText.all, nodeNames(nodes)),
  ];
}

/** Returns the key that decides whether the note is redrawn: it leaves out `since`, which moves a little with each status. */
export function sourcesShape(sources) {
  return sources && [sources.nodes, sources.lacks.map(({ node, reason }) => [node, reason])];
}

/** A field that filters what is below it as one types; "/" goes to it, Escape empties it. */
export function filterField({ label, placeholder, value, onInput, signal }) {
  const input = h("input", { type: "search", class: "filter", "aria-label": label, placeholder, value, "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false" });
  input.addEventListener("input", () => onInput(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && input.value !== "") {
      event.preventDefault();
      input.value = "";
      onInput("");
    }
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, select, textarea, dialog, [contenteditable]");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
      input.select();
    }
  }, { signal });
  return input;
}

/** The button beside filters that clears them, shown while one is set: `{ element, clear(), set(isFiltered) }`. Their first field, `filter`, then gets the focus. */
export function filterClearer(filter, onClear) {
  const clear = () => {
    onClear();
    filter.focus();
  };
  const element = button(common.clearFilter, clear, { "data-action": "clear-filter", hidden: filter.value === "" });
  return { element, clear, set: (isFiltered) => { element.hidden = !isFiltered; } };
}

/** A place for the state that stands instead of some parts of a card, such as its chart, while there is nothing to show: `{ element, set(title, text) }`. An empty title shows the parts. */
export function insteadOf(...shown) {
  const element = h("div", { class: "plot-none", hidden: true });
  let said = "";
  const set = (title, hint) => {
    if (said !== title) {
      said = title;
      const isEmpty = title !== "";
      fill(element, isEmpty && emptyState(title, hint));
      element.hidden = !isEmpty;
      shown.forEach((one) => { one.hidden = isEmpty; });
    }
  };
  return { element, set };
}
