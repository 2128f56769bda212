//! Compressed responses: the decoded body is the plain one, for lists, statistics, exports and pages, and responses with
//! secrets stay plain.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;

use crate::support::bulk::{BULK, many, send_all};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::links::on_every_kind;
use crate::support::node::{Setup, wait_until};
use crate::support::sessions::{SignedIn, with_key};

const EXPORT: &str = "/rest/v3/short-urls/export";
const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// Returns the decoded body of a packed response.
fn unpacked(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.field("content-encoding"), Some("gzip"), "{:?}", reply.fields);
    let mut body = Vec::new();
    GzDecoder::new(&*reply.body).read_to_end(&mut body).unwrap();
    body
}

/// Asks for a path twice, and checks that the packed body is the plain one.
fn equals_plain(wire: &mut Wire, path: &str, fields: &str) {
    let plain = wire.ask("GET", path, fields, b"");
    let packed = wire.ask("GET", path, &format!("{fields}{GZIP}"), b"");
    assert_eq!((plain.status, plain.field("content-encoding")), (200, None), "{path}");
    for reply in [&plain, &packed] {
        assert!(reply.field("vary").is_some_and(|vary| vary.ends_with("Accept-Encoding")), "{path}: {reply:?}");
    }
    assert!(unpacked(&packed) == plain.body, "{path} has another body");
    assert!(packed.body.len() < plain.body.len(), "{path}: {} bytes", packed.body.len());
    assert_eq!(packed.field("content-type"), plain.field("content-type"), "{path}");
}

#[test]
fn decoded_bodies_equal_plain_ones() {
    on_every_kind(|setup| {
        let node = setup.start();
        send_all(&node, BULK, many(3_000).as_bytes());
        let mut wire = node.wire();
        let code = wire.shorten("https://example.org/counted");
        wait_until("all links in the list", || {
            wire.get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"] == json!(3_001)
        });
        for at in 0..40 {
            let referrer = format!("Referer: https://site-{at}.example/\r\n");
            assert_eq!(wire.ask("GET", &format!("/{code}"), &referrer, b"").status, 302);
        }
        let visits = format!("{SHORT_URLS}/{code}/visits");
        wait_until("the visits", || wire.get(&visits).json()["visits"]["summary"]["total"] == json!(40));
        // A list that a core writes, one that a thread writes, counts, the description, and a stream of pages.
        for path in [
            &*format!("{SHORT_URLS}?itemsPerPage=20"),
            &*format!("{SHORT_URLS}?itemsPerPage=500"),
            &*visits,
            "/rest/v3/openapi.json",
            EXPORT,
        ] {
            equals_plain(&mut wire, path, "");
        }
        drop(wire);
        node.terminate();
    });
}

#[test]
fn long_bodies_are_packed_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let target = |at: usize| format!("https://example.org/{at}/{}", "x".repeat(1_900));
    let lines: String = (0..500).map(|at| format!("{}\n", json!({"longUrl": target(at)}))).collect();
    send_all(&node, BULK, lines.as_bytes());
    let mut wire = node.wire();
    let path = format!("{SHORT_URLS}?itemsPerPage=500");
    wait_until("all links in the list", || {
        wire.get(&path).json()["shortUrls"]["pagination"]["totalItems"] == json!(500)
    });
    assert!(wire.get(&path).body.len() > 2 * 512 * 1024);
    equals_plain(&mut wire, &path, "");
    // Its length is not known when it begins.
    let packed = wire.ask("GET", &path, GZIP, b"");
    assert_eq!((packed.field("transfer-encoding"), packed.field("content-length")), (Some("chunked"), None));
    let head = wire.ask("HEAD", &path, GZIP, b"");
    assert_eq!((head.field("content-encoding"), head.body.len()), (Some("gzip"), 0));
    node.terminate();
}

#[test]
fn pages_of_the_console_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let (node, key) = with_key(&Setup::new(dir.path()));
    let mut user = SignedIn::new(&node, &key);
    let cookie = format!("Cookie: {}\r\n", user.cookie);
    equals_plain(&mut user.wire, "/admin/api/settings", &cookie);
    equals_plain(&mut Wire::open(node.admin), "/admin/sign-in", "");
    let html = "Accept: text/html\r\n";
    let status = user.wire.ask("GET", "/status", &format!("{cookie}{html}{GZIP}"), b"");
    assert_eq!(status.field("vary"), Some("Accept, Accept-Encoding"));
    assert!(String::from_utf8(unpacked(&status)).unwrap().contains("<title>"));
    // The token of the session, which pages have as well, and what belongs to keys, is never packed.
    for path in ["/admin/", "/admin/links", "/admin/sign-in/x", "/admin/api/session", "/apps", "/apps/ops"] {
        let reply = user.wire.ask("GET", path, &format!("{cookie}{GZIP}"), b"");
        assert_eq!((reply.field("content-encoding"), reply.field("vary")), (None, None), "{path}");
    }
    node.terminate();
}

#[test]
fn clients_choose_the_coding() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    let (long, short) = ("/rest/v3/openapi.json", "/rest/v3/domains");
    for (accepted, path, is_packed) in [
        ("gzip", long, true),
        ("br, gzip;q=0.1", long, true),
        ("*", long, true),
        ("gzip, identity;q=0", long, true),
        ("gzip, identity;q=0", short, true),
        // A short body is not worth it.
        ("gzip", short, false),
        ("gzip;q=0", long, false),
        ("gzip;q=0.5, identity", long, false),
        ("br", long, false),
        // Nothing is left that carom could send, so it sends the body as it is.
        ("identity;q=0", long, false),
    ] {
        let reply = wire.ask("GET", path, &format!("Accept-Encoding: {accepted}\r\n"), b"");
        assert_eq!(reply.status, 200, "{accepted}");
        assert_eq!(reply.field("content-encoding"), is_packed.then_some("gzip"), "{accepted} {path}");
    }
    node.terminate();
}

#[test]
fn head_has_the_fields_of_get() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    for fields in [GZIP, ""] {
        let get = wire.ask("GET", "/rest/v3/openapi.json", fields, b"");
        let head = wire.ask("HEAD", "/rest/v3/openapi.json", fields, b"");
        assert_eq!(head.lasting_fields(), get.lasting_fields());
        assert_eq!(get.field("content-length"), Some(&*get.body.len().to_string()));
        assert!(head.body.is_empty());
    }
    node.terminate();
}

#[test]
fn writes_and_redirects_stay_plain() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    let fields = format!("Content-Type: application/json\r\n{GZIP}");
    let body = json!({"longUrl": format!("https://example.org/{}", "x".repeat(1_200))}).to_string();
    let made = wire.ask("POST", SHORT_URLS, &fields, body.as_bytes());
    assert!(made.body.len() > 1_024, "{} bytes", made.body.len());
    assert_eq!((made.field("content-encoding"), made.field("vary")), (None, None));
    let path = format!("/{}", made.code());
    let (plain, asked) = (wire.get(&path), wire.ask("GET", &path, GZIP, b""));
    assert_eq!(asked.lasting_fields(), plain.lasting_fields());
    node.terminate();
}
