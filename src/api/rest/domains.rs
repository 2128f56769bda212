//! Virtual hosts of the API and the pages: the domain of a request, redirects for missing links, and the list of
//! all domains.

use hyper::{Request, StatusCode, header};
use serde_json::{Value, json};

use crate::api::context::Context;
use crate::api::request::is_read;
use crate::api::response::{ApiResponse, json as json_answer, uncached_redirect};
use carom_model::destination::hosts::authority_of;
use carom_model::domains::{Domain, DomainIndex, Domains, Targets};
use carom_model::redirect::Notice;
use carom_model::redirect::{Policies, Response};

impl Context {
    /// Returns the domains of the service.
    pub(in crate::api) fn domains(&self) -> &Domains {
        &self.services.context().domains
    }

    /// Returns the domain of a request by its host; `None` if the service does not serve that host. A service with
    /// a single domain accepts any host.
    pub(in crate::api) fn domain_of<B>(&self, request: &Request<B>) -> Option<DomainIndex> {
        if !self.domains().is_strict() {
            return Some(DomainIndex::default());
        }
        self.domains().of_host(host_of(request))
    }

    /// Returns the response for a missing or expired link: the domain's redirect, if it has one, else a page.
    pub(in crate::api) fn no_link_page<B>(
        &self,
        request: &Request<B>,
        domain: Option<DomainIndex>,
        notice: Notice,
    ) -> ApiResponse {
        let policies = Policies { blocked: None, domains: self.domains() };
        match policies.response_at(domain, notice) {
            Response::DomainFallback(target) if is_read(request.method()) => uncached_redirect(target),
            Response::Notice(notice) => self.notice(request, notice),
            Response::DomainFallback(_) | Response::Redirect(_) => self.notice(request, notice),
        }
    }

    /// Handles `GET /rest/v3/domains`: lists the domains that the caller may use.
    pub(in crate::api) fn list_domains(&self) -> ApiResponse {
        let domains = self.domains();
        let may_use = |domain: &&Domain| {
            let label = domains.place_of(&domain.name).and_then(|place| domains.label_at(place));
            self.caller.domains().is_none_or(|limited| limited.has(label.as_ref()))
        };
        let shown = |domain: &Domain| {
            let is_default = domain.name == domains.all()[0].name;
            // The default domain may have a port, which tells several services of a machine apart.
            let name = if is_default { authority_of(&domain.base_url) } else { domain.name.as_str() };
            json!({"domain": name, "isDefault": is_default, "redirects": redirects(&domain.targets)})
        };
        let data: Vec<Value> = domains.all().iter().filter(may_use).map(shown).collect();
        let default = Some(&domains.all()[0]).filter(may_use);
        let defaults = default.map_or_else(|| redirects(&Targets::default()), |domain| redirects(&domain.targets));
        json_answer(StatusCode::OK, &json!({"domains": {"data": data, "defaultRedirects": defaults}}))
    }
}

fn redirects(targets: &Targets) -> Value {
    json!({
        "baseUrlRedirect": targets.home,
        "regular404Redirect": targets.not_found,
        "invalidShortUrlRedirect": targets.not_found,
        "expiredShortUrlRedirect": targets.expired,
    })
}

/// Returns the host of a request: that of its absolute target, if it has one (RFC 9112, section 3.2.2), else the
/// `Host` header.
pub(in crate::api) fn host_of<B>(request: &Request<B>) -> &[u8] {
    match request.uri().authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => request.headers().get(header::HOST).map(header::HeaderValue::as_bytes).unwrap_or_default(),
    }
}
