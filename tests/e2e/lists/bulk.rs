//! Bulk requests: each line has its result, in order and once it is on disk, and no client can delay the results of
//! others.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use carom_limits::{BODY_LEN_MAX, CODES_QUEUE_LEN};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::api_client::new_key;
use crate::support::bulk::{BULK, KIND, Session, TARGET, code_of, many, send_all};
use crate::support::http::SHORT_URLS;
use crate::support::links::{everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{Node, Setup, wait_until};

fn results(text: &str) -> Vec<Value> {
    assert!(text.is_empty() || text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn numbers(results: &[Value]) -> Vec<(u64, u64)> {
    results.iter().map(|result| (result["line"].as_u64().unwrap(), result["status"].as_u64().unwrap())).collect()
}

/// A body with good and bad lines, and an empty one.
fn mixed_lines() -> Vec<u8> {
    let long = format!("{{\"longUrl\":\"{}\"}}", "x".repeat(300 * 1024));
    let lines: [&[u8]; 17] = [
        b"\xef\xbb\xbf{\"longUrl\":\"https://example.org/target\",\"customSlug\":\"first\"}\r",
        b"",
        b"{\"longUrl\":\"https://example.org/other\",\"customSlug\":\"first\"}",
        b"not valid JSON",
        b"{\"longUrl\":\"https://example.org/\xff\"}",
        b"[1]",
        b"{\"longUrl\":\"ftp://a/\",\"colour\":1}",
        long.as_bytes(),
        b" \t\r",
        b"{\"longUrl\":\"https://example.org/target\",\"customSlug\":\"first\",\"findIfExists\":true}",
        b"{\"longUrl\":\"https://example.org/target\",\"private\":true,\"findIfExists\":true}",
        b"{\"longUrl\":\"https://example.org/same\",\"findIfExists\":true}",
        b"{\"longUrl\":\"https://example.org/same\",\"findIfExists\":true,\"title\":\"another\"}",
        b"{\"longUrl\":\"https://example.org/same\"}",
        b"{\"longUrl\":\"https://example.org/same\",\"customSlug\":\"rest\"}",
        b"{\"longUrl\":\"https://example.org/1\",\"redirectStatus\":301,\"tags\":[\"B\",\"a\"]}",
        b"{\"longUrl\":\"https://example.org/last\"}",
    ];
    lines.join(&b'\n')
}

#[test]
fn every_line_has_its_result() {
    on_every_kind(|setup| {
        let node = setup.start();
        let expected = [
            (1, 200),
            (3, 400),
            (4, 400),
            (5, 400),
            (6, 400),
            (7, 400),
            (8, 413),
            (10, 200),
            (11, 200),
            (12, 200),
            (13, 200),
            (14, 200),
            (15, 400),
            (16, 200),
            (17, 200),
        ];
        let mut wire = node.wire();
        let reply = wire.ask("POST", BULK, KIND, &mixed_lines());
        assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/x-ndjson")));
        let found = results(reply.text());
        assert_eq!(numbers(&found), expected);
        let at = |line: u64| found.iter().find(|result| result["line"] == json!(line)).unwrap();
        assert!(at(3)["error"]["type"].as_str().unwrap().ends_with("non-unique-slug"));
        assert_eq!(at(7)["error"]["invalidElements"], json!(["longUrl", "colour"]));
        assert_eq!(code_of(at(1)), "first");
        assert_eq!(code_of(at(10)), "first");
        assert_eq!(code_of(at(12)), code_of(at(13)));
        assert_ne!(code_of(at(12)), code_of(at(14)));
        assert_eq!(code_of(at(11)).len(), 16);
        assert_eq!(at(16)["shortUrl"]["tags"], json!(["a", "b"]));
        // What a single create answers, of the same link.
        let shown = wire.get(&format!("{SHORT_URLS}/{}", code_of(at(16)))).json();
        assert_eq!(at(16)["shortUrl"], shown, "the connection goes on");
        drop(wire);
        let node = node.restart();
        let targets: HashMap<String, String> = found
            .iter()
            .filter(|result| result["status"] == 200)
            .map(|result| (code_of(result).to_owned(), result["shortUrl"]["longUrl"].as_str().unwrap().to_owned()))
            .collect();
        for (code, target) in &targets {
            let (status, _) = moved_to(target);
            let status = if *code == code_of(at(16)) { 301 } else { status };
            assert_eq!(everybody_gets(&mut wires(&node), &format!("/{code}")), (status, Some(target.clone())));
        }
        node.terminate();
    });
}

#[test]
fn body_may_arrive_in_small_pieces() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut pieces = Session::bulk(&node);
        for piece in many(3).as_bytes().chunks(7) {
            pieces.send(std::str::from_utf8(piece).unwrap());
        }
        pieces.end();
        assert_eq!(pieces.begin(), 200);
        assert_eq!((0..3).map(|_| pieces.result()["line"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(pieces.line().unwrap(), None);
        node.terminate();
    });
}

#[test]
fn large_body_creates_distinct_links() {
    on_every_kind(|setup| {
        let node = setup.start();
        // More than a core has codes for in advance, in more bytes than any other body may have.
        const LINES: usize = 24_000;
        const _: () = assert!(LINES > CODES_QUEUE_LEN);
        let body = many(LINES);
        assert!(body.len() > BODY_LEN_MAX);
        let found = send_all(&node, BULK, body.as_bytes());
        assert_eq!(numbers(&found), (1..=LINES as u64).map(|line| (line, 200)).collect::<Vec<_>>());
        let codes: HashSet<&str> = found.iter().map(code_of).collect();
        assert_eq!(codes.len(), LINES);
        for number in (0..LINES).step_by(999) {
            assert_eq!(
                node.wire().get(&format!("/{}", code_of(&found[number]))).location(),
                format!("{TARGET}/{number}")
            );
        }
        node.kill();
    });
}

#[test]
fn each_line_is_answered_once_synced() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let mut session = Session::bulk(&node);
    let mut codes = Vec::new();
    for number in 0..50 {
        session.send(&format!("{}\n", json!({"longUrl": format!("{TARGET}/{number}")})));
        if number == 0 {
            assert_eq!(session.begin(), 200);
        }
        let result = session.result();
        assert_eq!(result["line"], json!(number + 1));
        codes.push(code_of(&result).to_owned());
        assert_eq!(node.wire().get(&format!("/{}", codes[number])).location(), format!("{TARGET}/{number}"));
    }
    let node = node.kill().start();
    for (number, code) in codes.iter().enumerate() {
        assert_eq!(node.wire().get(&format!("/{code}")).location(), format!("{TARGET}/{number}"));
    }
    node.terminate();
}

#[test]
fn dry_run_stores_nothing() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    node.wire().shorten_as("taken", TARGET);
    let body = format!(
        "{}\n{}\n{}\n{}\nx\n{}\n{}\n{}",
        json!({"longUrl": TARGET}),
        json!({"longUrl": "https://example.org/b", "customSlug": "taken"}),
        json!({"longUrl": TARGET, "customSlug": "taken", "findIfExists": true}),
        json!({"longUrl": TARGET, "customSlug": "free"}),
        json!({"longUrl": TARGET, "private": true}),
        // Two lines before had it first.
        json!({"longUrl": "https://example.org/c", "customSlug": "free"}),
        json!({"longUrl": TARGET, "customSlug": "free", "findIfExists": true}),
    );
    let found = send_all(&node, &format!("{BULK}?dryRun=true"), body.as_bytes());
    assert_eq!(numbers(&found), [(1, 200), (2, 400), (3, 200), (4, 200), (5, 400), (6, 200), (7, 400), (8, 200)]);
    assert!(found.iter().all(|result| result.get("shortUrl").is_none()), "{found:?}");
    assert_eq!(node.status()["links"], json!(1));
    node.wire().ask("POST", &format!("{BULK}?dryRun=maybe"), KIND, b"{}").problem(400, "invalid-data");
    node.terminate();
}

#[test]
fn invalid_request_is_refused_at_once() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let json = "Content-Type: application/json\r\n";
    node.wire().ask("POST", BULK, json, b"{}").problem(415, ":unsupported-media-type");
    node.wire().ask("POST", BULK, "", b"{}").problem(415, ":unsupported-media-type");
    let refused = node.wire().ask("PUT", BULK, KIND, b"{}");
    refused.problem(405, "method-not-allowed");
    assert_eq!(refused.field("allow"), Some("POST"), "the other methods of a short code mean something else here");
    assert_eq!(send_all(&node, BULK, b"\n \n"), Vec::<Value>::new());
    assert_eq!(node.wire().ask("POST", BULK, &format!("{KIND}Content-Length: 0\r\n"), b"").status, 200);
    // A link with this slug is reached with an escape.
    node.wire().shorten_as("bulk", TARGET);
    let refused = node.wire().get(&format!("{SHORT_URLS}/bulk"));
    refused.problem(405, "method-not-allowed");
    assert_eq!(refused.field("allow"), Some("POST"));
    assert_eq!(node.wire().get(&format!("{SHORT_URLS}/%62ulk")).code(), "bulk");
    assert_eq!(node.wire().delete("%62ulk").status, 204);
    node.terminate();
}

#[test]
fn expect_100_continue_is_answered() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let head = format!("POST {BULK} HTTP/1.1\r\n{KIND}Expect: 100-continue\r\nContent-Length: {}\r\n", many(1).len());
    let mut session = Session::open(node.public, &head);
    assert_eq!(session.begin(), 100);
    session.stream.write_all(many(1).as_bytes()).unwrap();
    assert_eq!(session.begin(), 200);
    assert_eq!(session.result()["status"], json!(200));
    assert_eq!(session.line().unwrap(), None);
    node.terminate();
}

#[test]
fn unread_results_apply_backpressure() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let before = node.anonymous_bytes();
    let mut deaf = Session::bulk(&node);
    deaf.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // Bad lines: no link takes memory for them, and their results are longer than they are.
    let piece = "{}\n".repeat(10_000);
    let mut sent = 0;
    while sent < 2_000 && deaf.try_send(&piece).is_ok() {
        sent += 1;
        if sent == 1 {
            assert_eq!(deaf.begin(), 200);
        }
    }
    assert!(sent < 2_000, "the node takes whatever a deaf client sends");
    let bytes = node.anonymous_bytes().saturating_sub(before);
    assert!(bytes < 48 << 20, "{} KiB for a client that does not read", bytes / 1024);
    let begin = Instant::now();
    let code = node.wire().shorten(TARGET);
    assert_eq!(node.wire().get(&format!("/{code}")).location(), TARGET);
    // It would take as long as the client is deaf. On a busy machine, two syncs may take seconds, too.
    assert!(begin.elapsed() < Duration::from_secs(15), "others wait for it");
    // When it does read, what it gets is right.
    for line in 1..=10_000 {
        let result = deaf.result();
        assert_eq!(&result["line"], &json!(line));
        assert_eq!(&result["status"], &json!(400));
    }
    drop(deaf);
    wait_until("its end", || node.status()["cores"][0]["connections"] == json!(0));
    node.terminate();
}

#[test]
fn disconnect_keeps_acknowledged_links() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut acknowledged = Vec::new();
    // More of them one after the other than there may be at once.
    for round in 0..20 {
        let mut session = Session::bulk(&node);
        session.send(&many(2_000));
        assert_eq!(session.begin(), 200);
        for _ in 0..round * 10 {
            acknowledged.push(code_of(&session.result()).to_owned());
        }
        session.try_send("{\"longUrl\"").unwrap();
    }
    for code in &acknowledged {
        assert!(node.wire().get(&format!("/{code}")).location().starts_with(TARGET));
    }
    wait_until("their ends", || node.status()["cores"][0]["connections"] == json!(0));
    assert_eq!(send_all(&node, BULK, many(10).as_bytes()).len(), 10);
    node.terminate();
}

#[test]
fn excess_requests_get_retry_after() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let begun = |_| {
        let mut session = Session::bulk(&node);
        session.send(&many(1));
        assert_eq!(session.begin(), 200);
        session
    };
    let mut sessions: Vec<Session> = (0..8).map(begun).collect();
    let refused = node.wire().ask("POST", BULK, KIND, many(1).as_bytes());
    refused.problem(503, ":unavailable");
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(node.wire().get("/rest/v3/short-urls/export").status, 200, "exports have slots of their own");
    sessions[3].end();
    assert_eq!(sessions[3].result()["status"], json!(200));
    assert_eq!(sessions[3].line().unwrap(), None);
    wait_until("room", || node.wire().ask("POST", BULK, KIND, many(1).as_bytes()).status == 200);
    drop(sessions);
    node.terminate();
}

#[test]
fn one_app_uses_half_the_slots() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path());
    let (shop, mail) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "mail", "write-own"));
    let node = setup.start();
    let begun = |key: &str| {
        let mut session = Session::bulk_as(&node, key);
        session.send(&many(1));
        assert_eq!(session.begin(), 200);
        session
    };
    let of_shop: Vec<Session> = (0..4).map(|_| begun(&shop)).collect();
    let shown = format!("X-Api-Key: {shop}\r\n");
    let refused = node.wire().ask("POST", BULK, &format!("{KIND}{shown}"), many(1).as_bytes());
    let problem = refused.problem(503, ":unavailable");
    assert!(
        problem["detail"].as_str().unwrap().starts_with("This app already has 4 bulk requests in progress"),
        "{problem}"
    );
    assert_eq!(node.wire().ask("GET", "/rest/v3/short-urls/export", &shown, b"").status, 200);
    let of_mail: Vec<Session> = (0..4).map(|_| begun(&mail)).collect();
    drop((of_shop, of_mail));
    wait_until("a slot", || Session::bulk_as(&node, &shop).begin_with(&many(1)) == 200);
    node.terminate();
}

#[test]
fn drain_reports_the_last_line() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let mut session = Session::bulk(&node);
    session.send(&many(5));
    assert_eq!(session.begin(), 200);
    let codes: Vec<String> = (0..5).map(|_| code_of(&session.result()).to_owned()).collect();
    // The half of a line was not looked at.
    session.send("\n{\"longUrl\":");
    node.signal(Signal::TERM);
    let last = session.result();
    assert_eq!(&last["status"], &json!(503), "{last}");
    assert_eq!(&last["ended"], &json!(true), "{last}");
    assert!(matches!(last["line"].as_u64(), Some(6 | 7)), "{last}");
    assert!(last["error"]["detail"].as_str().unwrap().contains("shutting down"), "{last}");
    assert_eq!(session.line().unwrap(), None, "the answer ends as it should");
    let node = node.drained().start();
    for code in codes {
        assert!(node.wire().get(&format!("/{code}")).location().starts_with(TARGET));
    }
    assert_eq!(node.status()["links"], json!(5));
    node.terminate();
}

#[test]
fn full_disk_refuses_single_lines() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let mount = format!("mount -t tmpfs -o size=192m tmpfs {data}; exec \"$@\"");
    let node = Setup::new(folder.path()).unshared(&mount).expect("alarm=\"disk_full\"").start();
    let mut session = Session::bulk(&node);
    session.send(&many(2));
    assert_eq!(session.begin(), 200);
    assert!((0..2).all(|_| session.result()["status"] == json!(200)));
    let inside = format!("/proc/{}/root{data}/ballast", node.pid());
    let ballast = File::create(&inside).unwrap();
    let mut at = 0;
    while ballast.write_all_at(&[1; 64 * 1024], at).is_ok() {
        at += 64 * 1024;
    }
    let mut refused = 0;
    wait_until("a refusal", || {
        session.send(&many(1));
        let result = session.result();
        refused += u64::from(result["status"] == json!(503));
        refused > 3
    });
    // More lines than codes are ready: none is used for a link that is not made.
    let refills = |node: &Node| node.status()["cores"][0]["codes"]["refills"].as_u64().unwrap();
    wait_until("codes", || refills(&node) > 0);
    let before = refills(&node);
    for _ in 0..20 {
        session.send(&many(1_000));
        assert!((0..1_000).all(|_| session.result()["status"] == json!(503)));
    }
    assert_eq!(refills(&node), before);
    drop(ballast);
    std::fs::remove_file(&inside).unwrap();
    wait_until("a store that is writable again", || node.status()["store"]["writable"] == json!(true));
    session.send(&many(1));
    session.end();
    assert_eq!(session.result()["status"], json!(200));
    assert_eq!(session.line().unwrap(), None);
    node.terminate();
}
