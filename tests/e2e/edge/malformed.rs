//! Malformed input: each kind gets its refusal and a closed connection, no hidden request is executed, and other
//! clients are served meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::{Reply, SHORT_URLS, Wire, create_request, replies, request, request_at};
use crate::support::node::{Dice, Node, Setup};
use crate::support::stop::StopOnDrop;

const TARGET: &str = "https://example.org/honest";

/// The slug of the link that an honest client follows.
const HONEST: &str = "honest";

/// The slug that hidden requests try to make.
const HIDDEN: &str = "hidden";

/// A request that makes hyper drive its connection.
const HEALTH: &str = "GET /rest/health HTTP/1.1\r\nHost: a\r\n\r\n";

const BODY_MAX: usize = 1024 * 1024;
const HEAD_MAX: usize = 16 * 1024;

fn start(data: &Path) -> Node {
    let node = Setup::new(data).start();
    node.wire().shorten_as(HONEST, TARGET);
    node
}

/// Runs `attack` while an honest client follows its link again and again over one connection, and gets nothing but
/// right answers.
fn beside_an_honest_client(node: &Node, attack: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let (mut wire, mut followed) = (node.wire(), 0);
            while !over.load(Ordering::Relaxed) || followed == 0 {
                let reply = wire.get("/honest");
                assert_eq!((reply.status, reply.location()), (302, TARGET));
                followed += 1;
            }
        });
        // Also when the attack fails, so that the scope ends.
        let stop = StopOnDrop(&over);
        attack();
        drop(stop);
        honest.join().expect("an honest client is always served");
    });
}

/// Sends bytes on a connection of the given kind and returns all answers behind those that made it one.
fn answers_to(node: &Node, bytes: &[u8], driven_by_hyper: bool) -> Vec<Reply> {
    let mut wire = node.wire();
    if driven_by_hyper {
        wire.send(HEALTH.as_bytes());
        assert_eq!(wire.reply().status, 200);
    }
    // A refusal may come, and the connection close, before all is sent.
    let _ = wire.try_send(bytes);
    replies(&wire.read_until_closed())
}

/// Checks that bytes get exactly one answer, a refusal of that status, on both kinds of connection.
fn refused(node: &Node, bytes: &[u8], status: u16) {
    for driven_by_hyper in [false, true] {
        let answers = answers_to(node, bytes, driven_by_hyper);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [status], "hyper: {driven_by_hyper}, {shown:?}");
        assert_eq!(answers[0].field("connection"), Some("close"), "{shown:?}");
    }
}

/// A create that must never happen, for the bytes behind a broken request.
fn hidden() -> Vec<u8> {
    create_request(&json!({"longUrl": "https://evil.example/", "customSlug": HIDDEN}))
}

/// Checks that no hidden request was executed.
fn nothing_hidden_happened(node: &Node) {
    assert_eq!(node.wire().get("/hidden").status, 404);
    assert_eq!(node.wire().get(&format!("{SHORT_URLS}/{HIDDEN}")).status, 404);
    assert_eq!(node.wire().get("/honest").location(), TARGET);
}

#[test]
fn ambiguous_heads_are_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let heads = [
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 0, 0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "POST {} HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET {} HTTP/1.1\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: \r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a, b\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        "GET {} HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET {} HTTP/1.1\nHost: a\n\n",
        "GET {} HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        "GET {} HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n",
        "GET  {} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET {}  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET {} x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET {}\r\nHost: a\r\n\r\n",
        "GET {} http/1.1\r\nHost: a\r\n\r\n",
        "GET {} HTTP/1.1 \r\nHost: a\r\n\r\n",
        "G\tET {} HTTP/1.1\r\nHost: a\r\n\r\n",
        "get {} HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t{} HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET {} HTTP/1.1\r\nHost: a\r\n\r\n",
        " GET {} HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    beside_an_honest_client(&node, || {
        for head in heads {
            for path in ["/honest", SHORT_URLS] {
                let broken = head.replacen("{}", path, 1);
                refused(&node, &[broken.as_bytes(), &hidden()].concat(), 400);
            }
        }
    });
    nothing_hidden_happened(&node);
    node.terminate();
}

#[test]
fn inexact_body_framing_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let json = json!({"longUrl": "https://evil.example/", "customSlug": HIDDEN}).to_string();
    let len = format!("{:x}", json.len());
    let bodies = [
        format!("{len} \r\n{json}\r\n0\r\n\r\n"),
        format!(" {len}\r\n{json}\r\n0\r\n\r\n"),
        format!("+{len}\r\n{json}\r\n0\r\n\r\n"),
        format!("0x{len}\r\n{json}\r\n0\r\n\r\n"),
        format!("{len}\n{json}\r\n0\r\n\r\n"),
        format!("{len}\r\n{json}\n0\r\n\r\n"),
        format!("{len}\r\n{json}x\r\n0\r\n\r\n"),
        format!("{len}\r\n{json}\r\n0\n\n"),
        format!("{len}\r\n{json}\r\n0\r\nX y: z\n\r\n"),
        format!("{len};a\n=b\r\n{json}\r\n0\r\n\r\n"),
        format!("{len}\r\n{json}\r\n-0\r\n\r\n"),
        format!("0000000000000{len}\r\n{json}\r\n0\r\n\r\n"),
        format!("\r\n{len}\r\n{json}\r\n0\r\n\r\n"),
        "fffffffffffffffff\r\nx".to_owned(),
        "g\r\n".to_owned(),
        ";a=b\r\n".to_owned(),
    ];
    let head = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    for body in bodies {
        let head = String::from_utf8(request("POST", SHORT_URLS, head, b"")).expect("a head is text");
        refused(&node, &[head.as_bytes(), body.as_bytes(), &hidden()].concat(), 400);
    }
    nothing_hidden_happened(&node);
    // The same with exact framing is taken, so that it is the framing which was refused.
    let exact = format!("{len};a=b\r\n{json}\r\n0\r\nX: y\r\n\r\n");
    let mut wire = node.wire();
    wire.send(&[&request("POST", SHORT_URLS, head, b"")[..], exact.as_bytes()].concat());
    assert_eq!(wire.reply().code(), HIDDEN);
    node.terminate();
}

#[test]
fn unsupported_protocols_are_named() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    refused(&node, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    refused(&node, b"GET /honest HTTP/3.0\r\nHost: a\r\n\r\n", 505);
    refused(&node, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501);
    refused(&node, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\nx", 417);
    node.terminate();
}

#[test]
fn request_target_form_follows_the_method() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    for prelude in ["", HEALTH] {
        let refused = |line: &str, status: u16| {
            let mut wire = node.wire();
            wire.send(format!("{prelude}{line} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            if !prelude.is_empty() {
                assert_eq!(wire.reply().status, 200);
            }
            assert_eq!(wire.reply().status, status, "{line}");
            assert_eq!(wire.read_until_closed(), b"", "{line}");
        };
        refused("GET *", 400);
        refused("GET honest", 400);
        refused("GET ftp://a/honest", 400);
        refused("GET /\u{e9}", 400);
        refused("CONNECT a.example:443", 501);
    }
    for address in [node.public, node.admin] {
        let mut wire = Wire::open(address);
        wire.send(&request_at(&address.to_string(), "OPTIONS", "*", "", b""));
        let options = wire.reply();
        assert_eq!((options.status, options.field("content-length")), (200, Some("0")));
        assert_eq!(options.field("allow"), Some("GET, HEAD, POST, PATCH, DELETE, PUT, OPTIONS"));
    }
    assert_eq!(node.wire().get("http://a/honest").location(), TARGET);
    node.terminate();
}

#[test]
fn later_minor_version_gets_http_1_1() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let mut wire = node.wire();
    let later = |request: Vec<u8>| String::from_utf8(request).unwrap().replacen("HTTP/1.1", "HTTP/1.2", 1).into_bytes();
    // On the fast path, handed over, and behind hyper.
    for _ in 0..2 {
        wire.send(&later(request("GET", "/honest", "", b"")));
        let reply = wire.reply();
        assert_eq!(reply.line.split(' ').next(), Some("HTTP/1.1"));
        assert_eq!(reply.location(), TARGET);
        let body = json!({"longUrl": TARGET}).to_string();
        wire.send(&later(request("POST", SHORT_URLS, "Content-Type: application/json\r\n", body.as_bytes())));
        assert_eq!(wire.reply().status, 200);
    }
    node.terminate();
}

/// A head of exactly so many bytes.
fn head_of(len: usize) -> Vec<u8> {
    let around = request("GET", "/honest", "X: \r\n", b"").len();
    request("GET", "/honest", &format!("X: {}\r\n", "x".repeat(len - around)), b"")
}

#[test]
fn oversized_head_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let largest = head_of(HEAD_MAX);
    assert_eq!(largest.len(), HEAD_MAX);
    let fields = |count: usize| (0..count).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    for slow in [false, true] {
        let mut wire = node.wire();
        if slow {
            wire.send(HEALTH.as_bytes());
            assert_eq!(wire.reply().status, 200);
        }
        wire.send(&largest);
        assert_eq!(wire.reply().location(), TARGET);
        // The host is the hundredth.
        assert_eq!(wire.ask("GET", "/honest", &fields(99), b"").location(), TARGET);
    }
    beside_an_honest_client(&node, || {
        refused(&node, &head_of(HEAD_MAX + 1), 431);
        refused(&node, &head_of(40 * HEAD_MAX), 431);
        refused(&node, &[&b"GET /"[..], &b"x".repeat(4 * HEAD_MAX)].concat(), 431);
        refused(&node, &request("GET", "/honest", &fields(100), b""), 431);
        refused(&node, &request("POST", SHORT_URLS, &fields(300), b"x"), 431);
    });
    node.terminate();
}

#[test]
fn oversized_body_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let mut json = json!({"longUrl": TARGET, "customSlug": "large"}).to_string().into_bytes();
    json.resize(BODY_MAX, b' ');
    let kind = "Content-Type: application/json\r\n";
    let mut wire = node.wire();
    assert_eq!(wire.ask("POST", SHORT_URLS, kind, &json).code(), "large");
    json.push(b' ');
    beside_an_honest_client(&node, || {
        refused(&node, &request("POST", SHORT_URLS, kind, &json), 413);
        // Refused for what it announces, before any of it comes.
        refused(
            &node,
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", BODY_MAX + 1).as_bytes(),
            413,
        );
        refused(&node, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999999999\r\n\r\n", 413);
        let chunked = request("POST", SHORT_URLS, &format!("{kind}Transfer-Encoding: chunked\r\n"), b"");
        let chunk = [&b"1000\r\n"[..], &b" ".repeat(0x1000), b"\r\n"].concat();
        refused(&node, &[&chunked[..], &chunk.repeat(BODY_MAX / 0x1000 + 1)].concat(), 413);
        // Neither may a body be endless without ever having a byte of data. hyper counts trailers, we count bytes.
        let trailers = [&chunked[..], b"0\r\n", &b"X: y\r\n".repeat(BODY_MAX)].concat();
        for driven_by_hyper in [false, true] {
            let answers = answers_to(&node, &trailers, driven_by_hyper);
            let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
            assert_eq!(statuses, [400], "driven by hyper: {driven_by_hyper}");
        }
    });
    node.terminate();
}

#[test]
fn slow_head_times_out() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("carom.toml");
    // Longer than a stall of the machine before the honest client asks.
    std::fs::write(&file, "[limits]\nhead_seconds = 3\n").unwrap();
    let setup = Setup::new(&data.path().join("data")).argument("--config").argument(file.display().to_string());
    let node = setup.start();
    node.wire().shorten_as(HONEST, TARGET);
    // A connection has its time from its start, which may be long before the first byte.
    let begin = Instant::now();
    let drip = |mut wire: Wire| {
        let head = format!("GET /honest HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(60));
        // A byte each 200 ms, for longer than any answer may take.
        for byte in head.as_bytes() {
            wire.send(&[*byte]);
            if let Some(reply) = wire.reply_within(Duration::from_millis(200)) {
                return (reply, begin.elapsed(), wire.read_until_closed());
            }
        }
        panic!("no answer in {:?}", begin.elapsed());
    };
    let mut driven = node.wire();
    driven.send(HEALTH.as_bytes());
    assert_eq!(driven.reply().status, 200);
    let fresh = node.wire();
    beside_an_honest_client(&node, || {
        std::thread::scope(|scope| {
            let drips = [scope.spawn(|| drip(fresh)), scope.spawn(|| drip(driven))];
            for slow in drips {
                let (reply, time, rest) = slow.join().expect("a slow client is answered");
                assert_eq!((reply.status, reply.field("connection")), (408, Some("close")));
                assert_eq!(rest, b"");
                assert!(time < Duration::from_secs(10), "answered after {time:?}");
                assert!(time >= Duration::from_millis(2_750), "given up after {time:?}");
            }
        });
    });
    node.terminate();
}

#[test]
fn request_may_arrive_in_pieces() {
    let data = tempfile::tempdir().unwrap();
    // One core, so that an answer on one connection shows that what was sent before on another has been received.
    let node = start(data.path());
    let mut other = node.wire();
    let post = create_request(&json!({"longUrl": TARGET, "customSlug": "cut"}));
    let chunked = b"POST /rest/v3/short-urls HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
        Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n";
    let broken = b"GET /honest HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    let fast = request("HEAD", "/honest?x", "Accept: text/html\r\n", b"");
    for bytes in [&fast[..], &post, chunked, broken] {
        let mut cut_at = |at: usize| {
            let mut wire = node.wire();
            let (first, second) = bytes.split_at(at);
            wire.send(first);
            assert_eq!(other.get("/honest").status, 302);
            // What is refused at once may be closed before the rest is sent.
            let _ = wire.try_send(second);
            let mut reply = wire
                .try_reply(bytes == &fast[..])
                .unwrap_or_else(|error| panic!("{error}, cut behind {:?}", String::from_utf8_lossy(first)));
            if reply.status == 200 {
                assert_eq!(other.delete("cut").status, 204);
                let mut link = reply.json();
                (link["dateCreated"], link["meta"]["validUntil"]) = (json!(null), json!(null));
                reply.body = link.to_string().into_bytes();
            }
            reply.fields.retain(|(name, _)| name != "date");
            reply
        };
        let whole = cut_at(0);
        for at in 1..bytes.len() {
            assert_eq!(cut_at(at), whole, "cut at {at}: {:?}", String::from_utf8_lossy(&bytes[..at]));
        }
    }
    node.terminate();
}

#[test]
fn garbage_closes_the_connection() {
    let data = tempfile::tempdir().unwrap();
    let node = start(data.path());
    let mut dice = Dice::new();
    let hello = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x00\x01\x02\x03\x04\x05\x06\x07";
    beside_an_honest_client(&node, || {
        for driven_by_hyper in [false, true] {
            // Without another byte from the client: it waits for an answer, and must not wait long.
            let answers = answers_to(&node, hello, driven_by_hyper);
            assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [400]);
        }
        for _ in 0..300 {
            let len = 1 + dice.below(3_000) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
            if dice.below(2) == 0 {
                bytes.splice(0..0, *b"GET /");
            }
            let mut wire = node.wire();
            if wire.try_send(&bytes).is_ok() {
                wire.end_sending();
            }
            for answer in replies(&wire.read_until_closed()) {
                assert!(answer.status >= 400, "{answer:?} to {bytes:?}");
            }
        }
    });
    nothing_hidden_happened(&node);
    node.terminate();
}
