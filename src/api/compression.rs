//! Compression of JSON and HTML with gzip, for clients that accept it. A thread packs the bodies, so that the core
//! continues with redirects; while that thread has too much to do, bodies are sent as they are.
//!
//! The length of a packed body tells how much it repeats. An attacker who can place guesses into a body, and sees its
//! length, could thus find a secret in the same body (BREACH). So responses to writes are never packed, which may contain
//! a new API key, and neither are reads with secrets: see [`has_secrets`].

use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Body;
use hyper::header::{self, HeaderValue};

use super::context::Context;
use super::public::routes::SINGLE_STEP_PATH;
use super::request::{Coding, coding_for, is_read};
use super::response::{ApiResponse, ResponseBody, with};
use super::rest::streaming::stream;
use crate::bridge::JobKind;
use crate::pages::gzip::{self, PackedPiece, StreamEnd};

/// Least length of a body that is worth the time, in bytes: a shorter one fits into one packet anyway.
const PACKED_LEN_MIN: u64 = 1_024;

/// Longest body, or part of one, that the thread packs at once, in bytes: about 5 ms of its time. Other bodies wait for it.
const PIECE_LEN_MAX: usize = 512 * 1024;

/// Content types that are packed.
const PACKED_TYPES: [&str; 4] = ["application/json", "application/problem+json", "application/x-ndjson", "text/html"];

/// Name of the header by which the coding is chosen, as in `Vary`.
const CHOSEN_BY: &str = "Accept-Encoding";

/// Compression of the response to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    /// The response is never packed.
    Never,
    /// The response could be packed, but not for this client.
    NotForClient,
    /// The response is packed if it has at least so many bytes, or if its length is unknown.
    From(u64),
}

impl Compression {
    /// Returns the compression of the response to a request. The path is that of the current version of the API.
    pub(super) fn of<B>(request: &Request<B>) -> Compression {
        if !is_read(request.method()) || has_secrets(request.uri().path()) {
            return Compression::Never;
        }
        match coding_for(request.headers()) {
            Coding::Identity => Compression::NotForClient,
            Coding::Gzip => Compression::From(PACKED_LEN_MIN),
            Coding::OnlyGzip => Compression::From(1),
        }
    }
}

/// True if a response to a read of the path may contain a secret: the token of a session, which pages of the console have
/// as well, that of a Mercure hub, what belongs to API keys, and a link that the read has created. The console answers
/// every path below its own with a page, unless it knows the path.
fn has_secrets(path: &str) -> bool {
    let is_below =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_page = is_below("/admin") && !is_below("/admin/api") && path != "/admin/sign-in";
    is_page
        || is_below("/admin/api/session")
        || is_below("/apps")
        || is_below("/rest/v3/mercure-info")
        || path == SINGLE_STEP_PATH
}

/// True if a response has JSON or HTML that is not packed yet.
fn is_text(answer: &ApiResponse) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    PACKED_TYPES.contains(&kind) && !answer.headers().contains_key(header::CONTENT_ENCODING)
}

/// Notes that a response depends on the codings that the client accepts.
fn varying(answer: ApiResponse) -> ApiResponse {
    let known = answer.headers().get(header::VARY).and_then(|known| known.to_str().ok());
    let fields = known.map_or_else(|| CHOSEN_BY.to_owned(), |known| format!("{known}, {CHOSEN_BY}"));
    with(answer, header::VARY, &fields)
}

impl Context {
    /// Returns a response with its body packed, if `compression` and its content type allow it.
    pub(super) async fn compressed(&self, compression: Compression, answer: ApiResponse) -> ApiResponse {
        if compression == Compression::Never || !is_text(&answer) {
            return answer;
        }
        let answer = varying(answer);
        let Compression::From(least) = compression else { return answer };
        let (mut head, content) = answer.into_parts();
        let (content, is_packed) = match content.size_hint().exact() {
            Some(len) if len < least => (content, false),
            Some(len) if len <= PIECE_LEN_MAX as u64 => self.pack_whole(content).await,
            _ => (self.pack_stream(content), true),
        };
        if is_packed {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.remove(header::CONTENT_LENGTH);
        }
        ApiResponse::from_parts(head, content)
    }

    /// Packs a complete body on a thread. Returns it as it is, and false, if the thread has no time.
    async fn pack_whole(&self, content: ResponseBody) -> (ResponseBody, bool) {
        let Ok(collected) = content.collect().await;
        let bytes = collected.to_bytes();
        let given = bytes.clone();
        match self.services.hand_off(JobKind::Compression, move || gzip::pack_fast(&given)).await {
            Ok(packed) => (Box::pin(Full::new(Bytes::from(packed))) as ResponseBody, true),
            Err(_) => (Box::pin(Full::new(bytes)) as ResponseBody, false),
        }
    }

    /// Packs a long body, or one that is produced while it is sent, piece by piece on a thread. A piece for which the
    /// thread has no time becomes a part of the stream as it is.
    fn pack_stream(&self, mut content: ResponseBody) -> ResponseBody {
        let services = Rc::clone(&self.services);
        stream(|outlet| async move {
            let (mut bytes, mut end) = (gzip::STREAM_HEAD.to_vec(), StreamEnd::default());
            while let Some(Ok(frame)) = content.frame().await {
                let Ok(mut rest) = frame.into_data() else { continue };
                while !rest.is_empty() {
                    let piece = rest.split_to(rest.len().min(PIECE_LEN_MAX));
                    let given = piece.clone();
                    let packed = services.hand_off(JobKind::Compression, move || PackedPiece::of(&given)).await;
                    let packed = packed.unwrap_or_else(|_| PackedPiece::stored(&piece));
                    end.add(&packed);
                    bytes.extend_from_slice(&packed.bytes);
                    outlet.send(std::mem::take(&mut bytes)).await;
                }
            }
            bytes.extend_from_slice(&end.to_bytes());
            outlet.send(bytes).await;
        })
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Method, StatusCode};

    use super::*;
    use crate::api::response::{answer, empty};

    fn compression(method: Method, path: &str, accepted: &str) -> Compression {
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT_ENCODING, accepted);
        Compression::of(&request.body(()).unwrap())
    }

    #[test]
    fn reads_are_packed_for_clients_that_accept_it() {
        let list = "/rest/v3/short-urls?page=2";
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(compression(method.clone(), list, "gzip, br"), Compression::From(PACKED_LEN_MIN));
            assert_eq!(compression(method.clone(), list, "gzip, identity;q=0"), Compression::From(1));
            assert_eq!(compression(method, list, "br"), Compression::NotForClient);
        }
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            assert_eq!(compression(method, "/rest/v3/short-urls", "gzip"), Compression::Never);
        }
    }

    #[test]
    fn answers_with_secrets_are_never_packed() {
        for path in [
            "/apps",
            "/apps/ops/keys",
            "/admin/api/session",
            "/admin",
            "/admin/",
            "/admin/links/abc",
            // The console has no such files and forms, and shows a page.
            "/admin/sign-in/",
            "/admin/sign-in/abc",
            "/admin/assets",
            "/admin/assets/1/2/3",
            "/rest/v3/mercure-info",
            "/rest/v3/short-urls/shorten?longUrl=https://example.org/",
        ] {
            assert_eq!(compression(Method::GET, path, "gzip"), Compression::Never, "{path}");
        }
        for path in [
            "/admin/sign-in?next=/admin/apps",
            "/admin/api/usage",
            "/admin/api/sessions",
            "/rest/v3/short-urls/shorten2",
            "/application",
        ] {
            assert_eq!(compression(Method::GET, path, "gzip"), Compression::From(PACKED_LEN_MIN), "{path}");
        }
    }

    #[test]
    fn only_texts_are_packed() {
        for (kind, is_packed) in [
            ("application/json", true),
            ("text/html; charset=utf-8", true),
            ("application/x-ndjson", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("text/javascript; charset=utf-8", false),
        ] {
            assert_eq!(is_text(&answer(StatusCode::OK, kind, "{}")), is_packed, "{kind}");
        }
        let packed = with(answer(StatusCode::OK, "text/html", ""), header::CONTENT_ENCODING, "gzip");
        assert!(!is_text(&packed));
        assert!(!is_text(&empty(StatusCode::NO_CONTENT)));
    }

    #[test]
    fn vary_names_all_fields_of_the_choice() {
        let plain = varying(answer(StatusCode::OK, "text/html", ""));
        assert_eq!(plain.headers()[header::VARY], "Accept-Encoding");
        let other = varying(with(plain, header::VARY, "Accept"));
        assert_eq!(other.headers()[header::VARY], "Accept, Accept-Encoding");
    }
}
