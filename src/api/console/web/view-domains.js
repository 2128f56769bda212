// The domains of the service: the prefix of their short URLs, their redirects, and how many links each has.

import { get } from "./api.js";
import { basesIn } from "./bases.js";
import { badge, card, fill, h, outside, pageHead, pageLink, regionTable, row, targetLink } from "./dom.js";
import { settingValue } from "./format.js";
import { breakable, numberOr, reloader, settingLink, snippet } from "./parts.js";
import { apiQuery, periodOf } from "./period.js";
import { hasAllLinks } from "./rights.js";
import { missingNote } from "./shared-home.js";
import { domains as text } from "./strings-access.js";
import { common, pages, sharedHome } from "./strings-shell.js";
import { units } from "./strings-traffic.js";

const EXAMPLE = `[domains]
serve = [
  "https://go.example  home=https://www.example/",
  "https://shop.example",
]`;

const COLUMNS = Object.entries(text.columns).map(([name, title]) => ({ title, class: ["links", "created"].includes(name) ? "num" : undefined }));

/** The redirects of a domain, in the order of their columns, which are the last ones. */
const redirectsOf = ({ redirects }) => [redirects.baseUrlRedirect, redirects.invalidShortUrlRedirect, redirects.expiredShortUrlRedirect];

/** What a row of all columns shows: numbers of links, which need all links, and redirects, which a domain must have. */
function shownOf(cells, hasRedirects) {
  return cells.slice(0, hasRedirects ? undefined : -3).filter(({ class: className }) => hasAllLinks() || !className?.startsWith("num"));
}

export async function show(main, { signal }) {
  const host = h("div", { class: "stack" });
  main.append(pageHead(pages.domains), host);
  const load = reloader(host, { signal, fetch: fetchDomains, render: content });
  await load();
}

/** The domains, and what is asked for once they are known: the page is shown before the numbers of links come, which take longest. */
async function fetchDomains(signal) {
  const { domains: { data: domains } } = await get("/rest/v3/domains", { signal });
  // A single domain has its prefix from the session, and needs no setting.
  const settings = domains.length > 1 ? await get("/admin/api/settings", { signal }).then((all) => all.settings).catch(() => []) : [];
  const query = apiQuery(periodOf(new URLSearchParams({ period: "30d" })));
  const counts = hasAllLinks() ? get("/admin/api/usage", { query, signal }).then(({ links }) => links.byDomain).catch(() => null) : null;
  return { domains, settings, counts };
}

function content({ domains, settings, counts }) {
  // Without the numbers, two columns would be left, which are no cards on a phone.
  const hasRedirects = !hasAllLinks() || domains.some((domain) => redirectsOf(domain).some(Boolean));
  const bases = basesIn(settings);
  const numbers = domains.map(() => [h("span", null, text.counting), h("span", null, text.counting)]);
  const rows = domains.map((domain, at) => row(...shownOf(cellsOf(domain, numbers[at], bases.get(domain.isDefault ? null : domain.domain)), hasRedirects)));
  const { element: region, table } = regionTable(common.asTable(text.served), shownOf(COLUMNS, hasRedirects), rows);
  table.classList.add("rows", "domain-table");
  const unserved = h("div", { class: "stack", hidden: true });
  fillCounts(counts, { domains, numbers, region, unserved });
  return [
    card(text.served, {}, region, !hasRedirects && h("p", { class: "soft small" }, text.allBuiltIn)),
    !hasAllLinks() && missingNote(sharedHome.ofDomains),
    h("div", { class: "cards" }, card(text.add, {}, howToAdd()), domains.length > 1 && card(text.matching, {}, rules(settings))),
    // It comes with the numbers, so it is last: nothing moves.
    unserved,
  ];
}

/** Writes the numbers of links into their cells once they are known, and shows the domains with links that are not served. */
async function fillCounts(asked, { domains, numbers, region, unserved }) {
  if (asked === null) {
    return;
  }
  region.setAttribute("aria-busy", "true");
  const counts = await asked;
  domains.forEach((domain, at) => {
    const { links, created } = countsOf(counts, domain);
    fill(numbers[at][0], numberOr(links, text.notCounted));
    numbers[at][0].closest("td").dataset.label = units.links(links);
    fill(numbers[at][1], numberOr(created, text.notCounted));
  });
  const served = new Set(domains.map((one) => one.domain));
  const others = (counts ?? []).filter((one) => one.domain !== null && !served.has(one.domain));
  fill(unserved, others.length > 0 && card(text.others, {}, othersTable(others)));
  unserved.hidden = others.length === 0;
  region.removeAttribute("aria-busy");
}

function countsOf(counts, { domain, isDefault }) {
  return counts?.find((one) => one.domain === (isDefault ? null : domain)) ?? (counts === null ? { links: null, created: null } : { links: 0, created: 0 });
}

function cellsOf(served, [links, created], base) {
  const { domain, isDefault } = served;
  const name = hasAllLinks() ? pageLink(linksPath(isDefault ? null : domain), outside(domain)) : outside(domain);
  return [
    { content: [name, isDefault && [" ", badge(text.default)]], class: "wrap lead" },
    { content: base ? outside(breakable(base), { class: "mono" }) : "–", class: "wrap fact" },
    { content: links, class: "num figure unit", label: units.links(null) },
    { content: created, class: "num fact unit", label: text.newUnit },
    ...redirectsOf(served).map(targetCell),
  ];
}

function linksPath(domain) {
  return `/admin/links?domain=${encodeURIComponent(domain ?? "DEFAULT")}`;
}

function targetCell(url) {
  return url ? { content: targetLink(url, { class: "wrap" }), class: "wrap below named" } : { content: text.builtIn, class: "soft below named" };
}

function othersTable(others) {
  const rows = others.map(({ domain, links, created }) => row(
    { content: pageLink(linksPath(domain), outside(domain)), class: "wrap" },
    { content: numberOr(links, text.notCounted), class: "num" }, { content: numberOr(created, text.notCounted), class: "num" }));
  const [before, after] = text.othersText;
  return [
    h("p", { class: "soft" }, before, settingLink("domains.serve"), after),
    regionTable(common.asTable(text.others), [COLUMNS[0], COLUMNS[2], COLUMNS[3]], rows).element,
  ];
}

/** The settings that decide for hosts of several domains. */
function rules(settings) {
  const valueOf = (name) => settings.find((one) => one.name === name)?.value ?? null;
  const fallback = valueOf("domains.fallback") === "true";
  const isTold = settingValue(valueOf("domains.unknown_host")) === "misdirected";
  const rule = (title, said, setting) => [h("h3", null, title), h("p", null, said), h("p", { class: "small" }, settingLink(setting))];
  return h("div", { class: "domain-rules" },
    rule(text.unknownSlugs, fallback ? text.fallbackOn : text.fallbackOff, "domains.fallback"),
    rule(text.unknownHosts, isTold ? text.hostTold : text.hostMissing, "domains.unknown_host"));
}

/** The steps to a further domain, which only the settings file can add. */
function howToAdd() {
  const [before, after] = text.list;
  return [
    h("ol", { class: "notes" }, h("li", null, text.pointDns), h("li", null, before, settingLink("domains.serve"), after), h("li", null, text.restart)),
    snippet(text.example, EXAMPLE),
    h("p", { class: "soft small" }, text.pagesOfEach),
  ];
}
