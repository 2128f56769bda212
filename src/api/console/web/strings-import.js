// Words of imports: the file, what cannot be read in it, the run and its report.

import { bytes, count, duration, number } from "./format.js";
import { form, page } from "./strings-links.js";

/** What the fields of a line are called in the rest of the console. */
export const fieldNames = { ...page.fields, customSlug: form.slug, domain: form.domain, private: form.private, findIfExists: form.findIfExists };

export const text = {
  toList: "View links",
  file: "File",
  drop: "Import a CSV, NDJSON or JSON file",
  dropOther: "Import another file",
  dropHere: "Or drop it here. ",
  dropLater: "Choose another file once this run has ended.",
  choose: "Choose a file",
  chooseText: "Nothing is imported until you confirm.",
  help: "Columns of a CSV file",
  columns: ["Column", "Meaning"],
  required: "Required",
  /** The columns: their names, and what they mean. Some need a node that stores all links. */
  fields: [
    { names: ["url", "longUrl"], meaning: "Destination", isRequired: true },
    { names: ["slug", "customSlug"], meaning: "Custom slug. Without one, a slug is generated." },
    { names: ["title"], meaning: "Title in lists and previews" },
    { names: ["tags"], meaning: "Tags, separated by |" },
    { names: ["domain"], meaning: "A served domain. Without one, the default domain." },
    { names: ["validSince"], meaning: "Start, such as 2027-01-31T09:00:00Z" },
    { names: ["validUntil"], meaning: "Expiry. Without one, the default lifetime." },
    { names: ["maxVisits"], meaning: "Visit limit", needsAllLinks: true },
  ],
  example: "Example",
  helpText: "The first line names the columns, in any order. Any other field of the API can be a column, too. NDJSON has one JSON object per line, with the same names.",
  helpMigrate: ["To migrate links with their original slugs and creation dates, run ", "carom import", " on the server."],
  helpShared: ["This node does not store all links (", "), so it rejects lines with maxVisits, crawlable or findIfExists. To migrate links with their creation dates, use a node with links.home = \"node\"."],
  template: "Download a template",
  reading: ["Reading ", "…"],
  tooLarge: (size, most) => `The file is ${bytes(size)} long; the console reads at most ${bytes(most)}. Split it, or send it as NDJSON to POST /rest/v3/short-urls/bulk.`,
  unreadable: ["“", "” can’t be imported"],
  dryRun: "Dry run",
  dryRunHint: "A dry run checks slugs and destinations, and imports nothing.",
  dryRunning: "Dry run in progress",
  /** What the button says: before a dry run, nobody knows how many lines become links. */
  runLinks: "Import links",
  run: (links, updated) => (updated === 0 ? `Import ${count(links, "link")}` : links === 0 ? `Update ${count(updated, "link")}` : `Import ${count(links, "link")}, update ${number(updated)}`),
  existing: "If a slug is in use",
  existingChoices: [["reject", "Reject the line"], ["skip", "Skip the line"], ["update", "Update the link"]],
  existingHints: {
    reject: "The report has all rejected lines.",
    skip: "The existing link stays as it is.",
    update: "An update changes only fields that have a value in the file.",
  },
  preview: "Preview",
  lines: "Lines",
  valid: "Readable",
  invalid: "Unreadable",
  unknownColumns: (columns) => (columns === 1 ? ["Unrecognised column ", " is ignored."] : ["Unrecognised columns ", " are ignored."]),
  firstLines: (shown, all) => (shown < all ? `The first ${number(shown)} of ${count(all, "readable line")}` : count(all, "readable line")),
  line: "Line",
  begun: "Starting…",
  running: "Importing",
  progressLabel: "Lines done",
  progress: ({ at, all, made, refused, rate, isDry }) => `${number(at)} of ${count(all, "line")} · ${count(made, "link")} ${isDry ? "would be imported" : "imported"} · ${count(refused, "line")} rejected · ${number(rate)} lines/s`,
  stop: "Stop",
  stopNow: "Stop immediately",
  stopped: "Stopped",
  dryRunDone: "Dry run finished: nothing was imported",
  wouldMakeNone: "Nothing would be imported",
  madeNone: "Nothing imported",
  done: "Import finished",
  summary: ({ made, updated, same, skipped, refused, seconds, isDry }) => {
    const others = [[updated, "link", "updated"], [same, "link", "unchanged"], [skipped, "line", "skipped"], [refused, "line", "rejected"]];
    const said = [[made, "link", isDry ? "would be imported" : "imported"], ...others.filter(([all]) => all > 0)].map(([all, noun, done]) => `${count(all, noun)} ${done}`).join(", ");
    const time = duration(Math.max(seconds, 0.001));
    return isDry ? `${said}. The dry run took ${time}.` : `${said}, in ${time}.`;
  },
  resume: "Resume",
  seeLinks: "View links",
  rejected: "Rejected lines",
  unread: "Unreadable lines",
  left: (left, line) => `${count(left, "line")} left, from line ${number(line)} on.`,
  unsure: (lines) => `Up to ${number(lines)} of these lines may already have been imported. Lines with a custom slug are safe to resume: they never create a second link. Lines without one may, so check the newest links first.`,
  show: "Show",
  goesOn: "The import continues while this tab is open. Find it under Imports.",
  doneElsewhere: (made) => `Import finished: ${count(made, "link")} imported.`,
  stoppedElsewhere: "The import stopped before it was finished.",
};

export const report = {
  reason: "Reason",
  content: "Content",
  download: "Download report",
  part: (shown, all) => `Showing the first ${number(shown)} of ${number(all)}. The report has all of them.`,
};

/** What is wrong with a line. */
export const lines = {
  slugTaken: (slug, domain) => `The slug “${slug}” is already in use${domain ? ` on ${domain}` : ""}.`,
  status: (status) => `The server returned ${status}.`,
  duplicateSlug: (line, slug) => `Line ${line} already uses the slug “${slug}”.`,
  cutOff: "The connection closed before all results arrived.",
  stopping: "The server is stopping. Resume when it is back.",
  notJson: (message) => `Invalid JSON: ${message}`,
  notObject: "This line is not a JSON object.",
  tooManyCells: "This line has more cells than the header row. Quote cells that contain the separator.",
  noLongUrl: "This line has no destination (url or longUrl).",
  noText: "The destination (longUrl) is not a string.",
  noWebAddress: (url) => `“${url}” is not a valid destination. Use a complete URL that begins with https:// or http://.`,
  controlCharacter: "The destination has a control character, such as a tab or a line break.",
  userName: "The destination has a user name or password. Remove it.",
  afterQuote: "There is text after a closing quote. Double the quotes inside a quoted cell.",
  unclosed: "A quote is not closed. Close it, or double it inside a quoted cell.",
  unclosedLong: (lines) => `A quote is not closed, so the next ${count(lines, "line")} became part of this line. None of them will be imported.`,
};

/** Why a whole file cannot be read. */
export const files = {
  empty: "The file is empty. Choose a file with at least one link.",
  encoding: (line) => `The file is not valid UTF-8 (line ${line}). Save it as UTF-8 (spreadsheets call it “CSV UTF-8”) and choose it again.`,
  badArray: (message) => `The file starts as a JSON array but is invalid: ${message}. Use a JSON array of objects, or one object per line (NDJSON).`,
  oneObject: "The file is a single JSON object over several lines. Use one object per line (NDJSON), or a JSON array of objects.",
  headerOnly: "The file has only a header row. Add at least one link.",
  noLongUrl: (columns) => `The header row has no url or longUrl column. It has: ${columns}. The first line of a CSV file must contain the field names.`,
  twice: (field, columns) => `The header row has more than one ${field} column: ${columns}. Keep one of them.`,
};
