// The command palette: one field that finds links, pages and actions. Ctrl+K or ⌘K opens it from everywhere.

import { showSessions, signOut } from "./account.js";
import { currentSession, get } from "./api.js";
import { openDialog } from "./dialog.js";
import { button, fill, h, outside, setText, uniqueId } from "./dom.js";
import { icon } from "./icons.js";
import { createDialog } from "./link-form.js";
import { detailPath, STATE_CHOICES } from "./link-parts.js";
import { exportCsv } from "./links-export.js";
import { filterOf } from "./links-query.js";
import { savedFilters } from "./links-saved.js";
import { SERVICE_PERIODS } from "./period.js";
import { reports } from "./reports.js";
import { hasAllLinks, mayManage, mayRetag, mayWrite } from "./rights.js";
import { go, navigation } from "./router.js";
import { palette as text, reports as reportsText } from "./strings-shell.js";
import { titles } from "./strings-settings.js";
import { periods } from "./strings-traffic.js";

const WAIT_MS = 150;
const LINKS = 8;
const SETTINGS = 6;
/** A URL to shorten may be as long as a destination; links are searched by the beginning of it. */
const TYPED_MAX = 8_192;
const SEARCHED_MAX = 512;
const IS_MAC = /Mac|iP(hone|ad)/.test(navigator.platform);
/** The keys that open the palette. */
export const PALETTE_KEYS = IS_MAC ? "⌘K" : "Ctrl K";

/** Draws the button in the header, and listens for the key. */
export function startPalette() {
  const opener = button([icon("search"), h("span", null, text.open), h("kbd", { "aria-hidden": "true" }, PALETTE_KEYS)], openPalette,
    { kind: "find", "data-action": "palette", title: text.title, "aria-keyshortcuts": IS_MAC ? "Meta+K" : "Control+K", "aria-haspopup": "dialog" });
  fill(document.getElementById("finder"), opener);
  document.addEventListener("keydown", (event) => {
    const isWanted = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (isWanted && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      openPalette();
    }
  });
}

/** What can be done from everywhere: `{ kind, icon, title, words, run }`. */
function actions() {
  const isSignedIn = !currentSession()?.open;
  return [
    mayWrite() && ["plus", text.newLink, () => createDialog(), text.newLinkWords],
    mayManage() && ["apps", text.newKey, async () => {
      await go("/admin/apps");
      document.querySelector("main :is([data-action=new-key]:enabled:not([hidden]), [data-action=first-key])")?.click();
    }, text.newKeyWords],
    mayRetag() && hasAllLinks() && ["tags", text.renameTags, () => go("/admin/tags"), text.renameTagsWords],
    mayWrite() && ["imports", text.importFile, () => go("/admin/import")],
    hasAllLinks() && ["open", text.exportLinks, () => exportCsv(filterOf(new URLSearchParams()))],
    isSignedIn && ["person", text.sessions, showSessions],
    isSignedIn && ["out", text.signOut, signOut],
  ].filter(Boolean).map(([name, title, run, words]) => ({ kind: text.actions, icon: name, title, words, run }));
}

/** The offer to shorten what was typed, if that is a URL. */
function offersFor(typed) {
  const isUrl = /^https?:\/\/\S+$/i.test(typed) && URL.canParse(typed);
  return isUrl && mayWrite() ? [{ kind: text.actions, icon: "plus", title: text.shorten, about: typed, run: () => createDialog(typed) }] : [];
}

/** The offer to open a link by the slug that was typed, where the node cannot search links. */
function openersFor(typed) {
  const isSlug = !hasAllLinks() && /^[^\s?#]+$/.test(typed) && !URL.canParse(typed);
  return isSlug ? [{ kind: text.links, icon: "links", title: text.openLink(typed), run: () => go(detailPath({ shortCode: typed, domain: null })) }] : [];
}

function everything() {
  const pages = navigation().map(({ path, title, icon: name }) => ({ kind: text.pages, icon: name, title, words: text.words[path], run: () => go(path) }));
  const saved = (hasAllLinks() ? savedFilters() : []).map(({ name, query }) => ({ kind: text.filters, icon: "search", title: name, run: () => go(`/admin/links?${query}`) }));
  const answers = reports().map(({ name, title, path }) => ({ kind: text.reports, icon: "usage", title: reportsText.lastDays(title), words: reportsText.words[name], run: () => go(path) }));
  return [...pages, ...answers, ...saved, ...actions()];
}

/** What is found only once somebody types: the periods of Analytics, and the states of links. */
function typedOnly() {
  const ofPeriods = SERVICE_PERIODS.map((name) => ({ kind: text.pages, icon: "usage", title: text.analyticsOf(periods.choices[name]), run: () => go(`/admin/usage?period=${name}`) }));
  const ofStates = STATE_CHOICES.map(([state, said]) => ({ kind: text.filters, icon: "search", title: text.linksOf(said), words: text.stateWords[state], run: () => go(`/admin/links?state=${state}`) }));
  return [...ofPeriods, ...(hasAllLinks() ? ofStates : [])];
}

/** The settings, by their titles and names. None without the right to see them, or if they could not be read. */
async function settingEntries() {
  const { settings } = mayManage() ? await get("/admin/api/settings").catch(() => ({ settings: [] })) : { settings: [] };
  return settings.map(({ name }) => ({ kind: text.settings, icon: "settings", title: titles[name] ?? name, name, words: name, run: () => go(`/admin/settings?filter=${encodeURIComponent(name)}`) }));
}

/** The words of a sentence, and the parts of the name of a setting. */
const wordsOf = (sentence) => sentence.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);

/** The entries whose words begin with those that were typed, or are their singular: first those whose title has them, then those with other words for it. */
function matching(entries, typed) {
  const typedWords = wordsOf(typed);
  const isIn = (words) => typedWords.every((word) => words.some((one) => one.startsWith(word) || word === `${one}s`));
  const named = entries.filter(({ title }) => isIn(wordsOf(title)));
  const meant = entries.filter((entry) => !named.includes(entry) && isIn(wordsOf(`${entry.title} ${entry.words ?? ""}`)));
  return [...named, ...meant];
}

/** All entries, as they are offered before anything is typed: a new link is what most people want. */
function beforeTyping(entries) {
  const isNewLink = ({ title }) => title === text.newLink;
  return [...entries.filter(isNewLink), ...entries.filter((entry) => !isNewLink(entry))];
}

async function findLinks(typed, signal) {
  const { shortUrls } = await get("/rest/v3/short-urls", { query: { searchTerm: typed.slice(0, SEARCHED_MAX), itemsPerPage: LINKS }, signal });
  return shortUrls.data.map((link) => ({
    kind: text.links, icon: "links", title: link.title ?? link.shortCode, about: link.title ? link.shortCode : link.longUrl, run: () => go(detailPath(link)),
  }));
}

class Palette {
  constructor() {
    const list = uniqueId("palette");
    this.input = h("input", {
      type: "search", class: "palette-field", role: "combobox", placeholder: hasAllLinks() ? text.placeholder : text.placeholderPages, "aria-label": text.title, "aria-controls": list, "aria-expanded": "true",
      "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", maxlength: TYPED_MAX,
    });
    this.list = h("div", { class: "palette-list", id: list, role: "listbox", "aria-label": text.results });
    this.said = h("p", { class: "visually-hidden", role: "status" });
    this.none = h("div", { class: "palette-none" });
    this.fixed = everything();
    this.typedOnly = typedOnly();
    this.settings = [];
    this.input.addEventListener("input", () => this.find());
    this.input.addEventListener("keydown", (event) => this.steer(event));
    this.dialog = openDialog(text.title, [this.input, this.none, this.list, this.said]);
    this.dialog.element.classList.add("palette");
    this.dialog.closed.then(() => this.stop());
    this.list.addEventListener("scroll", () => this.fade());
    this.input.focus();
    this.find();
    this.load();
  }

  /** Loads the settings, and finds what was typed among them, too. */
  async load() {
    this.settings = await settingEntries();
    if (this.list.isConnected && this.input.value.trim() !== "") {
      this.find();
    }
  }

  /** Fades the end of the list while there is more below it. */
  fade() {
    const { scrollTop, clientHeight, scrollHeight } = this.list;
    this.list.toggleAttribute("data-more", scrollTop + clientHeight < scrollHeight - 1);
  }

  stop() {
    clearTimeout(this.timer);
    this.asked?.abort();
  }

  /** Shows what is known at once, and links as soon as the node has found some. */
  find() {
    this.stop();
    const typed = this.input.value.trim();
    const fixed = typed === "" ? beforeTyping(this.fixed) : [...offersFor(typed), ...matching([...this.fixed, ...this.typedOnly], typed), ...openersFor(typed)];
    const isOver = typed === "" || !hasAllLinks();
    // After the links: an entry that is chosen stays chosen when links are found.
    const settings = typed === "" ? [] : matching(this.settings, typed).slice(0, SETTINGS);
    this.show(isOver ? [...fixed, ...settings] : fixed, { isOver });
    if (isOver) {
      return;
    }
    const asked = new AbortController();
    this.asked = asked;
    this.timer = setTimeout(async () => {
      try {
        const links = await findLinks(typed, asked.signal);
        this.show([...fixed, ...links, ...settings], { isOver: true });
      } catch (error) {
        if (error.name !== "AbortError") {
          this.show([...fixed, ...settings], { isOver: true, wrong: text.failed });
        }
      }
    }, WAIT_MS);
  }

  show(entries, { isOver, wrong }) {
    const before = this.entries?.[this.at]?.title;
    this.entries = entries;
    this.options = entries.map((entry, at) => h("div", { class: "palette-entry", role: "option", id: uniqueId("entry"), onclick: () => this.choose(at), onpointermove: () => this.point(at) },
      icon(entry.icon), h("span", { class: "palette-words" }, outside(entry.title, { class: "palette-title" }), entry.about && outside(entry.about, { class: "soft palette-about" }), entry.name && h("code", { class: "soft palette-name" }, entry.name)), h("span", { class: "soft small" }, entry.kind)));
    fill(this.list, this.options);
    this.list.hidden = entries.length === 0;
    this.input.setAttribute("aria-expanded", String(entries.length > 0));
    fill(this.none, wrong && h("p", { class: "error" }, wrong), isOver && entries.length === 0 && !wrong && [h("p", { class: "state-title" }, text.none), h("p", { class: "soft" }, text.noneText)]);
    if (isOver) {
      setText(this.said, entries.length === 0 ? text.none : text.found(entries.length));
    }
    this.point(Math.max(0, entries.findIndex(({ title }) => title === before)));
    this.fade();
  }

  /** Marks the entry that Enter chooses. */
  point(at) {
    this.at = at;
    this.options.forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    const option = this.options[at];
    if (option) {
      this.input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      this.input.removeAttribute("aria-activedescendant");
    }
  }

  steer(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    const { length } = this.options;
    if (event.key in steps && length > 0) {
      event.preventDefault();
      this.point((this.at + steps[event.key] + length) % length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.choose(this.at);
    } else if (event.key === "Escape") {
      // A search field would only empty itself.
      event.preventDefault();
      this.dialog.close();
    }
  }

  async choose(at) {
    const entry = this.entries[at];
    if (entry) {
      this.dialog.close();
      await this.dialog.closed;
      entry.run();
    }
  }
}

function openPalette() {
  return new Palette();
}
