// The draft of the destination rules, as lists and as text. The node converts each into the other. A draft changes nothing until it is saved, and stays while the console is open.

import { del, get, post, put } from "./api.js";

const PATH = "/admin/api/destination-rules";

/** The lists of the rules, as the tables of the settings file are called. */
export const LISTS = ["allow", "block"];

/** An object with a member for each list. */
const byList = (member) => Object.fromEntries(LISTS.map((name) => [name, member(name)]));

/** The rules of an answer or of a draft, without its other members. */
const rulesOf = (told) => byList((name) => ({ hosts: told[name].hosts, source: told[name].source }));

/** The hosts of rules, which can be saved. */
const hostsOf = (rules) => byList((name) => ({ hosts: rules[name].hosts }));

/** The entries of a list, the old ones first: `[{ host, isOld, isIn }]`. */
function entriesOf(old, now) {
  const [inOld, inNow] = [new Set(old), new Set(now)];
  return [
    ...old.map((host) => ({ host, isOld: true, isIn: inNow.has(host) })),
    ...now.filter((host) => !inOld.has(host)).map((host) => ({ host, isOld: false, isIn: true })),
  ];
}

/** The changes from old rules to other ones: `[{ list, kind, value }]`, of the kinds "added", "removed" and "source". */
function changesBetween(old, now) {
  return LISTS.flatMap((list) => {
    const hosts = entriesOf(old[list].hosts, now[list].hosts).filter(({ isOld, isIn }) => isOld !== isIn).map(({ host, isIn }) => ({ list, kind: isIn ? "added" : "removed", value: host }));
    const { source } = now[list];
    return source === old[list].source ? hosts : [...hosts, { list, kind: "source", value: source }];
  });
}

/** The rules `base` with the changes from `old` to `mine`. */
function merged(old, mine, base) {
  return byList((name) => {
    const [before, own] = [new Set(old[name].hosts), new Set(mine[name].hosts)];
    const known = base[name].hosts;
    const added = mine[name].hosts.filter((host) => !before.has(host) && !known.includes(host));
    const hosts = [...known.filter((host) => own.has(host) || !before.has(host)), ...added];
    return { hosts, source: mine[name].source === old[name].source ? base[name].source : mine[name].source };
  });
}

/** `isRead` says whether the lists are those of the text, `isFaulty` that the node could not read it. */
class RulesDraft {
  constructor(base) {
    this.base = base;
    this.conflict = null;
    this.listeners = new Set();
    this.queue = Promise.resolve();
    this.take(base, base.toml);
  }

  /** Takes rules that the node has read, with the text that they are from. */
  take(told, text) {
    this.rules = rulesOf(told);
    this.written = told.toml;
    this.text = text;
    [this.isRead, this.isFaulty] = [true, false];
    this.tell();
  }

  tell() {
    this.listeners.forEach((listener) => listener());
  }

  /** Calls `listener()` after each change, until `signal` ends that. */
  follow(listener, signal) {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener));
  }

  /** Whether somebody has typed the text, so that it may have comments. */
  get isAuthored() {
    return this.text !== this.written;
  }

  get isChanged() {
    return this.changes().length > 0;
  }

  /** The entries of a list, those in force first: `[{ host, isOld, isIn }]`. */
  entries(name) {
    return entriesOf(this.base[name].hosts, this.rules[name].hosts);
  }

  /** The changes of the draft: `[{ list, kind, value }]`, of the kinds "added", "removed" and "source". */
  changes() {
    return changesBetween(this.base, this.rules);
  }

  /** Whether a list keeps a source of the settings that the node does not show. */
  hidesSource(list) {
    return this.base[list].hidesSource && this.rules[list].source === null;
  }

  /** Changes the rules one after the other: `change(rules)` returns other rules, which the node checks. Resolves to what `restore` needs. */
  edit(change) {
    return this.inTurn(async () => {
      const told = await post(PATH, change(this.rules));
      const before = this.snapshot();
      this.take(told, told.toml);
      return before;
    });
  }

  /** Runs something once all changes before it have ended. */
  inTurn(run) {
    const done = this.queue.then(run);
    this.queue = done.catch(() => {});
    return done;
  }

  /** Has the node save rules in place of those of a version; `null` returns to the hosts of the settings. Resolves to the rules in force then. */
  store(rules, version) {
    return rules === null ? del(PATH, { query: { version } }) : put(PATH, { version, ...hostsOf(rules) });
  }

  /** Saves the hosts of the draft. Resolves to what `undo` needs. */
  save() {
    return this.inTurn(async () => {
      const before = this.base;
      this.enter(await this.store(this.rules, before.version));
      return { before, version: this.base.version, ofDraft: true };
    });
  }

  /** Has the hosts of the settings apply again. Changes of the draft stay. Resolves to what `undo` needs. */
  async useSettings() {
    const before = this.base;
    const base = await this.inTurn(() => this.store(null, before.version));
    await this.rebase(base);
    return { before, version: base.version, ofDraft: false };
  }

  /** Restores the rules that applied before a save, unless others apply by now. The draft then has the changes of that save again, beside those made since. */
  async undo({ before, version, ofDraft }) {
    const base = await this.inTurn(() => this.store(before.saved === null ? null : before, version));
    if (ofDraft) {
      this.enter(base);
    } else {
      await this.rebase(base);
    }
  }

  /** Takes up other rules in force. The rules of the draft stay. */
  enter(base) {
    [this.base, this.conflict] = [base, null];
    this.tell();
  }

  /**
   * Takes up other rules in force, and applies the changes of the draft to them. The text is written again if its rules have
   * changed. A text that the node has not read stays, and so do the rules that it started from: its save meets the others again.
   */
  rebase(base, conflict = null) {
    return this.inTurn(async () => {
      const { text } = this;
      const told = this.isChanged ? await post(PATH, merged(this.base, this.rules, base)) : base;
      if (!this.isRead || this.text !== text) {
        return;
      }
      this.base = base;
      this.conflict = changesBetween(base, told).length > 0 ? conflict : null;
      const isSame = this.isAuthored && changesBetween(this.rules, told).length === 0;
      this.take(told, isSame ? text : told.toml);
    });
  }

  /**
   * Takes up the rules in force if they are of another save. `saved` is the time of the last save in the status of the node. A
   * draft with changes stays: its own save meets the other one.
   */
  async refresh(saved, signal) {
    const isIdle = () => this.isRead && !this.isChanged && !this.isAuthored;
    if (!isIdle() || saved === (this.base.saved?.at ?? null)) {
      return;
    }
    await this.inTurn(async () => {
      const base = await get(PATH, { signal });
      if (isIdle() && base.version !== this.base.version) {
        this.base = base;
        this.discard();
      }
    });
  }

  /** Takes up the rules in force if a save was refused because of them. Resolves to whether it was. */
  async meet(error) {
    const base = error.status === 409 ? error.problem?.rules : undefined;
    if (base === undefined) {
      return false;
    }
    await this.rebase(base, { saved: base.saved, changes: changesBetween(this.base, base) });
    return true;
  }

  /** Keeps a text, and has the node read it. With mistakes in it, the lists stay as they were. */
  async read(text, signal) {
    this.write(text);
    try {
      this.take(await post(PATH, { toml: text }, { signal }), text);
    } catch (error) {
      if (error.name !== "AbortError") {
        this.isFaulty = true;
        this.tell();
      }
      throw error;
    }
  }

  /** Keeps a text that the node has not read yet. */
  write(text) {
    this.text = text;
    this.isRead = false;
    this.tell();
  }

  snapshot() {
    const { rules, written, text, isRead, isFaulty } = this;
    return { rules, written, text, isRead, isFaulty };
  }

  /** Takes up the state of a snapshot. */
  restore(snapshot) {
    Object.assign(this, snapshot);
    this.tell();
  }

  /** Takes up the rules in force. Returns what `restore` needs. */
  discard() {
    const before = this.snapshot();
    this.conflict = null;
    this.take(this.base, this.base.toml);
    return before;
  }
}

/** The last draft, which the page continues when it is opened again. */
let last = null;

/** The draft of this console, beside the rules in force as they are now. */
export async function loadDraft(signal) {
  const base = await get(PATH, { signal });
  if (last === null) {
    last = new RulesDraft(base);
  } else if (last.isChanged || last.isAuthored) {
    // A text with mistakes stays as it is, beside the rules that it started from.
    if (last.isRead && last.base.version !== base.version) {
      await last.rebase(base);
    } else if (last.base.version === base.version) {
      last.base = base;
    }
  } else {
    // The same draft: an undo of its last save may still be offered.
    last.base = base;
    last.discard();
  }
  return last;
}
