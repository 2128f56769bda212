// The dialogs that create and edit a link: all fields of the API.

import { get, linkPath, patch, post } from "./api.js";
import { formDialog, openDialog } from "./dialog.js";
import { button, copyButton, h, outside, targetLink } from "./dom.js";
import { field, fieldGroup, fromLocalInput, joinTags, splitTags, toLocalInput } from "./field.js";
import { instant } from "./format.js";
import { detailPath, qrCode } from "./link-parts.js";
import { go } from "./router.js";
import { form as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { toast, toastError } from "./toast.js";

const numberOrNull = (typed) => (typed.trim() === "" ? null : Number(typed));

/** The fields that a link has whenever it was made; `link` is what they hold at first. */
function commonFields(link) {
  const meta = link?.meta ?? {};
  const destination = [
    field({ name: "longUrl", label: text.destination, type: "url", required: true, value: link?.longUrl ?? "", placeholder: "https://example.com/…", autocomplete: "off", read: (typed) => typed.trim() }),
  ];
  const about = [
    field({ name: "title", label: text.title, value: link?.title ?? "", maxlength: 512, autocomplete: "off", hint: text.titleHint, read: (typed) => typed.trim() || null }),
    field({ name: "tags", label: text.tags, value: joinTags(link?.tags ?? []), autocomplete: "off", hint: text.tagsHint, read: splitTags }),
  ];
  const times = [
    field({ name: "validSince", label: text.starts, type: "datetime-local", value: toLocalInput(meta.validSince), hint: text.startsHint, read: fromLocalInput }),
    field({ name: "validUntil", label: text.expires, type: "datetime-local", value: toLocalInput(meta.validUntil), hint: link ? text.expiresHintEdit : text.expiresHint, read: fromLocalInput }),
    field({ name: "maxVisits", label: text.maxVisits, type: "number", min: 1, value: meta.maxVisits ?? "", hint: text.maxVisitsHint, read: numberOrNull }),
  ];
  const redirect = [
    field({ name: "redirectStatus", label: text.status, type: "select", options: text.statuses, value: String(link?.redirectStatus ?? 302), read: Number }),
    field({ name: "cacheSeconds", label: text.cache, type: "number", min: 0, value: link?.cacheSeconds ?? "", hint: text.cacheHint, read: numberOrNull }),
    field({ name: "forwardQuery", label: text.forwardQuery, type: "checkbox", value: link?.forwardQuery ?? true }),
    field({ name: "crawlable", label: text.crawlable, type: "checkbox", value: link?.crawlable ?? false }),
  ];
  return { destination, about, times, redirect };
}

/** Asks for a new link, creates it and shows it, again as long as another one is wanted; `onMade(link)` hears of each. */
export async function createDialog(onMade = () => {}) {
  let isWanted = true;
  while (isWanted) {
    const link = await askForLink();
    if (link) {
      onMade(link);
      toast(outcomeOf(link));
    }
    isWanted = Boolean(link) && (await showCreated(link));
  }
}

/** Shows a new link with what is wanted of it first; resolves to whether another one is wanted. */
async function showCreated(link) {
  const another = button(text.another, () => dialog.close(true), { "data-action": "another" });
  const done = button(text.done, () => dialog.close(false), { kind: "primary", "data-action": "done" });
  const details = button(text.showDetails, () => {
    dialog.close(false);
    dialog.closed.then(() => go(detailPath(link)));
  }, { "data-action": "details" });
  const dialog = openDialog(text.created, [
    h("p", { class: "line created" }, targetLink(link.shortUrl, { class: "mono short" }, link.shortUrl.replace(/^https?:\/\//, "")), copyButton(link.shortUrl)),
    h("p", { class: "soft wrap" }, "→ ", outside(link.longUrl)),
    qrCode(link),
  ], { actions: [another, details, done] });
  dialog.element.querySelector("[data-action=copy]").focus();
  return (await dialog.closed) === true;
}

async function askForLink() {
  const domains = await choices();
  const { destination, about, times, redirect } = commonFields(null);
  const code = [
    field({ name: "customSlug", label: text.slug, autocomplete: "off", spellcheck: "false", hint: text.slugHint, read: (typed) => typed.trim() || null }),
    field({ name: "domain", label: text.domain, type: "select", options: domains, read: (name) => name || null }),
    field({ name: "private", label: text.private, type: "checkbox" }),
    field({ name: "findIfExists", label: text.findIfExists, type: "checkbox", hint: text.findIfExistsHint }),
  ];
  return formDialog(text.create, {
    fields: [...destination, fieldGroup(text.groupSlug, code), fieldGroup(text.groupAbout, about), fieldGroup(text.groupLimits, times), fieldGroup(text.groupRedirect, redirect)],
    action: text.createAction,
    submit: (values) => post("/rest/v3/short-urls", values),
  });
}

/** Says from when on a new link redirects. */
function outcomeOf({ shortUrl, meta }) {
  if (meta.validUntil !== null && Date.parse(meta.validUntil) <= Date.now()) {
    return text.expired(shortUrl);
  }
  const isScheduled = meta.validSince !== null && Date.parse(meta.validSince) > Date.now();
  return isScheduled ? text.starting(shortUrl, instant(Date.parse(meta.validSince))) : text.live(shortUrl);
}

async function choices() {
  try {
    const { domains } = await get("/rest/v3/domains");
    return domains.data.map(({ domain, isDefault }) => [isDefault ? "" : domain, domain]);
  } catch {
    // A link on the default domain can be created all the same.
    return [["", text.defaultDomain]];
  }
}

/** The value of a field as it is in a link. */
function valueIn(link, name) {
  return ["validSince", "validUntil", "maxVisits"].includes(name) ? link.meta[name] : link[name];
}

/** Asks for changes of a link and makes them, with an undo; `onChange(link)` hears of both. */
export async function editDialog(link, onChange) {
  const { destination, about, times, redirect } = commonFields(link);
  const all = [...destination, ...about, ...times, ...redirect];
  const before = new Map(all.map((one) => [one.name, JSON.stringify(one.value())]));
  const submit = async (values) => {
    // Only what was changed: fields of the form are coarser than those of the link.
    const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== before.get(name)));
    return { changed, link: Object.keys(changed).length > 0 ? await patch(linkPath(link), changed) : null };
  };
  const done = await formDialog(text.edit(link.shortCode), { fields: [...destination, ...about, fieldGroup(text.groupLimits, times, true), fieldGroup(text.groupRedirect, redirect, true)], submit });
  if (!done?.link) {
    return;
  }
  onChange(done.link);
  const old = Object.fromEntries(Object.keys(done.changed).map((name) => [name, valueIn(link, name)]));
  toast(text.changed(link.shortCode), { seconds: 10, action: { name: "undo", label: common.undo, run: () => restore(link, old, onChange) } });
}

async function restore(link, old, onChange) {
  try {
    onChange(await patch(linkPath(link), old));
    toast(text.reverted(link.shortCode));
  } catch (error) {
    toastError(error, text.notReverted);
  }
}
