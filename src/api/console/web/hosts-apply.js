// The changes of a draft of the destination rules: its hosts are saved, and its sources go into the settings file.

import { actionButton, button, card, fill, h, outside } from "./dom.js";
import * as format from "./format.js";
import { snippet } from "./parts.js";
import { apply as text, lists } from "./strings-hosts.js";
import { common } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";

/** The source of a setting in a file: its path, and a line. */
const IN_FILE = /^(.*):\d+$/;
const ENVIRONMENT = "environment ";

/** Gives the focus to the heading of the page: the control that had it is gone. */
export const focusHeading = () => document.querySelector("main h1").focus({ preventScroll: true });

/** The card of a draft, hidden without changes. `settings` are those in force. */
export function applyCard(draft, settings, signal) {
  const [changes, sources] = [h("div", { class: "stack" }), h("div", { class: "stack" })];
  const discard = () => {
    const before = draft.discard();
    toast(text.discarded, { seconds: 10, action: { name: "undo", label: common.undo, run: () => draft.restore(before) } });
    focusHeading();
  };
  const save = actionButton(text.save, () => saveDraft(draft), { kind: "primary", "data-action": "save" });
  const saving = h("div", { class: "stack" }, h("p", { class: "soft" }, text.saveHint), h("p", null, save));
  const element = card(text.title, { id: "draft", beside: button(text.discard, discard, { kind: "quiet", "data-action": "discard" }) },
    h("div", { class: "stack" }, changes, saving, sources));
  const draw = () => {
    // Until the node has read a text, the draft has the rows of an earlier one.
    save.disabled = !draft.isRead || save.getAttribute("aria-busy") === "true";
    if (draft.isRead || draft.isFaulty) {
      const all = draft.isRead ? draft.changes() : [];
      element.hidden = all.length === 0 && draft.isRead;
      saving.hidden = !all.some(({ kind }) => kind !== "source");
      fill(changes, draft.isRead ? changed(all, draft.conflict) : h("p", { class: "soft" }, text.unread));
      fill(sources, all.some(({ kind }) => kind === "source") && sourceSteps(all, settings));
    }
  };
  draw();
  draft.follow(draw, signal);
  return element;
}

/** Saves the hosts of a draft. If another admin was faster, the card shows what they have changed. */
async function saveDraft(draft) {
  if (!draft.isRead) {
    return;
  }
  try {
    offerUndo(draft, text.saved, await draft.save());
    if (draft.isChanged) {
      // The button is gone: the changes that are left cannot be saved.
      document.querySelector("#draft h2")?.focus();
    } else {
      focusHeading();
    }
  } catch (error) {
    await explain(draft, error, text.notSaved, text.already);
  }
}

/** Says that other rules apply now, and offers an undo. */
export function offerUndo(draft, said, undo) {
  const run = async () => {
    try {
      await draft.undo(undo);
      toast(text.undone);
    } catch (error) {
      await explain(draft, error, text.notUndone);
    }
  };
  toast(said, { seconds: 15, action: { name: "undo", label: common.undo, run } });
}

/** Says why rules could not be saved: another admin has saved others, or there was an error. If all of the draft applies already, says `same` instead. */
export async function explain(draft, error, said, same) {
  try {
    if (!(await draft.meet(error))) {
      toastError(error, isUnsure(error) ? text.unsure : said);
    } else if (same !== undefined && !draft.isChanged) {
      toast(same);
      focusHeading();
    } else {
      toast(`${said} ${text.refused}`, { kind: "bad", seconds: 12 });
    }
  } catch (other) {
    toastError(other, said);
  }
}

/** Whether a save may have been carried out in spite of its error: no answer came, or the node could not confirm it. */
const isUnsure = ({ status, type }) => status === 0 || type === "urn:carom:problem:unconfirmed";

/** The changes of a draft, below those of another admin. */
function changed(all, conflict) {
  return [
    conflict !== null && h("div", { class: "notice warn", role: "alert" },
      h("p", null, conflict.saved === null ? text.otherRules : text.conflict(conflict.saved.by, format.time(conflict.saved.at).textContent)),
      conflict.changes.length > 0 && h("ul", { class: "draft-changes", "aria-label": text.theirs }, conflict.changes.map(change))),
    h("ul", { class: "draft-changes", "aria-label": text.changes }, all.map(change)),
  ];
}

/** A change in one line, with its sign. */
function change({ list, kind, value }) {
  const { title } = lists[list];
  const shown = h("span", { class: "mono" }, outside(value ?? ""));
  const said = kind === "source" ? [text.sourceOf(title), value === null ? text.noSource : shown] : [text.kinds[kind](title), shown];
  return h("li", { class: kind === "removed" ? "bad-text" : kind === "added" ? "good-text" : "" }, said);
}

/** The steps that bring changed sources into the settings. */
function sourceSteps(all, settings) {
  const path = fileOf(settings);
  const of = all.filter(({ kind }) => kind === "source");
  const set = of.map(({ list, value }) => h("li", null, value === null ? text.removeSource(list, path) : text.setSource(path), value !== null && snippet(text.snippet(list), `[${list}]\nsource = ${JSON.stringify(value)}`)));
  const steps = [[text.check, h("code", null, `carom config check ${path}`)], text.restart];
  return [
    h("h3", null, text.how),
    h("p", { class: "soft" }, text.whySources),
    overridden(of, settings),
    h("ol", { class: "notes" }, set, steps.map((step) => h("li", null, step))),
  ];
}

/** The path of the settings file: the one that has a setting in force, or else the usual one. */
function fileOf(settings) {
  const found = settings.map(({ source }) => (source.startsWith(ENVIRONMENT) ? null : IN_FILE.exec(source))).find(Boolean);
  return found ? found[1] : "carom.toml";
}

/** The environment wins over the file: its variables of changed sources, with the values of the draft. */
function overridden(changes, settings) {
  return changes.map(({ list, value }) => {
    const set = settings.find(({ name, source }) => name === `${list}.source` && source.startsWith(ENVIRONMENT));
    if (set === undefined) {
      return false;
    }
    const variable = set.source.slice(ENVIRONMENT.length);
    return h("div", { class: "notice warn" }, h("p", null, text.overrides(variable), value === null && text.unset), value !== null && snippet(variable, `${variable}=${value}`));
  });
}
