//! The router of the public listener, for every request that the fast path passes on.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carom_shards::Code;
use hyper::body::Incoming;
use hyper::header;
use hyper::{Method, Request, StatusCode};

use super::auth::with_quota;
use super::problem::{Problem, health};
use super::query::percent_decoded;
use super::rest::{openapi, routes};
use super::{Answer, Context, Service, Site, empty, is_read, with};
use crate::bridge::handle::{Desk, Looked};
use crate::pages::Notice;
use crate::wire::answer::MISS_WAIT_SECONDS;
use crate::wire::forward;
use carom_model::access::Role;
use carom_model::access::miss_limiter::{Place, Source};
use carom_model::access::usage::Quota;

/// Returns the handler for the requests of a core that hyper serves.
pub fn service(desk: Rc<Desk>, site: Arc<Site>) -> Service {
    let context = Context::of(desk, site);
    Rc::new(move |request| {
        let context = context.clone();
        Box::pin(async move { context.route(request).await })
    })
}

impl Context {
    async fn route(&self, request: Request<Incoming>) -> Answer {
        if let Some(answer) = routes::without_path(request.method(), request.uri()) {
            return answer;
        }
        let path = request.uri().path().to_owned();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let method = request.method().clone();
        let methods = routes::methods_at(&path);
        match segments[..] {
            ["rest", ..] if methods.is_empty() => Problem::no_route().into_answer(),
            _ if methods.is_empty() => self.lost(&request, self.domain_of(&request), Notice::NotFound),
            _ if !methods.contains(&method.as_str()) => Problem::method(&method, methods.join(", ")).into_answer(),
            [""] if method == Method::POST => self.shorten_by_hand(request).await,
            [""] => self.home(&request),
            ["-", "style.css"] => self.style(),
            ["-", "page.js"] => self.script(),
            ["-", "icon.svg"] => self.icon(),
            ["-", "logo"] => self.logo(&request),
            ["-", "links", code] => self.show_made(code, &request).await,
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
            ["rest", ref rest @ ..] => match self.admit_to_api(&request) {
                Ok(context) => context.route_api(rest, request).await,
                Err(problem) => problem.into_answer(),
            },
            [code] => match percent_decoded(code).strip_suffix('+') {
                Some(code) => self.preview(code, &request).await,
                None => self.redirect(code, &request).await,
            },
            [code, "qr-code"] => self.public_qr(code, &request).await,
            _ => self.lost(&request, self.domain_of(&request), Notice::NotFound),
        }
    }

    /// Answers a path of the API for an authenticated caller. The path allows the method.
    pub(super) async fn route_api(&self, segments: &[&str], request: Request<Incoming>) -> Answer {
        let method = request.method().clone();
        if !is_read(&method)
            && let Err(problem) = self.caller.needs(Role::WriteOwn)
        {
            return problem.into_answer();
        }
        let query = request.uri().query();
        match *segments {
            ["v3", "short-urls"] if method == Method::POST => self.create(request).await,
            ["v3", "short-urls"] => self.list(query).await,
            ["v3", "tags"] => self.tags(query).await,
            ["v3", "tags", "stats"] => self.tag_stats(query).await,
            ["v3", "domains"] => self.list_domains(),
            ["v3", "visits"] => self.all_visits().await,
            ["v3", "short-urls", code, "qr"] => self.qr(&percent_decoded(code), query).await,
            ["v3", "short-urls", code, "visits"] => self.visits_of(&percent_decoded(code), query).await,
            // Links with these slugs are reached under `%62ulk` and `%65xport`.
            ["v3", "short-urls", "bulk"] => self.create_bulk(request).await,
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

    fn is_serving(&self) -> bool {
        let node = &self.desk.counters().node;
        node.ready.load(Ordering::Relaxed) && !node.draining.load(Ordering::Relaxed)
    }

    /// Looks up a code in a domain, and then in the fallback domain if it has one. Also returns the code that the
    /// result is about.
    async fn look_up_at(&self, code: Code, domain: Option<carom_model::domains::Place>) -> (Code, Option<Looked>) {
        let Some(domain) = domain else { return (code, Some(Looked::Missing)) };
        let code = code.within(self.domains().id_at(domain));
        let looked = self.desk.look_up(code).await;
        match (looked, self.domains().fallback_of(&code)) {
            (Some(first @ (Looked::Missing | Looked::Unconfirmed)), Some(other)) => {
                match self.desk.look_up(other).await {
                    Some(Looked::Missing) => (other, Some(first)),
                    looked => (other, looked),
                }
            }
            (looked, _) => (code, looked),
        }
    }

    /// Answers a redirect on a connection that hyper drives.
    async fn redirect(&self, code: &str, request: &Request<Incoming>) -> Answer {
        let domain = self.domain_of(request);
        let Ok(code) = Code::parse(percent_decoded(code).as_bytes()) else {
            return self.lost(request, domain, Notice::NotFound);
        };
        let place = self.place_of(request);
        if self.is_barred(place) {
            return self.too_many(request);
        }
        let (code, looked) = self.look_up_at(code, domain).await;
        let is_blocked = matches!(&looked, Some(Looked::Link { target, .. }) if self.desk.blocks(target));
        let is_too_much = match &looked {
            Some(Looked::Link { .. }) => !is_blocked && self.is_barred(place),
            Some(Looked::Missing | Looked::Early | Looked::Unconfirmed) => self.misses_too_often(place),
            _ => false,
        };
        if is_too_much {
            return self.too_many(request);
        }
        self.desk.note_looked(looked.as_ref());
        if is_blocked {
            return self.notice(request, Notice::Blocked);
        }
        self.tell_visit(code, looked.as_ref(), request);
        match looked {
            Some(Looked::Link { policy, target }) => {
                let status = StatusCode::from_u16(policy.status.number()).expect("a redirect's number is a status");
                let now_ms = carom_telemetry::clock::unix_ms();
                let seconds = crate::wire::answer::cache_seconds(&policy, now_ms);
                // For HEAD hyper would omit the length, which GET and the fast path send.
                let answer = with(empty(status), header::CONTENT_LENGTH, "0");
                let answer = with(answer, header::CACHE_CONTROL, &format!("private, max-age={seconds}"));
                let mut location = Vec::new();
                let query = request.uri().query().filter(|_| policy.forward_query);
                forward::push(&mut location, &target, query.unwrap_or_default().as_bytes());
                with(answer, header::LOCATION, std::str::from_utf8(&location).unwrap_or_default())
            }
            Some(Looked::Missing | Looked::Early) => self.lost(request, domain, Notice::NotFound),
            Some(Looked::Gone) => self.lost(request, domain, Notice::Gone),
            Some(Looked::Damaged) => self.notice(request, Notice::Damaged),
            Some(Looked::Unavailable | Looked::Unconfirmed) | None => self.notice(request, Notice::Unavailable),
        }
    }
}

impl Context {
    /// Returns the part of the client address by which rate limits count.
    pub(super) fn place_of<B>(&self, request: &Request<B>) -> Option<Place> {
        request.extensions().get::<Source>().map(|source| self.desk.guard().place(source.address))
    }

    /// True if the client is over the limit for misses, and gets 429 for every request.
    pub(super) fn is_barred(&self, place: Option<Place>) -> bool {
        let guard = self.desk.guard();
        guard.is_alert() && place.is_some_and(|place| guard.bars(place).is_some())
    }

    /// Counts a request for a missing code. True if the client is now over its limit.
    pub(super) fn misses_too_often(&self, place: Option<Place>) -> bool {
        place.is_some_and(|place| self.desk.guard().miss(place).is_err())
    }

    /// Returns the 429 for a client that requested too many missing codes.
    pub(super) fn too_many<B>(&self, request: &Request<B>) -> Answer {
        self.desk.note_throttled();
        let wait = Duration::from_secs(MISS_WAIT_SECONDS);
        let limit = self.desk.counters().misses_per_second;
        with_quota(self.notice(request, Notice::TooMany), Some(Quota { limit, remaining: 0, reset: wait, wait }))
    }

    /// Reports the visit that a response is. A HEAD request does not count as a visit.
    fn tell_visit(&self, code: Code, looked: Option<&Looked>, request: &Request<Incoming>) {
        let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes).unwrap_or_default();
        let visitor = || self.desk.visitor(field(header::USER_AGENT), field(header::REFERER));
        match looked {
            _ if request.method() != Method::GET => {}
            Some(Looked::Link { .. }) => self.desk.tell_visit(Some(code), visitor()),
            Some(Looked::Missing | Looked::Early) => self.desk.tell_visit(None, visitor()),
            Some(Looked::Gone | Looked::Damaged | Looked::Unavailable | Looked::Unconfirmed) | None => {}
        }
    }
}
