//! Pages of other origins call the REST API from a browser (CORS).

use crate::support::api_client::{JSON, new_key};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Node, Setup};

const ORIGIN: &str = "https://app.example";

const PREFLIGHT: &str = "Access-Control-Request-Method: PATCH\r\nAccess-Control-Request-Headers: x-api-key\r\n";

fn with_node(settings: impl FnOnce(Setup) -> Setup, check: impl FnOnce(&Node, &str)) {
    let dir = tempfile::tempdir().unwrap();
    let setup = settings(Setup::new(&dir.path().join("data")).cores(1));
    let key = new_key(&setup, "shop", "write-own");
    check(&setup.start(), &key);
}

fn ask(node: &Node, method: &str, path: &str, origin: &str, fields: &str) -> Reply {
    node.wire().ask(method, path, &format!("Origin: {origin}\r\n{fields}"), b"")
}

fn allowed(reply: &Reply) -> Option<&str> {
    assert_eq!(reply.field("access-control-allow-credentials"), None, "{reply:?}");
    reply.field("access-control-allow-origin")
}

#[test]
fn preflights_need_no_key() {
    with_node(
        |setup| setup,
        |node, _| {
            let reply = ask(node, "OPTIONS", "/rest/v3/short-urls/abc", ORIGIN, PREFLIGHT);
            assert_eq!((reply.status, allowed(&reply), &reply.body[..]), (204, Some("*"), &b""[..]), "{reply:?}");
            let methods = Some("GET, HEAD, PATCH, DELETE, OPTIONS");
            assert_eq!((reply.field("allow"), reply.field("access-control-allow-methods")), (methods, methods));
            let sent = reply.field("access-control-allow-headers").unwrap();
            assert!(sent.contains("X-Api-Key"), "{sent}");
            assert!(sent.contains("Content-Type"), "{sent}");
            assert!(reply.field("access-control-max-age").is_some());
            // The page can then read the 404 of its request.
            let unknown = ask(node, "OPTIONS", "/rest/v3/none", ORIGIN, PREFLIGHT);
            assert_eq!((unknown.status, allowed(&unknown)), (204, Some("*")));
        },
    );
}

#[test]
fn responses_to_calls_with_a_key_can_be_read() {
    with_node(
        |setup| setup,
        |node, key| {
            // Only this call reads a key from its query.
            let query = format!("longUrl=https://example.org/&apiKey={key}");
            let single_step = ask(node, "GET", &format!("{SHORT_URLS}/shorten?{query}"), ORIGIN, "");
            assert_eq!((single_step.status, allowed(&single_step)), (200, Some("*")), "{single_step:?}");
            assert_eq!(allowed(&ask(node, "GET", &format!("{SHORT_URLS}?{query}"), ORIGIN, "")), None);
            let key = format!("X-Api-Key: {key}\r\n");
            let json = format!("{key}{JSON}");
            for (method, path, fields, status) in [
                ("GET", SHORT_URLS, key.as_str(), 200),
                ("GET", "/rest/v3/health", &key, 200),
                ("GET", "/rest/v3/short-urls/none", &key, 404),
                ("GET", "/rest/v3/none", &key, 404),
                ("POST", SHORT_URLS, &json, 400),
                ("PUT", SHORT_URLS, &key, 405),
                ("GET", SHORT_URLS, "X-Api-Key: wrong\r\n", 401),
            ] {
                let reply = ask(node, method, path, ORIGIN, fields);
                assert_eq!((reply.status, allowed(&reply)), (status, Some("*")), "{method} {path}: {reply:?}");
                assert!(reply.field("access-control-expose-headers").is_some());
            }
            // Pages learn nothing without a key, and nothing of other paths.
            for path in [SHORT_URLS, "/rest/v3/health", "/", "/none", "/robots.txt"] {
                assert_eq!(allowed(&ask(node, "GET", path, ORIGIN, "")), None, "{path}");
            }
            let of_library = node.wire().ask("GET", SHORT_URLS, &key, b"");
            assert_eq!((of_library.status, allowed(&of_library)), (200, None));
        },
    );
}

#[test]
fn listed_origins_alone_are_allowed() {
    let listed = |setup: Setup| setup.env("CAROM_API_CORS_ORIGINS", "https://App.Example");
    with_node(listed, |node, key| {
        let key = format!("X-Api-Key: {key}\r\n");
        let reply = ask(node, "GET", SHORT_URLS, ORIGIN, &key);
        let vary = Some("Origin, Accept-Encoding");
        assert_eq!((allowed(&reply), reply.field("vary")), (Some(ORIGIN), vary));
        assert_eq!(allowed(&ask(node, "OPTIONS", SHORT_URLS, ORIGIN, PREFLIGHT)), Some(ORIGIN));
        for origin in ["http://app.example", "https://app.example.evil.example", "null"] {
            let reply = ask(node, "GET", SHORT_URLS, origin, &key);
            assert_eq!((reply.status, allowed(&reply), reply.field("vary")), (200, None, vary), "{origin}");
            let preflight = ask(node, "OPTIONS", SHORT_URLS, origin, PREFLIGHT);
            assert_eq!((preflight.status, allowed(&preflight)), (204, None), "{origin}");
            assert_eq!(preflight.field("access-control-allow-headers"), None);
        }
    });
}

#[test]
fn no_page_is_allowed_when_switched_off() {
    let off = |setup: Setup| setup.env("CAROM_API_CORS_ORIGINS", "off");
    with_node(off, |node, key| {
        assert_eq!(allowed(&ask(node, "GET", SHORT_URLS, ORIGIN, &format!("X-Api-Key: {key}\r\n"))), None);
        assert_eq!(allowed(&ask(node, "OPTIONS", SHORT_URLS, ORIGIN, PREFLIGHT)), None);
    });
}

#[test]
fn open_api_and_console_stay_closed_to_pages() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).cores(1);
    let node = setup.start();
    // A key that does not exist is ignored while none does, so the page is refused.
    ask(&node, "GET", SHORT_URLS, ORIGIN, "X-Api-Key: any\r\n").problem(403, "forbidden");
    let fields = format!("Origin: {ORIGIN}\r\nX-Api-Key: any\r\n");
    for (method, fields) in [("GET", fields.clone()), ("OPTIONS", format!("{fields}{PREFLIGHT}"))] {
        let reply = Wire::open(node.admin).ask(method, SHORT_URLS, &fields, b"");
        assert!(reply.status >= 400, "{reply:?}");
        assert_eq!(allowed(&reply), None, "{reply:?}");
    }
}
