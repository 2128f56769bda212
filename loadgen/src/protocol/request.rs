//! The bytes of requests, prepared as far as possible. Pure.

use crate::workload::links::LinkTable;
use crate::workload::traffic::{Call, RequestKind};

/// Header fields, besides `Host`, that a browser sends when it follows a link.
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: cross-site\r\n";

/// Path at which links are created.
const SHORT_URLS: &str = "/rest/v3/short-urls";

/// Header fields of each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Headers {
    /// The fields of a browser.
    Browser,
    /// `Host` only, as with `wrk`.
    Minimal,
}

impl Headers {
    /// Returns the name of the choice on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Headers::Browser => "browser",
            Headers::Minimal => "minimal",
        }
    }
}

/// Writer of requests to one target.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    /// Method and path of the URL as given.
    url: Vec<u8>,
    /// Bytes from behind the path to the empty line.
    fields: Vec<u8>,
    /// Bytes from behind the path of a create to the length of its body.
    create_fields: Vec<u8>,
    seed: u64,
}

impl Requests {
    /// Prepares requests with the given `Host`, the path of the URL as given, extra fields (`Name: value`), and API key
    /// for creates.
    pub(crate) fn new(
        host: &str,
        path: &str,
        headers: Headers,
        extra: &[String],
        api_key: Option<&str>,
        seed: u64,
    ) -> Requests {
        let extra: String = extra.iter().map(|field| format!("{field}\r\n")).collect();
        let browser = if headers == Headers::Browser { BROWSER } else { "" };
        let fields = format!(" HTTP/1.1\r\nHost: {host}\r\n{browser}{extra}").into_bytes();
        let key = api_key.map(|key| format!("X-Api-Key: {key}\r\n")).unwrap_or_default();
        let create_fields = format!(
            "POST {SHORT_URLS} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{key}{extra}Content-Length: "
        );
        Requests { url: format!("GET {path}").into_bytes(), fields, create_fields: create_fields.into_bytes(), seed }
    }

    /// Appends a request; `last` asks the server to close the connection after it.
    pub(crate) fn write(&self, call: Call, links: &LinkTable, last: bool, out: &mut Vec<u8>) {
        let method: &[u8] = match call.kind {
            RequestKind::Redirect | RequestKind::Miss => b"GET /",
            RequestKind::Head => b"HEAD /",
            RequestKind::Create => return self.write_create(call.number, last, out),
            RequestKind::Url => &self.url,
        };
        out.extend_from_slice(method);
        match call.kind {
            RequestKind::Miss => write_missing(call.number, out),
            RequestKind::Url => {}
            _ => out.extend_from_slice(links.code(call.number)),
        }
        out.extend_from_slice(&self.fields);
        finish(last, out);
    }

    fn write_create(&self, number: u64, last: bool, out: &mut Vec<u8>) {
        let body = format!("{{\"longUrl\":\"{}\"}}", made_url(self.seed, number));
        out.extend_from_slice(&self.create_fields);
        out.extend_from_slice(format!("{}\r\n", body.len()).as_bytes());
        finish(last, out);
        out.extend_from_slice(body.as_bytes());
    }
}

/// Returns the URL that a create asks to shorten: about a hundred bytes.
pub(crate) fn made_url(seed: u64, number: u64) -> String {
    format!("https://www.example.org/made/by/load/{seed:016x}/{number:016x}?campaign=autumn&source=newsletter")
}

fn finish(last: bool, out: &mut Vec<u8>) {
    if last {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a code with the length of an issued one that is never issued: those have no hyphen.
fn write_missing(mut number: u64, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for at in 0..7 {
        out.push(if at == 3 { b'-' } else { DIGITS[(number % 62) as usize] });
        number /= 62;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(call: Call, headers: Headers, last: bool) -> String {
        let mut links = LinkTable::default();
        links.push(b"abc", b"https://a/", None).unwrap();
        let mut out = Vec::new();
        let requests = Requests::new("h:1", "/a?b", headers, &["X: y".to_owned()], Some("key"), 7);
        requests.write(call, &links, last, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_what_they_should_be() {
        let redirect = Call { kind: RequestKind::Redirect, number: 0 };
        assert_eq!(text(redirect, Headers::Minimal, false), "GET /abc HTTP/1.1\r\nHost: h:1\r\nX: y\r\n\r\n");
        assert!(text(redirect, Headers::Browser, true).contains("Mozilla/5.0"));
        let head = Call { kind: RequestKind::Head, number: 0 };
        assert_eq!(
            text(head, Headers::Minimal, true),
            "HEAD /abc HTTP/1.1\r\nHost: h:1\r\nX: y\r\nConnection: close\r\n\r\n"
        );
        let miss = text(Call { kind: RequestKind::Miss, number: 61 }, Headers::Minimal, false);
        assert!(miss.starts_with("GET /z00-000 HTTP/1.1\r\n"), "{miss}");
        let url = Call { kind: RequestKind::Url, number: 0 };
        assert_eq!(text(url, Headers::Minimal, false), "GET /a?b HTTP/1.1\r\nHost: h:1\r\nX: y\r\n\r\n");
    }

    #[test]
    fn creates_announce_the_length_of_their_body() {
        let create = text(Call { kind: RequestKind::Create, number: 3 }, Headers::Browser, false);
        let (head, body) = create.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(head.contains("X-Api-Key: key"), "{head}");
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["longUrl"].is_string());
    }
}
