// The cards of the destination rules: each list with its entries as rows, the changes of a draft, and its source.

import { badge, button, card, fill, h, iconState, outside, setText } from "./dom.js";
import * as format from "./format.js";
import { askHost, askSource } from "./hosts-dialogs.js";
import { LISTS } from "./hosts-draft.js";
import { meaningOf } from "./hosts-words.js";
import { icon } from "./icons.js";
import { alarmNotes } from "./parts.js";
import { common } from "./strings-shell.js";
import { lists as text } from "./strings-hosts.js";
import { toast, toastError } from "./toast.js";

/** Entries that are shown at first: long lists have a source. */
const SHOWN = 50;

/** The cards of both lists: `{ element, update(status) }`. `update` gets each status of the node. */
export function hostLists(draft, signal) {
  const cards = LISTS.map((list) => new ListCard(draft, list, signal));
  return {
    element: h("div", { class: "cards" }, cards.map((one) => one.element)),
    update: (status) => cards.forEach((one) => one.update(status)),
  };
}

/** A list in the draft. The rows and the controls have keys, by which they keep the focus when they are drawn again. */
class ListCard {
  constructor(draft, list, signal) {
    [this.draft, this.list, this.words] = [draft, list, text[list]];
    [this.isWhole, this.shape] = [false, null];
    this.state = h("span");
    this.alarms = h("div", { class: "stack", hidden: true });
    this.meaning = h("p", { class: "soft" }, this.words.meaning);
    this.none = h("div", { class: "host-none" }, iconState("lists", this.words.none, this.words.noneText));
    this.rows = h("ul", { class: "host-rows", "aria-label": this.words.title });
    this.more = h("p");
    this.adding = button([icon("plus"), text.add], () => this.ask(null), { "data-action": "add-host", "data-key": "add", "aria-label": `${text.add}: ${this.words.title}` });
    this.source = h("div", { class: "host-source" });
    this.live = sourceFacts();
    this.said = h("p", { class: "visually-hidden", role: "status" });
    this.element = card(this.words.title, { beside: this.state },
      h("div", { class: "stack" }, this.alarms, this.meaning, this.none, this.rows, this.more, h("p", null, this.adding), this.source, this.said));
    this.draw();
    draft.follow(() => this.draw(), signal);
  }

  get hosts() {
    return this.draft.rules[this.list].hosts;
  }

  draw() {
    const { draft, list } = this;
    const focused = this.element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const entries = draft.entries(list);
    const shown = this.isWhole ? entries : entries.slice(0, SHOWN);
    const isEmpty = this.hosts.length === 0 && draft.rules[list].source === null && !draft.hidesSource(list);
    this.none.hidden = !isEmpty;
    this.meaning.hidden = isEmpty;
    this.rows.hidden = entries.length === 0;
    fill(this.rows, shown.map((entry) => this.row(entry)));
    this.more.hidden = shown.length === entries.length;
    fill(this.more, button(common.showAll(entries.length), () => this.showAll(entries[SHOWN]), { kind: "quiet", "data-action": "show-all" }));
    fill(this.source, this.sourceLine());
    if (focused !== undefined) {
      this.focusOn(focused);
    }
  }

  showAll(next) {
    this.isWhole = true;
    this.draw();
    this.focusOn(`toggle ${next.host}`);
  }

  /** Gives the focus to the control with a key, or to the button that adds a host. */
  focusOn(key) {
    (this.element.querySelector(`[data-key="${CSS.escape(key)}"]`) ?? this.adding).focus();
  }

  /** An entry with what it covers, and with the buttons that change it. */
  row({ host, isOld, isIn }) {
    const named = (label) => `${label} ${host}`;
    const actions = isIn
      ? [
        button(icon("edit"), () => this.ask(host), { kind: "icon", "data-action": "edit-host", "data-key": `edit ${host}`, "aria-label": named(text.edit), title: text.edit }),
        button(icon("remove"), () => this.remove(host), { kind: "icon", "data-action": "remove-host", "data-key": `toggle ${host}`, "aria-label": named(text.remove), title: text.remove }),
      ]
      : button(text.restore, () => this.restore(host), { kind: "quiet", "data-action": "restore-host", "data-key": `toggle ${host}`, "aria-label": named(text.restore) });
    return h("li", { class: "host-row" },
      h("div", { class: "host-words" }, h(isIn ? "span" : "del", { class: "mono" }, outside(host)), h("small", null, meaningOf(host))),
      isOld ? !isIn && badge(text.removed, "warn") : badge(text.added, "good"),
      h("div", { class: "host-actions" }, actions));
  }

  /** Asks for a host, in place of the entry `before` if there is one. The rows are drawn again meanwhile, so the focus is set by key. */
  async ask(before) {
    const snapshot = await askHost(this.draft, this.list, before);
    if (snapshot === undefined) {
      this.focusOn(before === null ? "add" : `edit ${before}`);
      return;
    }
    const known = snapshot.rules[this.list].hosts;
    const fresh = this.hosts.find((host) => !known.includes(host)) ?? before;
    if (this.draft.entries(this.list).slice(SHOWN).some(({ host }) => host === fresh)) {
      this.isWhole = true;
      this.draw();
    }
    this.tell(text.inDraft, snapshot);
    this.focusOn(`edit ${fresh}`);
  }

  remove(host) {
    return this.change((hosts) => hosts.filter((one) => one !== host), text.removedFrom(host, this.words.title));
  }

  /** Puts an entry back in its place among those in force. */
  restore(host) {
    const old = this.draft.base[this.list].hosts;
    const inOrder = (hosts) => [...old.filter((one) => one === host || hosts.includes(one)), ...hosts.filter((one) => !old.includes(one))];
    return this.change(inOrder, text.restoredTo(host, this.words.title));
  }

  async change(hosts, about) {
    const { list } = this;
    try {
      this.tell(about, await this.draft.edit((rules) => ({ ...rules, [list]: { ...rules[list], hosts: hosts(rules[list].hosts) } })));
    } catch (error) {
      toastError(error);
    }
  }

  /** Says what has changed. If that replaced a text that somebody had typed, an undo restores the text. */
  tell(about, snapshot) {
    setText(this.said, about);
    if (snapshot.text !== snapshot.written) {
      toast(text.rewritten, { seconds: 15, action: { name: "undo", label: common.undo, run: () => this.draft.restore(snapshot) } });
    }
  }

  async changeSource() {
    const snapshot = await askSource(this.draft, this.list);
    if (snapshot !== undefined) {
      this.tell(text.inDraft, snapshot);
    }
    this.focusOn("source");
  }

  /** The source in the draft, with what the node has read from it if it is the one in force. */
  sourceLine() {
    const { source } = this.draft.rules[this.list];
    const isHidden = this.draft.hidesSource(this.list);
    const [hasSource, isKept] = [source !== null || isHidden, source === this.draft.base[this.list].source];
    const value = source !== null ? h("span", { class: "mono" }, outside(source)) : h("span", { class: "soft" }, isHidden ? text.sourceHidden : text.noSource);
    const label = hasSource ? text.changeSource : text.addSource;
    return [
      h("div", { class: "host-words" }, h("b", null, text.source), value, isKept && hasSource && this.live.element),
      !isKept && badge(text.changed, "warn"),
      button(label, () => this.changeSource(), { "data-action": "edit-source", "data-key": "source", "aria-label": `${label}: ${this.words.title}` }),
    ];
  }

  /** Shows the alarms of the list in force, whether it is in use, and what its source has. */
  update(status) {
    const now = status[this.words.member];
    const notes = alarmNotes(status, [this.words.alarms]);
    const shape = JSON.stringify([now !== null, notes.map((one) => one.textContent)]);
    if (shape !== this.shape) {
      this.shape = shape;
      fill(this.alarms, notes);
      this.alarms.hidden = notes.length === 0;
      fill(this.state, now === null ? badge(text.unused) : badge(text.inUse, "good"));
    }
    this.live.update(now);
  }
}

/** The number of hosts from the source of a list, and the time of the last read: `{ element, update(list) }`. */
function sourceFacts() {
  const [hosts, read] = [h("span"), h("span")];
  let lastRead;
  return {
    element: h("small", null, hosts, read),
    update(list) {
      setText(hosts, list === null ? "" : text.fromSource(list.dynamic));
      if (list !== null && (list.read !== lastRead || list.read === null)) {
        lastRead = list.read;
        fill(read, list.read === null ? text.neverRead : [text.read, format.time(list.read)]);
      }
    },
  };
}
