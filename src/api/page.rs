//! Pages for people, as hyper sends them, and what they load. The same notices as on the fast way.

use bytes::Bytes;
use hyper::header;
use hyper::{Request, StatusCode};

use super::{Answer, Context, accepts_html, answer, with};
use crate::pages::{CONTENT_SECURITY_POLICY, Pages, SCRIPT};
use carom_model::redirect::Notice;

/// For how long a browser may keep what pages load: it may look another way after a restart.
const KEPT: &str = "public, max-age=300";

/// An answer that is a page.
pub(super) fn as_html(status: StatusCode, html: String) -> Answer {
    let answer = answer(status, "text/html; charset=utf-8", html);
    with(with(answer, header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY), header::REFERRER_POLICY, "no-referrer")
}

impl Context {
    /// The pages of the service.
    pub(super) fn pages(&self) -> &Pages {
        &self.desk.counters().pages
    }

    /// A notice in the form that the client prefers.
    pub(super) fn notice<B>(&self, request: &Request<B>, notice: Notice) -> Answer {
        let status = StatusCode::from_u16(notice.number()).expect("every notice has the number of a status");
        let drawn = self.pages().notice(notice);
        let answer = match accepts_html(request) {
            true => as_html(status, drawn.html.clone()),
            false => answer(status, "text/plain; charset=utf-8", drawn.text.clone()),
        };
        let answer = with(with(answer, header::VARY, "Accept"), header::REFERRER_POLICY, "no-referrer");
        match notice.retry_after() {
            Some(seconds) => with(answer, header::RETRY_AFTER, &seconds.to_string()),
            None => answer,
        }
    }

    /// `GET /-/style.css`
    pub(super) fn style(&self) -> Answer {
        with(
            answer(StatusCode::OK, "text/css; charset=utf-8", self.pages().style().to_owned()),
            header::CACHE_CONTROL,
            KEPT,
        )
    }

    /// `GET /-/page.js`
    pub(super) fn script(&self) -> Answer {
        with(answer(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT), header::CACHE_CONTROL, KEPT)
    }

    /// `GET /-/icon.svg`
    pub(super) fn icon(&self) -> Answer {
        picture("image/svg+xml", self.pages().icon().to_owned())
    }

    /// `GET /-/logo`
    pub(super) fn logo<B>(&self, request: &Request<B>) -> Answer {
        match self.pages().logo() {
            Some(logo) => picture(logo.kind, logo.bytes.clone()),
            None => self.notice(request, Notice::NotFound),
        }
    }
}

fn picture(kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let answer = answer(StatusCode::OK, kind, bytes);
    // An SVG that is opened by itself is a page.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    with(with(answer, header::CONTENT_SECURITY_POLICY, policy), header::CACHE_CONTROL, KEPT)
}
