// Words of tags: their list, and the dialogs that rename, merge and delete them.

import { count, number } from "./format.js";

const links = (number_) => count(number_, "link");

export const tags = {
  label: "Tags",
  filter: "Filter tags",
  sort: "Sort by",
  sorts: { "visits-DESC": "Most visits", "shortUrlsCount-DESC": "Most links", "tag-ASC": "Name" },
  sortedBy: { "visits-DESC": "Tags by visits", "shortUrlsCount-DESC": "Tags by links", "tag-ASC": "Tags by name" },
  columns: { tag: "Tag", links: "Links", visits: "Visits", bots: "Bots", actions: "Actions" },
  allTime: "Visits of all time",
  notCounted: "Unknown: the server does not know the visits of this tag.",
  analytics: "Analytics",
  actionsFor: (tag) => `Actions for ${tag}`,
  linksOf: (tag, number_) => `${links(number_)} with the tag ${tag}`,
  rename: "Rename",
  renameOf: (tag) => `Rename tag “${tag}”`,
  renameAction: "Rename tag",
  delete: "Delete",
  found: (tags_) => count(tags_, "tag"),
  empty: "No tags yet",
  emptyText: "Tags appear here once links have them. Add tags to a link when you create or edit it, or to many links in the list of links.",
  toLinks: "View links",
  nothing: "No tags match",
  nothingText: "Change or clear the filter.",
  cannotSort: "Too many links to sort by visits",
  cannotSortText: "Filter the tags, or sort by name.",
  byName: "Sort by name",
  pages: "Pages of tags",
  previous: "Previous",
  next: "Next",
  shown: (from, to, all) => `${number(from)} to ${number(to)} of ${number(all)}`,
  newName: "New name",
  newNameHint: (number_) => `The tag changes on ${links(number_)}. If the name exists, the two tags are merged.`,
  nameMissing: "Enter a name.",
  nameSame: "Enter another name.",
  renaming: (tag) => `Renaming ${tag}…`,
  renamed: (old, now) => `${old} is now ${now}.`,
  askMerge: (old, now) => `Merge tag “${old}” into “${now}”`,
  askMergeText: (old, now, ofOld, ofNow) => `${links(ofNow)} already ${ofNow === 1 ? "has" : "have"} the tag ${now}. It replaces ${old} on ${links(ofOld)}, and ${old} disappears. This cannot be undone: nothing records which links had ${old}.`,
  merge: "Merge tags",
  merged: (old, now) => `${old} was merged into ${now}.`,
  askDelete: (tag) => `Delete tag “${tag}”`,
  deleteAction: "Delete tag",
  askDeleteText: (tag, number_) => `${links(number_)} ${number_ === 1 ? "loses" : "lose"} the tag ${tag}. The links themselves and their visits stay. This cannot be undone.`,
  deleting: (tag) => `Deleting ${tag}…`,
  deleted: (tag) => `Tag ${tag} deleted.`,
  notChanged: "The tag could not be changed on all links.",
};

/** The field for the tags of links. */
export const tagsField = {
  chosen: "Chosen tags",
  remove: (tag) => `Remove tag ${tag}`,
  removed: (tag) => `Tag ${tag} removed.`,
};
