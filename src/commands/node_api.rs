//! A client of the REST API of a node, for the commands that work with links.
//!
//! It follows no redirects, which would send the key elsewhere. It repeats a request only if the node asked for a retry.
//! It reaches a node on this machine without the proxy of the environment, which would see the key.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Request, header};

use super::profile::{NodeAccess, is_this_machine};
use super::terminal::{detail, plain};
use crate::services::http::config;
use carom_settings::exit::{Exit, Reason};

pub(crate) use ureq::http::Method;

/// Time for one response.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest accepted response in bytes: a page of 500 links with all their tags is a quarter of it.
const ANSWER_LEN_MAX: u64 = 16 << 20;

/// Requests that are sent for one response.
const TRIES: u32 = 4;

/// Longest wait that a node may ask for, in seconds. Beyond it, the client gives up.
const WAIT_MAX: u64 = 5;

/// Longest text of a node in an error, in characters.
const DETAIL_LEN_MAX: usize = 500;

/// Type of the problem of a link that does not exist.
const NO_LINK: &str = "https://shlink.io/api/error/short-url-not-found";

/// Remedy for a request that needs all links, of a node that does not store them.
pub(crate) const OTHER_NODE: &str = "pass the address of a node that stores all links with --url";

/// Fields and parameters of the API, and the options that set them.
const OPTIONS: [(&str, &str); 22] = [
    ("longUrl", "the destination"),
    ("customSlug", "--slug"),
    ("domain", "--domain"),
    ("title", "--title"),
    ("tags", "--tag"),
    ("validSince", "--starts"),
    ("validUntil", "--expires"),
    ("maxVisits", "--max-visits"),
    ("redirectStatus", "--status"),
    ("cacheSeconds", "--cache-seconds"),
    ("forwardQuery", "--forward-query"),
    ("crawlable", "--crawlable"),
    ("searchTerm", "TEXT"),
    ("tags[]", "--tag"),
    ("orderBy", "--order"),
    ("page", "--page"),
    ("cursor", "--cursor"),
    ("startDate", "--since"),
    ("endDate", "--until"),
    ("app", "--app"),
    ("tag", "--tag"),
    ("destination", "--destination"),
];

/// A client of the API of one node.
pub(crate) struct NodeApi {
    agent: Agent,
    access: NodeAccess,
}

/// A response, with its body as a whole.
struct NodeAnswer {
    status: u16,
    /// Seconds after which the node may accept the request.
    retry_after: Option<u64>,
    body: Vec<u8>,
}

impl NodeApi {
    /// Creates a client. It connects with the first request.
    pub(crate) fn new(access: NodeAccess) -> NodeApi {
        let config = config().timeout_global(Some(HTTP_TIMEOUT)).max_redirects(0);
        // A proxy would also look for another machine under this address.
        let config = if is_this_machine(&access.url) { config.proxy(None) } else { config };
        NodeApi { agent: config.build().into(), access }
    }

    /// Returns the address of the node.
    pub(crate) fn url(&self) -> &str {
        &self.access.url
    }

    /// Returns the JSON of a path with its query.
    ///
    /// # Errors
    /// As [`NodeApi::ask`].
    pub(crate) fn get(&self, path: &str) -> Result<Value, Exit> {
        self.ask(&Method::GET, path, None)
    }

    /// Sends a request and returns the JSON of the response, or null if it has none. Blocks.
    ///
    /// # Errors
    /// The problem that the node names, or the reason why it did not answer.
    pub(crate) fn ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Value, Exit> {
        let mut tries = 1;
        loop {
            let begun = Instant::now();
            let sent = self.send(method, path, body);
            let status = sent.as_ref().map_or("no answer".to_owned(), |answer| answer.status.to_string());
            let millis = begun.elapsed().as_millis();
            detail(&format!("{method} {}{}: {status} after {millis} ms", self.url(), plain(path)));
            let answer = sent.map_err(|why| self.unreachable(method, &why))?;
            match answer.retry_after {
                _ if (200..300).contains(&answer.status) => return self.parsed(&answer.body),
                // The node has done nothing yet, so that even a create can be repeated.
                Some(wait) if matches!(answer.status, 429 | 503) && wait <= WAIT_MAX && tries < TRIES => {
                    thread::sleep(Duration::from_secs(wait));
                }
                _ => return Err(self.refused(&answer)),
            }
            tries += 1;
        }
    }

    fn send(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<NodeAnswer, String> {
        let url = format!("{}{path}", self.access.url);
        let mut request = Request::builder().method(method.clone()).uri(url).header(header::ACCEPT, "application/json");
        if let Some(key) = &self.access.key {
            request = request.header("X-Api-Key", key.as_str());
        }
        let sent = match body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
                self.agent.run(request.map_err(|error| error.to_string())?)
            }
            None => {
                // Without a length, the client sends a body of no bytes in chunks.
                let has_length = *method != Method::GET;
                let request = if has_length { request.header(header::CONTENT_LENGTH, "0") } else { request };
                self.agent.run(request.body(()).map_err(|error| error.to_string())?)
            }
        };
        let mut answer = sent.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec();
        Ok(NodeAnswer { status, retry_after, body: body.map_err(|error| error.to_string())? })
    }

    fn parsed(&self, body: &[u8]) -> Result<Value, Exit> {
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(body).map_err(|_| self.foreign("the answer is not JSON"))
    }

    /// Returns the error for an address at which something else answers.
    pub(crate) fn foreign(&self, why: &str) -> Exit {
        Exit::new(Reason::Incomplete, format!("{} does not answer like a node: {why}", self.url()))
            .with_remedy("pass the address of the public listener with --url, such as https://go.example")
    }

    fn unreachable(&self, method: &Method, why: &str) -> Exit {
        let doubt = if *method == Method::GET { "" } else { "; the change may have been made, so look before a retry" };
        Exit::new(Reason::Incomplete, format!("{} does not answer: {}{doubt}", self.url(), plain(why)))
            .with_remedy("check that the node runs, and that the address is right; --url and `carom login` set it")
    }

    fn refused(&self, answer: &NodeAnswer) -> Exit {
        let problem: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |name: &str| problem[name].as_str();
        let (status, has_key) = (answer.status, self.access.key.is_some());
        let Some(detail) = text("detail").or_else(|| text("title")) else {
            return match status {
                300..=399 => self.foreign(&format!("it redirects with status {status}")),
                _ => self.foreign(&format!("the status is {status}, without a reason")),
            };
        };
        let what = match status {
            401 if !has_key => format!("{} requires an API key", self.url()),
            _ => missing_link(&problem).unwrap_or_else(|| plain(detail)),
        };
        let correction = correction(&problem);
        let (reason, remedy) = match status {
            401 if !has_key => {
                (Reason::Usage, "log in with `carom login`, or pass a file with an API key with --key-file")
            }
            401 => (
                Reason::Usage,
                "the key may be expired or revoked; `carom app add NAME` creates one, and `carom login` stores it",
            ),
            403 => (Reason::Usage, "use a key with more rights: `carom app add NAME --role ROLE` creates one"),
            404 => (
                Reason::Incomplete,
                "`carom link list` shows the links of this key; --domain names the domain of a slug, if the node has several",
            ),
            400 | 409 | 410 | 413 | 415 | 422 => (Reason::Usage, &*correction),
            429 => (Reason::Incomplete, "wait a moment, and try again"),
            501 => (Reason::Incomplete, OTHER_NODE),
            _ => (Reason::Incomplete, "try again in a moment; `carom status` and the log of the node show more"),
        };
        Exit::new(reason, what.chars().take(DETAIL_LEN_MAX).collect::<String>()).with_remedy(remedy)
    }
}

/// Names a link that does not exist, in the words of the command line; `None` for another problem.
fn missing_link(problem: &Value) -> Option<String> {
    let slug = problem["shortCode"].as_str().filter(|_| problem["type"] == NO_LINK)?;
    let domain = problem["domain"].as_str().map_or(String::new(), |domain| format!(" on {}", plain(domain)));
    Some(format!("no link has the slug \"{}\"{domain}", plain(slug)))
}

/// Says what to change after a node has refused values: the options that set the fields that the problem names.
fn correction(problem: &Value) -> String {
    let text = |name: &str| problem[name].as_str().map(plain);
    if let Some(slug) = text("customSlug") {
        let domain = text("domain").map_or(String::new(), |domain| format!(" --domain {domain}"));
        return format!("choose another --slug; `carom link show {slug}{domain}` shows the link that has this one");
    }
    let fields = problem["invalidElements"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut options = Vec::new();
    for field in fields {
        let option = OPTIONS.iter().find(|(name, _)| field.as_str() == Some(*name)).map(|(_, option)| *option);
        if let Some(option) = option
            && !options.contains(&option)
        {
            options.push(option);
        }
    }
    if options.is_empty() {
        return "change the value that the message names; -h describes the options".to_owned();
    }
    format!("change {}; -h describes the options", options.join(" and "))
}

/// Escapes a text for a segment of a path, or for a value of a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str, key: Option<&str>) -> Exit {
        let access = NodeAccess { url: "https://go.example".to_owned(), key: key.map(str::to_owned) };
        NodeApi::new(access).refused(&NodeAnswer { status, retry_after: None, body: body.into() })
    }

    #[test]
    fn problems_of_the_api_become_errors_with_a_remedy() {
        let problem = r#"{"title": "Invalid data", "detail": "maxVisits is \u001b[1mwrong"}"#;
        let exit = refused(400, problem, None);
        assert_eq!((exit.reason, &*exit.what), (Reason::Usage, "maxVisits is [1mwrong"));
        assert!(refused(401, problem, None).remedy().contains("carom login"));
        assert!(refused(401, problem, Some("k")).remedy().contains("expired"));
        assert!(refused(403, problem, Some("k")).remedy().contains("--role"));
        assert_eq!(refused(404, problem, None).reason, Reason::Incomplete);
        assert_eq!(refused(503, problem, None).reason, Reason::Incomplete);
        // A retry would get the same answer.
        assert_eq!(refused(501, problem, None).remedy(), OTHER_NODE);
        let long = refused(400, &format!("{{\"detail\": \"{}\"}}", "x".repeat(10_000)), None);
        assert_eq!(long.what.len(), DETAIL_LEN_MAX);
    }

    #[test]
    fn hints_name_the_options_to_change() {
        let hint = |problem: &str| refused(400, problem, None).remedy().to_owned();
        let fields = r#"{"detail": "wrong", "invalidElements": ["validUntil", "tags", "tags[]", "colour"]}"#;
        assert_eq!(hint(fields), "change --expires and --tag; -h describes the options");
        let other = "change the value that the message names; -h describes the options";
        assert_eq!(hint(r#"{"detail": "wrong", "invalidElements": ["colour"]}"#), other);
        assert_eq!(hint(r#"{"detail": "wrong", "invalidElements": 5}"#), other);
        let taken = r#"{"detail": "taken", "customSlug": "sale", "domain": "go.example"}"#;
        assert!(hint(taken).contains("`carom link show sale --domain go.example`"), "{}", hint(taken));
    }

    #[test]
    fn errors_use_the_words_of_the_command_line() {
        let what = |status: u16, problem: &str| refused(status, problem, None).what;
        let problem = |more: &str| format!(r#"{{"detail": "No URL", "type": "{NO_LINK}", "shortCode": "a"{more}}}"#);
        assert_eq!(what(404, &problem("")), "no link has the slug \"a\"");
        assert_eq!(what(404, &problem(r#", "domain": "go.example""#)), "no link has the slug \"a\" on go.example");
        assert_eq!(what(404, r#"{"detail": "No tag", "shortCode": "a"}"#), "No tag");
        assert_eq!(what(401, r#"{"detail": "Expected one of"}"#), "https://go.example requires an API key");
    }

    #[test]
    fn other_servers_are_named_as_such() {
        for (status, body) in [(404, "<html>"), (301, ""), (200, "[]")] {
            let exit = refused(status, body, Some("geheim"));
            assert!(exit.what.contains("does not answer like a node"), "{exit}");
            assert!(!exit.to_string().contains("geheim"));
        }
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a b/\u{e9}+?"), "a%20b%2F%C3%A9%2B%3F");
    }
}
