// Pages of links by cursors. The node looks at links for a bounded time, so that one answer may hold few of them, or none, and
// still be able to go on: then this goes on by itself for a while, until the page is full.

import { get } from "./api.js";
import { listParams } from "./links-query.js";

const ROUNDS = 8;

/**
 * Reads on from a cursor until `size` links are there, or the list is over, or it was tried often enough.
 * `onPart(links)` hears of each answer; `shouldStop()` ends the rounds early.
 */
export async function readPage(filter, { cursor = null, size = Number(filter.size), signal, onPart, shouldStop }) {
  const links = [];
  const began = performance.now();
  let next = cursor;
  let pagination;
  for (let round = 0; round < ROUNDS; round += 1) {
    const query = { ...listParams(filter), itemsPerPage: size - links.length, cursor: next };
    const { shortUrls } = await get("/rest/v3/short-urls", { query, signal });
    links.push(...shortUrls.data);
    pagination = shortUrls.pagination;
    next = pagination.cursor;
    onPart?.(links);
    if (next === null || links.length >= size || shouldStop?.()) {
      break;
    }
  }
  return {
    links,
    next,
    total: pagination.totalItems,
    isExact: pagination.complete,
    // The node has sorted the list earlier. `undefined` for a list of now.
    sortedAt: pagination.sortedAt,
    millis: performance.now() - began,
    // More may be found on this page: it is not full, and the list is not over.
    isOpen: next !== null && links.length < size,
  };
}
