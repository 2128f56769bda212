//! Authentication of callers by their API keys.

use std::rc::Rc;
use std::sync::Arc;

use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Request};

use super::caller::Caller;
use super::context::Context;
use super::problem::Problem;
use super::query::Params;
use carom_model::access::key::ApiKeyHash;
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::access::registry::KeyEntry;
use carom_model::access::usage::App;
use carom_model::access::{KeyDomains, is_app_version};
use carom_model::link::history::{Author, ChangeOrigin};

/// Request header that carries an API key.
const KEY_FIELD: HeaderName = HeaderName::from_static("x-api-key");

/// Request header in which an app reports its own version.
const VERSION_FIELD: HeaderName = HeaderName::from_static("x-app-version");

/// Reason that clients get while a new node of a fleet has not read the API keys yet.
const UNSURE: &str = "This node has not yet read the API keys of its fleet from Redis. Try again in a moment.";

impl Context {
    /// Authenticates a request to the public listener.
    ///
    /// # Errors
    /// The errors of [`Context::authenticate`], and 403 for pages of other sites while no key is required.
    pub(super) fn admit_to_api<B>(&self, request: &Request<B>) -> Result<Context, Problem> {
        self.refuse_foreign_page(request)?;
        self.authenticate(request)
    }

    /// Authenticates a request to the public listener by the API key in its query, or else in its headers.
    ///
    /// # Errors
    /// The errors of [`Context::admit_to_api`].
    pub(super) fn admit_by_query<B>(&self, request: &Request<B>) -> Result<Context, Problem> {
        let params = Params::of(request.uri().query());
        let Some(key) = params.text("apiKey") else { return self.admit_to_api(request) };
        self.refuse_foreign_page(request)?;
        let source = request.extensions().get::<RequestOrigin>().copied();
        self.identify(Some(key.as_bytes()), source, version_in(request.headers())?)
    }

    /// Authenticates a request by its API key. Returns the context of its caller.
    ///
    /// # Errors
    /// 401 if the key is missing or invalid, 429 if its address sent too many invalid keys.
    pub(super) fn authenticate<B>(&self, request: &Request<B>) -> Result<Context, Problem> {
        let source = request.extensions().get::<RequestOrigin>().copied();
        self.identify(key_in(request.headers()), source, version_in(request.headers())?)
    }

    /// Authenticates an API key. Returns the context of its app.
    ///
    /// # Errors
    /// The errors of [`Context::authenticate`].
    pub(super) fn identify(
        &self,
        key: Option<&[u8]>,
        source: Option<RequestOrigin>,
        version: Option<String>,
    ) -> Result<Context, Problem> {
        let keys = self.services.keys();
        if keys.is_unsure() {
            return Err(Problem::unavailable(UNSURE));
        }
        if !keys.had_keys() {
            return Ok(Context { caller: Rc::new(Caller { version, ..Caller::unrestricted() }), ..self.clone() });
        }
        let text = key.ok_or_else(Problem::no_key)?;
        let now_ms = self.services.unix_ms();
        let Some((entry, app)) = keys.find(text, now_ms) else {
            // Valid keys pass in any case: many clients may share an address, and nobody guesses 160 bits.
            let failed = source.map_or(Ok(()), |source| self.services.miss_limiter().key_failed(source.address));
            return Err(failed.map_or_else(Problem::too_many_failed_keys, |()| Problem::wrong_key()));
        };
        app.note(now_ms, version.as_deref());
        Ok(self.of_entry(entry, app, version))
    }

    /// Returns the context for the API key with that hash; `None` if the key is no longer valid.
    pub(super) fn of_key(&self, hash: ApiKeyHash) -> Option<Context> {
        let keys = self.services.keys();
        let now_ms = self.services.unix_ms();
        let (entry, app) = keys.find_hash(hash, now_ms)?;
        app.note(now_ms, None);
        Some(self.of_entry(entry, app, None))
    }

    fn of_entry(&self, entry: &KeyEntry, app: &Arc<App>, version: Option<String>) -> Context {
        let creates = entry.creates.map_or(self.site.app_creates, std::num::NonZeroU32::get);
        let key = Some(entry.hash);
        let (app, role, domains) = (Some(Arc::clone(app)), entry.role, entry.domains.clone());
        let implied_domain = domains.as_ref().and_then(KeyDomains::implied_domain).cloned();
        let caller = Caller { app, role, creates, domains, implied_domain, key, session: None, version };
        Context { caller: Rc::new(caller), ..self.clone() }
    }
}

impl Context {
    /// Returns the author that the history records for changes of this caller.
    pub(super) fn author(&self) -> Author {
        let origin = if self.services.is_of_admin() { ChangeOrigin::Admin } else { ChangeOrigin::Api };
        Author { app: self.caller.name().cloned(), key: self.caller.key.map(|key| key.id().into()), origin }
    }

    /// True if the caller's key and session are still valid: a request with many links may run for hours. Renews
    /// the session.
    pub(super) fn still_holds(&self) -> bool {
        let keys = self.services.keys();
        let now_ms = self.services.unix_ms();
        if self.caller.session.as_ref().is_some_and(|session| !session.renew(now_ms)) {
            return false;
        }
        match self.caller.key {
            Some(hash) => keys.find_hash(hash, now_ms).is_some(),
            None => !keys.had_keys() && !keys.is_unsure(),
        }
    }
}

/// True if a request carries an API key, valid or not.
pub(super) fn shows_key(headers: &HeaderMap) -> bool {
    key_in(headers).is_some()
}

/// Returns the key of a request, from `X-Api-Key` or from a bearer token (RFC 6750). Several keys in one request
/// yield an invalid key.
fn key_in(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = headers.get_all(KEY_FIELD).iter().map(header::HeaderValue::as_bytes);
    let tokens = headers.get_all(header::AUTHORIZATION).iter().filter_map(|text| token_in(text.as_bytes()));
    let mut all = shown.chain(tokens);
    let first = all.next()?;
    Some(if all.next().is_some() { b"" } else { first })
}

/// Returns the token behind `Bearer`, which may be in any case.
fn token_in(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// Returns the version that the app reports of itself.
///
/// # Errors
/// 400 if the header is malformed.
fn version_in(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(VERSION_FIELD) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if is_app_version(text) => Ok(Some(text.to_owned())),
        _ => Err(Problem::wrong_version()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_key_is_shown_once() {
        for (fields, key) in [
            (&[][..], None),
            (&[("x-api-key", "a")], Some(&b"a"[..])),
            (&[("authorization", "Bearer a")], Some(b"a")),
            (&[("authorization", "bearer a")], Some(b"a")),
            (&[("authorization", "Basic a")], None),
            (&[("authorization", "Basic a"), ("x-api-key", "b")], Some(b"b")),
            (&[("x-api-key", "a"), ("x-api-key", "a")], Some(b"")),
            (&[("x-api-key", "a"), ("authorization", "Bearer a")], Some(b"")),
        ] {
            assert_eq!(key_in(&headers(fields)), key, "{fields:?}");
        }
    }

    #[test]
    fn versions_are_short_and_plain() {
        assert_eq!(version_in(&headers(&[])).unwrap(), None);
        assert_eq!(version_in(&headers(&[("x-app-version", "1.2 (b)")])).unwrap().as_deref(), Some("1.2 (b)"));
        assert!(version_in(&headers(&[("x-app-version", &"x".repeat(65))])).is_err());
        assert!(version_in(&headers(&[("x-app-version", "é")])).is_err());
    }
}
