// The domains of the service: what their short URLs start with, where who finds nothing is led, and how many links each has.

import { get } from "./api.js";
import { baseUrls } from "./bases.js";
import { badge, card, emptyState, h, outside, pageHead, pageLink, regionTable, row, targetLink } from "./dom.js";
import { numberOr, reloader, settingLink, snippet } from "./parts.js";
import { apiQuery, periodOf } from "./period.js";

const NOT_COUNTED = "Not known: the node is still counting, or the counts could not be read.";

const EXAMPLE = `[domains]
serve = [
  "https://go.example  home=https://www.example/  not_found=https://www.example/lost",
  "https://shop.example",
]`;

const COLUMNS = [
  { title: "Domain" }, { title: "Short URLs start with" }, { title: "Links", class: "num" }, { title: "Made in 30 days", class: "num" },
  { title: "/ leads to" }, { title: "Unknown links lead to" }, { title: "Ended links lead to" },
];

export async function show(main, { signal }) {
  const host = h("div", { class: "stack" });
  main.append(pageHead("Domains"), host);
  const load = reloader(host, { signal, fetch: fetchDomains, render: content });
  await load();
}

async function fetchDomains(signal) {
  const query = apiQuery(periodOf(new URLSearchParams({ period: "30d" })));
  const [domains, usage, settings, bases] = await Promise.all([
    get("/rest/v3/domains", { signal }),
    // The domains are shown without these if they cannot be had.
    get("/admin/api/usage", { query, signal }).catch(() => null),
    get("/admin/api/settings", { signal }).catch(() => null),
    baseUrls(signal).catch(() => new Map()),
  ]);
  return { domains: domains.domains.data, counts: usage?.links.byDomain ?? null, settings: settings?.settings ?? [], bases };
}

function content({ domains, counts, settings, bases }) {
  const rows = domains.map((domain) => domainRow(domain, countsOf(counts, domain), bases.get(domain.isDefault ? null : domain.domain)));
  const served = new Set(domains.map((one) => one.domain));
  const others = (counts ?? []).filter((one) => one.domain !== null && !served.has(one.domain));
  return [
    card("Served domains", {}, regionTable("Domains of this service", COLUMNS, rows).element),
    others.length > 0 && card("No longer served", {}, othersTable(others)),
    domains.length > 1 ? card("How hosts are told apart", {}, rules(settings)) : card("More domains", {}, onlyOne()),
  ];
}

function countsOf(counts, { domain, isDefault }) {
  return counts?.find((one) => one.domain === (isDefault ? null : domain)) ?? (counts === null ? { links: null, created: null } : { links: 0, created: 0 });
}

function domainRow({ domain, isDefault, redirects }, { links, created }, base) {
  return row(
    { content: [pageLink(linksPath(isDefault ? null : domain), outside(domain)), isDefault && [" ", badge("default")]], class: "wrap" },
    { content: base ? outside(base, { class: "mono" }) : "–", class: "nowrap" },
    { content: numberOr(links, NOT_COUNTED), class: "num" },
    { content: numberOr(created, NOT_COUNTED), class: "num" },
    targetCell(redirects.baseUrlRedirect, "the start page"),
    targetCell(redirects.invalidShortUrlRedirect, "a page with 404"),
    targetCell(redirects.expiredShortUrlRedirect, "a page with 410"));
}

function linksPath(domain) {
  return `/admin/links?domain=${encodeURIComponent(domain ?? "DEFAULT")}`;
}

function targetCell(url, otherwise) {
  return url ? { content: targetLink(url, { class: "wrap" }), class: "wrap" } : { content: otherwise, class: "soft" };
}

function othersTable(others) {
  const rows = others.map(({ domain, links, created }) => row(
    { content: pageLink(linksPath(domain), outside(domain)), class: "wrap" },
    { content: numberOr(links, NOT_COUNTED), class: "num" }, { content: numberOr(created, NOT_COUNTED), class: "num" }));
  return [
    h("p", { class: "soft" }, "These domains have links and are not in ", settingLink("domains.serve"), ": the links answer nowhere, and are back when the domain is."),
    regionTable("Domains that are no longer served", [COLUMNS[0], COLUMNS[2], COLUMNS[3]], rows).element,
  ];
}

/** The settings that decide for hosts of several domains. */
function rules(settings) {
  const valueOf = (name) => settings.find((one) => one.name === name)?.value ?? null;
  const fallback = valueOf("domains.fallback") === "true";
  const isTold = valueOf("domains.unknown_host") === "misdirected";
  return h("ul", { class: "notes" },
    h("li", null, fallback ? "Links of the default domain answer on the others, too, where these have none of that code" : "Links answer on their own domain only", " (", settingLink("domains.fallback"), ")."),
    h("li", null, isTold ? "A request for a host that is no domain is told why with 421" : "A request for a host that is no domain gets 404, as an unknown link does", " (", settingLink("domains.unknown_host"), ")."),
    h("li", null, "Domains are added in ", settingLink("domains.serve"), ", and served from the next start of the node."));
}

function onlyOne() {
  return [
    emptyState("All short URLs are of one domain",
      h("span", null, "Name more in ", settingLink("domains.serve"), " and start the node anew. Each may lead people elsewhere who find nothing there.")),
    snippet("Example of domains in the settings file", EXAMPLE),
  ];
}
