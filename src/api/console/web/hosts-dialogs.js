// Dialogs of the destination rules: a host that is added or changed, and the source of a list.

import { radioField } from "./choices.js";
import { formDialog } from "./dialog.js";
import { field } from "./field.js";
import { coverageOf, entriesFor, hostOf } from "./hosts-words.js";
import { dialogs as text, lists } from "./strings-hosts.js";

const TYPED = { autocomplete: "off", autocapitalize: "none", spellcheck: "false" };

/** Asks for a host of a list, in place of the entry `before` if there is one. Resolves to the snapshot of the draft before, or undefined. */
export function askHost(draft, list, before = null) {
  const fields = [
    field({ name: "host", label: text.host, missing: text.hostMissing, value: before === null ? "" : hostOf(before), placeholder: "shop.example", hint: text.hostHint, required: true, inputmode: "url", ...TYPED }),
    radioField({ name: "coverage", label: text.coverage, options: text.coverages, hasCodes: false, value: before === null ? "both" : coverageOf(before) }),
  ];
  const submit = ({ host, coverage }) => putEntries(draft, list, before, entriesFor(host, coverage));
  const title = before === null ? text.add[list] : text.edit(before);
  return formDialog(title, { fields, intro: text.draft, action: before === null ? text.addAction : text.editAction, submit });
}

/** Puts entries into a list. Those that the list already has are left out, unless all of them are. */
async function putEntries(draft, list, before, entries) {
  try {
    return await draft.edit((rules) => {
      const { hosts, source } = rules[list];
      const at = before === null ? -1 : hosts.indexOf(before);
      const others = hosts.filter((_host, place) => place !== at);
      const fresh = entries.filter((entry) => !others.includes(entry));
      const wanted = fresh.length > 0 ? fresh : entries;
      return { ...rules, [list]: { source, hosts: others.toSpliced(at < 0 ? others.length : at, 0, ...wanted) } };
    });
  } catch (error) {
    // All other entries have been read before.
    const wrong = (error.reasons ?? []).find(([path]) => path.startsWith(`${list}.hosts`));
    throw wrong ? Object.assign(new Error(wrong[1]), { reasons: [["host", wrong[1]]] }) : error;
  }
}

/** Asks for the source of a list. Resolves to the snapshot of the draft before, or undefined. */
export function askSource(draft, list) {
  const name = `${list}.source`;
  const hint = draft.hidesSource(list) ? text.sourceHidden : text.sourceHint;
  const source = field({ name, label: text.source, value: draft.rules[list].source ?? "", placeholder: "/etc/carom/hosts.json", hint, read: (typed) => typed.trim() || null, ...TYPED });
  const submit = (values) => draft.edit((rules) => ({ ...rules, [list]: { ...rules[list], source: values[name] } }));
  const hasSource = draft.rules[list].source !== null || draft.hidesSource(list);
  const [title, action] = hasSource ? [text.changeSourceOf[list], lists.changeSource] : [text.addSourceTo[list], lists.addSource];
  return formDialog(title, { fields: [source], intro: text.sourceIntro, action, submit });
}
