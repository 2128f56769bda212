// Entries of the destination rules in words, and the entries for a host as it was typed.

import { entries as text } from "./strings-hosts.js";

const BELOW = "*.";

/** An IPv4 address, or an IPv6 address in brackets: it has no subdomains. */
const ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|\[.*\])$/;

/** The host of an entry, without the star. */
export const hostOf = (entry) => (entry.startsWith(BELOW) ? entry.slice(BELOW.length) : entry);

/** The coverage of an entry: "subdomains" or "host". */
export const coverageOf = (entry) => (entry.startsWith(BELOW) ? "subdomains" : "host");

/** Says what an entry covers. */
export function meaningOf(entry) {
  if (ADDRESS.test(entry)) {
    return text.address;
  }
  const host = hostOf(entry);
  return coverageOf(entry) === "host" ? text.host(host) : text.subdomains(host);
}

/** The host that was typed, in lower case; that of a URL, if one was typed. */
function hostIn(typed) {
  const trimmed = typed.trim().toLowerCase();
  return /^https?:\/\//.test(trimmed) && URL.canParse(trimmed) ? new URL(trimmed).hostname : trimmed;
}

/** The entries for a host as it was typed. `coverage` is "both", "host" or "subdomains"; a star that was typed counts, too. */
export function entriesFor(typed, coverage) {
  const entry = hostIn(typed);
  const [host, hasStar] = [hostOf(entry), entry.startsWith(BELOW)];
  if (host === "" || ADDRESS.test(host)) {
    return [host];
  }
  const wanted = hasStar && coverage === "host" ? "subdomains" : coverage;
  return { both: [host, BELOW + host], host: [host], subdomains: [BELOW + host] }[wanted];
}
