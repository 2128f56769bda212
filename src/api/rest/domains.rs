//! Virtual hosts of the API and the pages: the domain of a request, redirects for missing links and their
//! changes, and the list of all domains.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode, header};
use serde_json::{Map, Value, json};

use super::create::{RequestLimits, long_url};
use super::short_urls::{read_object, refused, write_failed};
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::request::is_read;
use crate::api::response::{ApiResponse, json as json_answer, json_text, to_json, uncached_redirect};
use crate::bridge::{DomainRedirectsAnswer, WriteFailure};
use carom_limits::DOMAINS_WRITTEN_AT_ONCE;
use carom_model::access::{KeyDomains, Role};
use carom_model::destination::hosts::authority_of;
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::redirects::{DomainRedirects, TargetKind, placeholder_in};
use carom_model::domains::{Domain, DomainIndex, Domains, Targets};
use carom_model::link::fields::FieldFault;
use carom_model::redirect::Notice;
use carom_model::redirect::{Response, ResponseRules};

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
        let redirects = self.services.domain_redirects();
        let response_rules = ResponseRules { blocked: None, redirects: &redirects };
        match response_rules.response_for(domain, notice, missing_kind(request.uri().path())) {
            Response::DomainRedirect(target) if is_read(request.method()) => uncached_redirect(target),
            Response::Notice(notice) => self.notice(request, notice),
            Response::DomainRedirect(_) | Response::Redirect(_) => self.notice(request, notice),
        }
    }

    /// Handles `GET /rest/v3/domains`: lists the domains that the caller may use.
    pub(in crate::api) async fn list_domains(&self) -> ApiResponse {
        let (domains, redirects) = (Arc::clone(&self.services.context().domains), self.services.domain_redirects());
        let limited = self.caller.domains().cloned();
        let count = domains.all().len();
        let write = move || written(&domains, &redirects, limited.as_ref());
        let text = self.services.write_document(count, DOMAINS_WRITTEN_AT_ONCE, write).await;
        text.map_or_else(|reason| refused(reason).into_answer(), |text| json_text(StatusCode::OK, text))
    }

    /// Handles `PATCH /rest/v3/domains/redirects`: changes redirects of a domain.
    pub(in crate::api) async fn edit_domain_redirects(&self, request: Request<Incoming>) -> ApiResponse {
        match self.try_edit_domain_redirects(request).await {
            Ok(targets) => json_answer(StatusCode::OK, &targets.to_json()),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_edit_domain_redirects(&self, request: Request<Incoming>) -> Result<Targets, Problem> {
        self.caller.require(Role::WriteAll)?;
        let fields = read_object(&self.services, request).await?;
        let edit = self.bounded(|bounds| RedirectsEdit::read(&fields, bounds));
        let RedirectsEdit { domain, changes } = edit.map_err(|invalid| Problem::invalid(&invalid))?;
        let served = self.domains().named(&domain).map(|place| self.domains().at(place));
        let served = served
            .filter(|served| may_use(self.domains(), self.caller.domains(), served))
            .ok_or_else(|| Problem::no_domain(&domain))?;
        match self.services.change_domain_redirects(served.name.clone(), changes).await {
            Ok(DomainRedirectsAnswer::Changed(targets)) => Ok(targets),
            Ok(DomainRedirectsAnswer::Failed(what)) => Err(unconfirmed(&what)),
            Err(WriteFailure::Unconfirmed(reason)) => Err(unconfirmed(reason)),
            Err(failure) => Err(write_failed(&failure)),
        }
    }
}

/// True if a key that may be limited to some domains may use this one.
fn may_use(domains: &Domains, limited: Option<&KeyDomains>, domain: &Domain) -> bool {
    let label = domains.label_of(&domain.name);
    limited.is_none_or(|limited| limited.has(label.as_ref()))
}

/// Serialises the domains that a key may use, with their redirects.
fn written(domains: &Domains, redirects: &DomainRedirects, limited: Option<&KeyDomains>) -> Vec<u8> {
    let targets = |domain: &Domain| domains.place_of(&domain.name).map(|place| redirects.own_at(place).to_json());
    let shown = |domain: &Domain| {
        let is_default = domain.name == domains.all()[0].name;
        // The default domain may have a port, which tells several services of a machine apart.
        let name = if is_default { authority_of(&domain.base_url) } else { domain.name.as_str() };
        json!({"domain": name, "isDefault": is_default, "redirects": targets(domain)})
    };
    let usable = |domain: &&Domain| may_use(domains, limited, domain);
    let data: Vec<Value> = domains.all().iter().filter(usable).map(shown).collect();
    let default = Some(&domains.all()[0]).filter(usable);
    let defaults = default.and_then(targets).unwrap_or_else(|| Targets::default().to_json());
    to_json(&json!({"domains": {"data": data, "defaultRedirects": defaults}}))
}

/// Returns the error for a change of redirects that may have been made, or may still be made.
fn unconfirmed(why: &str) -> Problem {
    Problem::in_doubt(format!(
        "The change of the redirects cannot be confirmed: {why}. List the domains before you try again."
    ))
}

/// A checked request to change redirects of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RedirectsEdit {
    /// The domain, as the client has written it.
    domain: String,
    /// The new redirects; `None` for no redirect.
    changes: Vec<(TargetKind, Option<LongUrl>)>,
}

impl RedirectsEdit {
    /// Reads the fields of the body.
    ///
    /// # Errors
    /// Every field that is invalid, with the reason.
    fn read(fields: &Map<String, Value>, bounds: &RequestLimits<'_>) -> Result<RedirectsEdit, Vec<Invalid>> {
        const DOMAIN: &str = "domain";
        let is_known = |name: &str| name == DOMAIN || TargetKind::ALL.iter().any(|kind| kind.field() == name);
        let unknown = fields.keys().filter(|name| !is_known(name));
        let mut invalid: Vec<Invalid> = unknown.map(|name| Invalid::new(name, "is not a known field")).collect();
        let domain = match fields.get(DOMAIN) {
            None | Some(Value::Null) => Err(Invalid::new(DOMAIN, "is missing; expected a domain such as go.example")),
            Some(Value::String(name)) if !name.is_empty() => Ok(name.clone()),
            Some(value) => Err(Invalid::value(DOMAIN, "must be a domain such as go.example", value)),
        };
        let domain = domain.map_err(|wrong| invalid.push(wrong)).unwrap_or_default();
        let mut changes = Vec::new();
        for kind in TargetKind::ALL {
            let target = match fields.get(kind.field()) {
                None => continue,
                Some(Value::Null) => Ok(None),
                // The forms of Shlink's clients send an empty string for a field that was left empty.
                Some(Value::String(text)) if text.is_empty() => Ok(None),
                value => fixed_url(value, bounds).map(Some),
            };
            match target {
                Ok(target) => changes.push((kind, target)),
                Err(FieldFault { reason, kind: of }) => {
                    let wrong = Invalid::value(kind.field(), &reason, &fields[kind.field()]);
                    invalid.push(Invalid { kind: of, ..wrong });
                }
            }
        }
        if invalid.is_empty() { Ok(RedirectsEdit { domain, changes }) } else { Err(invalid) }
    }
}

/// Reads the target of a redirect.
///
/// # Errors
/// The reason for which it is invalid.
fn fixed_url(value: Option<&Value>, bounds: &RequestLimits<'_>) -> Result<LongUrl, FieldFault> {
    match value.and_then(Value::as_str).and_then(placeholder_in) {
        Some(placeholder) => {
            Err(format!("has {placeholder}, which carom does not fill in; expected a fixed URL").into())
        }
        None => long_url(value, bounds),
    }
}

/// Returns the kind of redirect that stands in for 404 at a path. A path with one segment may be a short URL.
pub(in crate::api) fn missing_kind(path: &str) -> TargetKind {
    match path.strip_prefix('/') {
        Some(code) if !code.is_empty() && !code.contains('/') => TargetKind::InvalidShortUrl,
        _ => TargetKind::Regular404,
    }
}

/// Returns the host of a request: that of its absolute target, if it has one (RFC 9112, section 3.2.2), else the
/// `Host` header.
pub(in crate::api) fn host_of<B>(request: &Request<B>) -> &[u8] {
    match request.uri().authority() {
        Some(authority) => authority.as_str().as_bytes(),
        None => request.headers().get(header::HOST).map(header::HeaderValue::as_bytes).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::destination::long_url::Authority;

    fn read(body: &Value) -> Result<RedirectsEdit, Vec<String>> {
        let own = [Authority::of("https://s.test").unwrap()];
        let bounds = RequestLimits { own: &own, ..RequestLimits::default() };
        let read = RedirectsEdit::read(body.as_object().unwrap(), &bounds);
        read.map_err(|invalid| invalid.into_iter().map(|one| one.field).collect())
    }

    #[test]
    fn fields_that_are_absent_change_nothing() {
        let url = |text: &str| Some(LongUrl::parse(text, &[]).unwrap());
        let edit = read(&json!({"domain": "go.test", "baseUrlRedirect": null, "regular404Redirect": "https://a.test"}));
        let changes = vec![(TargetKind::Home, None), (TargetKind::Regular404, url("https://a.test"))];
        assert_eq!(edit, Ok(RedirectsEdit { domain: "go.test".to_owned(), changes }));
        let empty = read(&json!({"domain": "DEFAULT", "expiredShortUrlRedirect": ""})).unwrap();
        assert_eq!(empty.changes, [(TargetKind::Expired, None)]);
        assert!(read(&json!({"domain": "127.0.0.1:8080"})).unwrap().changes.is_empty());
    }

    #[test]
    fn every_invalid_field_is_named() {
        for domain in [json!(""), json!(null), json!(7), json!(["go.test"])] {
            assert_eq!(read(&json!({"domain": domain})), Err(vec!["domain".to_owned()]), "{domain}");
        }
        let wrong = read(
            &json!({"baseUrlRedirect": "go.test", "regular404Redirect": 7, "invalidShortUrlRedirect": "https://s.test/x", "domian": ""}),
        );
        for placeholder in ["{DOMAIN}", "{ORIGINAL_PATH}"] {
            let body =
                json!({"domain": "go.test", "regular404Redirect": format!("https://a.test/?from={placeholder}")});
            assert_eq!(read(&body), Err(vec!["regular404Redirect".to_owned()]), "{placeholder}");
        }
        let named = ["domian", "domain", "baseUrlRedirect", "regular404Redirect", "invalidShortUrlRedirect"];
        assert_eq!(wrong, Err(named.map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_path_with_one_segment_may_be_a_short_url() {
        for path in ["/abc", "/%20", "/abc+"] {
            assert_eq!(missing_kind(path), TargetKind::InvalidShortUrl, "{path}");
        }
        for path in ["/", "/abc/", "/a/b", "*"] {
            assert_eq!(missing_kind(path), TargetKind::Regular404, "{path}");
        }
    }
}
