//! HTML pages as hyper sends them, and their assets. Error pages have the same text as on the fast path.

use bytes::Bytes;
use hyper::header;
use hyper::{Request, StatusCode};

use super::context::Context;
use super::request::{accepts_gzip, accepts_html};
use super::response::{ApiResponse, KEPT_FOR_GOOD, answer, with};
use crate::pages::{CONTENT_SECURITY_POLICY, FONT_KEPT, Pages, SCRIPT, font};
use carom_model::redirect::Notice;

/// Cache lifetime of assets: short, since a restart may change them.
const KEPT: &str = "public, max-age=300";

/// Returns a response with an HTML page.
pub(super) fn as_html(status: StatusCode, html: String) -> ApiResponse {
    let answer = answer(status, "text/html; charset=utf-8", html);
    with(with(answer, header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY), header::REFERRER_POLICY, "no-referrer")
}

impl Context {
    /// Returns the pages of the service.
    pub(super) fn pages(&self) -> &Pages {
        &self.services.context().pages
    }

    /// Returns a notice in the format that the client prefers.
    pub(super) fn notice<B>(&self, request: &Request<B>, notice: Notice) -> ApiResponse {
        let status = StatusCode::from_u16(notice.number()).expect("every notice has the number of a status");
        let drawn = self.pages().notice(notice);
        let answer = if accepts_html(request) {
            as_html(status, drawn.html.clone())
        } else {
            answer(status, "text/plain; charset=utf-8", drawn.text.clone())
        };
        let answer = with(with(answer, header::VARY, "Accept"), header::REFERRER_POLICY, "no-referrer");
        match notice.retry_after() {
            Some(seconds) => with(answer, header::RETRY_AFTER, &seconds.to_string()),
            None => answer,
        }
    }

    /// Handles `GET /-/style.css`: returns the style sheet of the pages.
    pub(super) fn style<B>(&self, request: &Request<B>) -> ApiResponse {
        let (pages, kind) = (self.pages(), "text/css; charset=utf-8");
        let answer = if accepts_gzip(request.headers()) {
            let packed = answer(StatusCode::OK, kind, pages.packed_style().to_owned());
            with(packed, header::CONTENT_ENCODING, "gzip")
        } else {
            answer(StatusCode::OK, kind, pages.style().to_owned())
        };
        with(with(answer, header::VARY, "Accept-Encoding"), header::CACHE_CONTROL, self.lifetime(request))
    }

    /// Handles `GET /-/page.js`: returns the script of the pages.
    pub(super) fn script<B>(&self, request: &Request<B>) -> ApiResponse {
        let answer = answer(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT);
        with(answer, header::CACHE_CONTROL, self.lifetime(request))
    }

    /// Returns the cache lifetime of an asset: long if the query is the current revision.
    fn lifetime<B>(&self, request: &Request<B>) -> &'static str {
        if request.uri().query() == Some(self.pages().revision()) { KEPT_FOR_GOOD } else { KEPT }
    }

    /// Handles `GET /-/fonts/{font}`: returns a font of the pages.
    pub(super) fn font<B>(&self, name: &str, request: &Request<B>) -> ApiResponse {
        match font(name) {
            Some(bytes) => with(answer(StatusCode::OK, "font/woff2", bytes), header::CACHE_CONTROL, FONT_KEPT),
            None => self.notice(request, Notice::NotFound),
        }
    }

    /// Handles `GET /-/icon.svg`: returns the favicon.
    pub(super) fn icon(&self) -> ApiResponse {
        picture("image/svg+xml", self.pages().icon().to_owned())
    }

    /// Handles `GET /-/logo`: returns the logo, if the service has one.
    pub(super) fn logo<B>(&self, request: &Request<B>) -> ApiResponse {
        match self.pages().logo() {
            Some(logo) => picture(logo.kind, logo.bytes.clone()),
            None => self.notice(request, Notice::NotFound),
        }
    }
}

fn picture(kind: &'static str, bytes: impl Into<Bytes>) -> ApiResponse {
    let answer = answer(StatusCode::OK, kind, bytes);
    // An SVG that is opened on its own is a document, so it needs a policy.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    with(with(answer, header::CONTENT_SECURITY_POLICY, policy), header::CACHE_CONTROL, KEPT)
}
