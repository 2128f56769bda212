//! What the public listener serves: every path and its methods.
//!
//! The router asks here first, and what is not in this table goes no further. The tests compare the table with the
//! description that clients read (`openapi.json`), so nothing is served that is not described.

/// Paths in the form of the description, and the methods that are answered there in the form of the field `Allow`.
pub(super) const ROUTES: &[(&str, &str)] = &[
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
    ("/rest/v3/short-urls/bulk", "POST"),
    ("/rest/v3/short-urls/export", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}", "GET, HEAD, PATCH, DELETE"),
    ("/rest/v3/short-urls/{shortCode}/visits", "GET, HEAD"),
    ("/rest/v3/short-urls/{shortCode}/qr", "GET, HEAD"),
    ("/rest/v3/visits", "GET, HEAD"),
    ("/rest/v3/tags", "GET, HEAD"),
    ("/rest/v3/tags/stats", "GET, HEAD"),
    ("/rest/v3/domains", "GET, HEAD"),
];

/// The methods that a path takes; none where there is no such path. A name that may be a parameter, too, has those of both.
pub(super) fn methods_at(path: &str) -> Vec<&'static str> {
    let mut methods = Vec::new();
    for method in ROUTES.iter().filter(|(route, _)| is_at(route, path)).flat_map(|(_, allow)| allow.split(", ")) {
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
    fn a_name_has_the_methods_of_the_parameter_too() {
        assert_eq!(methods_at("/robots.txt"), ["GET", "HEAD"]);
        assert_eq!(methods_at("/rest/v3/short-urls/abc"), ["GET", "HEAD", "PATCH", "DELETE"]);
        assert!(methods_at("/rest/v3/none").is_empty() && methods_at("*").is_empty());
    }
}
