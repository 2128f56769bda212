//! Properties of a request that several handlers need.

use hyper::{HeaderMap, Method, Request, header};

use carom_limits::{BODY_LEN_MAX, ConnectionLimits};

/// True if the `Accept` header names HTML.
pub(super) fn accepts_html<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get_all(header::ACCEPT);
    accepted.iter().any(|value| carom_http::head::accepts_html(value.as_bytes()))
}

/// True if the `Accept-Encoding` header names gzip, and does not refuse it with a weight of 0.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

/// Returns the limit on the length of a request body, in bytes.
pub(super) fn body_len_max<B>(request: &Request<B>) -> usize {
    request.extensions().get::<ConnectionLimits>().map_or(BODY_LEN_MAX, |limits| limits.body_len as usize)
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
}
