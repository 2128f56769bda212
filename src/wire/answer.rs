//! Responses in bytes: heads prebuilt for each status, with the date rendered once a second.

use std::time::{Duration, SystemTime};

use carom_shards::{Policy, RedirectStatus};
use serde_json::json;

use super::connection::RedirectRequest;
use super::forward;
use super::head::Rejection;
use crate::pages::{CONTENT_SECURITY_POLICY, Drawn, Pages};
use carom_model::redirect::Notice;
use carom_model::redirect::{Destination, Response};

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

/// The head of an error page in both forms.
#[derive(Debug)]
struct PageHeads {
    page: Drawn,
    html: Prebuilt,
    text: Prebuilt,
}

impl PageHeads {
    /// Builds both heads. `more` has further fields as complete lines.
    fn new(pages: &Pages, notice: Notice, hsts: Option<&str>, more: &str) -> PageHeads {
        let page = pages.notice(notice).clone();
        let retry = notice.retry_after().map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
        let fields = |kind: &str, len: usize| {
            format!(
                "Content-Type: {kind}; charset=utf-8\r\nContent-Length: {len}\r\nCache-Control: no-store\r\nVary: Accept\r\n{retry}{more}\
                 X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
            )
        };
        let policy = format!("Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\n");
        PageHeads {
            html: Prebuilt::new(notice.status(), hsts, &(fields("text/html", page.html.len()) + &policy)),
            text: Prebuilt::new(notice.status(), hsts, &fields("text/plain", page.text.len())),
            page,
        }
    }

    fn write(&self, out: &mut Vec<u8>, request: &RedirectRequest) {
        let (head, body) =
            if request.accepts_html { (&self.html, &self.page.html) } else { (&self.text, &self.page.text) };
        out.extend_from_slice(&head.bytes);
        end_head(out, request.close);
        if !request.head_only {
            out.extend_from_slice(body.as_bytes());
        }
    }
}

/// Seconds after which an address over the rate limit for misses may miss once more. Any limit allows one per second.
pub const MISS_WAIT_SECONDS: u64 = 1;

/// The prebuilt responses of one core.
#[derive(Debug)]
pub struct Answers {
    redirects: [Prebuilt; RedirectStatus::ALL.len()],
    /// By the place of their notice in [`Notice::ALL`].
    pages: [PageHeads; Notice::ALL.len()],
    rejections: Vec<(Rejection, Prebuilt)>,
}

impl Answers {
    /// Builds all responses of a service with these pages, dated `unix_seconds` after 1970 UTC.
    ///
    /// `misses_per_second` is the rate limit of an address. `hsts` is the value of `Strict-Transport-Security`, as
    /// [`max_age`] returns it; `None` leaves the field out.
    pub fn new(pages: &Pages, unix_seconds: u64, misses_per_second: u32, hsts: Option<&str>) -> Answers {
        let limit = format!(
            "X-RateLimit-Limit: {misses_per_second}\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {MISS_WAIT_SECONDS}\r\n"
        );
        let mut answers = Answers {
            redirects: RedirectStatus::ALL.map(|status| {
                let line = format!("{} {}", status.number(), redirect_phrase(status));
                Prebuilt::new(&line, hsts, "Content-Length: 0\r\nCache-Control: private, max-age=")
            }),
            pages: Notice::ALL.map(|notice| {
                let more = if notice == Notice::TooMany { &limit[..] } else { "" };
                PageHeads::new(pages, notice, hsts, more)
            }),
            rejections: Rejection::ALL.map(|rejection| (rejection, rejection_head(rejection, hsts))).into(),
        };
        answers.tick(unix_seconds);
        answers
    }

    /// Renders the date again. The caller calls it at least once per second.
    pub fn tick(&mut self, unix_seconds: u64) {
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix_seconds));
        let date = date.as_bytes();
        assert_eq!(date.len(), DATE_LEN, "an HTTP date has a fixed length until the year 9999");
        self.redirects.iter_mut().for_each(|head| head.set_date(date));
        for page in &mut self.pages {
            page.html.set_date(date);
            page.text.set_date(date);
        }
        self.rejections.iter_mut().for_each(|(_, head)| head.set_date(date));
    }

    /// Appends the response to `ask`, a request with this query string.
    ///
    /// `now_ms` is the present instant in milliseconds since 1970 UTC, because no client may cache a redirect for
    /// longer than the link lives.
    #[inline]
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        request: &RedirectRequest,
        query: &[u8],
        response: &Response<'_>,
        now_ms: u64,
    ) {
        match response {
            Response::Redirect(Destination { policy, target }) => {
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
            Response::DomainFallback(target) => self.write_away(out, request, target),
            Response::Notice(notice) => self.pages[*notice as usize].write(out, request),
        }
    }

    /// Appends a redirect that no client caches.
    fn write_away(&self, out: &mut Vec<u8>, request: &RedirectRequest, target: &str) {
        out.extend_from_slice(&self.redirects[status_index(RedirectStatus::Found)].bytes);
        out.extend_from_slice(b"0\r\nLocation: ");
        out.extend_from_slice(target.as_bytes());
        out.extend_from_slice(b"\r\n");
        end_head(out, request.close);
    }

    /// Appends the response to a rejected request, after which the connection is closed.
    pub fn reject(&self, out: &mut Vec<u8>, rejection: Rejection) {
        if let Some((_, head)) = self.rejections.iter().find(|(of, _)| *of == rejection) {
            out.extend_from_slice(&head.bytes);
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

/// Builds the complete response to a rejected request, with a problem (RFC 9457) like those of the API. No response
/// follows it.
fn rejection_head(rejection: Rejection, hsts: Option<&str>) -> Prebuilt {
    let (_, phrase) = rejection.status().split_once(' ').expect("a status is a number and a phrase");
    let (kind, title) = match rejection {
        Rejection::BodyTooLarge => ("urn:carom:problem:body-too-large", "Request body too large"),
        Rejection::Unavailable => ("urn:carom:problem:unavailable", "Temporarily unavailable"),
        _ => ("about:blank", phrase),
    };
    let (detail, status) = (rejection.explanation(), rejection.number());
    let body = json!({"title": title, "type": kind, "detail": detail, "status": status}).to_string();
    let retry = if rejection == Rejection::Unavailable { "Retry-After: 1\r\n" } else { "" };
    let fields = format!(
        "Content-Type: application/problem+json\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{retry}Connection: close\r\n\r\n{body}",
        body.len()
    );
    Prebuilt::new(rejection.status(), hsts, &fields)
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
    use crate::wire::connection::Span;
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
            head_only: false,
            accepts_html: false,
            close: false,
            asked_to_close: false,
        }
    }

    fn written(request: &RedirectRequest, response: &Response<'_>) -> String {
        let mut out = Vec::new();
        Answers::new(&Pages::plain(), 784_111_777, 10, None).write(&mut out, request, b"q=1", response, 5_000);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_query_goes_along_where_that_is_wanted() {
        for (forward_query, location) in [(false, "https://a/?b#c"), (true, "https://a/?b&q=1#c")] {
            let policy = Policy { forward_query, ..Policy::default() };
            let text = written(&request(), &Response::Redirect(Destination { policy, target: b"https://a/?b#c" }));
            assert!(text.ends_with(&format!("\r\nLocation: {location}\r\n\r\n")), "{text}");
        }
    }

    #[test]
    fn a_redirect_is_exactly_this() {
        let found = Response::Redirect(Destination { policy: Policy::default(), target: &b"https://example.com/"[..] });
        assert_eq!(
            written(&request(), &found),
            "HTTP/1.1 302 Found\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 0\r\n\
             Cache-Control: private, max-age=0\r\nLocation: https://example.com/\r\n\r\n"
        );
    }

    #[test]
    fn every_status_has_its_own_line() {
        for status in RedirectStatus::ALL {
            let policy = Policy { status, cache_seconds: Some(4_294_967_295), ..Policy::default() };
            let text = written(&request(), &Response::Redirect(Destination { policy, target: b"http://a/" }));
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
    fn every_notice_has_its_page() {
        for notice in Notice::ALL {
            let text = written(&request(), &Response::Notice(notice));
            assert!(text.starts_with(&format!("HTTP/1.1 {}\r\n", notice.status())), "{text}");
            assert_eq!(text.contains("X-RateLimit-Limit"), notice == Notice::TooMany);
        }
    }

    #[test]
    fn pages_announce_the_length_they_have() {
        for (accepts_html, head_only) in [(false, false), (true, false), (false, true), (true, true)] {
            for notice in Notice::ALL {
                let text = written(
                    &RedirectRequest { accepts_html, head_only, close: true, ..request() },
                    &Response::Notice(notice),
                );
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                let len: usize =
                    head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
                assert!(head.ends_with("Connection: close"));
                assert_eq!(body.len(), if head_only { 0 } else { len });
                assert_eq!(head.contains("text/html"), accepts_html);
            }
        }
    }

    #[test]
    fn every_rejection_has_an_answer_that_closes() {
        for rejection in Rejection::ALL {
            let mut out = Vec::new();
            Answers::new(&Pages::plain(), 0, 10, None).reject(&mut out, rejection);
            let text = String::from_utf8(out).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {}\r\n", rejection.status())));
            assert!(text.contains("\r\nConnection: close\r\n"));
            let problem: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            assert!(rejection.status().starts_with(&problem["status"].to_string()));
            assert_eq!(problem["detail"], rejection.explanation());
        }
    }
}
