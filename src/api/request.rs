//! Properties of a request that several handlers need.

use hyper::{Method, Request, header};

use carom_limits::{BODY_LEN_MAX, ConnectionLimits};

/// True if the `Accept` header names HTML.
pub(super) fn accepts_html<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    accepted.iter().any(|value| carom_http::head::accepts_html(value.as_bytes()))
}

/// Returns the limit on the length of a request body, in bytes.
pub(super) fn body_len_max<B>(request: &Request<B>) -> usize {
    request.extensions().get::<ConnectionLimits>().map_or(BODY_LEN_MAX, |limits| limits.body_len as usize)
}

/// True if a method only reads.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
