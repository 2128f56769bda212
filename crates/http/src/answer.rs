//! Responses in bytes: heads prebuilt for each status, with the date rendered once a second.
//!
//! The caller brings the texts of error pages and rejections. This module knows only how they are framed.

use std::time::{Duration, UNIX_EPOCH};

use carom_shards::{Policy, RedirectStatus};

use super::forward;
use super::redirect::RedirectRequest;
use super::rejection::Rejection;

/// Bytes of an HTTP date (RFC 9110, section 5.6.7), which follows the status line and `Date: ` in every prebuilt head.
const DATE_LEN: usize = 29;

/// The field by which browsers are told to use TLS only (RFC 6797).
const HSTS: &str = "Strict-Transport-Security";

/// Returns the value of `Strict-Transport-Security` for `time`, in whole seconds.
pub fn max_age(time: Duration) -> String {
    format!("max-age={}", time.as_secs())
}

/// A prebuilt head, and the offset of its date.
#[derive(Debug)]
struct Prebuilt {
    bytes: Vec<u8>,
    date_at: usize,
}

impl Prebuilt {
    fn new(status: &str, hsts: Option<&str>, fields: &str) -> Prebuilt {
        let start = format!("HTTP/1.1 {status}\r\nDate: ");
        let hsts = hsts.map_or_else(String::new, |value| format!("{HSTS}: {value}\r\n"));
        let date_at = start.len();
        Prebuilt { bytes: format!("{start}{:DATE_LEN$}\r\n{hsts}{fields}", "").into_bytes(), date_at }
    }

    fn set_date(&mut self, date: &[u8]) {
        self.bytes[self.date_at..self.date_at + DATE_LEN].copy_from_slice(date);
    }
}

/// A body with the fields that describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Representation {
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// Header fields of this response alone, as complete lines. `Date`, `Content-Length` and `Connection` are added.
    pub fields: String,
    /// The body of the response.
    pub body: String,
}

/// A page that is sent in place of a redirect, as HTML and as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorPage {
    /// Number and phrase of the status line.
    pub status: &'static str,
    /// The form for clients that accept HTML.
    pub html: Representation,
    /// The form for all other clients.
    pub text: Representation,
}

/// One form of an error page, or a rejection: a head without its end, and a body.
#[derive(Debug)]
struct Document {
    head: Prebuilt,
    body: String,
}

impl Document {
    fn new(status: &str, hsts: Option<&str>, of: Representation) -> Document {
        let Representation { content_type, fields, body } = of;
        let len = body.len();
        let fields = format!("Content-Type: {content_type}\r\nContent-Length: {len}\r\n{fields}");
        Document { head: Prebuilt::new(status, hsts, &fields), body }
    }

    fn write(&self, out: &mut Vec<u8>, head_only: bool, close: bool) {
        out.extend_from_slice(&self.head.bytes);
        end_head(out, close);
        if !head_only {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

/// The prebuilt responses of one core, for plain connections or for TLS.
#[derive(Debug)]
pub struct PrebuiltResponses {
    redirects: [Prebuilt; RedirectStatus::ALL.len()],
    /// Each page as HTML and as text.
    pages: Vec<[Document; 2]>,
    rejections: Vec<(Rejection, Document)>,
}

impl PrebuiltResponses {
    /// Builds all responses, dated `unix_seconds` after 1970 UTC.
    ///
    /// `rejected` returns the response to a rejected request. `hsts` is the value of `Strict-Transport-Security`, as
    /// [`max_age`] returns it; `None` leaves the field out.
    pub fn new(
        pages: impl IntoIterator<Item = ErrorPage>,
        rejected: impl Fn(Rejection) -> Representation,
        unix_seconds: u64,
        hsts: Option<&str>,
    ) -> PrebuiltResponses {
        let page = |ErrorPage { status, html, text }| [html, text].map(|form| Document::new(status, hsts, form));
        let rejection = |rejection: Rejection| Document::new(rejection.status(), hsts, rejected(rejection));
        let mut responses = PrebuiltResponses {
            redirects: RedirectStatus::ALL.map(|status| {
                let line = format!("{} {}", status.number(), redirect_phrase(status));
                Prebuilt::new(&line, hsts, "Content-Length: 0\r\nCache-Control: private, max-age=")
            }),
            pages: pages.into_iter().map(page).collect(),
            rejections: Rejection::ALL.map(|of| (of, rejection(of))).into(),
        };
        responses.tick(unix_seconds);
        responses
    }

    /// Renders the date again. The caller calls it at least once per second.
    pub fn tick(&mut self, unix_seconds: u64) {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
        let date = date.as_bytes();
        assert_eq!(date.len(), DATE_LEN, "an HTTP date has a fixed length until the year 9999");
        self.redirects.iter_mut().for_each(|head| head.set_date(date));
        self.pages.iter_mut().flatten().for_each(|form| form.head.set_date(date));
        self.rejections.iter_mut().for_each(|(_, response)| response.head.set_date(date));
    }

    /// Appends a redirect to `target`, with the query string of the request if the policy forwards it.
    ///
    /// `now_ms` is the present instant in milliseconds since 1970 UTC, because no client may cache a redirect for
    /// longer than the link lives.
    #[inline]
    pub fn redirect(
        &self,
        out: &mut Vec<u8>,
        request: &RedirectRequest,
        query: &[u8],
        (policy, target): (&Policy, &[u8]),
        now_ms: u64,
    ) {
        out.extend_from_slice(&self.redirects[status_index(policy.status)].bytes);
        match cache_seconds(policy, now_ms) {
            0 => out.push(b'0'),
            seconds => write_number(out, seconds),
        }
        out.extend_from_slice(b"\r\nLocation: ");
        if policy.forward_query && !query.is_empty() {
            forward::push(out, target, query);
        } else {
            out.extend_from_slice(target);
        }
        out.extend_from_slice(b"\r\n");
        end_head(out, request.close);
    }

    /// Appends a redirect that no client caches.
    pub fn uncached_redirect(&self, out: &mut Vec<u8>, request: &RedirectRequest, target: &str) {
        out.extend_from_slice(&self.redirects[status_index(RedirectStatus::Found)].bytes);
        out.extend_from_slice(b"0\r\nLocation: ");
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(b"\r\n");
        end_head(out, request.close);
    }

    /// Appends the error page with this index among those that [`PrebuiltResponses::new`] got.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn page(&self, out: &mut Vec<u8>, request: &RedirectRequest, index: usize) {
        let [html, text] = &self.pages[index];
        let form = if request.accepts_html { html } else { text };
        form.write(out, request.head_only, request.close);
    }

    /// Appends the response to a rejected request, after which the connection is closed.
    pub fn reject(&self, out: &mut Vec<u8>, rejection: Rejection) {
        if let Some((_, response)) = self.rejections.iter().find(|(of, _)| *of == rejection) {
            response.write(out, false, true);
        }
    }
}

/// Returns the seconds for which a client may cache the redirect: never beyond the end of the link.
#[inline]
pub fn cache_seconds(policy: &Policy, now_ms: u64) -> u32 {
    match (policy.cache_seconds, policy.valid_until_ms) {
        (None, _) => 0,
        (Some(seconds), None) => seconds,
        (Some(seconds), Some(until_ms)) => {
            let left = until_ms.saturating_sub(now_ms) / 1_000;
            u32::try_from(left).map_or(seconds, |left| seconds.min(left))
        }
    }
}

fn redirect_phrase(status: RedirectStatus) -> &'static str {
    match status {
        RedirectStatus::MovedPermanently => "Moved Permanently",
        RedirectStatus::Found => "Found",
        RedirectStatus::SeeOther => "See Other",
        RedirectStatus::TemporaryRedirect => "Temporary Redirect",
        RedirectStatus::PermanentRedirect => "Permanent Redirect",
    }
}

#[inline]
fn status_index(status: RedirectStatus) -> usize {
    match status {
        RedirectStatus::MovedPermanently => 0,
        RedirectStatus::Found => 1,
        RedirectStatus::SeeOther => 2,
        RedirectStatus::TemporaryRedirect => 3,
        RedirectStatus::PermanentRedirect => 4,
    }
}

#[inline]
fn end_head(out: &mut Vec<u8>, close: bool) {
    out.extend_from_slice(if close { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

fn write_number(out: &mut Vec<u8>, mut number: u32) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::Span;
    use carom_shards::Code;

    fn request() -> RedirectRequest {
        RedirectRequest {
            code: Code::parse(b"abc").unwrap(),
            host: Span::default(),
            forwarded: Span::default(),
            x_forwarded_for: Span::default(),
            is_split: false,
            query: Span::default(),
            user_agent: Span::default(),
            referer: Span::default(),
            accept_language: Span::default(),
            head_only: false,
            accepts_html: false,
            close: false,
            asked_to_close: false,
        }
    }

    fn form(content_type: &'static str) -> Representation {
        Representation {
            content_type,
            fields: "Vary: Accept\r\n".to_owned(),
            body: format!("a body of {content_type}"),
        }
    }

    fn responses(hsts: Option<&str>) -> PrebuiltResponses {
        let page = |status| ErrorPage { status, html: form("text/html"), text: form("text/plain") };
        let pages = ["404 Not Found", "410 Gone"].map(page);
        PrebuiltResponses::new(pages, |_| form("application/problem+json"), 784_111_777, hsts)
    }

    fn redirected(policy: &Policy, target: &[u8]) -> String {
        let mut out = Vec::new();
        responses(None).redirect(&mut out, &request(), b"q=1", (policy, target), 5_000);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_query_goes_along_where_that_is_wanted() {
        for (forward_query, location) in [(false, "https://a/?b#c"), (true, "https://a/?b&q=1#c")] {
            let policy = Policy { forward_query, ..Policy::default() };
            let text = redirected(&policy, b"https://a/?b#c");
            assert!(text.ends_with(&format!("\r\nLocation: {location}\r\n\r\n")), "{text}");
        }
    }

    #[test]
    fn a_redirect_is_exactly_this() {
        assert_eq!(
            redirected(&Policy::default(), b"https://example.com/"),
            "HTTP/1.1 302 Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 0\r\n\
             Cache-Control: private, max-age=0\r\nLocation: https://example.com/\r\n\r\n"
        );
    }

    #[test]
    fn every_status_has_its_own_line() {
        for status in RedirectStatus::ALL {
            let policy = Policy { status, cache_seconds: Some(4_294_967_295), ..Policy::default() };
            let text = redirected(&policy, b"http://a/");
            assert!(
                text.starts_with(&format!("HTTP/1.1 {} {}\r\n", status.number(), redirect_phrase(status))),
                "{text}"
            );
            assert!(text.contains("max-age=4294967295\r\n"), "{text}");
        }
    }

    #[test]
    fn no_client_keeps_a_redirect_beyond_its_end() {
        let policy = Policy { cache_seconds: Some(60), valid_until_ms: Some(12_900), ..Policy::default() };
        assert_eq!(cache_seconds(&policy, 5_000), 7);
        assert_eq!(cache_seconds(&policy, 20_000), 0);
        assert_eq!(cache_seconds(&Policy { valid_until_ms: Some(u64::MAX), ..policy }, 5_000), 60);
    }

    #[test]
    fn a_page_is_exactly_this() {
        let mut out = Vec::new();
        let request = RedirectRequest { accepts_html: true, ..request() };
        responses(Some("max-age=9")).page(&mut out, &request, 1);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 410 Gone\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nStrict-Transport-Security: max-age=9\r\n\
             Content-Type: text/html\r\nContent-Length: 19\r\nVary: Accept\r\n\r\na body of text/html"
        );
    }

    #[test]
    fn pages_announce_the_length_they_have() {
        for (accepts_html, head_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut out = Vec::new();
            let request = RedirectRequest { accepts_html, head_only, close: true, ..request() };
            responses(None).page(&mut out, &request, 0);
            let text = String::from_utf8(out).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let len: usize = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
            assert!(head.ends_with("Connection: close"));
            assert_eq!(body.len(), if head_only { 0 } else { len });
            assert_eq!(head.contains("text/html"), accepts_html);
        }
    }

    #[test]
    fn every_rejection_has_an_answer_that_closes() {
        for rejection in Rejection::ALL {
            let mut out = Vec::new();
            responses(None).reject(&mut out, rejection);
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {}\r\n", rejection.status())));
            assert!(text.ends_with("\r\nConnection: close\r\n\r\na body of application/problem+json"), "{text}");
        }
    }
}
