// A form that opens the page of a link by its slug or short URL, for nodes that cannot list links.

import { button, h, loadInto } from "./dom.js";
import { field } from "./field.js";
import { domainChoices } from "./link-form.js";
import { detailPath } from "./link-parts.js";
import { form, opener as text } from "./strings-links.js";

/** The slug and the host in what was typed: a slug, whose `host` is null, or a whole short URL. */
export function linkIn(typed) {
  const written = typed.trim();
  if (!/^https?:\/\//i.test(written) || !URL.canParse(written)) {
    return { shortCode: written, host: null };
  }
  const { host, pathname } = new URL(written);
  return { shortCode: decoded(pathname.slice(1)), host };
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** The form. `go(path)` opens the page of the link. */
export function linkOpener(go) {
  const host = h("div");
  loadInto(host, domainChoices, (domains) => openerForm(domains, go), { lines: 3 });
  return host;
}

function openerForm(domains, go) {
  const slug = field({ name: "shortCode", label: text.slug, required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false", hint: text.hint });
  const domain = field({ name: "domain", label: form.domain, type: "select", options: domains });
  const open = (event) => {
    event.preventDefault();
    const { shortCode, host } = linkIn(slug.value());
    slug.setError(shortCode === "" ? text.missing : null);
    if (shortCode === "") {
      slug.input.focus();
      return;
    }
    // The host of the default domain may be any.
    const named = host === null ? domain.value() : domains.some(([name]) => name === host) ? host : "";
    go(detailPath({ shortCode, domain: named || null }));
  };
  return h("form", { novalidate: true, class: "stack opener", onsubmit: open },
    slug.element, domains.length > 1 && domain.element,
    h("p", null, button(text.open, null, { kind: "primary", type: "submit", "data-action": "open-link" })));
}
