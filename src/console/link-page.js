// Where the console shows a link.

import { withQuery } from "./api.js";

/** The path of the page of one link. */
export function linkPage({ shortCode, domain }) {
  return withQuery(`/admin/links/${encodeURIComponent(shortCode)}`, { domain });
}
