// Words of the destination rules: the lists, their dialogs, the text, the draft, and the check of a URL.

import { count } from "./format.js";

export const page = {
  view: "View",
  views: { list: "Lists", text: "Edit as text" },
  inForce: "These rules are in effect.",
  saved: (by, at) => `These rules are in effect. Saved ${at}${by === "" ? "" : ` by ${by}`}.`,
  useSettings: "Use the settings file again",
  settingsUsed: "The hosts of the settings apply again.",
  notReturned: "The saved rules still apply.",
  changed: (changes) => `Draft with ${count(changes, "change")}, not in effect yet.`,
  unread: "The text can’t be read yet. See the message below it.",
  review: "Review",
};

/** The coverage of an entry. */
export const entries = {
  address: "Only this address",
  host: (host) => `Only ${host}, not its subdomains`,
  subdomains: (host) => `All subdomains of ${host}, but not ${host} itself`,
};

export const lists = {
  allow: {
    title: "Allow list",
    member: "allowList",
    alarms: "allow_list_",
    meaning: "New links may only point to these hosts. Existing links keep working.",
    none: "Every host is allowed",
    noneText: "Once you add a host, new links may only point to hosts on this list. Existing links keep working.",
  },
  block: {
    title: "Block list",
    member: "blockList",
    alarms: "block_list_",
    meaning: "Links to these hosts can’t be created, and existing ones stop redirecting.",
    none: "No host is blocked",
    noneText: "Once you add a host, links to it can’t be created, and existing ones stop redirecting.",
  },
  add: "Add host",
  edit: "Edit",
  remove: "Remove",
  restore: "Restore",
  added: "New",
  removed: "Removed",
  changed: "Changed",
  removedFrom: (host, list) => `${host} removed from the ${list.toLowerCase()} of the draft.`,
  restoredTo: (host, list) => `${host} restored to the ${list.toLowerCase()} of the draft.`,
  inDraft: "The draft has changed.",
  rewritten: "The text of the draft was replaced. Its comments are gone.",
  unused: "Not in use",
  inUse: "In use",
  source: "External source",
  addSource: "Add source",
  changeSource: "Change source",
  noSource: "None",
  sourceHidden: "A URL with a query, which is not shown",
  fromSource: (hosts) => `${count(hosts, "host")}, `,
  read: "last read ",
  neverRead: "not read yet: the source could not be read",
};

export const dialogs = {
  add: { allow: "Add host to the allow list", block: "Add host to the block list" },
  addAction: "Add host",
  edit: (entry) => `Change host ${entry}`,
  editAction: "Change host",
  draft: "Changes go into a draft, which takes effect once you save it.",
  host: "Host",
  hostMissing: "Enter a host.",
  hostHint: "A host such as shop.example. If you enter a URL, only its host is used.",
  coverage: "Covers",
  coverages: [
    ["both", "Host and subdomains", "For example shop.example, www.shop.example and a.b.shop.example."],
    ["host", "Host only", "For example shop.example, but not www.shop.example."],
    ["subdomains", "Subdomains only", "For example www.shop.example, but not shop.example."],
  ],
  addSourceTo: { allow: "Add source to the allow list", block: "Add source to the block list" },
  changeSourceOf: { allow: "Change source of the allow list", block: "Change source of the block list" },
  sourceIntro: "carom reads further hosts from a source every two seconds, without a restart.",
  source: "Source",
  sourceHint: "A file on the server, an http:// or https:// URL, or redis. Leave empty for none.",
  sourceHidden: "The source in effect is a URL with a query, which is not shown. Leave empty to keep it, or enter another file, URL or redis.",
};

export const asText = {
  title: "Destination rules as text",
  label: "The tables [allow] and [block] in TOML",
  hint: "The format is that of the settings file. Your comments are lost once you change a rule under “Lists”, or someone else saves rules.",
};

export const apply = {
  title: "Draft of the destination rules",
  discard: "Discard draft",
  discarded: "Draft discarded.",
  changes: "Changes of the draft",
  kinds: { added: (list) => `${list}: + `, removed: (list) => `${list}: − ` },
  sourceOf: (list) => `${list}: source `,
  noSource: "removed",
  unread: "The text can’t be read yet. Correct it to see what the draft changes.",
  save: "Save",
  saveHint: "Saved hosts apply at once, on every node of a fleet, in place of those of the settings file.",
  saved: "Saved. The rules are in effect.",
  notSaved: "The rules were not saved.",
  already: "Your rules are in effect already.",
  unsure: "The rules may have changed. Open this page again to see which are in effect.",
  refused: "Someone has changed the rules in the meantime.",
  undone: "The earlier rules are in effect again.",
  notUndone: "The earlier rules were not restored.",
  conflict: (by, at) => `${by === "" ? "Someone" : by} saved other rules (${at}) while you edited. Your draft now builds on those. Compare both, then save again.`,
  otherRules: "The hosts of the settings apply again. Your draft now builds on those. Compare both, then save again.",
  theirs: "Changes of others",
  how: "Sources stay in the settings file",
  whySources: "A source names a file or an address for one machine, so it is not saved here.",
  setSource: (path) => `Set the source in ${path}:`,
  removeSource: (list, path) => `Remove the line “source” of [${list}] from ${path}.`,
  check: "Check the file: ",
  restart: "Restart carom. In a fleet, do the same on every node.",
  snippet: (list) => `Source of [${list}] for the settings file`,
  overrides: (variable) => `The environment variable ${variable} overrides the file. `,
  unset: "Remove it.",
};

export const check = {
  title: "Check a destination",
  url: "Destination",
  hint: "Checks whether a new link may have this destination. No link is created.",
  hintDraft: "Checks whether a new link may have this destination, by your draft. No link is created.",
  unread: "The text of the draft can’t be read yet. Correct it first.",
  accepted: "✓ Accepted",
  refused: "✗ Refused",
  unknown: "? Depends on the new source",
  stored: "Stored as",
  allow: "Allow list",
  block: "Block list",
  allowStates: { "no list": "No allow list: any host", allowed: "Host is on the list", "not allowed": "Host is not on the list", unknown: "Unknown: the new source has not been read" },
  blockStates: { "no list": "No block list", "not blocked": "Host is not on the list", blocked: "Host is on the list", unknown: "Unknown: the new source has not been read" },
};
