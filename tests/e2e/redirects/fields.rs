//! Fields of a link and their effect at the redirect: on every core, over both HTTP paths, from memory and from the
//! store, and after a restart.

use std::process::Command;
use std::time::{Duration, Instant};

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::http::SHORT_URLS;
use crate::support::links::{everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{CAROM, Setup, wait_until};

const TARGET: &str = "https://example.org/a?x=1&y=2#top";

/// Cores of the node that has most of them.
const MOST_CORES: usize = 3;

#[test]
fn link_starts_at_valid_since() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        let since_ms = (unix_ms() / 1_000 + 6) * 1_000;
        let since = dates::format(since_ms);
        let code = wires[6].create(&json!({"longUrl": TARGET, "validSince": since})).code();
        let path = format!("/{code}");
        let begin = Instant::now();
        let (mut early, mut late) = (0, 0);
        loop {
            let before = unix_ms();
            let statuses: Vec<u16> = wires.iter_mut().map(|wire| wire.get(&path).status).collect();
            let after = unix_ms();
            assert!(statuses.iter().all(|status| [404, 302].contains(status)), "{statuses:?}");
            late += usize::from(before >= since_ms + 500 && statuses.contains(&404));
            assert!(after >= since_ms || statuses.iter().all(|status| *status == 404), "{statuses:?}");
            early += usize::from(after < since_ms);
            if before > since_ms + 1_000 {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(30));
        }
        assert!(early > 3, "{early}");
        // A core reads its clock once a turn, and a machine that is busy may let one turn of each wait for long.
        assert!(late <= MOST_CORES, "{late}");
        let link = wires[0].get(&format!("{SHORT_URLS}/{code}")).json();
        assert_eq!(link["meta"]["validSince"], json!(since));
    });
}

#[test]
fn archived_link_returns_410_and_is_readable() {
    on_every_kind(|setup| {
        let node = setup.start();
        let code = node.wire().create(&json!({"longUrl": TARGET, "archived": true, "title": "T"})).code();
        let node = node.restart();
        assert_eq!(everybody_gets(&mut wires(&node), &format!("/{code}")), (410, None));
        let link = node.wire().get(&format!("{SHORT_URLS}/{code}")).json();
        assert_eq!(&link["archived"], &json!(true));
        assert_eq!(&link["longUrl"], &json!(TARGET));
        assert_eq!(&link["title"], &json!("T"));
        // Nobody is given it for a link that works.
        let another = node.wire().create(&json!({"longUrl": TARGET, "archived": true, "findIfExists": true})).code();
        assert_ne!(another, code);
    });
}

#[test]
fn query_is_forwarded_unless_disabled() {
    on_every_kind(|setup| {
        let mut node = setup.start();
        let mut wire = node.wire();
        let with = wire.shorten(TARGET);
        let without = wire.create(&json!({"longUrl": TARGET, "forwardQuery": false})).code();
        assert_eq!(wire.get(&format!("{SHORT_URLS}/{with}")).json()["forwardQuery"], json!(true));
        drop(wire);
        for _ in 0..2 {
            let mut wires = wires(&node);
            for (query, whole) in [
                ("", TARGET),
                ("?", TARGET),
                ("?z=%2F+%20", "https://example.org/a?x=1&y=2&z=%2F+%20#top"),
                ("?y=3&y=4", "https://example.org/a?x=1&y=3&y=4#top"),
                ("?%78=3", "https://example.org/a?x=1&y=2&%78=3#top"),
            ] {
                assert_eq!(everybody_gets(&mut wires, &format!("/{with}{query}")), moved_to(whole));
                assert_eq!(everybody_gets(&mut wires, &format!("/{without}{query}")), moved_to(TARGET));
            }
            // Many at once on one connection: each gets its own.
            let asked = |number: usize| format!("GET /{with}?n={number} HTTP/1.1\r\nHost: a\r\n\r\n");
            wires[0].send((0..50).map(asked).collect::<String>().as_bytes());
            for number in 0..50 {
                let location = format!("https://example.org/a?x=1&y=2&n={number}#top");
                assert_eq!(wires[0].reply().location(), location);
            }
            let long = format!("n={}", "x".repeat(8_000));
            let whole = format!("https://example.org/a?x=1&y=2&{long}#top");
            assert_eq!(everybody_gets(&mut wires, &format!("/{with}?{long}")), moved_to(&whole));
            node = node.restart();
        }
    });
}

#[test]
fn titles_and_tags_are_stored() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let title = "  <script>\"alert\"</script> \u{202e}☃ ";
    let fields = json!({"longUrl": TARGET, "customSlug": "noted", "title": title, "tags": ["Summer Sale", "b", "B"]});
    let said = |link: &Value| {
        assert_eq!(link["title"], json!(title.trim()), "{link}");
        assert_eq!(link["tags"], json!(["b", "summer-sale"]), "{link}");
    };
    said(&node.wire().create(&fields).json());
    // Other tags are another link.
    let like = json!({"longUrl": TARGET, "tags": ["b", "summer sale"], "findIfExists": true});
    assert_eq!(node.wire().create(&like).code(), "noted");
    let unlike = json!({"longUrl": TARGET, "tags": ["b"], "findIfExists": true});
    assert_ne!(node.wire().create(&unlike).code(), "noted");
    let node = node.restart();
    said(&node.wire().get(&format!("{SHORT_URLS}/noted")).json());
    node.terminate();
    // They go through a file into another store.
    let (file, other) = (data.path().join("links.ndjson"), tempfile::tempdir().unwrap());
    let run = |command: &str, data: &std::path::Path| {
        let done = Command::new(CAROM).arg(command).arg("--data-dir").arg(data).arg(&file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run("export", data.path());
    run("import", other.path());
    run("import", other.path());
    let node = Setup::new(other.path()).start();
    said(&node.wire().get(&format!("{SHORT_URLS}/noted")).json());
}

#[test]
fn private_link_has_a_long_unshared_code() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_LINKS_DEDUPE", "1d").cores(2).start();
    let mut wire = node.wire();
    let private = json!({"longUrl": TARGET, "private": true});
    let made = wire.create(&private);
    let code = made.code();
    assert_eq!(code.len(), 16, "{code}");
    assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{code}");
    assert_eq!(made.json()["private"], json!(true));
    for fields in [json!({"longUrl": TARGET}), json!({"longUrl": TARGET, "findIfExists": true}), private.clone()] {
        assert_ne!(wire.create(&fields).code(), code);
    }
    assert_eq!(node.wire().get(&format!("/{code}")).location(), TARGET);
    assert_eq!(wire.delete(&code).status, 204);
    assert_eq!(node.wire().get(&format!("/{code}")).status, 404);
    let wrong = wire.create(&json!({"longUrl": TARGET, "private": true, "customSlug": "abc"}));
    assert!(wrong.problem(400, "/invalid-data").to_string().contains("private"));
}

#[test]
fn invalid_fields_are_named_and_not_stored() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    for (field, wrong) in [
        ("validSince", json!("yesterday")),
        ("validSince", json!("1969-12-31T23:59:59Z")),
        ("validSince", json!("+10000-01-01T00:00:00Z")),
        ("validSince", json!(1_700_000_000)),
        ("title", json!("a\u{0}b")),
        ("title", json!("*3\r\n$3\r\nSET\r\n")),
        ("title", json!("x".repeat(65_536))),
        ("title", json!(["a"])),
        ("tags", json!("a,b")),
        ("tags", json!([1])),
        ("tags", json!([""])),
        ("tags", json!(["a\nb"])),
        ("tags", json!(["x".repeat(65_536)])),
        ("tags", json!((0..1_000).map(|number| number.to_string()).collect::<Vec<_>>())),
        ("forwardQuery", json!("true")),
        ("archived", json!(1)),
        ("private", json!("no")),
    ] {
        let mut fields = json!({"longUrl": TARGET});
        fields[field] = wrong;
        let problem = wire.create(&fields).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!([field]), "{problem}");
    }
    let ends_first =
        json!({"longUrl": TARGET, "validSince": "2027-01-02T00:00:00Z", "validUntil": "2027-01-01T00:00:00Z"});
    assert_eq!(wire.create(&ends_first).problem(400, "/invalid-data")["invalidElements"], json!(["validSince"]));
    wait_until("nothing stored", || node.status()["links"] == json!(0));
}
