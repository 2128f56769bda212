// Words of the shell and of what all views share: navigation, connection, dialogs, errors, sessions.

/** The navigation, and the heading of each page. */
export const pages = {
  overview: "Overview",
  links: "Links",
  link: "Link",
  import: "Imports",
  tags: "Tags",
  usage: "Analytics",
  apps: "Apps and keys",
  domains: "Domains",
  rules: "Destination rules",
  fleet: "Fleet",
  settings: "Settings",
};

export const shell = {
  console: "Console",
  title: (page, service) => `${page} · ${service} console`,
  notFound: "Page not found",
  notFoundTitle: "The console has no such page",
  notFoundText: "Check the address, or choose a page from the navigation.",
  notAllowed: "This page needs a key with the role admin for all domains",
  notAllowedToWrite: "This page needs a key that may create links",
  notAllowedText: "The key of your session does not allow it. Sign in with such a key, or ask an administrator for one.",
  otherKey: "Sign in with another key",
  backTo: (title) => `Back to ${title}`,
  version: (version) => `carom ${version}`,
  zone: (zone) => `Times in ${zone}`,
  groups: { links: "Links", access: "Access", server: "Server" },
  more: "More",
  moreLabel: "More pages",
  moreAt: (title) => `More pages, ${title} is shown`,
  alarms: (count) => (count === 1 ? "1 alarm" : `${count} alarms`),
  live: { connecting: "Connecting…", live: "Live", lost: "Offline, reconnecting…", ended: "Session ended, sign in again" },
  liveShort: { lost: "Offline", ended: "Signed out" },
  /** Says once on a page of live values that they are old, and of when. */
  stale: {
    lost: (time) => `Connection lost, reconnecting… The values are from ${time}.`,
    ended: (time) => `Your session has ended. Sign in again for new values; these are from ${time}.`,
  },
};

/** Questions that Analytics answers. */
export const reports = {
  titles: { campaigns: "Top campaigns", links: "Top links", referrers: "Top referrers", places: "Visits by country" },
  lastDays: (title) => `${title}, last 7 days`,
  words: {
    campaigns: "which campaign utm source medium brought most visits week best", links: "which link brought most visits week best popular", referrers: "which site source brought most visits week",
    places: "which countries cities locations week",
  },
};

/** The command palette. */
export const palette = {
  open: "Search",
  title: "Search links, pages and actions",
  placeholder: "Search links, pages and actions",
  results: "Results",
  pages: "Page",
  links: "Link",
  actions: "Action",
  filters: "Filter",
  reports: "Report",
  settings: "Setting",
  analyticsOf: (period) => `Analytics, ${period[0].toLowerCase()}${period.slice(1)}`,
  linksOf: (state) => `Links: ${state.toLowerCase()}`,
  /** Other words for each state of a link. */
  stateWords: { scheduled: "starts", ended: "expires expiry", archived: "restore", usedUp: "visit limit" },
  none: "Nothing found",
  noneText: "Try a part of a slug, a title, a destination or a tag.",
  failed: "Links could not be searched.",
  found: (entries) => (entries === 1 ? "1 result" : `${entries} results`),
  shorten: "Shorten this URL",
  placeholderPages: "Search pages and actions, or enter a slug",
  openLink: (slug) => `Open link ${slug}`,
  /** Other words for each page. */
  words: {
    "/admin/": "health status p99 latency uptime alarms traffic cores memory storage",
    "/admin/links": "trash undo deleted archived tagged slugs short urls",
    "/admin/tags": "labels rename merge",
    "/admin/usage": "campaigns statistics stats visits clicks referrers countries devices browsers utm",
    "/admin/import": "csv upload migrate bulk",
    "/admin/apps": "api tokens roles users access",
    "/admin/domains": "hosts",
    "/admin/lists": "block allow lists",
    "/admin/fleet": "nodes redis replication cluster",
    "/admin/settings": "configuration options certificates tls",
  },
  newLink: "Create link",
  newLinkWords: "new shorten",
  newKey: "Create key",
  newKeyWords: "new api token read only write admin role",
  renameTags: "Rename or merge tags",
  renameTagsWords: "tag change delete",
  importFile: "Import links from a file",
  exportLinks: "Export all links as CSV",
  sessions: "Show sessions",
  signOut: "Sign out",
};

export const common = {
  cancel: "Cancel",
  clearFilter: "Clear filter",
  close: "Close",
  closeMessage: "Close message",
  confirm: "Continue",
  moreActions: "More actions",
  copied: "Copied.",
  copy: "Copy",
  defaultDomain: "Default domain",
  loading: "Loading…",
  none: "None",
  notCopied: "Copying failed. Select the text and copy it.",
  save: "Save",
  stop: "Stop",
  textToCopy: "Text to copy",
  tryAgain: "Try again",
  undo: "Undo",
  asTable: (title) => `${title}, as a table`,
  showAll: (all) => `Show all ${all}`,
};

/** On a node that does not store all links. */
export const sharedHome = {
  because: [" need all links, but this node fetches single links from Redis (", "). Open the console of a node with links.home = \"node\" for them, or add such a node to the fleet."],
  links: "No list of links on this node",
  ofLinks: "Lists, searches and exports",
  tags: "No tags on this node",
  ofTags: "Tags",
  toLinks: "Open a link",
  ofAnalytics: "Top links, new links, and numbers by tag, app and domain",
  ofDomains: "Numbers of links by domain",
  history: "No history on this node",
  ofHistory: "Histories of changes",
};

/** The nodes of a fleet whose counts a number has, and those that it lacks, each with the reason (`CountsLack`). */
export const sources = {
  all: "Visit counts include all nodes: ",
  some: "Visit counts include only ",
  lacks: "Visits are missing: ",
  reasons: {
    silent: (since) => ` (no heartbeat since ${since})`,
    missing: (since) => ` (incomplete since ${since})`,
    unsent: (since) => ` (not sent by that node since ${since})`,
    unstored: (since) => ` (not stored on this node since ${since})`,
    newer: (since) => ` (sent by a later version since ${since})`,
    noSlot: (since) => ` (no slot on this node since ${since})`,
  },
  otherReason: (since, reason) => ` (${reason} since ${since})`,
};

export const errors = {
  failed: "Something went wrong",
  failedSentence: "Something went wrong.",
  unknownReason: "The server gave no reason. Try again. If it happens again, check the server log.",
  status: (status) => `The server returned ${status}.`,
  unexpected: "Unexpected response",
  unexpectedText: (status, phrase) => `The server returned ${status} ${phrase}`.trim() + ". Try again. If it happens again, check the server log.",
  timeout: "Timed out",
  timeoutText: (seconds) => `The server did not respond within ${seconds} s. It may be busy, or the network may be slow. Try again.`,
  unreachable: "Server unreachable",
  unreachableText: "Check that carom is running and that this browser can reach its admin listener, then try again.",
  noStatus: "No response from the server",
  noStatusText: "The console keeps trying. If this lasts, check that carom is running.",
};

export const alarmText = {
  remedy: "What to do",
};

export const forms = {
  discard: { title: "Discard changes", text: "Your changes have not been saved." },
  keepEditing: "Keep editing",
  missing: "Enter a value.",
  destinationMissing: "Enter a destination.",
  incomplete: "Enter a complete and valid value.",
  wrong: (reason) => `${reason.startsWith("are ") ? "These" : "This"} ${reason}.`,
  ofReason: { "relative-url": "Enter a complete URL that begins with https:// or http://." },
  slugTaken: (domain) => `This slug is already in use${domain ? ` on ${domain}` : ""}.`,
};

export const many = {
  progress: (doing, done, all) => `${doing}: ${done} of ${all}…`,
  begun: (doing) => `${doing}…`,
  failed: (links, code, reason) => `${links} could not be changed. ${code}: ${reason}`,
};

export const session = {
  openLabel: "Open access",
  openNotice: "No API keys yet: anyone who can reach this address can edit links. ",
  openLink: "Create an admin key",
  openEnd: ".",
  account: (app) => `Account: ${app}`,
  signedIn: (key) => `Signed in with key ${key}`,
  signOut: "Sign out",
  stillSignedIn: "You are still signed in.",
  sessions: "Sessions",
  intro: "Browsers that are signed in to this console. Admins see the sessions of all keys.",
  columns: ["App and key", "Address and browser", "Signed in", "Last active", "End session"],
  current: "This session",
  end: "End session",
  endOf: (app, since) => `End the session of ${app} since ${since}`,
  ended: "Session ended.",
  endOthers: "End all other sessions",
  endedOthers: "All other sessions ended.",
  notEnded: "No session was ended.",
  expires: "Your session expires ",
  alone: "No other sessions",
  aloneText: "Nobody else is signed in.",
  unknown: "Unknown address",
};

export const signIn = {
  title: "Sign in again",
  intro: "Your session has ended: it timed out, someone ended it, or carom was restarted. Sign in to continue; your work on this page is kept.",
  key: "API key",
  managers: "For password managers",
  action: "Sign in",
  leave: "Leave page",
  leaveText: "Your work on this page will be lost. You can then sign in on the sign-in page.",
  leaveAction: "Leave page",
  refusals: {
    401: "Invalid, expired or revoked key. Copy the whole key again, or ask your administrator for a new one.",
    403: "The sign-in form was refused. Reload the page, then try again.",
    429: "Too many failed attempts from this address. Try again in a minute.",
  },
  unreachable: "The server is unreachable. Try again.",
  other: (status) => `The server returned ${status}. Try again.`,
  noCookie: "Your browser blocked the session cookie. Allow cookies for this site, then sign in.",
};
