//! The HTTP client of the admin listener of a peer, which serves snapshots.
//!
//! It follows no redirect and uses no proxy of the environment: both would see the key and the links.

use std::time::Duration;

use serde_json::Value;
use ureq::http::{Response, header};
use ureq::{Agent, RequestBuilder};

use crate::bridge::JoinSnapshot;
use crate::services::http::config;
use carom_store::backup::pieces::PIECE_LEN_MAX;

/// Timeout of a request: longer than a peer takes for a piece.
const HTTP_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of an attempt to connect.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Longest description that is accepted, in bytes.
const ABOUT_LEN_MAX: u64 = 64 * 1024;

/// Longest text of a peer in an error, in characters.
const DETAIL_CHARS_MAX: usize = 300;

/// Suffix of the problem type with which a peer answers that it does not have a snapshot.
const GONE: &str = ":snapshot-gone";

/// The reason why a peer has not answered as it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PeerFault {
    /// A later request may succeed.
    Passing(String),
    /// The peer refuses the API key.
    Key(String),
    /// The peer does not have the snapshot.
    Gone,
    /// The peer does not serve snapshots.
    Unable(String),
}

/// A client of one peer. Its clones share their connections.
#[derive(Clone)]
pub(super) struct PeerClient {
    agent: Agent,
    url: String,
    key: Option<String>,
}

impl PeerClient {
    /// Creates a client for the admin listener at a URL without a slash at its end. It connects with the first request.
    pub(super) fn new(url: &str, key: Option<String>) -> PeerClient {
        let config = config().timeout_global(Some(HTTP_TIMEOUT)).timeout_connect(Some(CONNECT_TIME));
        let agent = config.max_redirects(0).proxy(None).build().into();
        PeerClient { agent, url: url.to_owned(), key }
    }

    /// Asks for a new snapshot.
    ///
    /// # Errors
    /// [`PeerFault`], except for [`PeerFault::Gone`].
    pub(super) fn begin(&self) -> Result<JoinSnapshot, PeerFault> {
        let request = self.with_key(self.agent.post(format!("{}/snapshots", self.url)));
        self.read_description(&self.body(request.send_empty(), ABOUT_LEN_MAX)?)
    }

    /// Asks for the description of a snapshot.
    ///
    /// # Errors
    /// [`PeerFault`], which says whether a later request may succeed.
    pub(super) fn describe(&self, id: u64) -> Result<JoinSnapshot, PeerFault> {
        self.read_description(&self.get(&format!("/snapshots/{id:016x}"), ABOUT_LEN_MAX)?)
    }

    /// Returns the bytes of a piece, which are yet to be checked.
    ///
    /// # Errors
    /// [`PeerFault`], which says whether a later request may succeed.
    pub(super) fn piece(&self, id: u64, number: u32) -> Result<Vec<u8>, PeerFault> {
        self.get(&format!("/snapshots/{id:016x}/pieces/{number}"), PIECE_LEN_MAX as u64)
    }

    /// Says that the snapshot is no longer needed. A failure does no harm: the peer closes it later.
    pub(super) fn end(&self, id: u64) {
        let _ = self.with_key(self.agent.delete(format!("{}/snapshots/{id:016x}", self.url))).call();
    }

    fn get(&self, path: &str, len_max: u64) -> Result<Vec<u8>, PeerFault> {
        self.body(self.with_key(self.agent.get(format!("{}{path}", self.url))).call(), len_max)
    }

    fn with_key<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.key {
            Some(key) => request.header("X-Api-Key", key),
            None => request,
        }
    }

    fn read_description(&self, body: &[u8]) -> Result<JoinSnapshot, PeerFault> {
        JoinSnapshot::parse(body).map_err(|why| PeerFault::Unable(format!("{}: {why}", self.url)))
    }

    /// Returns the body of a response that is no error.
    fn body(&self, answer: Result<Response<ureq::Body>, ureq::Error>, len_max: u64) -> Result<Vec<u8>, PeerFault> {
        let broken = |error: ureq::Error| PeerFault::Passing(format!("{} does not answer: {error}", self.url));
        let mut answer = answer.map_err(broken)?;
        let status = answer.status().as_u16();
        let is_json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json");
        let body = answer.body_mut().with_config().limit(len_max).read_to_vec().map_err(broken)?;
        if matches!(status, 200 | 201) {
            return Ok(body);
        }
        let problem = if is_json { serde_json::from_slice(&body).unwrap_or_default() } else { Value::Null };
        Err(fault(&self.url, status, &problem))
    }
}

/// Classifies a response that is an error. `problem` is its JSON; null for another body.
fn fault(url: &str, status: u16, problem: &Value) -> PeerFault {
    let detail: String = problem["detail"].as_str().unwrap_or_default().chars().take(DETAIL_CHARS_MAX).collect();
    let detail: String = detail.chars().filter(|c| !c.is_control()).collect();
    let reason = if detail.is_empty() { format!("{url} answers {status}") } else { format!("{url}: {detail}") };
    match status {
        401 | 403 => PeerFault::Key(reason),
        404 if problem["type"].as_str().is_some_and(|kind| kind.ends_with(GONE)) => PeerFault::Gone,
        408 | 429 | 500.. => PeerFault::Passing(reason),
        _ => PeerFault::Unable(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn faults_are_told_apart() {
        let gone = json!({"type": "urn:carom:problem:snapshot-gone", "detail": "gone"});
        assert_eq!(fault("u", 404, &gone), PeerFault::Gone);
        // An older version has no such path.
        assert_eq!(fault("u", 404, &Value::Null), PeerFault::Unable("u answers 404".to_owned()));
        assert_eq!(fault("u", 503, &json!({"detail": "Busy\u{7}."})), PeerFault::Passing("u: Busy.".to_owned()));
        assert_eq!(fault("u", 401, &json!({"detail": "No."})), PeerFault::Key("u: No.".to_owned()));
        assert!(matches!(fault("u", 409, &Value::Null), PeerFault::Unable(_)));
        assert!(matches!(fault("u", 302, &Value::Null), PeerFault::Unable(_)));
    }
}
