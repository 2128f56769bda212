//! The router of the public listener, for every request that the fast path passes on.

pub(in crate::api) mod routes;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::header;
use hyper::{Method, Request, StatusCode};

use super::ApiService;
use super::admin::status;
use super::compression::Compression;
use super::context::{Context, Site};
use super::orphans::logged_request;
use super::problem::{Problem, health};
use super::query::percent_decoded;
use super::rate_limit::with_quota;
use super::request::is_read;
use super::response::{ApiResponse, empty, json, uncached_redirect, with};
use super::rest::{openapi, parameters};
use crate::bridge::TaskLookup;
use crate::bridge::geo::source;
use crate::bridge::handle::ServiceHandle;
use carom_http::forward;
use carom_model::access::Role;
use carom_model::access::miss_limiter::{ClientKey, RequestOrigin};
use carom_model::access::usage::Quota;
use carom_model::domains::redirects::TargetKind;
use carom_model::link::Link;
use carom_model::link::rules::{RuleVisitor, VisitorPlace};
use carom_model::redirect::notice::{MISS_WAIT_SECONDS, Notice};
use carom_model::redirect::{
    Decision, Destination, Lookup, MissLimit, OwnedLookup, Response, ResponseRules, VisitKind, decide,
};
use carom_model::visits::record::LoggedKind;

/// Returns the handler for the requests of a core that hyper serves.
pub fn service(services: Rc<ServiceHandle>, site: Arc<Site>) -> ApiService {
    let context = Context::of(services, site);
    Rc::new(move |request| {
        let context = context.clone();
        Box::pin(async move { context.route(context.at_route(request)).await })
    })
}

impl Context {
    async fn route(&self, request: Request<Incoming>) -> ApiResponse {
        if let Some(answer) = routes::without_path(request.method(), request.uri()) {
            return answer;
        }
        let path = request.uri().path();
        if path != "/rest" && !path.starts_with("/rest/") {
            return self.route_path(request).await;
        }
        let (grant, compression) = (self.grant_of(&request), Compression::of(&request));
        let answer = match request.method() {
            &Method::OPTIONS => self.rest_options(path, &grant),
            _ => self.route_path(request).await,
        };
        self.compressed(compression, self.with_grant(answer, &grant)).await
    }

    async fn route_path(&self, request: Request<Incoming>) -> ApiResponse {
        let path = request.uri().path().to_owned();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let method = request.method().clone();
        let methods = routes::methods_at(&path);
        match segments[..] {
            ["rest", ..] if methods.is_empty() => Problem::no_route().into_answer(),
            _ if methods.is_empty() => self.off_route(&segments, &request).await,
            _ if !methods.contains(&method.as_str()) => Problem::method(&method, methods.join(", ")).into_answer(),
            [""] if method == Method::POST => self.create_from_form(request).await,
            [""] => self.home(&request),
            ["-", "style.css"] => self.style(&request),
            ["-", "page.js"] => self.script(&request),
            ["-", "fonts", name] => self.font(name, &request),
            ["-", "icon.svg"] => self.icon(),
            ["-", "logo"] => self.logo(&request),
            ["-", "links", code] => self.show_created(&percent_decoded(code), &request).await,
            ["robots.txt"] => self.robots(&request).await,
            ["v4", ..] if !self.site.interfaces.bitly => Problem::interface_off("Bitly's API", "bitly").into_answer(),
            ["yourls-api.php"] if !self.site.interfaces.yourls => {
                Problem::interface_off("YOURLS's API", "yourls").into_answer()
            }
            ["v4", "shorten"] => self.bitly_shorten(request).await,
            ["v4", "expand"] => self.bitly_expand(request).await,
            ["yourls-api.php"] => self.yourls(request).await,
            ["rest", "health"] | ["rest", "v3", "health"] => health(self.is_serving()),
            ["rest", "v3", "openapi.json"] => openapi::description(),
            ["rest", ..] if !self.site.interfaces.shlink => {
                Problem::interface_off("The REST API", "shlink").into_answer()
            }
            ["rest", ref rest @ ..] => {
                let admitted = match rest {
                    ["v3", "short-urls", "shorten"] => self.admit_by_query(&request),
                    _ => self.admit_to_api(&request),
                };
                match admitted {
                    Ok(context) => context.route_api(rest, request).await,
                    Err(problem) => problem.into_answer(),
                }
            }
            ["shorturl_status"] if self.is_from_this_machine(&request) => {
                json(StatusCode::OK, &status::gather(&self.services).await)
            }
            [code] => match percent_decoded(code).strip_suffix('+') {
                Some(code) => self.preview(code, &request).await,
                None => self.redirect(code, &request).await,
            },
            [code, "qr-code"] => self.public_qr(code, &request).await,
            [code, "track"] => self.pixel(code, &request).await,
            _ => self.orphan_page(&request, self.domain_of(&request), LoggedKind::Regular404),
        }
    }

    /// Answers a path of the API for an authenticated caller. The path allows the method.
    pub(super) async fn route_api(&self, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
        let method = request.method().clone();
        if !is_read(&method)
            && let Err(problem) = self.caller.require(Role::WriteOwn)
        {
            return problem.into_answer();
        }
        let query = request.uri().query();
        if let Err(invalid) = parameters::check(request.uri().path(), &method, query) {
            return Problem::invalid(&invalid).into_answer();
        }
        if let Some(what) = routes::of_all_links(segments, &method)
            && let Err(problem) = self.require_all_links(what)
        {
            return problem.into_answer();
        }
        match *segments {
            ["v3", "short-urls"] if method == Method::POST => self.create(request).await,
            ["v3", "short-urls"] => self.list(query).await,
            ["v3", "tags"] => match method {
                Method::PUT => self.rename_tag(request).await,
                Method::DELETE => self.delete_tags(query).await,
                _ => self.tags(query).await,
            },
            ["v3", "api-key"] => self.own_key(),
            ["v3", "mercure-info"] => self.mercure_info(),
            ["v3", "events"] => self.events(query).await.unwrap_or_else(Problem::into_answer),
            ["v3", "events", "dead-letters"] => self.dead_letters().await.unwrap_or_else(Problem::into_answer),
            ["v3", "purges"] => self.create_purge(request).await,
            ["v3", "purges", id] => self.read_purge(&percent_decoded(id)).await,
            ["v3", "tags", "stats"] => self.tag_stats(query).await,
            ["v3", "domains"] => self.list_domains().await,
            ["v3", "domains", "redirects"] => self.edit_domain_redirects(request).await,
            ["v3", "visits"] => self.all_visits().await,
            ["v3", "visits", "orphan"] => self.orphan_visits(&method, query).await,
            ["v3", "visits", "stats"] => self.visit_stats(query).await,
            ["v3", "visits", "per-day"] => self.visits_per_day(query).await,
            ["v3", "visits", "non-orphan"] => self.visits_of_links(query).await,
            ["v3", "tags", tag, "visits"] => self.visits_of_tag(&percent_decoded(tag), query).await,
            ["v3", "domains", domain, "visits"] => self.visits_of_domain(&percent_decoded(domain), query).await,
            ["v3", "short-urls", code, "qr"] => self.qr(&percent_decoded(code), query).await,
            ["v3", "short-urls", code, "redirect-rules"] => {
                let code = percent_decoded(code);
                match method {
                    Method::POST => self.set_redirect_rules(&code, request).await,
                    _ => self.redirect_rules(&code, query).await,
                }
            }
            ["v3", "short-urls", code, "redirect-rules", "try"] => {
                self.try_redirect_rules(&percent_decoded(code), query).await
            }
            ["v3", "short-urls", code, "visits"] => self.visits_of(&method, &percent_decoded(code), query).await,
            ["v3", "short-urls", "shorten"] => self.shorten_in_one_step(&request).await,
            // Links with these slugs are reached under `%62ulk` and `%65xport`.
            ["v3", "short-urls", "bulk"] => self.create_bulk(request).await,
            ["v3", "short-urls", "bulk", "changes"] => self.change_bulk(request).await,
            ["v3", "short-urls", "bulk", "import"] => self.import_bulk(request).await,
            ["v3", "short-urls", "bulk", "matching"] => self.edit_matching(request).await,
            ["v3", "short-urls", "export"] => self.export(&method, query),
            ["v3", "short-urls", code] => {
                let code = percent_decoded(code);
                match method {
                    Method::PATCH => self.change(&code, request).await,
                    Method::DELETE => self.delete(&code, query).await,
                    _ => self.read(&code, query).await,
                }
            }
            _ => Problem::no_route().into_answer(),
        }
    }

    /// True if a client on this machine asks, and the admin listener would answer it without a key. The `Host` field is
    /// ignored.
    fn is_from_this_machine<B>(&self, request: &Request<B>) -> bool {
        let origin = request.extensions().get::<RequestOrigin>();
        origin.is_some_and(|origin| origin.address.to_canonical().is_loopback()) && self.is_trusted(request)
    }

    fn is_serving(&self) -> bool {
        self.services.context().node.is_ready()
    }

    /// Looks up a code in a domain, and then those that stand in for it. Also returns the code that the result is about.
    pub(super) async fn look_up_at<B>(
        &self,
        code: Code,
        domain: Option<carom_model::domains::DomainIndex>,
        request: &Request<B>,
    ) -> (Code, OwnedLookup) {
        let Some(domain) = domain else { return (code, Lookup::Missing) };
        let id = self.domains().id_at(domain);
        let mut code = code.within(id);
        let mut found = self.look_up_for(code, request).await;
        while found.allows_fallback()
            && let Some(next) = self.domains().next_of(&code, id)
        {
            let is_unconfirmed = found == Lookup::Unconfirmed;
            code = next;
            found = self.look_up_for(code, request).await.as_fallback(is_unconfirmed);
        }
        (code, found)
    }

    /// Looks up a code for the visitor that a request describes.
    async fn look_up_for<B>(&self, code: Code, request: &Request<B>) -> OwnedLookup {
        let link = match self.services.look_up(code).await {
            TaskLookup::Plain(lookup) => return lookup,
            TaskLookup::Ruled(link) => link,
        };
        let found = self.for_visitor(&link, request);
        let may_visit = match &found {
            // A blocked link uses up no visit.
            Lookup::Live(Destination { policy, target }) => policy.max_visits.is_none() || self.services.blocks(target),
            _ => true,
        };
        if may_visit {
            return found;
        }
        match self.services.ask_visit(code).await {
            TaskLookup::Plain(lookup) => lookup,
            TaskLookup::Ruled(link) => self.for_visitor(&link, request),
        }
    }

    /// Returns the result that a link with redirect rules has for the visitor that a request describes.
    fn for_visitor<B>(&self, link: &Link, request: &Request<B>) -> OwnedLookup {
        let geo = self.services.geo();
        let place = VisitorPlace::of(source(&geo));
        let languages = request.headers().get_all(header::ACCEPT_LANGUAGE).iter();
        let languages: Vec<&[u8]> = languages.map(header::HeaderValue::as_bytes).collect();
        link.for_visitor(&rule_visitor(request, link, &languages, place, self.services.unix_ms())).to_owned()
    }

    /// Answers a redirect on a connection that hyper drives.
    async fn redirect(&self, code: &str, request: &Request<Incoming>) -> ApiResponse {
        if self.client_of(request).is_limited() {
            return self.too_many(request);
        }
        let domain = self.domain_of(request);
        let Ok(code) = Code::from_slug(percent_decoded(code).as_bytes()) else {
            return self.orphan_page(request, domain, LoggedKind::InvalidShortUrl);
        };
        let (code, lookup) = self.look_up_at(code, domain, request).await;
        self.answer_lookup(request, domain, code, &lookup, TargetKind::InvalidShortUrl)
    }

    /// Returns the response to a request for a code whose look-up has ended. Counts the request, and records the visit.
    /// `missing` is the kind of redirect that stands in for 404.
    pub(super) fn answer_lookup<B>(
        &self,
        request: &Request<B>,
        domain: Option<carom_model::domains::DomainIndex>,
        code: Code,
        lookup: &OwnedLookup,
        missing: TargetKind,
    ) -> ApiResponse {
        let blocked = self.services.blocked();
        let redirects = self.services.domain_redirects();
        let response_rules = ResponseRules { blocked: blocked.as_deref(), redirects: &redirects };
        let is_head = request.method() != Method::GET;
        let decision = decide(&response_rules, domain, is_head, lookup.borrowed(), &mut self.client_of(request));
        let is_missing = match lookup {
            Lookup::Missing | Lookup::NotYetValid => true,
            Lookup::Expired => redirects.hides_expired(),
            _ => false,
        };
        let decision = match decision.response {
            Response::DomainRedirect(_) | Response::Notice(Notice::NotFound) if is_missing => {
                Decision { response: response_rules.response_for(domain, Notice::NotFound, missing), ..decision }
            }
            _ => decision,
        };
        let decision =
            if self.is_untracked(request) { Decision { visit: VisitKind::None, ..decision } } else { decision };
        self.services.note_response(&decision.response);
        let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes).unwrap_or_default();
        let visitor = || self.services.visitor(field(header::USER_AGENT), field(header::REFERER));
        self.services.record_visit(decision.visit, code, visitor);
        if decision.visit != VisitKind::None && self.services.logs_visits() {
            self.services.log_visit(&decision, code, &logged_request(&self.services, request));
        }
        self.answer_with_response(request, &decision.response)
    }

    /// Returns the answer that hyper sends for the response that was decided on.
    pub(super) fn answer_with_response<B>(&self, request: &Request<B>, response: &Response<'_>) -> ApiResponse {
        match *response {
            Response::Redirect(Destination { policy, target }) => {
                let status = StatusCode::from_u16(policy.status.number()).expect("a redirect's number is a status");
                let now_ms = self.services.unix_ms();
                let seconds = carom_http::answer::cache_seconds(&policy, now_ms);
                // For HEAD hyper would omit the length, which GET and the fast path send.
                let answer = with(empty(status), header::CONTENT_LENGTH, "0");
                let answer = with(answer, header::CACHE_CONTROL, &format!("private, max-age={seconds}"));
                let mut location = Vec::new();
                let query = request.uri().query().filter(|_| policy.forward_query).unwrap_or_default();
                let query = self.forwarded_query(query);
                forward::push(&mut location, target, query.as_bytes());
                with(answer, header::LOCATION, std::str::from_utf8(&location).unwrap_or_default())
            }
            Response::DomainRedirect(target) => uncached_redirect(target),
            Response::Notice(Notice::TooMany) => self.too_many_page(request),
            Response::Notice(notice) => self.notice(request, notice),
        }
    }
}

/// Returns the visitor that a request describes to the rules of a link.
fn rule_visitor<'r, B>(
    request: &'r Request<B>,
    link: &'r Link,
    languages: &'r [&'r [u8]],
    place: VisitorPlace<'r>,
    now_ms: u64,
) -> RuleVisitor<'r> {
    let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes).unwrap_or_default();
    RuleVisitor {
        user_agent: field(header::USER_AGENT),
        accept_language: languages,
        query: request.uri().query().unwrap_or_default().as_bytes(),
        address: request.extensions().get::<RequestOrigin>().map(|source| source.address),
        place,
        now_ms,
        code: Some(&link.code),
        ..RuleVisitor::default()
    }
}

/// The client of a request that hyper has read.
pub(super) struct RequestClient<'c> {
    services: &'c ServiceHandle,
    /// The address of the client, if it is known.
    client_key: Option<ClientKey>,
}

impl MissLimit for RequestClient<'_> {
    fn is_limited(&mut self) -> bool {
        let limiter = self.services.miss_limiter();
        limiter.is_throttling() && self.client_key.is_some_and(|client_key| limiter.retry_after(client_key).is_some())
    }

    fn misses_too_often(&mut self) -> bool {
        self.client_key.is_some_and(|client_key| self.services.miss_limiter().miss(client_key).is_err())
    }
}

impl Context {
    /// The client that sent a request.
    pub(super) fn client_of<B>(&self, request: &Request<B>) -> RequestClient<'_> {
        let client_key = request
            .extensions()
            .get::<RequestOrigin>()
            .map(|source| self.services.miss_limiter().client_key(source.address));
        RequestClient { services: &self.services, client_key }
    }

    /// The answer to a client over the miss limit; counts it.
    pub(super) fn too_many<B>(&self, request: &Request<B>) -> ApiResponse {
        self.services.note_throttled();
        self.too_many_page(request)
    }

    fn too_many_page<B>(&self, request: &Request<B>) -> ApiResponse {
        let wait = Duration::from_secs(MISS_WAIT_SECONDS);
        let limit = self.services.miss_limiter().misses_per_second();
        with_quota(self.notice(request, Notice::TooMany), Some(Quota { limit, remaining: 0, reset: wait, wait }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::context::Interfaces;
    use crate::bridge::handle::recording::testing::recording_handle;
    use carom_model::access::origins::CorsOrigins;
    use carom_model::destination::extra_path::ExtraPath;
    use carom_model::link::creator_links::CreatorLinks;
    use carom_model::link::slugs::SlugRules;
    use carom_model::testing::redirects::{Case, any_case, kind_of};
    use carom_model::visits::{VisitReceiver, ring};
    use carom_settings::check::RulesInForce;
    use carom_shards::CodeSecret;
    use proptest::prelude::*;

    fn context(case: &Case) -> (Context, VisitReceiver) {
        let (sender, visits) = ring();
        let services = recording_handle(case.domains.clone(), sender);
        services.set_blocked(Some(Arc::new(case.blocked())));
        case.client.guess(services.miss_limiter());
        let site = Site {
            own: Vec::new(),
            default_ttl: None,
            app_creates: 0,
            creator_links: CreatorLinks::new(CodeSecret::from_bytes([7; 32])),
            trailing_slash: false,
            extra_path: ExtraPath::Off,
            slugs: SlugRules::default(),
            has_other_domains: false,
            has_form: false,
            interfaces: Interfaces { shlink: true, bitly: false, yourls: false, yourls_jsonp: false },
            cors: CorsOrigins::Any,
            mercure: None,
            trusts_admin: false,
            admin_hosts: Vec::new(),
            sessions: crate::api::Sessions::default(),
            settings: serde_json::Value::Null,
            rules: RulesInForce::default(),
        };
        (Context::of(services, Arc::new(site)), visits)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn a_request_that_hyper_has_read_gets_the_response_of_the_decision(case in any_case()) {
            let (context, mut visits) = context(&case);
            let method = if case.is_head { Method::HEAD } else { Method::GET };
            let mut request = Request::builder().method(method).uri("/abc").body(()).unwrap();
            request.extensions_mut().insert(RequestOrigin { address: case.client.address(), is_final: true });
            let code = Code::parse(b"abc").unwrap();
            let answer = context.answer_lookup(&request, case.domain, code, &case.lookup, TargetKind::InvalidShortUrl);
            let location = answer.headers().get(header::LOCATION).map(|value| value.to_str().unwrap());
            let (status, destination, visit, _) = case.outcome();
            prop_assert_eq!((answer.status().as_u16(), location.unwrap_or_default()), (status, &destination[..]));
            prop_assert_eq!(kind_of(&mut visits), visit);
        }
    }
}
