//! Responses: their body, and the functions that build one.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// The body of a response: either complete, or produced while hyper sends it.
pub(super) type ResponseBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>;

/// A response of the API or of a page.
pub(super) type ApiResponse = Response<ResponseBody>;

/// Cache lifetime of assets whose address contains their revision: a year.
pub(super) const KEPT_FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// Returns a response whose body has the content type `kind`.
pub(super) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> ApiResponse {
    answer_with(status, kind, Box::pin(Full::new(body.into())))
}

/// Returns a response with the body `content` of the content type `kind`.
pub(super) fn answer_with(status: StatusCode, kind: &'static str, content: ResponseBody) -> ApiResponse {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Returns a response without a body.
pub(super) fn empty(status: StatusCode) -> ApiResponse {
    let mut answer = Response::new(Box::pin(Full::default()) as ResponseBody);
    *answer.status_mut() = status;
    answer
}

/// Returns a redirect that clients do not cache.
pub(super) fn uncached_redirect(target: &str) -> ApiResponse {
    let answer = with(empty(StatusCode::FOUND), header::CONTENT_LENGTH, "0");
    with(with(answer, header::CACHE_CONTROL, "private, max-age=0"), header::LOCATION, target)
}

/// Returns a JSON response.
pub(super) fn json(status: StatusCode, body: &impl serde::Serialize) -> ApiResponse {
    json_text(status, to_json(body))
}

/// Returns a response with JSON that is serialised already.
pub(super) fn json_text(status: StatusCode, text: Vec<u8>) -> ApiResponse {
    answer(status, "application/json", text)
}

/// Serialises a value as JSON.
pub(super) fn to_json(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("keys are strings, and nothing else can fail")
}

/// Adds a header to a response. A value that no header can carry is left out.
pub(super) fn with(mut answer: ApiResponse, name: HeaderName, value: &str) -> ApiResponse {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}
