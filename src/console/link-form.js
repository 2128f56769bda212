// The fields of a link, for making one and for changing one: what the API takes, with its names.

import { get, linkPath, patch, post } from "./api.js";
import { formDialog } from "./dialog.js";
import { field, fieldGroup, fromLocalInput, splitTags, toLocalInput } from "./field.js";
import { toast } from "./toast.js";

const STATUSES = [["302", "302 Found: browsers ask again each time"], ["301", "301 Moved Permanently"], ["307", "307 Temporary Redirect"], ["308", "308 Permanent Redirect"]];

const orNull = (text) => (text.trim() === "" ? null : text.trim());
const numberOrNull = (text) => (text === "" ? null : Number(text));

/** Fields that can be changed later, too, with the values of a link or empty. */
function commonFields(link) {
  const { meta = {} } = link;
  return [
    field({ name: "longUrl", label: "Long URL", type: "textarea", rows: 2, value: link.longUrl ?? "", required: true, inputmode: "url", spellcheck: "false", read: (text) => text.trim() }),
    field({ name: "title", label: "Title", value: link.title ?? "", read: orNull }),
    field({ name: "tags", label: "Tags", hint: "With commas between them.", value: (link.tags ?? []).join(", "), read: splitTags }),
  ].concat(fieldGroup("When it can be followed", [
    field({ name: "validSince", label: "From", type: "datetime-local", value: toLocalInput(meta.validSince), hint: "In your time zone.", read: fromLocalInput }),
    field({ name: "validUntil", label: "Until", type: "datetime-local", value: toLocalInput(meta.validUntil), hint: "In your time zone.", read: fromLocalInput }),
    field({ name: "maxVisits", label: "Most visits", type: "number", min: 1, value: meta.maxVisits ?? "", read: numberOrNull }),
  ], Boolean(meta.validSince || meta.maxVisits)), fieldGroup("How it redirects", [
    field({ name: "redirectStatus", label: "Status", type: "select", options: STATUSES, value: String(link.redirectStatus ?? 302), read: Number }),
    field({ name: "cacheSeconds", label: "Seconds that a browser may keep it", type: "number", min: 0, value: link.cacheSeconds ?? "", hint: "Left empty, the status decides.", read: numberOrNull }),
    field({ name: "forwardQuery", label: "The query of a request goes along", type: "checkbox", value: link.forwardQuery ?? true }),
    field({ name: "crawlable", label: "Crawlers may follow it", type: "checkbox", value: link.crawlable ?? false }),
  ]));
}

/** Asks for a new link and makes it. Resolves to it, or to undefined. */
export async function createLink(domains) {
  const others = domains.filter((one) => !one.isDefault).map((one) => one.domain);
  const own = [
    field({ name: "customSlug", label: "Own ending", hint: "Letters, digits, - and _; drawn if left empty.", autocapitalize: "none", spellcheck: "false", read: orNull }),
    others.length > 0 && field({ name: "domain", label: "Domain", type: "select", options: [["", "default domain"], ...others], read: orNull }),
  ].filter(Boolean);
  const [longUrl, ...rest] = commonFields({});
  const link = await formDialog("New link", {
    fields: [longUrl, ...own, ...rest],
    action: "Make the link",
    wide: true,
    submit: (values) => post("/rest/v3/short-urls", withoutEmpty(values)),
  });
  if (link) {
    toast(`Made: ${link.shortUrl}`);
  }
  return link;
}

/** What was left empty is not sent: then the node decides. */
function withoutEmpty(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null));
}

/** Asks what is to be changed of a link. Resolves to the link as it is then, or to undefined; `undone` is called when somebody takes it back. */
export async function editLink(link, undone) {
  const changed = await formDialog(`Edit ${link.shortCode}`, {
    fields: commonFields(link),
    wide: true,
    submit: (values) => {
      const changes = changesOf(link, values);
      return Object.keys(changes).length === 0 ? link : patch(linkPath(link), changes);
    },
  });
  if (changed && changed !== link) {
    offerUndo(link, changed, undone);
  }
  return changed;
}

/** The fields of a link by the names under which they are changed. */
function valuesOf(link) {
  const { longUrl, title, tags, redirectStatus, cacheSeconds, forwardQuery, crawlable, archived, meta } = link;
  return { longUrl, title, tags, redirectStatus, cacheSeconds, forwardQuery, crawlable, archived, ...meta };
}

/** What is another value than the link has. Instants are compared as the form shows them, to the minute. */
function changesOf(link, values) {
  const before = valuesOf(link);
  const shown = (name, value) => (name.startsWith("valid") ? toLocalInput(value) : JSON.stringify(value));
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => shown(name, value) !== shown(name, before[name])));
}

/** Says that a link was changed, and offers to put the old values back. */
export function offerUndo(before, after, undone, said = "Saved.") {
  const [old, now] = [valuesOf(before), valuesOf(after)];
  const back = Object.fromEntries(Object.entries(old).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(now[name])));
  toast(said, {
    seconds: 12,
    action: { label: "Undo", run: async () => undone(await patch(linkPath(before), back)) },
  });
}

/** The domains of the service, for the form. A list that cannot be had is no reason to make no link. */
export async function knownDomains(signal) {
  const told = await get("/rest/v3/domains", { signal }).catch(() => null);
  return told?.domains.data ?? [];
}
