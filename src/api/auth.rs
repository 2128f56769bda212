//! Who asks: API keys, what they allow, and what their apps have left of their rate.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Request};

use super::admin::status;
use super::console::SessionLife;
use super::problem::Problem;
use super::{Answer, Context, with};
use carom_model::access::key::KeyHash;
use carom_model::access::miss_limiter::Source;
use carom_model::access::registry::Entry;
use carom_model::access::usage::{App, Quota};
use carom_model::access::{AppName, KeyDomains, Role, Scope, is_app_version};
use carom_model::domains::DomainName;
use carom_model::link::history::{Author, Way};
use carom_telemetry::clock::unix_ms;

/// Where a key is looked for.
const KEY_FIELD: HeaderName = HeaderName::from_static("x-api-key");

/// What a caller says of its own version.
const VERSION_FIELD: HeaderName = HeaderName::from_static("x-app-version");

const LIMIT_FIELDS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Told while a new node of a fleet has not heard of it yet.
const UNSURE: &str = "This node has not yet read the API keys of its fleet from Redis. Try again in a moment.";

/// Who asks, and what they may do.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// Nobody in particular, where no keys are asked for.
    app: Option<Arc<App>>,
    role: Role,
    /// Links that the app may make a second; 0: any number.
    creates: u32,
    /// The domains whose links it may see; `None`: all.
    domains: Option<KeyDomains>,
    /// The domain that is meant where none is named; `None`: the default one.
    meant: Option<DomainName>,
    /// The key that it has shown.
    key: Option<KeyHash>,
    /// Its session at the console, if it has one.
    session: Option<SessionLife>,
    /// What it says of its own version.
    pub(super) version: Option<String>,
}

impl Caller {
    /// Whoever it is, may do everything: where nobody has a key.
    pub(super) fn everybody() -> Caller {
        let (app, domains, meant, key, session, version) = Default::default();
        Caller { app, role: Role::Admin, creates: 0, domains, meant, key, session, version }
    }

    /// Whose links it may see.
    pub(super) fn scope(&self) -> Scope {
        let scope = match &self.app {
            Some(app) if self.role < Role::WriteAll => Scope::of_app(app.name.clone()),
            _ => Scope::ALL,
        };
        match &self.domains {
            Some(domains) => scope.within_key(domains),
            None => scope,
        }
    }

    /// The domains whose links it may see; `None`: all.
    pub(super) fn domains(&self) -> Option<&KeyDomains> {
        self.domains.as_ref()
    }

    /// The domain that is meant where none is named; `None`: the default one.
    pub(super) fn domain_meant(&self) -> Option<&DomainName> {
        self.meant.as_ref()
    }

    /// The key that it has shown.
    pub(super) fn key(&self) -> Option<KeyHash> {
        self.key
    }

    /// The name of the app.
    pub(super) fn name(&self) -> Option<&AppName> {
        self.app.as_ref().map(|app| &app.name)
    }

    /// The same caller, until its session at the console is over.
    pub(super) fn within(&self, session: SessionLife) -> Caller {
        Caller { session: Some(session), ..self.clone() }
    }

    /// The same caller, who means that domain where none is named, if it may use it.
    pub(super) fn meaning(&self, domain: Option<DomainName>) -> Caller {
        let may = self.domains.as_ref().is_none_or(|domains| domains.has(domain.as_ref()));
        let meant = if may { domain } else { self.meant.clone() };
        Caller { meant, ..self.clone() }
    }

    /// Whether it may do what concerns the links of all apps and domains.
    ///
    /// # Errors
    /// 403.
    pub(super) fn needs_all(&self, role: Role) -> Result<(), Problem> {
        self.needs(role)?;
        match &self.domains {
            None => Ok(()),
            Some(_) => {
                Err(self
                    .forbid("This API key is limited to some domains. This request requires a key for all domains."))
            }
        }
    }

    /// What it is told that may not do something, which is counted.
    fn forbid(&self, why: impl Into<String>) -> Problem {
        if let Some(app) = &self.app {
            app.forbidden.fetch_add(1, Ordering::Relaxed);
        }
        Problem::forbidden(why)
    }

    /// Whether it may do what needs a role.
    ///
    /// # Errors
    /// 403.
    pub(super) fn needs(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        Err(self.forbid(format!("This API key has the role {}. This request requires {role}.", self.role)))
    }

    /// Takes leave to make a link. What is left of the rate, where there is one.
    ///
    /// # Errors
    /// 429.
    pub(super) fn take_create(&self) -> Result<Option<Quota>, Problem> {
        let Some(app) = self.app.as_ref().filter(|_| self.creates > 0) else { return Ok(None) };
        app.take_create(self.creates, status::uptime()).map(Some).map_err(Problem::too_many_creates)
    }

    /// Counts a link that was made.
    pub(super) fn made(&self) {
        if let Some(app) = &self.app {
            app.creates.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Context {
    /// The same for whoever sends a request to the public listener.
    ///
    /// # Errors
    /// Those of [`Context::authenticate`], and 403 for the pages of others while no key is asked for.
    pub(super) fn admit_to_api<B>(&self, request: &Request<B>) -> Result<Context, Problem> {
        self.must_not_be_lured(request)?;
        self.authenticate(request)
    }

    /// The same for whoever sends a request.
    ///
    /// # Errors
    /// 401 where it shows no key that holds, 429 where too many were shown from there that did not.
    pub(super) fn authenticate<B>(&self, request: &Request<B>) -> Result<Context, Problem> {
        let source = request.extensions().get::<Source>().copied();
        self.identify(key_in(request.headers()), source, version_in(request.headers())?)
    }

    /// The same for whoever shows that key.
    ///
    /// # Errors
    /// Those of [`Context::authenticate`].
    pub(super) fn identify(
        &self,
        key: Option<&[u8]>,
        source: Option<Source>,
        version: Option<String>,
    ) -> Result<Context, Problem> {
        let keys = self.desk.keys();
        if keys.is_unsure() {
            return Err(Problem::unavailable(UNSURE));
        }
        if !keys.had_keys() {
            return Ok(Context { caller: Rc::new(Caller { version, ..Caller::everybody() }), ..self.clone() });
        }
        let text = key.ok_or_else(Problem::no_key)?;
        let now_ms = unix_ms();
        let Some((entry, app)) = keys.find(text, now_ms) else {
            // Keys that hold pass in any case: an address may stand for many, and nobody guesses 160 bits.
            let failed = source.map_or(Ok(()), |source| self.desk.guard().key_failed(source.address));
            return Err(failed.map_or_else(Problem::too_many_failed_keys, |()| Problem::wrong_key()));
        };
        app.note(now_ms, version.as_deref());
        Ok(self.of_entry(entry, app, version))
    }

    /// The same for whoever has shown a key of that hash before; `None` where it holds no more.
    pub(super) fn of_key(&self, hash: KeyHash) -> Option<Context> {
        let keys = self.desk.keys();
        let now_ms = unix_ms();
        let (entry, app) = keys.find_hash(hash, now_ms)?;
        app.note(now_ms, None);
        Some(self.of_entry(entry, app, None))
    }

    fn of_entry(&self, entry: &Entry, app: &Arc<App>, version: Option<String>) -> Context {
        let creates = entry.creates.map_or(self.site.app_creates, std::num::NonZeroU32::get);
        let key = Some(entry.hash);
        let (app, role, domains) = (Some(Arc::clone(app)), entry.role, entry.domains.clone());
        let meant = domains.as_ref().and_then(KeyDomains::meant).cloned();
        let caller = Caller { app, role, creates, domains, meant, key, session: None, version };
        Context { caller: Rc::new(caller), ..self.clone() }
    }
}

impl Context {
    /// Who changes what the caller changes.
    pub(super) fn author(&self) -> Author {
        let way = if self.desk.is_of_admin() { Way::Admin } else { Way::Api };
        Author { app: self.caller.name().cloned(), key: self.caller.key.map(KeyHash::id), way }
    }

    /// Whether the caller is still who it was when its request began: such as make or tell many links may take hours.
    pub(super) fn still_holds(&self) -> bool {
        let keys = self.desk.keys();
        let now_ms = unix_ms();
        if self.caller.session.as_ref().is_some_and(|session| !session.renew(now_ms)) {
            return false;
        }
        match self.caller.key {
            Some(hash) => keys.find_hash(hash, now_ms).is_some(),
            None => !keys.had_keys() && !keys.is_unsure(),
        }
    }
}

/// Whether a request shows a key, be it one that holds or not.
pub(super) fn shows_key(headers: &HeaderMap) -> bool {
    key_in(headers).is_some()
}

/// The key that a request shows: in `X-Api-Key`, or as a bearer's token (RFC 6750). Where it shows several, that is no key
/// either.
fn key_in(headers: &HeaderMap) -> Option<&[u8]> {
    let shown = headers.get_all(KEY_FIELD).iter().map(header::HeaderValue::as_bytes);
    let tokens = headers.get_all(header::AUTHORIZATION).iter().filter_map(|text| token_in(text.as_bytes()));
    let mut all = shown.chain(tokens);
    let first = all.next()?;
    Some(if all.next().is_some() { b"" } else { first })
}

/// The token behind `Bearer`, in whatever letters that is written.
fn token_in(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

/// What a request says of the version of the app.
///
/// # Errors
/// 400 where it is none.
fn version_in(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(VERSION_FIELD) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if is_app_version(text) => Ok(Some(text.to_owned())),
        _ => Err(Problem::wrong_version()),
    }
}

/// An answer with what is left of a rate.
pub(super) fn with_quota(answer: Answer, quota: Option<Quota>) -> Answer {
    let Some(quota) = quota else { return answer };
    let reset = seconds(quota.reset);
    let values = [quota.limit.into(), quota.remaining.into(), reset];
    LIMIT_FIELDS
        .into_iter()
        .zip(values)
        .fold(answer, |answer, (name, value): (_, u64)| with(answer, name, &value.to_string()))
}

/// Whole seconds after which a time is over.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_millis().div_ceil(1_000) as u64
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

    #[test]
    fn time_is_rounded_up() {
        let of_ms = |ms| seconds(Duration::from_millis(ms));
        assert_eq!((of_ms(0), of_ms(1), of_ms(1_000), of_ms(1_001)), (0, 1, 1, 2));
    }
}
