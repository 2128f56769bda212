// Domains: which hosts the service answers for, where each leads who finds nothing, and how many links each has.

import { get } from "./api.js";
import { actionButton, badge, card, emptyState, h, outside, pageHead, pageLink, regionTable, row, targetLink } from "./dom.js";
import { numberOr, reloader, settingLink, snippet } from "./parts.js";

const COUNTING = "Not known yet: the node is still counting.";
const COLUMNS = [
  { title: "Domain" }, { title: "Links", class: "num" }, { title: "Made in 30 days", class: "num" },
  { title: "Its root leads to" }, { title: "Unknown codes lead to" }, { title: "Ended links lead to" },
];
const EXAMPLE = "[domains]\nserve = [\"https://go.example.com\", \"https://s.example.org\"]";

export async function show(main, { signal }) {
  const host = h("div", { class: "stack" });
  const load = reloader(host, { signal, fetch: fetchDomains, render: content });
  main.append(pageHead("Domains", actionButton("Refresh", load)), host);
  await load();
}

async function fetchDomains(signal) {
  const [{ domains }, usage] = await Promise.all([
    get("/rest/v3/domains", { signal }),
    // The domains are worth showing without their numbers.
    get("/admin/api/usage", { signal }).catch(() => null),
  ]);
  return { domains: domains.data, counts: usage?.links.byDomain ?? [] };
}

function content({ domains, counts }) {
  const rows = domains.map((domain) => domainRow(domain, counts.find((one) => one.domain === (domain.isDefault ? null : domain.domain))));
  return [
    card("Domains", {}, regionTable("Domains, one a row", COLUMNS, rows).element),
    domains.length === 1 && emptyState("One domain so far",
      "Each domain has codes of its own: the same code may lead elsewhere under another domain. Further ones are named in the settings file; then the node is restarted.",
      snippet("Lines for the settings file", EXAMPLE), h("span", null, "See ", settingLink("domains.serve"), ", ", settingLink("base_url"), " and ", settingLink("domains.fallback"), ".")),
  ];
}

function domainRow({ domain, isDefault, redirects }, count) {
  const number = (value) => ({ content: numberOr(value, COUNTING), class: "num" });
  const target = (url) => ({ content: url ? targetLink(url) : h("span", { class: "soft" }, "our page"), class: "wrap" });
  const name = pageLink(`/admin/links?domain=${encodeURIComponent(isDefault ? "DEFAULT" : domain)}`, outside(domain));
  return row([name, isDefault && [" ", badge("default")]], number(count?.links), number(count?.created),
    target(redirects.baseUrlRedirect), target(redirects.regular404Redirect), target(redirects.expiredShortUrlRedirect));
}
