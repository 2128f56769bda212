// The dialogs that make and change a link: all fields of the API.

import { get, linkPath, patch, post } from "./api.js";
import { formDialog } from "./dialog.js";
import { field, fieldGroup, fromLocalInput, joinTags, splitTags, toLocalInput } from "./field.js";
import { instant } from "./format.js";
import { toast, toastError } from "./toast.js";

const STATUSES = [["302", "302 Found"], ["301", "301 Moved permanently"], ["303", "303 See other"], ["307", "307 Temporary redirect"], ["308", "308 Permanent redirect"]];
const numberOrNull = (text) => (text.trim() === "" ? null : Number(text));

/** The fields that a link has whenever it was made; `link` is what they hold at first. */
function commonFields(link) {
  const meta = link?.meta ?? {};
  const main = [
    field({ name: "longUrl", label: "Target URL", type: "url", required: true, value: link?.longUrl ?? "", placeholder: "https://example.com/…", autocomplete: "off", read: (text) => text.trim() }),
    field({ name: "title", label: "Title", value: link?.title ?? "", maxlength: 512, autocomplete: "off", hint: "What a person calls it.", read: (text) => text.trim() || null }),
    field({ name: "tags", label: "Tags", value: joinTags(link?.tags ?? []), autocomplete: "off", hint: "Separated by commas.", read: splitTags }),
  ];
  const times = [
    field({ name: "validSince", label: "Begins", type: "datetime-local", value: toLocalInput(meta.validSince), hint: "Before, there is no such link. Empty: at once.", read: fromLocalInput }),
    field({ name: "validUntil", label: "Ends", type: "datetime-local", value: toLocalInput(meta.validUntil), hint: link ? "Empty: never." : "Empty: as the setting links.default_ttl says.", read: fromLocalInput }),
    field({ name: "maxVisits", label: "Most visits", type: "number", min: 1, value: meta.maxVisits ?? "", hint: "After that many it is gone. Empty: as many as come.", read: numberOrNull }),
  ];
  const redirect = [
    field({ name: "redirectStatus", label: "Status of the redirect", type: "select", options: STATUSES, value: String(link?.redirectStatus ?? 302), read: Number }),
    field({ name: "cacheSeconds", label: "Clients may cache it for (seconds)", type: "number", min: 0, value: link?.cacheSeconds ?? "", hint: "Empty: not at all. What is cached is not counted, and cannot be changed.", read: numberOrNull }),
    field({ name: "forwardQuery", label: "Pass the query on to the target", type: "checkbox", value: link?.forwardQuery ?? true }),
    field({ name: "crawlable", label: "Let crawlers follow it (robots.txt)", type: "checkbox", value: link?.crawlable ?? false }),
  ];
  return { main, times, redirect };
}

/** Asks for a new link and makes it; resolves to the link, or to undefined. */
export async function createDialog() {
  const domains = await choices();
  const { main, times, redirect } = commonFields(null);
  const code = [
    field({ name: "customSlug", label: "Code of your own", autocomplete: "off", spellcheck: "false", hint: "Letters, digits, - and _. Empty: a code is drawn.", read: (text) => text.trim() || null }),
    field({ name: "domain", label: "Domain", type: "select", options: domains, read: (name) => name || null }),
    field({ name: "private", label: "Private: 16 random characters that nobody comes upon", type: "checkbox" }),
    field({ name: "findIfExists", label: "Take a link that is there already", type: "checkbox", hint: "One with the same target and the same properties." }),
  ];
  const made = await formDialog("New link", {
    fields: [...main, fieldGroup("Code and domain", code), fieldGroup("Time and visits", times), fieldGroup("Redirect", redirect)],
    action: "Create",
    submit: (values) => post("/rest/v3/short-urls", values),
  });
  if (made) {
    toast(`${made.shortUrl} ${stateOf(made)}.`);
  }
  return made;
}

/** What there is to say of a link that was just made. */
function stateOf({ meta }) {
  if (meta.validUntil !== null && Date.parse(meta.validUntil) <= Date.now()) {
    return "is over already: its end has passed";
  }
  const begins = meta.validSince !== null && Date.parse(meta.validSince) > Date.now();
  return begins ? `leads to its target from ${instant(Date.parse(meta.validSince))} on` : "leads to its target now";
}

async function choices() {
  try {
    const { domains } = await get("/rest/v3/domains");
    return domains.data.map(({ domain, isDefault }) => [isDefault ? "" : domain, domain]);
  } catch {
    // A link on the default domain can be made all the same.
    return [["", "The default domain"]];
  }
}

/** The value of a field as it is in a link. */
function valueIn(link, name) {
  return ["validSince", "validUntil", "maxVisits"].includes(name) ? link.meta[name] : link[name];
}

/** Asks for changes of a link and makes them, with an undo; `onChange(link)` hears of both. */
export async function editDialog(link, onChange) {
  const { main, times, redirect } = commonFields(link);
  const all = [...main, ...times, ...redirect];
  const before = new Map(all.map((one) => [one.name, JSON.stringify(one.value())]));
  const submit = async (values) => {
    // Only what was changed: fields of the form are coarser than those of the link.
    const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== before.get(name)));
    return { changed, link: Object.keys(changed).length > 0 ? await patch(linkPath(link), changed) : null };
  };
  const done = await formDialog(`Edit ${link.shortCode}`, { fields: [...main, fieldGroup("Time and visits", times, true), fieldGroup("Redirect", redirect, true)], submit });
  if (!done?.link) {
    return;
  }
  onChange(done.link);
  const old = Object.fromEntries(Object.keys(done.changed).map((name) => [name, valueIn(link, name)]));
  toast(`${link.shortCode} is changed.`, { seconds: 10, action: { label: "Undo", run: () => restore(link, old, onChange) } });
}

async function restore(link, old, onChange) {
  try {
    onChange(await patch(linkPath(link), old));
    toast(`${link.shortCode} is as it was.`);
  } catch (error) {
    toastError(error, "It could not be undone.");
  }
}
