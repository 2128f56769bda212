// Words of visits: breakdowns by country, device and the like, and the list of single visits.

import { count, number } from "./format.js";

export const breakdowns = {
  title: "Visitors",
  groups: { places: "Locations", technology: "Technology", languages: "Languages", sources: "Referrers", campaigns: "Campaigns (UTM)", destinations: "Destinations" },
  parts: {
    countries: "Countries", cities: "Cities", browsers: "Browsers", operatingSystems: "Systems", devices: "Devices", languages: "Languages",
    referrers: "Referrers", allReferrers: "All-time referrers", destinations: "Destinations", utmSources: "Source", utmMediums: "Medium", utmCampaigns: "Campaign", utmTerms: "Term", utmContents: "Content",
  },
  columns: {
    countries: "Country", cities: "City", browsers: "Browser", operatingSystems: "System", devices: "Device", languages: "Language",
    referrers: "Host", allReferrers: "Host", destinations: "Destination", utmSources: "Source", utmMediums: "Medium", utmCampaigns: "Campaign", utmTerms: "Term", utmContents: "Content",
  },
  tabs: { referrers: "This period", allReferrers: "All time" },
  devices: { mobile: "Mobile", tablet: "Tablet", desktop: "Desktop", bot: "Bot", other: "Other" },
  unknown: { referrers: "Direct or unknown", utmSources: "Not set", utmMediums: "Not set", utmCampaigns: "Not set", utmTerms: "Not set", utmContents: "Not set", other: "Unknown" },
  visits: "Visits",
  share: "Share",
  excludeBots: "Exclude bots",
  off: "Visitor statistics are off",
  offText: "To see countries, devices, browsers and campaigns, turn on the visit log and restart the server: ",
  offShared: ["Countries, devices, browsers and campaigns need the visit log, which does not work with ", " = \"shared\"."],
  none: "No visits in the log for this period",
  noneText: "Share the short URL, or choose a longer period. Visits are logged within seconds; reload the page to see them.",
  noneFiltered: "No visits match all filters",
  noneFilteredText: "Remove a filter, or choose a longer period.",
  pick: (name) => `Filter by ${name}`,
  more: (shown) => `The ${number(shown)} largest are shown. Export CSV has up to 500.`,
  nothing: "No data",
  nothingText: {
    countries: "Countries need a geolocation database on the server.",
    cities: "Cities need a geolocation database on the server.",
    utm: "Add utm_source, utm_medium or utm_campaign to the query of the short URLs that you share.",
    other: "No visit has this information.",
  },
  incomplete: "These numbers are incomplete: some visits could not be read, or are missing from other servers.",
  since: (day) => `From the visit log, which begins on ${day}.`,
};

export const visits = {
  title: "Latest visits",
  note: "Newest first",
  columns: { date: "Time", link: "Link", client: "Browser", from: "Referrer", place: "Location", destination: "Destination" },
  timeIn: (zone) => `Time (${zone})`,
  direct: "Direct",
  unknownPlace: "Unknown",
  unknownBrowser: "Unknown browser",
  bot: "Bot",
  showMore: "Show more",
  none: "No individual visits in this period",
  noneText: "While the visit log is on, this list shows each visit with its browser, referrer and location: ",
  incomplete: "This list is incomplete: some visits could not be read, or are missing from other servers.",
  pages: "Pages of visits",
  newer: "Newer",
  older: "Older",
  shown: (from, to, all) => `${number(from)} to ${number(to)} of ${number(all)}`,
};

/** Filters of visits. */
export const filters = {
  active: "Active filters",
  without: (label) => `Remove filter ${label}`,
  names: {
    tag: "Tag", domain: "Domain", app: "App", country: "Country", city: "City", browser: "Browser", operatingSystem: "System", device: "Device", language: "Language",
    referrer: "Referrer", destination: "Destination", utmSource: "Source", utmMedium: "Medium", utmCampaign: "Campaign", utmTerm: "Term", utmContent: "Content",
  },
};

export const exports = {
  begun: "Exporting visits…",
  progress: (visits, all) => `Exporting: ${number(visits)} of ${count(all, "visit")}…`,
  saved: (name) => `Saved ${name}.`,
  cut: (name, most) => `Saved ${name}. Lists with more than ${number(most)} values contain only the largest.`,
  done: (visits, name) => `${count(visits, "visit")} exported to ${name}.`,
  doneInPart: (visits, name) => `${count(visits, "visit")} exported to ${name}. The file is incomplete: some visits could not be read, or are missing from other servers.`,
  failed: "Export failed. No file was saved. Try again.",
};
