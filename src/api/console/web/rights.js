// What the key of the session allows. The node checks each request as well: this only decides what is offered.

import { currentSession } from "./api.js";

const READS_ALL = ["read-all", "write-all", "admin"];
const WRITES = ["write-own", "write-all", "admin"];

const role = () => currentSession()?.role ?? "read";

/** Whether the key is for all domains. */
const isUnlimited = () => (currentSession()?.domains ?? null) === null;

/** Whether links may be created and changed. */
export const mayWrite = () => WRITES.includes(role());

/** Whether tags may be renamed and deleted, which changes the links of all apps and domains. */
export const mayRetag = () => ["write-all", "admin"].includes(role()) && isUnlimited();

/** Whether the numbers of the whole service are visible: those of every app and domain. */
export const seesService = () => READS_ALL.includes(role()) && isUnlimited();

/** Whether the node may be watched and run: the status, apps and keys, settings. */
export const mayManage = () => role() === "admin" && isUnlimited();

/**
 * Whether this node has all links, which lists, searches and counts of them need. With `links.home = "shared"`, it fetches
 * single links from Redis. What a page asks of such a node is left out where it would be refused.
 */
export const hasAllLinks = () => currentSession()?.sharedHome !== true;

/** The pages for every key, and those for keys that may write; all others are for admins. */
const FOR_ALL = ["/admin/links", "/admin/tags", "/admin/usage"];
const FOR_WRITERS = ["/admin/import"];

/** Whether a page of the navigation is for the key of the session. */
export function mayOpen(path) {
  return mayManage() || FOR_ALL.includes(path) || (FOR_WRITERS.includes(path) && mayWrite());
}

/** Whether a page is for all keys that may create links, not only for admins. */
export const isForWriters = (path) => FOR_WRITERS.includes(path);

/** The page to begin with. */
export const firstPage = () => (mayManage() ? "/admin/" : "/admin/links");
