//! The cookie of a session: its name, its attributes, and the tokens that a request carries.

use hyper::Request;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::api::rest::domains::host_of;
use carom_limits::SESSION_COOKIES_MAX;

/// Name of the session cookie, before the port: browsers share cookies among all ports of a host.
const COOKIE: &str = "carom-console";

/// Name of the session cookie if a proxy in front speaks TLS: browsers accept it over TLS from this host only.
const SECURE_COOKIE: &str = "__Host-carom-console";

/// Request header in which a proxy reports that the client uses TLS.
const PROTOCOL_FIELD: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Returns the session tokens of a request, each with the name of its cookie, at most [`SESSION_COOKIES_MAX`]. One host may
/// have set several, for other ports.
pub(in crate::api) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let cookies = headers.get_all(header::COOKIE).iter().flat_map(|field| field.as_bytes().split(|&byte| byte == b';'));
    let tokens = cookies.filter_map(|cookie| {
        let cookie = cookie.trim_ascii();
        let at = cookie.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&cookie[..at], &cookie[at + 1..]);
        (name.starts_with(COOKIE.as_bytes()) || name == SECURE_COOKIE.as_bytes()).then_some((name, value))
    });
    tokens.take(SESSION_COOKIES_MAX)
}

/// True if the browser uses TLS, which a proxy in front of this listener terminates.
fn is_over_tls<B>(request: &Request<B>) -> bool {
    let field = |name: &HeaderName| request.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    field(&header::ORIGIN).starts_with(b"https://") || field(&PROTOCOL_FIELD).eq_ignore_ascii_case(b"https")
}

/// Returns the name of the session cookie for a request.
pub(super) fn cookie_name<B>(request: &Request<B>) -> String {
    if is_over_tls(request) {
        return SECURE_COOKIE.to_owned();
    }
    let host = host_of(request);
    let port = host.rsplit(|&byte| byte == b':').next().filter(|port| port.iter().all(u8::is_ascii_digit));
    let port = port.and_then(|port| std::str::from_utf8(port).ok()).filter(|port| !port.is_empty());
    port.map_or_else(|| COOKIE.to_owned(), |port| format!("{COOKIE}-{port}"))
}

/// Returns a cookie that scripts cannot read and that browsers omit from requests of other sites.
pub(super) fn cookie(name: &str, token: &str) -> String {
    let secure = if name == SECURE_COOKIE { "; Secure" } else { "" };
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; carom-console-8081=one;carom-console=two"));
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("__Host-carom-console=three; xcarom-console=no; carom-console"),
        );
        let found: Vec<_> =
            tokens(&headers).map(|(name, token)| [name, token].map(|it| it.escape_ascii().to_string())).collect();
        let expected = [["carom-console-8081", "one"], ["carom-console", "two"], ["__Host-carom-console", "three"]];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_some_cookies_are_looked_up() {
        let mut headers = HeaderMap::new();
        let many: Vec<String> = (0..1_000).map(|port| format!("a=b; carom-console-{port}=x")).collect();
        headers.append(header::COOKIE, HeaderValue::from_str(&many.join("; ")).unwrap());
        assert_eq!(tokens(&headers).count(), SESSION_COOKIES_MAX);
    }

    #[test]
    fn a_cookie_is_for_tls_where_that_is_spoken() {
        let of = |fields: &[(&str, &str)]| {
            let request = Request::builder().uri("/").header("host", "ops.example:8081");
            cookie_name(
                &fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap(),
            )
        };
        assert_eq!(of(&[]), "carom-console-8081");
        assert_eq!(of(&[("origin", "http://ops.example:8081")]), "carom-console-8081");
        assert_eq!(of(&[("origin", "https://ops.example:8081")]), SECURE_COOKIE);
        assert_eq!(of(&[("x-forwarded-proto", "https")]), SECURE_COOKIE);
        assert!(cookie(SECURE_COOKIE, "x").ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"));
        assert!(!cookie("carom-console", "x").contains("Secure"));
    }
}
