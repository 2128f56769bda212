//! The console: pages on the admin listener with which operators run the service.
//!
//! The pages are files in the binary (`src/api/console/web/`). They use the REST API under the session of the
//! signed-in user (`session`, `sign_in`), and endpoints of their own. Those serve live activity (`events`), the use
//! of links (`usage`), the history of changes (`history`), and deletes that can be undone (`deletes`). `facts`
//! checks URLs and shows the effective settings.

mod assets;
mod deletes;
mod events;
mod facts;
mod history;
mod session;
mod sign_in;
mod usage;

use std::rc::Rc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::json;

pub(super) use self::events::Watchers;
pub(super) use self::session::SessionLife;
use self::session::{Session, Sessions};
use super::auth::shows_key;
use super::problem::Problem;
use super::query::percent_decoded;
use super::{ApiResponse, Context, empty, is_read, json as json_answer, with};
use carom_model::access::Role;
use carom_model::access::key::ApiKeyHash;
use carom_model::dates;
use carom_telemetry::clock::unix_ms;

/// Request header that proves that a page of the console sent a change.
const CSRF_FIELD: HeaderName = HeaderName::from_static("x-csrf-token");

/// Content security policy of the console: pages use files of this listener only, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// State that the console keeps between requests.
#[derive(Debug, Default)]
pub(super) struct Console {
    sessions: Sessions,
    watchers: Watchers,
}

/// An admitted request: its context, and the session if the user is signed in.
pub(super) struct Admitted {
    /// Context for the request.
    pub(super) context: Context,
    /// Session of the signed-in user; `None` for an API key, and for a request without either.
    session: Option<Session>,
}

impl Context {
    /// Admits a request to the admin listener: a signed-in browser, or a client with an API key. While no keys
    /// exist and only this machine reaches the listener, it admits every request.
    ///
    /// # Errors
    /// 401 for an unknown caller. 403 for a caller without the right, or for a change that no page of the console
    /// sent. Otherwise those of [`Context::authenticate`].
    pub(super) fn admit<B>(&self, console: &Console, request: &Request<B>) -> Result<Admitted, Problem> {
        if !shows_key(request.headers())
            && let Some(admitted) = self.signed_in(console, request.headers())
        {
            let session = admitted.session.as_ref().expect("a signed-in caller has a session");
            let shown = request.headers().get(CSRF_FIELD).map(HeaderValue::as_bytes).unwrap_or_default();
            return match is_read(request.method()) || session.is_shown(shown) {
                true => Ok(admitted),
                false => Err(Problem::forbidden("Invalid X-CSRF-Token header. Reload the page.")),
            };
        }
        if !self.services.keys().had_keys() && !self.is_trusted(request) {
            return Err(Problem::no_key());
        }
        let context = self.authenticate(request)?;
        context.caller.needs_all(Role::Admin)?;
        Ok(Admitted { context, session: None })
    }

    /// Returns the request's session and caller, if its cookie holds a valid session.
    fn signed_in(&self, console: &Console, headers: &HeaderMap) -> Option<Admitted> {
        let mut sessions = sign_in::tokens(headers).filter_map(|(_, token)| console.sessions.find(token, unix_ms()));
        sessions.find_map(|session| {
            let context = self.of_key(session.key).filter(|context| context.caller.needs_all(Role::Admin).is_ok())?;
            let caller = Rc::new(context.caller.within(session.life.clone()));
            Some(Admitted { context: Context { caller, ..context }, session: Some(session) })
        })
    }

    /// Answers a path below `/admin`.
    pub(super) async fn console(
        &self,
        console: &Rc<Console>,
        segments: &[&str],
        request: Request<Incoming>,
    ) -> ApiResponse {
        let allowed = match segments {
            ["sign-in"] => "GET, HEAD, POST",
            ["api", "session"] => "GET, HEAD, DELETE",
            ["api", "sessions"] | ["api", "sessions", _] => "DELETE",
            ["api", "check-url"] => "POST",
            ["api", "links", _] => "DELETE",
            _ => "GET, HEAD",
        };
        let method = request.method().clone();
        if !allowed.split(", ").any(|name| name == method.as_str()) {
            return Problem::method(&method, allowed).into_answer();
        }
        match segments {
            ["assets", name] => assets::asset(name, request.headers()),
            ["sign-in"] if method == Method::POST => self.sign_in(console, request).await,
            ["sign-in"] => self.show_sign_in(console, &request),
            ["api", rest @ ..] => match self.admit(console, &request) {
                Ok(admitted) => admitted.answer(console, rest, request).await,
                Err(problem) => problem.into_answer(),
            },
            _ => match self.admit(console, &request) {
                Ok(_) => page(StatusCode::OK, assets::SHELL.to_owned()),
                Err(_) => sign_in::lead_there(&request),
            },
        }
    }
}

impl Admitted {
    /// Answers the endpoints that only pages of the console use.
    async fn answer(self, console: &Rc<Console>, segments: &[&str], request: Request<Incoming>) -> ApiResponse {
        let query = request.uri().query();
        let context = &self.context;
        match *segments {
            ["session"] if *request.method() == Method::DELETE => self.sign_out(console, &request),
            ["session"] => self.describe(console),
            ["sessions"] => {
                console.sessions.end_others(self.session.as_ref().map_or("", |session| &session.id));
                empty(StatusCode::NO_CONTENT)
            }
            ["sessions", id] => match console.sessions.end(id) {
                true => empty(StatusCode::NO_CONTENT),
                false => {
                    Problem::no_route().because("This session does not exist, or has already ended.").into_answer()
                }
            },
            ["events"] => self.events(console),
            ["usage"] => context.usage(query).await,
            ["history", code] => context.history_of_link(&percent_decoded(code), query).await,
            ["links", code] => context.delete_later(&percent_decoded(code), query).await,
            ["settings"] => context.settings_in_force(),
            ["check-url"] => context.check_url(request).await,
            _ => Problem::no_route().into_answer(),
        }
    }

    /// Handles `GET /admin/api/session`: describes the signed-in user and the service to the pages.
    fn describe(&self, console: &Console) -> ApiResponse {
        let now_ms = unix_ms();
        let keys = self.context.services.keys();
        let holds = |key: ApiKeyHash| keys.find_hash(key, now_ms).is_some();
        let own = self.session.as_ref();
        let shown = |session: &Session| {
            json!({
                "id": session.id,
                "app": session.app,
                "keyId": session.key.id(),
                "address": session.client.address,
                "userAgent": session.client.user_agent,
                "since": dates::format(session.life.since_ms()),
                "lastSeen": dates::format(session.life.seen_ms()),
                "current": own.is_some_and(|own| own.id == session.id),
            })
        };
        let sessions: Vec<_> = console.sessions.all(now_ms, holds).iter().map(shown).collect();
        json_answer(
            StatusCode::OK,
            &json!({
                "app": self.context.caller.name().map(carom_model::access::AppName::as_str),
                "keyId": self.context.caller.key().map(ApiKeyHash::id),
                "since": own.map(|session| dates::format(session.life.since_ms())),
                "ends": own.map(|session| dates::format(session.life.ends_ms())),
                "csrf": own.map(|session| &session.csrf),
                "open": !keys.had_keys(),
                "version": env!("CARGO_PKG_VERSION"),
                "title": self.context.pages().title(),
                "baseUrl": self.context.domains().base_url_of(None),
                "sessions": sessions,
            }),
        )
    }
}

/// Returns a page of the console.
fn page(status: StatusCode, html: String) -> ApiResponse {
    let answer = super::answer(status, "text/html; charset=utf-8", html);
    // With `no-referrer` a browser would send `Origin: null` with the console's own forms.
    with(with(answer, header::CONTENT_SECURITY_POLICY, POLICY), header::REFERRER_POLICY, "same-origin")
}
