//! Sessions of the console: signed-in browsers, each bound to the API key that it signed in with.
//!
//! Sessions live in memory only, so a restart ends all of them. The admin listener starts and lists them; the form of
//! the public listeners only looks them up. The browser keeps a random token in a cookie that scripts cannot read; the
//! node keeps its hash. Requests that change something must carry a second token, which only pages of the console and
//! the form can know.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carom_limits::{SESSION_IDLE_MAX, SESSION_TIME_MAX, SESSIONS_MAX};
use carom_model::access::key::ApiKeyHash;
use data_encoding::HEXLOWER;

/// Random bytes of a token: nobody guesses 256 bits.
const TOKEN_BYTES: usize = 32;

/// Random bytes of the id by which a session can be ended.
const ID_BYTES: usize = 8;

/// Characters of a `User-Agent` header that are kept; browsers send about 120.
const USER_AGENT_CHARS: usize = 256;

/// A signed-in browser.
#[derive(Clone, Debug)]
pub(in crate::api) struct Session {
    /// Id of the session in lists.
    pub(super) id: String,
    /// Hash of the key that was used to sign in. The session ends when the key becomes invalid.
    pub(in crate::api) key: ApiKeyHash,
    /// App of the key.
    pub(in crate::api) app: String,
    /// Browser and address of the session, by which people recognise it in a list.
    pub(super) client: SessionClient,
    /// Token that requests with changes must carry.
    pub(in crate::api) csrf: String,
    /// Lifetime of the session.
    pub(in crate::api) life: SessionLife,
    token: ApiKeyHash,
}

/// Lifetime of a session. Clones share their state, so that long requests see the session end. Instants are in
/// milliseconds since 1970 UTC.
#[derive(Clone, Debug)]
pub(in crate::api) struct SessionLife(Arc<Life>);

#[derive(Debug)]
struct Life {
    since_ms: u64,
    seen_ms: AtomicU64,
    /// True once the session was ended by its user, by another admin, or by a new session of the same browser.
    is_ended: AtomicBool,
}

impl SessionLife {
    fn begin(now_ms: u64) -> SessionLife {
        let (seen_ms, is_ended) = (AtomicU64::new(now_ms), AtomicBool::new(false));
        SessionLife(Arc::new(Life { since_ms: now_ms, seen_ms, is_ended }))
    }

    /// Returns the start of the session.
    pub(super) fn since_ms(&self) -> u64 {
        self.0.since_ms
    }

    /// Returns the last use of the session.
    pub(super) fn seen_ms(&self) -> u64 {
        self.0.seen_ms.load(Ordering::Relaxed)
    }

    /// Returns the end of the session if it stays unused.
    pub(super) fn ends_ms(&self) -> u64 {
        let idle = self.seen_ms() + SESSION_IDLE_MAX.as_millis() as u64;
        idle.min(self.since_ms() + SESSION_TIME_MAX.as_millis() as u64)
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.0.is_ended.load(Ordering::Relaxed) || self.ends_ms() <= now_ms
    }

    /// Records a use of the session. False if the session is over.
    pub(in crate::api) fn renew(&self, now_ms: u64) -> bool {
        let goes_on = !self.is_over(now_ms);
        if goes_on {
            self.0.seen_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
        goes_on
    }
}

/// Browser and address of a session, as of the sign-in.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionClient {
    /// Start of the header `User-Agent`, at most [`USER_AGENT_CHARS`] characters.
    pub(super) user_agent: String,
    /// Address of the browser, or of a proxy in front of this listener.
    pub(super) address: Option<IpAddr>,
}

impl SessionClient {
    /// Returns the client with this `User-Agent` header and address.
    pub(super) fn new(user_agent: &[u8], address: Option<IpAddr>) -> SessionClient {
        let user_agent = String::from_utf8_lossy(user_agent).chars().take(USER_AGENT_CHARS).collect();
        SessionClient { user_agent, address }
    }
}

impl Session {
    /// True if `csrf` is the session's token for changes. Compares in constant time.
    pub(in crate::api) fn has_csrf_token(&self, csrf: &[u8]) -> bool {
        ApiKeyHash::of(csrf).is(ApiKeyHash::of(self.csrf.as_bytes()))
    }
}

/// All sessions of a node, which its listeners share. No redirect looks at them.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<Vec<Session>>>);

impl Sessions {
    /// Locks the list. No holder of the lock can panic halfway through a change.
    fn locked(&self) -> MutexGuard<'_, Vec<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a session. Returns the token for the browser's cookie.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub(super) fn begin(
        &self,
        key: ApiKeyHash,
        app: &str,
        client: SessionClient,
        now_ms: u64,
    ) -> Result<String, getrandom::Error> {
        let token = random_hex::<TOKEN_BYTES>()?;
        let session = Session {
            id: random_hex::<ID_BYTES>()?,
            key,
            app: app.to_owned(),
            client,
            csrf: random_hex::<TOKEN_BYTES>()?,
            life: SessionLife::begin(now_ms),
            token: ApiKeyHash::of(token.as_bytes()),
        };
        let mut all = self.locked();
        end_in(&mut all, |session| session.life.is_over(now_ms));
        if all.len() >= SESSIONS_MAX
            && let Some(id) = first_to_end(&all)
        {
            end_in(&mut all, |session| session.id == id);
        }
        all.push(session);
        Ok(token)
    }

    /// Returns the session of a token, and records a use of it.
    pub(in crate::api) fn find(&self, token: &[u8], now_ms: u64) -> Option<Session> {
        // No session has a token of another length, so such a cookie is not worth the hash and the lock.
        if token.len() != 2 * TOKEN_BYTES {
            return None;
        }
        let token = ApiKeyHash::of(token);
        let all = self.locked();
        all.iter().find(|session| session.token.is(token) && session.life.renew(now_ms)).cloned()
    }

    /// Returns the sessions that are not over and whose keys are valid, the newest first.
    pub(super) fn all(&self, now_ms: u64, holds: impl Fn(ApiKeyHash) -> bool) -> Vec<Session> {
        let all = self.locked();
        let current = all.iter().rev().filter(|session| !session.life.is_over(now_ms) && holds(session.key));
        current.cloned().collect()
    }

    /// Ends the session with that id, if it is one of the key `of`; `None` for any key. True if it existed.
    pub(super) fn end(&self, id: &str, of: Option<ApiKeyHash>) -> bool {
        self.end_where(|session| session.id == id && of.is_none_or(|key| session.key.is(key)))
    }

    /// Ends the session with that token. True if it existed.
    pub(super) fn end_of_token(&self, token: &[u8]) -> bool {
        let token = ApiKeyHash::of(token);
        self.end_where(|session| session.token.is(token))
    }

    /// Ends all sessions of the key `of` but the one with that id; `None` for those of all keys.
    pub(super) fn end_others(&self, id: &str, of: Option<ApiKeyHash>) {
        self.end_where(|session| session.id != id && of.is_none_or(|key| session.key.is(key)));
    }

    /// Ends the sessions that `is_over` selects, and with them their running requests. True if any existed.
    fn end_where(&self, is_over: impl Fn(&Session) -> bool) -> bool {
        end_in(&mut self.locked(), is_over)
    }
}

/// Ends the sessions of a list that `is_over` selects, and with them their running requests. True if any existed.
fn end_in(all: &mut Vec<Session>, is_over: impl Fn(&Session) -> bool) -> bool {
    let before = all.len();
    all.retain(|session| {
        let is_over = is_over(session);
        session.life.0.is_ended.store(is_over, Ordering::Relaxed);
        !is_over
    });
    all.len() < before
}

/// Returns the id of the session that makes room for another one: of the key with the most sessions, the one that was
/// unused for longest. Otherwise, a key that signs in again and again would end the sessions of all other keys.
fn first_to_end(all: &[Session]) -> Option<String> {
    let mut of_keys: HashMap<String, usize> = HashMap::new();
    for session in all {
        *of_keys.entry(session.key.to_hex()).or_default() += 1;
    }
    let rank = |session: &&Session| (Reverse(of_keys.get(&session.key.to_hex()).copied()), session.life.seen_ms());
    all.iter().min_by_key(rank).map(|session| session.id.clone())
}

/// Returns `BYTES` random bytes as hexadecimal digits.
///
/// # Errors
/// If the operating system provides no random bytes.
pub(super) fn random_hex<const BYTES: usize>() -> Result<String, getrandom::Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ApiKeyHash {
        ApiKeyHash::of(text.as_bytes())
    }

    #[test]
    fn a_session_ends_when_it_is_left_alone_and_in_any_case() {
        let sessions = Sessions::default();
        let token = sessions.begin(key("a"), "ops", SessionClient::default(), 1_000).unwrap();
        let idle = SESSION_IDLE_MAX.as_millis() as u64;
        assert!(sessions.find(b"other", 1_000).is_none());
        let mut now_ms = 1_000;
        while sessions.find(token.as_bytes(), now_ms).is_some() {
            now_ms += idle - 1;
        }
        let lasted = now_ms - 1_000;
        let most = SESSION_TIME_MAX.as_millis() as u64;
        assert!((most..most + idle).contains(&lasted), "{lasted}");
        let token = sessions.begin(key("a"), "ops", SessionClient::default(), 1_000).unwrap();
        let life = sessions.find(token.as_bytes(), 1_000).unwrap().life;
        assert!(sessions.find(token.as_bytes(), 1_000 + idle).is_none());
        assert!(!life.renew(1_000 + idle));
        // A long request keeps the session in use, as an open page does, up to the maximum lifetime.
        let mut now_ms = 1_000;
        while life.renew(now_ms) {
            now_ms += idle / 2;
        }
        assert!((most..most + idle).contains(&(now_ms - 1_000)), "{now_ms}");
    }

    #[test]
    fn sessions_can_be_ended_by_name() {
        let sessions = Sessions::default();
        let tokens = ["a", "b", "c"].map(|name| sessions.begin(key(name), name, SessionClient::default(), 5).unwrap());
        let find = |number: usize| sessions.find(tokens[number].as_bytes(), 6);
        let first = find(0).unwrap();
        assert!(first.has_csrf_token(first.csrf.as_bytes()));
        assert!(!first.has_csrf_token(find(1).unwrap().csrf.as_bytes()));
        assert!(!first.has_csrf_token(b""));
        let other = find(2).unwrap();
        // The key of one session ends no session of another.
        assert!(!sessions.end(&find(1).unwrap().id, Some(key("a"))));
        sessions.end_others(&first.id, Some(key("a")));
        assert!(sessions.end(&find(1).unwrap().id, None));
        assert!(find(1).is_none());
        assert!(!sessions.end("none", None));
        let holds = |of: ApiKeyHash| !of.is(key("c"));
        assert_eq!(sessions.all(6, holds).iter().map(|session| &*session.app).collect::<Vec<_>>(), ["a"]);
        assert!(first.life.renew(7));
        assert!(other.life.renew(7));
        sessions.end_others(&first.id, None);
        assert!(find(0).is_some());
        assert!(find(2).is_none());
        assert!(first.life.renew(8));
        assert!(!other.life.renew(8));
    }

    #[test]
    fn there_are_never_more_than_can_be_kept() {
        let sessions = Sessions::default();
        let first = sessions.begin(key("a"), "ops", SessionClient::default(), 1).unwrap();
        let second = sessions.begin(key("a"), "ops", SessionClient::default(), 2).unwrap();
        assert!(sessions.find(first.as_bytes(), 10).is_some());
        for _ in 2..=SESSIONS_MAX {
            sessions.begin(key("a"), "ops", SessionClient::default(), 10).unwrap();
        }
        assert!(sessions.find(first.as_bytes(), 11).is_some());
        assert!(sessions.find(second.as_bytes(), 11).is_none());
        assert_eq!(sessions.all(11, |_| true).len(), SESSIONS_MAX);
    }

    #[test]
    fn key_with_many_sessions_ends_no_others() {
        let sessions = Sessions::default();
        let other = sessions.begin(key("a"), "ops", SessionClient::default(), 1).unwrap();
        let tokens: Vec<String> = (0..=SESSIONS_MAX)
            .map(|_| sessions.begin(key("b"), "shop", SessionClient::default(), 2).unwrap())
            .collect();
        assert!(sessions.find(other.as_bytes(), 3).is_some());
        assert!(sessions.find(tokens[SESSIONS_MAX].as_bytes(), 3).is_some());
        assert_eq!(sessions.all(3, |_| true).len(), SESSIONS_MAX);
    }
}
