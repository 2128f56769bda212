//! The prebuilt responses of a core: the texts of error pages and rejections, and `write`, which selects one for a
//! `Response`.

use serde_json::json;

use crate::pages::{CONTENT_SECURITY_POLICY, Pages};
use carom_http::answer::{ErrorPage, PrebuiltResponses, Representation};
use carom_http::{RedirectRequest, Rejection};
use carom_model::redirect::notice::{MISS_WAIT_SECONDS, Notice};
use carom_model::redirect::{Destination, Response};

/// The responses of one core, for plain connections or for TLS.
#[derive(Debug)]
pub(super) struct Answers(PrebuiltResponses);

impl Answers {
    /// Builds all responses of a service with these pages, dated `unix_seconds` after 1970 UTC.
    ///
    /// `misses_per_second` is the rate limit of an address. `hsts` is the value of `Strict-Transport-Security`; `None`
    /// leaves the field out.
    pub(super) fn new(pages: &Pages, unix_seconds: u64, misses_per_second: u32, hsts: Option<&str>) -> Answers {
        // `write` finds the page of a notice by its place in `Notice::ALL`.
        let pages = Notice::ALL.map(|notice| page(pages, notice, misses_per_second));
        Answers(PrebuiltResponses::new(pages, problem, unix_seconds, hsts))
    }

    /// Renders the date again. The caller calls it at least once per second.
    pub(super) fn tick(&mut self, unix_seconds: u64) {
        self.0.tick(unix_seconds);
    }

    /// Appends the response to `request`, whose query string is `query`. `now_ms` is the present instant in
    /// milliseconds since 1970 UTC.
    #[inline]
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        request: &RedirectRequest,
        query: &[u8],
        response: &Response<'_>,
        now_ms: u64,
    ) {
        match response {
            Response::Redirect(Destination { policy, target }) => {
                self.0.redirect(out, request, query, (policy, target), now_ms);
            }
            Response::DomainRedirect(target) => self.0.uncached_redirect(out, request, target),
            Response::Notice(notice) => self.0.page(out, request, *notice as usize),
        }
    }

    /// Appends the response to a rejected request, after which the connection is closed.
    pub(super) fn reject(&self, out: &mut Vec<u8>, rejection: Rejection) {
        self.0.reject(out, rejection);
    }
}

/// Returns the error page of a notice.
fn page(pages: &Pages, notice: Notice, misses_per_second: u32) -> ErrorPage {
    let drawn = pages.notice(notice);
    let retry = notice.retry_after().map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
    let limit = match notice {
        Notice::TooMany => format!(
            "X-RateLimit-Limit: {misses_per_second}\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {MISS_WAIT_SECONDS}\r\n"
        ),
        _ => String::new(),
    };
    let fields = format!(
        "Cache-Control: no-store\r\nVary: Accept\r\n{retry}{limit}X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    );
    let policy = format!("Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\n");
    ErrorPage {
        status: notice.status(),
        html: Representation {
            content_type: "text/html; charset=utf-8",
            fields: fields.clone() + &policy,
            body: drawn.html.clone(),
        },
        text: Representation { content_type: "text/plain; charset=utf-8", fields, body: drawn.text.clone() },
    }
}

/// Returns the problem (RFC 9457) that a rejected request gets, like those of the API.
fn problem(rejection: Rejection) -> Representation {
    let (_, phrase) = rejection.status().split_once(' ').expect("a status is a number and a phrase");
    let (kind, title) = match rejection {
        Rejection::BodyTooLarge => ("urn:carom:problem:body-too-large", "Request body too large"),
        Rejection::Unavailable => ("urn:carom:problem:unavailable", "Temporarily unavailable"),
        _ => ("about:blank", phrase),
    };
    let (detail, status) = (rejection.explanation(), rejection.number());
    let retry = if rejection == Rejection::Unavailable { "Retry-After: 1\r\n" } else { "" };
    Representation {
        content_type: "application/problem+json",
        fields: format!("Cache-Control: no-store\r\n{retry}"),
        body: json!({"title": title, "type": kind, "detail": detail, "status": status}).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_http::{Action, Connection};

    fn request() -> RedirectRequest {
        let step = Connection::for_redirects().step(b"GET /abc HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let Action::Lookup(request) = step.action else { panic!("a request for a code") };
        request
    }

    fn written(request: &RedirectRequest, response: &Response<'_>) -> String {
        let mut out = Vec::new();
        Answers::new(&Pages::plain(), 784_111_777, 10, None).write(&mut out, request, b"q=1", response, 5_000);
        String::from_utf8(out).unwrap()
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
