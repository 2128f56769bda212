//! Requests that hyper has read, as the visit log needs them; and orphan visits of pages that are no short URLs: the
//! base URL of a domain, and missing pages.

use hyper::{Method, Request, header};

use crate::api::context::Context;
use crate::api::response::ApiResponse;
use crate::api::rest::domains::{host_of, missing_kind};
use crate::bridge::handle::ServiceHandle;
use crate::bridge::visit_log::{LoggedPart, LoggedRequest};
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::domains::DomainIndex;
use carom_model::redirect::{Notice, Response, ResponseRules};
use carom_model::visits::record::{LoggedKind, RequestPart};

impl Context {
    /// Returns the response for a missing page, and records the request as an orphan visit.
    pub(in crate::api) fn orphan_page<B>(
        &self,
        request: &Request<B>,
        domain: Option<DomainIndex>,
        kind: LoggedKind,
    ) -> ApiResponse {
        let redirects = self.services.domain_redirects();
        let response_rules = ResponseRules { blocked: None, redirects: &redirects };
        let target = match response_rules.response_for(domain, Notice::NotFound, missing_kind(request.uri().path())) {
            Response::DomainRedirect(target) => Some(target),
            Response::Notice(_) | Response::Redirect(_) => None,
        };
        self.record_orphan(request, domain, kind, target);
        self.no_link_page(request, domain, Notice::NotFound)
    }

    /// Counts and logs a request that was sent to `target`, or got a page. Only `GET` on a domain of the service is a
    /// visit.
    pub(in crate::api) fn record_orphan<B>(
        &self,
        request: &Request<B>,
        domain: Option<DomainIndex>,
        kind: LoggedKind,
        target: Option<&str>,
    ) {
        if request.method() != Method::GET || domain.is_none() {
            return;
        }
        let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes).unwrap_or_default();
        let visitor = || self.services.visitor(field(header::USER_AGENT), field(header::REFERER));
        self.services.record_orphan(visitor);
        if self.services.logs_visits() {
            self.services.log_orphan(kind, target, &logged_request(&self.services, request));
        }
    }
}

/// Returns a request that is answered now, as the visit log needs it.
pub(super) fn logged_request<'a, B>(services: &ServiceHandle, request: &'a Request<B>) -> LoggedRequest<'a> {
    let part = visit_part(services, request);
    let (at_ms, is_bot) = (services.unix_ms(), services.is_bot(part.agent));
    LoggedRequest { at_ms, is_secure: false, is_bot, part: LoggedPart::Present(part) }
}

/// Returns the request part of a visit.
fn visit_part<'a, B>(services: &ServiceHandle, request: &'a Request<B>) -> RequestPart<'a> {
    let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes).unwrap_or_default();
    let origin = request.extensions().get::<RequestOrigin>().filter(|_| services.logs_visit_addresses());
    RequestPart {
        address: origin.map(|origin| origin.address),
        host: host_of(request),
        path: request.uri().path().as_bytes(),
        query: request.uri().query().unwrap_or_default().as_bytes(),
        referrer: field(header::REFERER),
        agent: field(header::USER_AGENT),
        language: field(header::ACCEPT_LANGUAGE),
    }
}
