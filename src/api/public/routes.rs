//! The table of the public listener: every path and its methods.
//!
//! The router looks here first and refuses every path that the table lacks. The tests compare the table with the
//! description for clients (`openapi.json`), so every path that is served is also described.

use hyper::header;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode, Uri};

use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, empty, with};
use crate::bridge::{BULK_PATH, CHANGES_PATH, IMPORT_PATH};

/// Path of the creation with one `GET`.
pub(in crate::api) const SINGLE_STEP_PATH: &str = "/rest/v3/short-urls/shorten";

/// Path of an edit of all links that match a filter.
pub(in crate::api) const MATCHING_PATH: &str = "/rest/v3/short-urls/bulk/matching";

/// Paths in the notation of the description, each with its methods in the notation of the header `Allow`.
pub(in crate::api) const ROUTES: &[(&str, &str)] = &[
    ("/", "GET, HEAD, POST"),
    ("/-/style.css", "GET, HEAD"),
    ("/-/page.js", "GET, HEAD"),
    ("/-/fonts/{font}", "GET, HEAD"),
    ("/-/icon.svg", "GET, HEAD"),
    ("/-/logo", "GET, HEAD"),
    ("/-/links/{shortCode}", "GET, HEAD"),
    ("/robots.txt", "GET, HEAD"),
    ("/{shortCode}", "GET, HEAD"),
    ("/{shortCode}+", "GET, HEAD"),
    ("/{shortCode}/qr-code", "GET, HEAD"),
    ("/{shortCode}/track", "GET, HEAD"),
    ("/v4/shorten", "POST"),
    ("/v4/expand", "POST"),
    ("/yourls-api.php", "GET, HEAD, POST"),
    ("/rest/health", "GET, HEAD"),
    ("/rest/v3/health", "GET, HEAD"),
    ("/rest/v3/openapi.json", "GET, HEAD"),
    ("/rest/v3/short-urls", "GET, HEAD, POST"),
    (BULK_PATH, "POST"),
    (CHANGES_PATH, "POST"),
    (IMPORT_PATH, "POST"),
    (MATCHING_PATH, "POST"),
    ("/rest/v3/short-urls/export", "GET, HEAD"),
    (SINGLE_STEP_PATH, "GET"),
    (LINK_ROUTE, "GET, HEAD, PATCH, DELETE"),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules", "GET, HEAD, POST"),
    ("/rest/v3/short-urls/{shortCode}/redirect-rules/try", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}/visits", "GET, HEAD, DELETE"),
    ("/rest/v3/short-urls/{shortCode}/qr", "GET, HEAD"),
    ("/rest/v3/visits", "GET, HEAD"),
    ("/rest/v3/visits/orphan", "GET, HEAD, DELETE"),
    ("/rest/v3/visits/non-orphan", "GET, HEAD"),
    ("/rest/v3/visits/stats", "GET, HEAD"),
    ("/rest/v3/visits/per-day", "GET, HEAD"),
    ("/rest/v3/tags", "GET, HEAD, PUT, DELETE"),
    ("/rest/v3/tags/stats", "GET, HEAD"),
    ("/rest/v3/tags/{tag}/visits", "GET, HEAD"),
    ("/rest/v3/domains", "GET, HEAD"),
    ("/rest/v3/domains/redirects", "PATCH"),
    ("/rest/v3/domains/{domain}/visits", "GET, HEAD"),
    ("/rest/v3/events", "GET, HEAD"),
    ("/rest/v3/events/dead-letters", "GET, HEAD"),
    ("/rest/v3/purges", "POST"),
    ("/rest/v3/purges/{purgeId}", "GET, HEAD"),
    ("/rest/v3/api-key", "GET, HEAD"),
    ("/rest/v3/mercure-info", "GET, HEAD"),
];

/// The beginning of the paths about one link.
const OF_LINK: &str = "/rest/v3/short-urls/";

/// The route of a link. The routes of its parts, such as its visits, begin with it.
const LINK_ROUTE: &str = "/rest/v3/short-urls/{shortCode}";

/// Versions of the REST API that Shlink still serves for clients of before version 3.
const FORMER_VERSIONS: [&str; 2] = ["/rest/v1/", "/rest/v2/"];

/// Returns a request with the path of version 3 if it has that of version 1 or 2. The paths of all versions mean the same.
pub(in crate::api) fn at_version_3<B>(request: Request<B>) -> Request<B> {
    let path = request.uri().path();
    match FORMER_VERSIONS.iter().find_map(|former| path.strip_prefix(former)) {
        Some(rest) => {
            let path = format!("/rest/v3/{rest}");
            at_path(request, &path)
        }
        None => request,
    }
}

/// Returns a request with the slug in one segment of the path, if the path is no route and the slug has several. Like
/// Shlink, the API takes the slashes of a slug with and without escapes.
pub(in crate::api) fn with_whole_slug<B>(request: Request<B>) -> Request<B> {
    let path = request.uri().path();
    let Some(rest) = path.strip_prefix(OF_LINK).filter(|_| methods_at(path).is_empty()) else { return request };
    let parts = ROUTES.iter().filter_map(|(route, _)| route.strip_prefix(LINK_ROUTE));
    let part = parts.filter(|part| rest.ends_with(*part)).max_by_key(|part| part.len()).unwrap_or_default();
    let slug = &rest[..rest.len() - part.len()];
    if !slug.contains('/') || slug.split('/').any(str::is_empty) {
        return request;
    }
    let path = format!("{OF_LINK}{}{part}", slug.replace('/', "%2F"));
    at_path(request, &path)
}

/// Returns a request with another path, of characters that a path may have.
fn at_path<B>(mut request: Request<B>, path: &str) -> Request<B> {
    let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{path}{query}")).ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

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

/// Returns what a request of the API asks for, in words for the client, if only a node with all links can answer it.
pub(in crate::api) fn of_all_links(segments: &[&str], method: &Method) -> Option<&'static str> {
    match segments {
        ["v3", "short-urls"] if *method != Method::POST => Some("Lists of links"),
        ["v3", "short-urls", "export"] => Some("Exports"),
        ["v3", "short-urls", "bulk", "import"] => Some("Imports"),
        ["v3", "short-urls", "bulk", "matching"] => Some("Changes of all links that match a filter"),
        ["v3", "tags"] | ["v3", "tags", "stats"] => Some("Tags of all links"),
        _ => None,
    }
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
    fn former_versions_lead_to_the_same_paths() {
        let path = |path: &str| {
            at_version_3(Request::builder().uri(path).body(()).unwrap()).uri().path_and_query().unwrap().to_string()
        };
        assert_eq!(path("/rest/v1/short-urls/abc?domain=a%20b"), "/rest/v3/short-urls/abc?domain=a%20b");
        assert_eq!(path("/rest/v2/tags/stats"), "/rest/v3/tags/stats");
        assert_eq!(path("http://a.example/rest/v2/visits"), "/rest/v3/visits");
        for other in ["/rest/v3/tags", "/rest/v4/tags", "/rest/v1", "/rest/v10/tags", "/v1/tags", "/rest/health?v"] {
            assert_eq!(path(other), other);
        }
    }

    #[test]
    fn slugs_with_slashes_become_one_segment() {
        let path = |path: &str| {
            with_whole_slug(Request::builder().uri(path).body(()).unwrap()).uri().path_and_query().unwrap().to_string()
        };
        for (given, routed) in [
            ("/rest/v3/short-urls/a/b/c?domain=d", "/rest/v3/short-urls/a%2Fb%2Fc?domain=d"),
            ("/rest/v3/short-urls/a/b/visits", "/rest/v3/short-urls/a%2Fb/visits"),
            ("/rest/v3/short-urls/a/b/redirect-rules/try?x", "/rest/v3/short-urls/a%2Fb/redirect-rules/try?x"),
            ("/rest/v3/short-urls/a%2Fb/c/qr", "/rest/v3/short-urls/a%2Fb%2Fc/qr"),
        ] {
            assert_eq!(path(given), routed);
            assert!(!methods_at(routed.split('?').next().unwrap()).is_empty(), "{routed}");
        }
        for route in ROUTES.iter().map(|(route, _)| *route).filter(|route| route.starts_with(LINK_ROUTE)) {
            let part = &route[LINK_ROUTE.len()..];
            assert_eq!(route_of(&path(&format!("{OF_LINK}a/b{part}"))), Some(route));
        }
        for same in ["a%2Fb", "a%2Fb/visits", "abc/visits", "bulk/changes", "abc/", "a//b", "abc"] {
            let same = format!("/rest/v3/short-urls/{same}");
            assert_eq!(path(&same), same);
        }
        assert_eq!(path("/rest/v3/tags/a/b"), "/rest/v3/tags/a/b");
    }

    #[test]
    fn a_name_has_its_own_methods_only() {
        assert_eq!(methods_at("/rest/v3/short-urls/bulk"), ["POST"]);
        assert_eq!(methods_at("/rest/v3/short-urls/export"), ["GET", "HEAD"]);
        assert_eq!(methods_at("/rest/v3/short-urls/%62ulk"), ["GET", "HEAD", "PATCH", "DELETE"]);
        assert_eq!(methods_at("/robots.txt"), ["GET", "HEAD"]);
        assert_eq!(methods_at("/rest/v3/short-urls/abc"), ["GET", "HEAD", "PATCH", "DELETE"]);
        assert!(methods_at("/rest/v3/none").is_empty());
        assert!(methods_at("*").is_empty());
    }
}
