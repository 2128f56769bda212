// The dialogs that create and edit a link: all fields of the API.

import { currentSession, get, linkPath, patch, post } from "./api.js";
import { dateTimeField } from "./date-time-field.js";
import { formDialog, openDialog } from "./dialog.js";
import { button, copyButton, h, outside, targetLink } from "./dom.js";
import { expiryField } from "./expiry-field.js";
import { beside, destinationField, field, fieldGroup } from "./field.js";
import { instant, zoneName } from "./format.js";
import { detailPath, qrCode, valueIn } from "./link-parts.js";
import { hasAllLinks, mayManage, mayWrite } from "./rights.js";
import { go } from "./router.js";
import { actions, form as text } from "./strings-links.js";
import { common } from "./strings-shell.js";
import { tagsField } from "./tags-field.js";
import { toast, toastError } from "./toast.js";

const numberOrNull = (typed) => (typed.trim() === "" ? null : Number(typed));

/**
 * The fields of the forms for new and for existing links. `link` has their first values; `expiryField` explains `lifetime`. Fields
 * that need all links are `false` on a node that does not store them, and so refuses them.
 */
function commonFields(link, { isNew, lifetime }) {
  const meta = link?.meta ?? {};
  const expires = expiryField(meta.validUntil, { isNew, lifetime });
  if (isNew && meta.validUntil === null) {
    expires.kind.input.value = "never";
  }
  const starts = dateTimeField({ name: "validSince", label: text.starts, value: meta.validSince, usual: "00:00", hint: text.startsHint(zoneName()) });
  const show = () => expires.show(starts.value());
  starts.element.addEventListener("input", show);
  expires.kind.input.addEventListener("change", show);
  show();
  const fields = {
    longUrl: destinationField({ label: text.destination, required: true, value: link?.longUrl ?? "" }),
    title: field({ name: "title", label: text.title, value: link?.title ?? "", maxlength: 512, autocomplete: "off", hint: text.titleHint, read: (typed) => typed.trim() || null }),
    tags: tagsField({ label: text.tags, value: link?.tags, hint: text.tagsHint }),
    starts,
    expires,
    maxVisits: hasAllLinks() && field({ name: "maxVisits", label: text.maxVisits, type: "number", min: 1, value: meta.maxVisits ?? "", hint: text.maxVisitsHint, read: numberOrNull }),
  };
  const redirect = [
    field({ name: "redirectStatus", label: text.status, type: "select", options: text.statuses, value: String(link?.redirectStatus ?? 302), read: Number }),
    field({ name: "cacheSeconds", label: text.cache, type: "number", min: 0, value: link?.cacheSeconds ?? "", hint: text.cacheHint, read: numberOrNull }),
    field({ name: "forwardQuery", label: text.forwardQuery, type: "checkbox", value: link?.forwardQuery ?? true }),
    hasAllLinks() && field({ name: "crawlable", label: text.crawlable, type: "checkbox", value: link?.crawlable ?? false }),
  ].filter(Boolean);
  return { ...fields, redirect };
}

const listeners = new Set();

/** Calls `listener()` when this page has created a link; returns what ends that. */
export function onCreated(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let isCreating = false;

/** Asks for new links, one after the other. The form of the first one starts with a destination, or with all of a link that is created `again`. Its choices are loaded first: a second call meanwhile means the same dialog. */
export async function createDialog(destination = "", again = null) {
  if (isCreating || !mayWrite()) {
    return;
  }
  isCreating = true;
  try {
    let isWanted = await createLink(destination, again);
    while (isWanted) {
      isWanted = await createLink("", null);
    }
  } finally {
    isCreating = false;
  }
}

/** Asks for a new link, creates it and shows it; resolves to whether another one is wanted. */
async function createLink(destination, again) {
  const link = await askForLink(destination, again);
  if (!link) {
    return false;
  }
  listeners.forEach((listener) => listener());
  return showCreated(link);
}

/** Shows a new link with what is wanted of it first; resolves to whether another one is wanted. */
async function showCreated(link) {
  const another = button(text.another, () => dialog.close(true), { "data-action": "another" });
  const done = button(text.done, () => dialog.close(false), { "data-action": "done" });
  const details = button(text.showDetails, () => {
    dialog.close(false);
    dialog.closed.then(() => go(detailPath(link)));
  }, { "data-action": "details" });
  const dialog = openDialog(text.created, [
    h("p", { class: "line created" }, targetLink(link.shortUrl, { class: "mono short" }, link.shortUrl.replace(/^https?:\/\//, "")), copyButton(link.shortUrl, common.copy, { named: true, kind: "primary" })),
    h("p", { class: "soft wrap" }, "→ ", outside(link.longUrl)),
    h("p", { class: "created-times" }, timesOf(link)),
    qrCode(link),
  ], { actions: [another, details, done] });
  dialog.element.querySelector("[data-action=copy]").focus();
  return (await dialog.closed) === true;
}

async function askForLink(destination, again) {
  const [domains, hasSlashes] = await Promise.all([domainChoices(), mayHaveSlashes()]);
  const lifetime = currentSession()?.defaultLifetime;
  const { longUrl, title, tags, starts, expires, maxVisits, redirect } = commonFields(again, { isNew: true, lifetime });
  longUrl.input.value = again?.longUrl ?? destination;
  const code = [
    field({ name: "private", label: text.private, type: "checkbox" }),
    hasAllLinks() && field({ name: "findIfExists", label: text.findIfExists, type: "checkbox", hint: text.findIfExistsHint }),
  ].filter(Boolean);
  const limits = [starts, maxVisits].filter(Boolean);
  const groupSlug = hasAllLinks() ? text.groupSlug : text.groupForm;
  return formDialog(text.create, {
    fields: [longUrl, shortUrlFields(domains, hasSlashes, again), beside(title, tags), expires, fieldGroup(groupSlug, code), ...limitsAndRedirect(again, limits, redirect)],
    action: text.create,
    discard: text.discard,
    submit: (values) => {
      checkTimes(starts, expires);
      return expires.isNever() ? createForever(values) : post("/rest/v3/short-urls", values);
    },
  });
}

/** The last groups of a form. They begin folded, unless something in them was set. A node that does not count all visits has no limit of them. */
function limitsAndRedirect(link, limits, redirect) {
  const isLimited = link !== null && (link.meta.validSince !== null || link.meta.maxVisits !== null);
  const isSpecial = link !== null && (link.redirectStatus !== 302 || link.cacheSeconds !== null || !link.forwardQuery || link.crawlable);
  return [fieldGroup(hasAllLinks() ? text.groupStart : text.groupSchedule, limits, isLimited), fieldGroup(text.groupRedirect, redirect, isSpecial)];
}

/** The short URL as it will be: its domain, which can be chosen where there are several, then the slug. */
function shortUrlFields(domains, hasSlashes, again) {
  const slug = field({ name: "customSlug", label: text.slugOptional, value: again?.shortCode ?? "", autocomplete: "off", spellcheck: "false", hint: text.slugHint(hasSlashes), read: (typed) => typed.trim() || null });
  const line = h("div", { class: "prefixed" });
  slug.input.replaceWith(line);
  const fields = [{ ...slug, label: text.slug }];
  // With the default domain alone, there is nothing to choose.
  const isServed = (wanted) => domains.some(([name]) => name === wanted);
  const usual = isServed(again?.domain) ? again.domain : isServed("") ? "" : domains[0]?.[0];
  if (domains.length > 1 || usual !== "") {
    const domain = field({ name: "domain", label: text.domain, "aria-label": text.domain, type: "select", options: domains, value: usual, read: (name) => name || "DEFAULT" });
    domain.input.classList.add("prefix");
    slug.element.append(domain.element.querySelector(".error"));
    line.append(domain.input, h("span", { class: "slash", "aria-hidden": "true" }, "/"), slug.input);
    return { fields: [domain, ...fields], element: slug.element };
  }
  const [[, host]] = domains;
  line.append(...(host === text.defaultDomain ? [] : [outside(`${host}/`, { class: "prefix", "aria-hidden": "true" })]), slug.input);
  return { fields, element: slug.element };
}

/** Creates a link that never expires. A create without an expiry gets the default one, so a change takes it away; no link is reused for that. */
async function createForever({ findIfExists: _reuse, ...values }) {
  const link = await post("/rest/v3/short-urls", values);
  try {
    return await patch(linkPath(link), { validUntil: null });
  } catch (error) {
    toastError(error, text.stillExpires(actions.named([link])));
    return link;
  }
}

/** Says whether a new link redirects now, and when it starts and expires. */
function timesOf({ meta: { validSince, validUntil } }) {
  const [starts, expires] = [validSince, validUntil].map((at) => (at === null ? null : Date.parse(at)));
  if (expires !== null && expires <= Date.now()) {
    return text.expired(instant(expires));
  }
  const begin = starts !== null && starts > Date.now() ? text.startsOn(instant(starts)) : text.live;
  return `${begin} ${expires === null ? text.neverExpires : text.expiresOn(instant(expires))}`;
}

/** Whether slugs may have slashes, for a hint. Only admins may read the setting. */
async function mayHaveSlashes() {
  try {
    const { settings } = mayManage() ? await get("/admin/api/settings") : { settings: [] };
    return String(settings.find(({ name }) => name === "links.multi_segment_slugs")?.value) === "true";
  } catch {
    // The hint is shorter then.
    return false;
  }
}

/** The domains of the service for a field: `[name, shown]`, where the name of the default one is empty. */
export async function domainChoices() {
  try {
    const { domains } = await get("/rest/v3/domains");
    return domains.data.map(({ domain, isDefault }) => [isDefault ? "" : domain, domain]);
  } catch {
    // A link on the default domain can be created all the same.
    return [["", text.defaultDomain]];
  }
}

/** Throws if the start or the expiry of a form cannot be sent. */
function checkTimes(starts, expires) {
  const reason = starts.wrong();
  if (reason !== null) {
    throw Object.assign(new Error(reason), { reasons: [["validSince", reason]] });
  }
  expires.check();
}

/** Asks for changes of a link and makes them, with an undo; `onChange(link)` hears of both. */
export async function editDialog(link, onChange) {
  const { longUrl, title, tags, starts, expires, maxVisits, redirect } = commonFields(link, { isNew: false, lifetime: null });
  const limits = [starts, maxVisits].filter(Boolean);
  const all = [longUrl, title, tags, expires, ...limits, ...redirect];
  const before = new Map(all.map((one) => [one.name, JSON.stringify(one.value())]));
  const submit = async (values) => {
    checkTimes(starts, expires);
    // Only what was changed: fields of the form are coarser than those of the link.
    const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => JSON.stringify(value) !== before.get(name)));
    return { changed, link: Object.keys(changed).length > 0 ? await patch(linkPath(link), changed) : null };
  };
  const fields = [longUrl, beside(title, tags), expires, ...limitsAndRedirect(link, limits, redirect)];
  const done = await formDialog(text.edit(link.shortCode), { fields, action: text.save, submit });
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
    toast(actions.reverted(actions.named([link])));
  } catch (error) {
    toastError(error, text.notReverted);
  }
}
