// The two sites of a fleet: the contact of this one to the other one, and the relay between them.

import * as format from "./format.js";
import { fleet as text } from "./strings-access.js";

// Nodes tell of themselves every second.
export const SILENT_MS = 5_000;

/** The contact of this site to the other one: `[text, kind of badge]`. */
export function contactOf({ mayLack, current }) {
  if (mayLack) {
    return [text.sites.lacks, "bad"];
  }
  return current ? [text.sites.current, "good"] : [text.sites.away, "warn"];
}

/** How far this site is behind the other one. */
export function siteLag({ lagMillis }) {
  return lagMillis === null ? text.unknown : format.duration(lagMillis / 1000);
}

/** The names of the nodes that say that they are the relay of this site. During a take-over, there may be none or two. */
export function relaysOf({ nodes }) {
  const relays = nodes.filter(({ silentMillis, about }) => about?.relay === true && silentMillis < SILENT_MS);
  return relays.length === 0 ? text.unknown : relays.map(({ node }) => node).join(", ");
}
