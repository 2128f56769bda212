//! The end of connections that hyper drives: after the last response, never before it, and without reading any bytes
//! behind it.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::http::{SHORT_URLS, Wire, create_request, replies, request};
use crate::support::links::codes_left;
use crate::support::node::{Node, Setup, wait_until};

const TARGET: &str = "https://example.org/target";

fn start(data: &tempfile::TempDir) -> Node {
    let node = Setup::new(data.path()).cores(2).start();
    node.wire().shorten_as("kept", TARGET);
    node
}

fn create(slug: &str, fields: &str) -> Vec<u8> {
    let body = json!({"longUrl": TARGET, "customSlug": slug}).to_string();
    let fields = format!("Content-Type: application/json\r\n{fields}");
    request("POST", SHORT_URLS, &fields, body.as_bytes())
}

#[test]
fn last_request_ends_the_connection() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let old = format!("GET /kept HTTP/1.0\r\nHost: {}\r\n\r\n", node.public).into_bytes();
    let closing =
        [create("last", "Connection: close\r\n"), request("GET", "/rest/health", "Connection: close\r\n", b""), old];
    let behind = [request("GET", "/kept", "", b""), b"\r\n".to_vec(), b"GET /half".to_vec(), create("behind", "")];
    for (number, last) in closing.iter().enumerate() {
        for before in 0..3 {
            for (what, behind) in behind.iter().enumerate() {
                let mut wire = node.wire();
                let first: Vec<u8> = (0..before).flat_map(|_| request("GET", "/rest/health", "", b"")).collect();
                wire.send(&[&first[..], last, behind].concat());
                let answers = replies(&wire.read_to_end());
                let place = format!("request {number} behind {before}, before {what}: {answers:?}");
                assert_eq!(answers.len(), before + 1, "{place}");
                assert!(answers[..before].iter().all(|answer| answer.status == 200), "{place}");
                assert_eq!(answers[before].field("connection"), Some("close"), "{place}");
                // The first of them makes the link, the others find it.
                assert!(matches!(answers[before].status, 200 | 302 | 400), "{place}");
            }
        }
    }
    assert_eq!(node.wire().get("/last").location(), TARGET);
    assert_eq!(node.wire().get("/behind").status, 404);
    node.terminate();
}

/// Redirects end a connection at once when nothing stands behind them, and wait for the client's end otherwise: a
/// client that goes on sending would be reset, and a reset can overtake the answer.
#[test]
fn late_bytes_cause_no_reset() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let last = request("GET", "/kept", "Connection: close\r\n", b"");
    // Connections go to both cores, so that some of these are answered by the other one.
    for round in 0..16 {
        while !takes_late_bytes(&node, &last, round) {}
    }
    node.terminate();
}

/// Sends bytes behind the last request of a connection. Returns false if the machine stood still for so long that the
/// node, which waits for two seconds, need not have waited for all of them.
fn takes_late_bytes(node: &Node, last: &[u8], round: usize) -> bool {
    let begin = Instant::now();
    let is_late = || begin.elapsed() > Duration::from_millis(1_500);
    let mut wire = node.wire();
    wire.send(&[last, b"G"].concat());
    let reply = wire.reply();
    assert_eq!((reply.status, reply.field("connection")), (302, Some("close")), "round {round}");
    // A reset would come with the first of these, and the others would fail.
    for piece in b"ET /kept HTTP/1.1" {
        match wire.try_send(&[*piece]) {
            Err(_) if is_late() => return false,
            sent => sent.unwrap_or_else(|error| panic!("round {round}: {error}")),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if is_late() {
        return false;
    }
    match wire.try_reply(false) {
        Ok(reply) => panic!("round {round}: {reply:?}"),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof && is_late() => false,
        Err(error) => {
            assert_eq!(error.to_string(), "closed after \"\"", "round {round}");
            true
        }
    }
}

#[test]
fn requests_before_a_broken_one_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let broken_body = |fields: &str| {
        let head = format!("POST {SHORT_URLS} HTTP/1.1\r\nHost: a\r\n{fields}Transfer-Encoding: chunked\r\n\r\n");
        format!("{head}2\r\n{{}}\r\nxx\r\n")
    };
    // The last is answered at its head, and then not a second time.
    let all = [
        (broken_body("Content-Type: application/json\r\n"), 400),
        ("GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        (broken_body("Content-Type: text/plain\r\n"), 415),
    ];
    for (number, (broken, status)) in all.iter().enumerate() {
        for count in [1, 5] {
            let mut wire = node.wire();
            let slugs: Vec<String> = (0..count).map(|at| format!("before-{number}-{count}-{at}")).collect();
            let whole: Vec<u8> = slugs.iter().flat_map(|slug| create(slug, "")).collect();
            wire.send(&[&whole[..], broken.as_bytes()].concat());
            let answers = replies(&wire.read_to_end());
            let codes: Vec<String> = answers[..count].iter().map(|answer| answer.code()).collect();
            assert_eq!(codes, slugs);
            assert_eq!(answers.len(), count + 1, "{answers:?}");
            assert_eq!(answers[count].status, *status);
        }
    }
    // A client that goes in the middle of a body has its earlier answers, and none to the rest.
    let whole = create("half", "");
    for cut in [whole.len() - 1, whole.len() - 30] {
        let mut wire = node.wire();
        wire.send(&[&create(&format!("cut-at-{cut}"), "")[..], &whole[..cut]].concat());
        wire.end_sending();
        let answers = replies(&wire.read_until_closed());
        assert_eq!(answers[0].code(), format!("cut-at-{cut}"));
        assert!(answers[1..].iter().all(|answer| answer.status == 400), "{answers:?}");
    }
    assert_eq!(node.wire().get("/half").status, 404);
    node.terminate();
}

#[test]
fn drain_answers_open_requests() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let health = request("GET", "/rest/health", "", b"");
    // One that hyper drives already, one that it has not seen, and one on the admin listener.
    let (mut known, mut fresh) = (node.wire(), node.wire());
    assert_eq!(known.get("/rest/health").status, 200);
    known.send(&health[..10]);
    let post = create_request(&json!({"longUrl": TARGET, "customSlug": "late"}));
    fresh.send(&post[..10]);
    let mut idle = node.wire();
    assert_eq!(idle.get("/rest/health").status, 200);
    // Answers of both cores to later requests show that they have read what came before.
    assert!((0..12).all(|_| node.wire().get("/rest/health").status == 200));
    node.signal(Signal::TERM);
    wait_until("the drain", || Wire::open(node.admin).get("/readyz").status == 503);
    assert_eq!(idle.try_reply(false).unwrap_err().kind(), ErrorKind::UnexpectedEof, "idle clients are let go");
    known.send(&[&health[10..], b"GET /kept HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    fresh.send(&post[10..]);
    let answer = known.reply();
    assert_eq!((answer.status, answer.field("connection")), (503, Some("close")), "{answer:?}");
    let answer = fresh.reply();
    assert_eq!(answer.field("connection"), Some("close"), "{answer:?}");
    assert_eq!(answer.code(), "late");
    for wire in [known, fresh] {
        assert_eq!(wire.read_to_end(), b"", "nothing is answered behind the last");
    }
    let node = node.drained().start();
    assert_eq!(node.wire().get("/late").location(), TARGET);
    node.terminate();
}

#[test]
fn unfinished_request_does_not_block_a_drain() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let (mut public, mut admin) = (node.wire(), Wire::open(node.admin));
    public.send(b"GET /ke");
    admin.send(b"GET /st");
    assert_eq!(node.wire().get("/kept").location(), TARGET);
    // The test is that this returns, with an end in good order.
    node.terminate();
}

#[test]
fn unread_responses_apply_backpressure() {
    let data = tempfile::tempdir().unwrap();
    let node = start(&data);
    let long = format!("https://example.org/{}", "x".repeat(2_000));
    node.wire().shorten_as("l", &long);
    let question = format!("GET {SHORT_URLS}/l HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut deaf = node.wire();
    deaf.send(question.as_bytes());
    assert_eq!(deaf.reply().json()["longUrl"], json!(long));
    // Codes that the node makes in advance would count.
    codes_left(&node);
    let before = node.anonymous_bytes();
    deaf.write_patience(Duration::from_secs(1));
    // Far more than the kernel takes at both ends.
    let pipeline = question.repeat(16 * 1024 * 1024 / question.len());
    let mut sent = 0;
    while sent < pipeline.len() {
        match deaf.send_some(&pipeline.as_bytes()[sent..]) {
            Ok(len) => sent += len,
            Err(_) => break,
        }
    }
    assert!(sent < pipeline.len(), "the node takes whatever a deaf client sends");
    let grown = node.anonymous_bytes().saturating_sub(before);
    assert!(grown < 1024 * 1024, "{} KiB for a client that does not read", grown / 1024);
    for _ in 0..2_000 {
        assert_eq!(deaf.reply().json()["longUrl"], json!(long));
    }
    node.terminate();
}
