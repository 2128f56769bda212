//! Properties of a request that several handlers need.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, header};

use super::problem::Problem;
use carom_limits::{BODY_LEN_MAX, ConnectionLimits};

/// True if the `Accept` header names HTML.
pub(super) fn accepts_html<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    accepted.iter().any(|value| carom_http::head::accepts_html(value.as_bytes()))
}

/// The content coding that a client prefers (RFC 9110, section 12.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coding {
    /// The content as it is.
    Identity,
    /// Gzip. The client also takes the content as it is.
    Gzip,
    /// Gzip. The client refuses the content as it is.
    OnlyGzip,
}

/// Returns the coding that the `Accept-Encoding` header prefers, of those that carom has. A client that refuses all of
/// them gets the content as it is.
pub(super) fn coding_for(headers: &HeaderMap) -> Coding {
    let (mut gzip, mut identity, mut others) = (None, None, None);
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for coding in values.flat_map(|value| value.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
        let weight = Some(weight.unwrap_or(1.0));
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => gzip = weight,
            name if name.eq_ignore_ascii_case("identity") => identity = weight,
            "*" => others = weight,
            _ => {}
        }
    }
    let (gzip, identity) = (gzip.or(others).unwrap_or(0.0), identity.or(others));
    // A client that does not name the identity takes it, and prefers everything that it names.
    match identity {
        _ if gzip <= 0.0 => Coding::Identity,
        Some(identity) if identity <= 0.0 => Coding::OnlyGzip,
        Some(identity) if identity > gzip => Coding::Identity,
        _ => Coding::Gzip,
    }
}

/// True if the `Accept-Encoding` header prefers gzip.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    coding_for(headers) != Coding::Identity
}

/// Returns the limit on the length of a request body, in bytes.
pub(super) fn body_len_max<B>(request: &Request<B>) -> usize {
    request.extensions().get::<ConnectionLimits>().map_or(BODY_LEN_MAX, |limits| limits.body_len as usize)
}

/// Reads the body of a request.
///
/// # Errors
/// 413 if it is longer than `len_max` bytes, 400 if it breaks off.
pub(super) async fn read_body(request: Request<Incoming>, len_max: usize) -> Result<Bytes, Problem> {
    let body = Limited::new(request.into_body(), len_max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { Problem::body_too_large() } else { Problem::body_broken() }
    })?;
    Ok(body.to_bytes())
}

/// True if a method only reads.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        let accepts = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            accepts_gzip(&headers)
        };
        assert!(["gzip", "gzip, deflate, br, zstd", "br;q=1.0, GZIP;q=0.5", "deflate,gzip"].into_iter().all(accepts));
        assert!(!["", "br", "identity", "gzip;q=0", "gzip; q=0.0, br", "x-gzip"].into_iter().any(accepts));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn weights_decide_between_gzip_and_identity() {
        for (value, coding) in [
            ("*", Coding::Gzip),
            ("*;q=0", Coding::Identity),
            ("gzip;q=0.5, identity;q=1", Coding::Identity),
            ("identity;q=0.5, gzip;q=1.0", Coding::Gzip),
            ("gzip;q=0.001", Coding::Gzip),
            ("gzip, identity;q=0", Coding::OnlyGzip),
            ("identity;q=0, *;q=0.5", Coding::OnlyGzip),
            ("gzip;q=0.5, *;q=0", Coding::OnlyGzip),
            ("gzip;q=0, *", Coding::Identity),
            ("identity;q=0", Coding::Identity),
            ("gzip; q=1", Coding::Gzip),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(coding_for(&headers), coding, "{value}");
        }
    }
}
