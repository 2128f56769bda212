//! The table of the public listener: every path and its methods.
//!
//! The router looks here first and refuses every path that the table lacks. The tests compare the table with the
//! description for clients (`openapi.json`), so every path that is served is also described.

use hyper::header;
use hyper::{Method, StatusCode, Uri};

use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, empty, with};
use crate::bridge::BULK_PATH;

/// Paths in the notation of the description, each with its methods in the notation of the header `Allow`.
pub(in crate::api) const ROUTES: &[(&str, &str)] = &[
    ("/", "GET, HEAD, POST"),
    ("/-/style.css", "GET, HEAD"),
    ("/-/page.js", "GET, HEAD"),
    ("/-/icon.svg", "GET, HEAD"),
    ("/-/logo", "GET, HEAD"),
    ("/-/links/{shortCode}", "GET, HEAD"),
    ("/robots.txt", "GET, HEAD"),
    ("/{shortCode}", "GET, HEAD"),
    ("/{shortCode}+", "GET, HEAD"),
    ("/{shortCode}/qr-code", "GET, HEAD"),
    ("/v4/shorten", "POST"),
    ("/v4/expand", "POST"),
    ("/yourls-api.php", "GET, HEAD, POST"),
    ("/rest/health", "GET, HEAD"),
    ("/rest/v3/health", "GET, HEAD"),
    ("/rest/v3/openapi.json", "GET, HEAD"),
    ("/rest/v3/short-urls", "GET, HEAD, POST"),
    (BULK_PATH, "POST"),
    ("/rest/v3/short-urls/export", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}", "GET, HEAD, PATCH, DELETE"),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules", "GET, HEAD, POST"),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules/try", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}/visits", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}/qr", "GET, HEAD"),
    ("/rest/v3/visits", "GET, HEAD"),
    ("/rest/v3/tags", "GET, HEAD, PUT, DELETE"),
    ("/rest/v3/tags/stats", "GET, HEAD"),
    ("/rest/v3/domains", "GET, HEAD"),
    ("/rest/v3/mercure-info", "GET, HEAD"),
];

/// Returns the methods that a path allows; empty if the path is unknown. A name of the API is not also a short
/// code: links with the slugs `bulk` and `export` are reached with an escape, as `%62ulk` and `%65xport`.
pub(in crate::api) fn methods_at(path: &str) -> Vec<&'static str> {
    let mut methods = Vec::new();
    let is_name = ROUTES.iter().any(|(route, _)| *route == path);
    let is_meant = |route: &str| if is_name { route == path } else { is_at(route, path) };
    for method in ROUTES.iter().filter(|(route, _)| is_meant(route)).flat_map(|(_, allow)| allow.split(", ")) {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    methods
}

/// Returns the route of a path; `None` if the path is unknown.
pub(in crate::api) fn route_of(path: &str) -> Option<&'static str> {
    let named = ROUTES.iter().find(|(route, _)| *route == path);
    named.or_else(|| ROUTES.iter().find(|(route, _)| is_at(route, path))).map(|(route, _)| *route)
}

/// Answers a request whose target is not a routable path: the asterisk, a tunnel, or bytes that must be
/// percent-encoded. HTTP/1.1 refuses most of these earlier; HTTP/2 has no such check.
pub(in crate::api) fn without_path(method: &Method, uri: &Uri) -> Option<ApiResponse> {
    match uri.path() {
        _ if *method == Method::CONNECT => Some(Problem::tunnel().into_answer()),
        "*" if *method == Method::OPTIONS => {
            let answer = with(empty(StatusCode::OK), header::ALLOW, &all_methods().join(", "));
            Some(with(answer, header::CONTENT_LENGTH, "0"))
        }
        path if path == "*" || !path.is_ascii() => Some(Problem::wrong_target().into_answer()),
        _ => None,
    }
}

/// Returns every method that some path allows, and `OPTIONS`, which the server as a whole allows.
pub(in crate::api) fn all_methods() -> Vec<&'static str> {
    let mut methods = Vec::new();
    for method in ROUTES.iter().flat_map(|(_, allow)| allow.split(", ")).chain(["OPTIONS"]) {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    methods
}

fn is_at(route: &str, path: &str) -> bool {
    route.split('/').count() == path.split('/').count()
        && route.split('/').zip(path.split('/')).all(|(name, found)| name.starts_with('{') || name == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_whole() {
        assert!(is_at("/rest/v3/short-urls/{shortCode}", "/rest/v3/short-urls/abc"));
        for path in ["/rest/v3/short-urls", "/rest/v3/short-urls/abc/", "/rest/v2/short-urls/abc"] {
            assert!(!is_at("/rest/v3/short-urls/{shortCode}", path), "{path}");
        }
    }

    #[test]
    fn a_target_that_is_no_path_has_an_answer_of_its_own() {
        let status = |method: Method, uri: &[u8]| {
            without_path(&method, &Uri::try_from(uri).unwrap()).map(|answer| answer.status().as_u16())
        };
        assert_eq!(status(Method::OPTIONS, b"*"), Some(200));
        assert_eq!((status(Method::GET, b"*"), status(Method::GET, "/\u{e9}".as_bytes())), (Some(400), Some(400)));
        assert_eq!(status(Method::CONNECT, b"a.example:443"), Some(501));
        assert_eq!((status(Method::GET, b"/%C3%A9"), status(Method::OPTIONS, b"/")), (None, None));
        let answer = without_path(&Method::OPTIONS, &Uri::from_static("*")).unwrap();
        assert_eq!(answer.headers()[header::ALLOW], "GET, HEAD, POST, PATCH, DELETE, PUT, OPTIONS");
    }

    #[test]
    fn a_name_has_its_own_methods_only() {
        assert_eq!(methods_at("/rest/v3/short-urls/bulk"), ["POST"]);
        assert_eq!(methods_at("/rest/v3/short-urls/export"), ["GET", "HEAD"]);
        assert_eq!(methods_at("/rest/v3/short-urls/%62ulk"), ["GET", "HEAD", "PATCH", "DELETE"]);
        assert_eq!(methods_at("/robots.txt"), ["GET", "HEAD"]);
        assert_eq!(methods_at("/rest/v3/short-urls/abc"), ["GET", "HEAD", "PATCH", "DELETE"]);
        assert!(methods_at("/rest/v3/none").is_empty() && methods_at("*").is_empty());
    }
}
