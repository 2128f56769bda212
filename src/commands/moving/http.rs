//! A client for the APIs of other shorteners. It repeats requests that may succeed later, and follows no redirects: they
//! would carry the key to another place.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, header};

use crate::services::http::config;
use carom_limits::MOVED_DOCUMENT_MAX;

/// Time for one response.
const HTTP_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that are sent for one response.
const TRIES: u32 = 6;

/// Time before the second request; it doubles with each further one.
const WAIT: Duration = Duration::from_millis(250);

/// The longest wait that a server may ask for.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A failed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiFailure {
    /// The status of the response; `None` if there was none.
    pub status: Option<u16>,
    /// A description with the address, without the key.
    pub reason: String,
}

/// Lines that a service has not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinesFailure {
    /// The status and the reason.
    pub failure: ApiFailure,
    /// The wait that the service asks for.
    pub asked: Option<Duration>,
}

impl ApiFailure {
    /// True if the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        self.status.is_none_or(|status| status == 429 || status >= 500)
    }
}

/// The header that carries the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyHeader {
    /// A header of this name with the key alone.
    Named(&'static str),
    /// `Authorization: Bearer`.
    Bearer,
}

/// A client for one API.
pub struct ApiClient {
    agent: Agent,
    base: String,
    header: Option<(&'static str, String)>,
}

impl ApiClient {
    /// Creates a client for an API under a base URL. `key` is the header and its key.
    pub fn new(base: &str, key: Option<(KeyHeader, &str)>) -> ApiClient {
        let agent = config().timeout_global(Some(HTTP_TIMEOUT)).max_redirects(0).build();
        let header = key.map(|(header, key)| match header {
            KeyHeader::Named(name) => (name, key.to_owned()),
            KeyHeader::Bearer => ("Authorization", format!("Bearer {key}")),
        });
        ApiClient { agent: agent.into(), base: base.trim_end_matches('/').to_owned(), header }
    }

    /// Returns the JSON of a path with its query. Blocks, and repeats the request if it may succeed later.
    ///
    /// # Errors
    /// [`ApiFailure`] with the last reason.
    pub fn get(&self, path: &str) -> Result<Value, ApiFailure> {
        let url = format!("{}{path}", self.base);
        repeat(&url, || {
            let mut request = self.agent.get(&url).header(header::ACCEPT, "application/json");
            if let Some((name, value)) = &self.header {
                request = request.header(*name, value);
            }
            request.call()
        })
    }

    /// Sends lines of JSON to a path once, and returns the lines of the response. Blocks.
    ///
    /// # Errors
    /// [`LinesFailure`] for any status but 200.
    pub fn post_lines(&self, path: &str, lines: &[u8]) -> Result<Vec<u8>, LinesFailure> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.post(&url).header(header::CONTENT_TYPE, "application/x-ndjson");
        if let Some((name, value)) = &self.header {
            request = request.header(*name, value);
        }
        received(&url, request.send(lines)).map_err(|(failure, asked)| LinesFailure { failure, asked })
    }

    /// Returns the JSON of a form that is sent to a path. Blocks, and repeats the request if it may succeed later.
    ///
    /// # Errors
    /// [`ApiFailure`] with the last reason.
    pub fn post_form(&self, path: &str, form: &[(&str, &str)]) -> Result<Value, ApiFailure> {
        let url = format!("{}{path}", self.base);
        repeat(&url, || self.agent.post(&url).send_form(form.iter().copied()))
    }
}

/// Sends a request until it has a final response.
fn repeat(url: &str, send: impl Fn() -> Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, ApiFailure> {
    let mut wait = WAIT;
    for tries in 1.. {
        let (failure, asked) = match received(url, send()) {
            Ok(body) => return parsed(url, &body),
            Err(refused) => refused,
        };
        if !failure.may_pass() || tries == TRIES {
            return Err(failure);
        }
        thread::sleep(asked.unwrap_or(wait).min(WAIT_MAX));
        wait *= 2;
    }
    unreachable!("the loop returns with the last try")
}

/// Returns the body of a response with status 200.
///
/// # Errors
/// The failure, and the wait that the server asks for.
fn received(
    url: &str,
    answer: Result<Response<ureq::Body>, ureq::Error>,
) -> Result<Vec<u8>, (ApiFailure, Option<Duration>)> {
    let broken = |error: ureq::Error| -> (ApiFailure, Option<Duration>) {
        (ApiFailure { status: None, reason: format!("{url}: {error}") }, None)
    };
    let mut answer = answer.map_err(broken)?;
    let status = answer.status().as_u16();
    let asked = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = answer.body_mut().with_config().limit(MOVED_DOCUMENT_MAX).read_to_vec().map_err(broken)?;
    match status {
        200 => Ok(body),
        _ => Err((refused(url, status, &body), asked.map(Duration::from_secs))),
    }
}

fn parsed(url: &str, body: &[u8]) -> Result<Value, ApiFailure> {
    serde_json::from_slice(body).map_err(|error| {
        let reason = format!("{url} does not answer with JSON: {error}; check the address of the API");
        ApiFailure { status: Some(200), reason }
    })
}

fn refused(url: &str, status: u16, body: &[u8]) -> ApiFailure {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    let text = |name: &str| body.as_ref().and_then(|body| body.get(name)).and_then(Value::as_str).map(str::to_owned);
    let detail = text("detail").or(text("message")).or(text("error")).unwrap_or_default();
    let hint = match status {
        401 | 403 => "; check the key",
        300..=399 => "; pass the address that it redirects to",
        404 => "; check the address of the API",
        _ => "",
    };
    let shown: String = detail.chars().filter(|sign| !sign.is_control()).take(200).collect();
    let shown = if shown.is_empty() { shown } else { format!(" ({shown})") };
    ApiFailure { status: Some(status), reason: format!("{url} answers {status}{shown}{hint}") }
}

/// Escapes a text for a path or a query. A slash stays.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_failures_are_described() {
        assert_eq!(escaped("bit.ly/a b+\u{e9}=?"), "bit.ly/a%20b%2B%C3%A9%3D%3F");
        let failure = refused("https://a.example/rest", 401, br#"{"detail": "Invalid\u0007 key"}"#);
        assert_eq!(failure.reason, "https://a.example/rest answers 401 (Invalid key); check the key");
        assert!(parsed("u", b"<html>").unwrap_err().reason.contains("does not answer with JSON"));
    }
}
