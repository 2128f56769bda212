// What a line of an import would change in the link that has its slug already.

import { KNOWN } from "./import-rows.js";
import { valueIn } from "./link-parts.js";

/** What only a new link takes. */
const LASTING = ["customSlug", "domain", "private", "findIfExists"];
const CHANGED = KNOWN.filter((name) => !LASTING.includes(name));

/** The fields of a line whose values differ from those of a link. Fields that the line lacks change nothing. */
export function changesOf(fields, link) {
  const differs = ([name, value]) => CHANGED.includes(name) && plain(name, value) !== plain(name, valueIn(link, name));
  return Object.fromEntries(Object.entries(fields).filter(differs));
}

/** A value as a text that is the same for equal values, however they are written. */
function plain(name, value) {
  if (value === null || value === "") {
    return "";
  }
  if (name === "longUrl" && URL.canParse(value)) {
    return new URL(value).href;
  }
  if (["validSince", "validUntil"].includes(name)) {
    return String(Date.parse(value));
  }
  return Array.isArray(value) ? value.map((tag) => String(tag).trim().toLowerCase().replaceAll(" ", "-")).sort().join("\n") : String(value);
}
