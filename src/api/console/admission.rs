//! Admission of requests to the admin listener: by a session, by an API key, or because only this machine reaches it.

use std::cell::RefCell;
use std::rc::Rc;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request};

use super::cookies::tokens;
use super::latencies::LatencyWindow;
use super::session::Session;
use super::watchers::Watchers;
use crate::api::auth::shows_key;
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::public::routes::SINGLE_STEP_PATH;
use crate::api::request::is_read;

/// Request header that proves that a page of the console sent a change.
const CSRF_FIELD: HeaderName = HeaderName::from_static("x-csrf-token");

/// State that the console keeps between requests.
#[derive(Debug, Default)]
pub(in crate::api) struct Console {
    pub(super) watchers: Watchers,
    /// Latencies of the last minutes, as far as a page followed the status.
    pub(super) latencies: RefCell<LatencyWindow>,
}

/// An admitted request: its context, and the session if the user is signed in.
pub(in crate::api) struct Admitted {
    /// Context for the request.
    pub(in crate::api) context: Context,
    /// Session of the signed-in user; `None` for an API key, and for a request without either.
    pub(in crate::api) session: Option<Session>,
}

impl Context {
    /// Admits a request to the admin listener: a signed-in browser, or a client with an API key. While no keys
    /// exist and only this machine reaches the listener, it admits every request.
    ///
    /// # Errors
    /// 401 for an unknown caller, 403 for a change that no page of the console sent. Otherwise those of
    /// [`Context::authenticate`]. The rights of the caller are checked by what it asks for.
    pub(in crate::api) fn admit<B>(&self, request: &Request<B>) -> Result<Admitted, Problem> {
        if !shows_key(request.headers())
            && let Some(admitted) = self.signed_in(request.headers())
        {
            let session = admitted.session.as_ref().expect("a signed-in caller has a session");
            let shown = request.headers().get(CSRF_FIELD).map(HeaderValue::as_bytes).unwrap_or_default();
            return if only_reads(request) || session.has_csrf_token(shown) {
                Ok(admitted)
            } else {
                Err(Problem::forbidden("Invalid X-CSRF-Token header. Reload the page."))
            };
        }
        if !self.services.keys().had_keys() && !self.is_trusted(request) {
            return Err(Problem::no_key());
        }
        let context = self.authenticate(request)?;
        Ok(Admitted { context, session: None })
    }

    /// Returns the request's session and caller, if its cookie holds a valid session.
    pub(in crate::api) fn signed_in(&self, headers: &HeaderMap) -> Option<Admitted> {
        let now_ms = self.services.unix_ms();
        let mut sessions = tokens(headers).filter_map(|(_, token)| self.site.sessions.find(token, now_ms));
        sessions.find_map(|session| {
            let context = self.of_key(session.key)?;
            let caller = Rc::new(context.caller.within(session.life.clone()));
            Some(Admitted { context: Context { caller, ..context }, session: Some(session) })
        })
    }
}

/// True if a request changes nothing. One path creates a link with `GET`, and browsers send the cookie when a page of the
/// same site, such as one on another port of this host, leads there.
fn only_reads<B>(request: &Request<B>) -> bool {
    is_read(request.method()) && request.uri().path() != SINGLE_STEP_PATH
}
