//! Calls that Shlink has for programs of before its REST API v3, and for mails.

use serde_json::{Value, json};

use crate::support::api_client::{JSON, new_key};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::on_every_kind;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::openapi::is_described;
use crate::support::visits::BROWSER;

const TARGET: &str = "https://example.org/a?b=1";
const SINGLE_STEP: &str = "/rest/v3/short-urls/shorten?longUrl=https://example.org/a?b%3D1";

fn with_keys(check: impl FnOnce(&Node, &str, &str)) {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).cores(1);
    let (writer, reader) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "shop", "read"));
    check(&setup.start(), &writer, &reader);
}

fn total(wire: &mut Wire, code: &str) -> u64 {
    wire.get(&format!("{SHORT_URLS}/{code}")).json()["visitsSummary"]["total"].as_u64().unwrap()
}

#[test]
fn versions_one_and_two_are_version_three() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(1).start();
    let mut wire = node.wire();
    let body = json!({"longUrl": TARGET, "customSlug": "abc", "tags": ["a"]}).to_string();
    let made = wire.ask("POST", "/rest/v1/short-urls", "Content-Type: application/json\r\n", body.as_bytes());
    assert_eq!((made.status, made.code()), (200, "abc".to_owned()), "{made:?}");
    for (path, pointer, value) in [
        ("short-urls/abc", "/longUrl", json!(TARGET)),
        ("short-urls?tags[]=a&itemsPerPage=2", "/shortUrls/pagination/totalItems", json!(1)),
        ("tags/stats", "/tags/data/0/tag", json!("a")),
        ("health", "/status", json!("pass")),
        ("health", "/version", json!("4.6.0")),
        ("health", "/releaseId", json!(env!("CARGO_PKG_VERSION"))),
        ("short-urls/none", "/status", json!(404)),
    ] {
        let reply = |version: u8| wire_json(&node, &format!("/rest/v{version}/{path}"));
        assert_eq!(reply(3).pointer(pointer), Some(&value), "{path}");
        assert_eq!((reply(1), reply(2)), (reply(3), reply(3)), "{path}");
    }
    for path in ["/rest/v4/short-urls", "/rest/v1", "/rest/v10/health", "/rest/v1/none"] {
        assert_eq!(wire.get(path).status, 404, "{path}");
    }
    assert_eq!(wire.ask("PUT", "/rest/v2/short-urls", "", b"").field("allow"), Some("GET, HEAD, POST"));
}

fn wire_json(node: &Node, path: &str) -> Value {
    node.wire().get(path).json()
}

#[test]
fn one_get_creates_a_link() {
    with_keys(|node, writer, _| {
        let mut wire = node.wire();
        let made = wire.get(&format!("{SINGLE_STEP}&apiKey={writer}")).json();
        assert_eq!(made["longUrl"], TARGET);
        let code = made["shortCode"].as_str().unwrap();
        assert_eq!(wire.get(&format!("/{code}")).location(), TARGET);
        for (format, accept) in
            [("&format=txt", ""), ("", "Accept: text/plain, */*\r\n"), ("&format=txt", "Accept: */*\r\n")]
        {
            let reply = wire.ask("GET", &format!("{SINGLE_STEP}{format}&apiKey={writer}"), accept, b"");
            assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"), "{format}{accept}");
            assert_eq!(reply.field("cache-control"), Some("no-store"));
            let path = reply.text().strip_prefix(&node.url("")).unwrap().to_owned();
            assert_eq!(wire.get(&path).location(), TARGET);
            assert_ne!(path, format!("/{code}"), "each call creates a link");
        }
        let of_header =
            wire.ask("GET", &format!("{SINGLE_STEP}&format=json"), &format!("X-Api-Key: {writer}\r\n"), b"");
        assert_eq!(of_header.json()["longUrl"], TARGET);
    });
}

#[test]
fn a_create_answers_with_text_if_asked() {
    with_keys(|node, writer, _| {
        let mut wire = node.wire();
        let body = json!({"longUrl": TARGET}).to_string();
        for (query, accept, kind) in [
            ("?format=txt", "", "text/plain; charset=utf-8"),
            ("", "Accept: text/plain\r\n", "text/plain; charset=utf-8"),
            ("?format=json", "Accept: text/plain\r\n", "application/json"),
            ("?format=", "Accept: application/json, text/plain\r\n", "application/json"),
        ] {
            let fields = format!("X-Api-Key: {writer}\r\n{JSON}{accept}");
            let reply = wire.ask("POST", &format!("{SHORT_URLS}{query}"), &fields, body.as_bytes());
            assert_eq!((reply.status, reply.field("content-type")), (200, Some(kind)), "{query} {accept}");
            is_described(node, "post", SHORT_URLS, &reply);
            let short_url = match kind {
                "application/json" => reply.json()["shortUrl"].as_str().unwrap().to_owned(),
                _ => reply.text().to_owned(),
            };
            assert_eq!(wire.get(short_url.strip_prefix(&node.url("")).unwrap()).location(), TARGET);
        }
        // Errors are problem details, as in Shlink.
        let fields = format!("X-Api-Key: {writer}\r\n{JSON}Accept: text/plain\r\n");
        wire.ask("POST", SHORT_URLS, &fields, b"{}").problem(400, "/invalid-data");
        let problem = wire.ask("POST", &format!("{SHORT_URLS}?format=xml"), &fields, body.as_bytes());
        assert_eq!(problem.problem(400, "/invalid-data")["invalidElements"], json!(["format"]));
    });
}

#[test]
fn one_get_is_refused_like_any_create() {
    with_keys(|node, writer, reader| {
        let mut wire = node.wire();
        let mut get = |query: &str| wire.get(&format!("/rest/v3/short-urls/shorten?{query}"));
        let url = "longUrl=https://example.org/";
        get(url).problem(401, "/missing-authentication");
        get(&format!("{url}&apiKey=wrong")).problem(401, "/invalid-api-key");
        get(&format!("{url}&apiKey={reader}")).problem(403, "forbidden");
        for (query, wrong) in [
            ("", "longUrl"),
            ("longUrl=", "longUrl"),
            ("longUrl=ftp://a/", "longUrl"),
            ("longUrl=https://example.org/&format=xml", "format"),
            ("longUrl=https://example.org/&customSlug=a", "customSlug"),
        ] {
            let problem = get(&format!("{query}&apiKey={writer}")).problem(400, "/invalid-data");
            assert_eq!(problem["invalidElements"], json!([wrong]), "{query}");
        }
        let key = format!("X-Api-Key: {writer}\r\n");
        assert_eq!(wire.ask("HEAD", "/rest/v3/short-urls/shorten", &key, b"").status, 405);
    });
}

#[test]
fn a_pixel_counts_a_visit() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wire = node.wire();
        wire.create(&json!({"longUrl": TARGET, "customSlug": "mail"}));
        wire.create(&json!({"longUrl": TARGET, "customSlug": "off", "archived": true}));
        for (code, count) in [("mail", 2), ("off", 0), ("none", 0), ("a%20b", 0)] {
            for _ in 0..2 {
                let reply = wire.ask("GET", &format!("/{code}/track"), BROWSER, b"");
                assert_eq!((reply.status, reply.field("content-type")), (200, Some("image/gif")), "{code}");
                assert!(reply.body.starts_with(b"GIF89a"), "{code}");
                assert!(reply.body.ends_with(b";"), "{code}");
                assert_eq!(reply.field("cache-control"), Some("no-store"));
            }
            if count > 0 {
                wait_until("the visits are counted", || total(&mut wire, code) == count);
            }
        }
        assert_eq!(total(&mut wire, "off"), 0);
    });
}

#[test]
fn a_pixel_uses_a_visit_of_a_limited_link() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let mut wire = node.wire();
    wire.create(&json!({"longUrl": TARGET, "customSlug": "once", "maxVisits": 1}));
    assert_eq!(wire.get("/once/track").status, 200);
    assert_eq!(wire.get("/once").status, 410);
    assert_eq!(wire.get("/once/track").status, 200);
}

/// The bodies for which a test of Shlink expects the link that they have created (`provideMatchingBodies`).
#[test]
fn a_create_finds_its_link_as_in_shlink() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let mut wire = node.wire();
    for fields in [
        json!({}),
        json!({"tags": ["boo", "far"]}),
        json!({"customSlug": "my-cool-slug"}),
        json!({"tags": ["boo", "far"], "validSince": "2026-01-01T00:00:00+00:00", "maxVisits": 7}),
    ] {
        let mut body = json!({"longUrl": TARGET});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let first = wire.create(&body).code();
        body["findIfExists"] = json!(true);
        assert_eq!(wire.create(&body).code(), first, "{fields}");
    }
    // Parameters narrow the search, and those that are not named do not.
    let found = wire.create(&json!({"longUrl": TARGET, "maxVisits": 7, "findIfExists": true})).json();
    assert_eq!(found["tags"], json!(["boo", "far"]), "{found}");
    let projects = format!("{TARGET}&projects");
    let taken = json!({"longUrl": projects, "customSlug": "my-cool-slug", "findIfExists": true});
    wire.create(&taken).problem(400, "/non-unique-slug");
    let made = wire.create(&json!({"longUrl": projects, "findIfExists": true})).json();
    assert_eq!(made["longUrl"], projects.as_str());
    node.terminate();
}

#[test]
fn a_slug_of_any_length_is_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let mut wire = node.wire();
    for (fields, prefix, len) in [
        (json!({"shortCodeLength": 4}), "", 4),
        (json!({"shortCodeLength": 32}), "", 32),
        (json!({"pathPrefix": "sale-"}), "sale-", 12),
        (json!({"pathPrefix": "sale-", "shortCodeLength": 9}), "sale-", 14),
    ] {
        let target = format!("{TARGET}&len={len}");
        let mut body = json!({"longUrl": target});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (one, other) = (wire.create(&body).code(), wire.create(&body).code());
        assert_ne!(one, other);
        assert!(one.starts_with(prefix), "{one}");
        assert!(one.len() == len, "{one}");
        assert_eq!(wire.get(&format!("/{one}")).location(), target);
        body["findIfExists"] = json!(true);
        assert!([one, other].contains(&wire.create(&body).code()), "an existing link, as in Shlink");
    }
    let chosen = json!({"longUrl": TARGET, "pathPrefix": "sale-", "customSlug": "may", "shortCodeLength": 9});
    assert_eq!(wire.create(&chosen).code(), "sale-may");
    wire.create(&chosen).problem(400, "/non-unique-slug");
    let change = json!({"shortCodeLength": 4}).to_string();
    let reply =
        wire.ask("PATCH", &format!("{SHORT_URLS}/sale-may"), "Content-Type: application/json\r\n", change.as_bytes());
    assert_eq!(reply.problem(400, "/invalid-data")["invalidElements"], json!(["shortCodeLength"]));
}
