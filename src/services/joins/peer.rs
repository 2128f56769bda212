//! The HTTP client of the admin listener of a peer, which serves snapshots.
//!
//! It follows no redirect and uses no proxy of the environment: both would see the key and the links.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, header};

use crate::services::host_lists::http_text::config;
use carom_model::dates;
use carom_store::backup::pieces::PIECE_LEN_MAX;

/// The form of the snapshots that this version reads.
pub(super) const SNAPSHOT_FORMAT: u64 = 1;

/// Time for one response: longer than a peer takes for a piece.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Time for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Longest description that is accepted, in bytes.
const ABOUT_LEN_MAX: u64 = 64 * 1024;

/// Longest text of a peer in an error, in characters.
const DETAIL_CHARS_MAX: usize = 300;

/// The end of the type of the problem that a peer answers for a snapshot that it does not have.
const GONE: &str = ":snapshot-gone";

/// The description of a snapshot, as its peer gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PeerSnapshot {
    pub(super) id: u64,
    /// The name of the node that serves it.
    pub(super) node: String,
    /// The fingerprint of the code secret of that node.
    pub(super) fingerprint: String,
    /// The instant of the snapshot, in milliseconds since 1970 UTC.
    pub(super) taken_ms: u64,
    /// The approximate number of all records.
    pub(super) records: u64,
    /// The bytes of the store on the disk of that node.
    pub(super) bytes: u64,
}

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

/// A client of one peer.
pub(super) struct PeerClient {
    agent: Agent,
    url: String,
    key: Option<String>,
}

impl PeerClient {
    /// Creates a client for the admin listener at a URL without a slash at its end. It connects with the first request.
    pub(super) fn new(url: &str, key: Option<String>) -> PeerClient {
        let config = config().timeout_global(Some(ANSWER_TIME)).timeout_connect(Some(CONNECT_TIME));
        let agent = config.max_redirects(0).proxy(None).build().into();
        PeerClient { agent, url: url.to_owned(), key }
    }

    /// Asks for a new snapshot.
    ///
    /// # Errors
    /// [`PeerFault`], except for [`PeerFault::Gone`].
    pub(super) fn begin(&self) -> Result<PeerSnapshot, PeerFault> {
        let mut request = self.agent.post(format!("{}/snapshots", self.url));
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        self.read_about(&self.body(request.send_empty(), ABOUT_LEN_MAX)?)
    }

    /// Asks for the description of a snapshot.
    ///
    /// # Errors
    /// [`PeerFault`].
    pub(super) fn describe(&self, id: u64) -> Result<PeerSnapshot, PeerFault> {
        self.read_about(&self.get(&format!("/snapshots/{id:016x}"), ABOUT_LEN_MAX)?)
    }

    /// Returns the bytes of a piece, which are yet to be checked.
    ///
    /// # Errors
    /// [`PeerFault`].
    pub(super) fn piece(&self, id: u64, number: u32) -> Result<Vec<u8>, PeerFault> {
        self.get(&format!("/snapshots/{id:016x}/pieces/{number}"), PIECE_LEN_MAX as u64)
    }

    /// Says that the snapshot is no longer needed. A failure does no harm: the peer closes it later.
    pub(super) fn end(&self, id: u64) {
        let mut request = self.agent.delete(format!("{}/snapshots/{id:016x}", self.url));
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        let _ = request.call();
    }

    fn get(&self, path: &str, len_max: u64) -> Result<Vec<u8>, PeerFault> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        self.body(request.call(), len_max)
    }

    fn read_about(&self, body: &[u8]) -> Result<PeerSnapshot, PeerFault> {
        parse_about(body).map_err(|why| PeerFault::Unable(format!("{}: {why}", self.url)))
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

/// Judges a response that is an error. `problem` is its JSON; null for another body.
fn fault(url: &str, status: u16, problem: &Value) -> PeerFault {
    let detail: String = problem["detail"].as_str().unwrap_or_default().chars().take(DETAIL_CHARS_MAX).collect();
    let detail: String = detail.chars().filter(|sign| !sign.is_control()).collect();
    let said = if detail.is_empty() { format!("{url} answers {status}") } else { format!("{url}: {detail}") };
    match status {
        401 | 403 => PeerFault::Key(said),
        404 if problem["type"].as_str().is_some_and(|kind| kind.ends_with(GONE)) => PeerFault::Gone,
        408 | 429 | 500.. => PeerFault::Passing(said),
        _ => PeerFault::Unable(said),
    }
}

/// Reads the description of a snapshot.
fn parse_about(body: &[u8]) -> Result<PeerSnapshot, String> {
    let about: Value = serde_json::from_slice(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    match about["format"].as_u64() {
        Some(SNAPSHOT_FORMAT) => {}
        Some(other) => {
            return Err(format!(
                "the snapshot has the format {other}, but this version reads format {SNAPSHOT_FORMAT}; upgrade the older of the two nodes"
            ));
        }
        None => return Err("the answer describes no snapshot".to_owned()),
    }
    let read = || {
        Some(PeerSnapshot {
            id: u64::from_str_radix(about["snapshot"].as_str()?, 16).ok()?,
            node: about["node"].as_str()?.to_owned(),
            fingerprint: about["keyFingerprint"].as_str()?.to_owned(),
            taken_ms: dates::parse(about["taken"].as_str()?).ok()?,
            records: about["records"].as_u64()?,
            bytes: about["bytes"].as_u64()?,
        })
    };
    read().ok_or_else(|| "the description of the snapshot lacks a field".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn descriptions_are_read() {
        let about = json!({
            "format": 1, "snapshot": "00000000000000ff", "node": "n1", "keyFingerprint": "abc",
            "taken": "2026-11-27T00:00:00Z", "links": 3, "records": 9, "bytes": 1_000, "later": true,
        });
        let read = |about: &Value| parse_about(about.to_string().as_bytes());
        let snapshot = read(&about).unwrap();
        assert_eq!((snapshot.id, &*snapshot.node, snapshot.records), (255, "n1", 9));
        assert_eq!(snapshot.taken_ms, dates::parse("2026-11-27T00:00:00Z").unwrap());
        for name in ["snapshot", "node", "keyFingerprint", "taken", "records", "bytes", "format"] {
            let mut less = about.clone();
            less[name] = Value::Null;
            assert!(read(&less).is_err(), "{name}");
        }
        let mut later = about;
        later["format"] = json!(2);
        assert!(read(&later).unwrap_err().contains("upgrade the older"));
        assert!(parse_about(b"<html>").is_err());
    }

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
