//! HTTP/2: common clients, and harmful frames one by one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::api_client::JSON;
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, sum, wait_until};
use crate::support::rest::comes_to_rest;
use crate::support::tls::{Ca, NAME, open, service};

const TARGET: &str = "https://example.org/";

// Types of frames (RFC 9113, section 6), flags of them, and errors (section 7).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame as it was received.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

impl Frame {
    /// The number that stands at that byte.
    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    /// The status in a head whose first field it is, as one of the seven that have a number of their own (RFC 7541,
    /// appendix A), or as a text.
    fn status(&self) -> u16 {
        // A size of the table may be named first.
        let block = self.payload.strip_prefix(&[0x20]).unwrap_or(&self.payload);
        match block[0] {
            first @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)],
            _ => status_of_text(block),
        }
    }
}

/// The status of a head that names it by a text: a literal whose name is one of the numbers 8 to 14, of three
/// characters.
fn status_of_text(block: &[u8]) -> u16 {
    assert!(matches!(block[0], 0x48..=0x4e | 0x08..=0x0e), "{block:?}");
    let (is_huffman, len) = (block[1] & 0x80 != 0, usize::from(block[1] & 0x7f));
    let text = &block[2..2 + len];
    if !is_huffman {
        return std::str::from_utf8(text).unwrap().parse().unwrap();
    }
    // Digits have codes of five bits (0, 1, 2) or six (3 to 9) in Huffman's table (RFC 7541, appendix B).
    let bits: String = text.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        let five = u16::from_str_radix(&bits[at..at + 5], 2).unwrap();
        let (digit, len) = match five {
            0..=2 => (five, 5),
            _ => (u16::from_str_radix(&bits[at..at + 6], 2).unwrap() - 0b01_1001 + 3, 6),
        };
        (at, status) = (at + len, status * 10 + digit);
    }
    status
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A text of a head: not compressed.
fn text(text: &str) -> Vec<u8> {
    assert!(text.len() < 127);
    [&[text.len() as u8], text.as_bytes()].concat()
}

/// A head: method, `https`, path, and who is asked; and more fields.
fn head(method: u8, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = [&[method, 0x87, 0x04][..], &text(path), &[0x01], &text(NAME)].concat();
    for (name, value) in fields {
        block.extend([&[0x00][..], &text(name), &text(value)].concat());
    }
    block
}

/// No field is named by what was said before (`SETTINGS_HEADER_TABLE_SIZE` is zero), so that heads can be read by
/// themselves.
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

const GET: u8 = 0x82;
const POST: u8 = 0x83;

fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(GET, path, &[]))
}

/// A client that speaks in frames.
struct Client {
    wire: Wire,
    rest: Vec<u8>,
    /// True once the server has announced the end; it may do so before its last answers.
    is_ending: bool,
}

impl Client {
    fn open(node: &Node, ca: &Ca) -> Client {
        let mut wire = open(node.public, &ca.terms(rustls::ALL_VERSIONS, &["h2"]));
        assert_eq!(wire.tls().alpn_protocol(), Some(&b"h2"[..]));
        wire.send(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &NO_TABLE)].concat());
        Client { wire, rest: Vec::new(), is_ending: false }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.wire.send(bytes);
    }

    /// The next frame; none where the connection ended.
    fn next(&mut self) -> Option<Frame> {
        loop {
            if self.rest.len() >= 9 {
                let len = u32::from_be_bytes([0, self.rest[0], self.rest[1], self.rest[2]]) as usize;
                if self.rest.len() >= 9 + len {
                    let bytes: Vec<u8> = self.rest.drain(..9 + len).collect();
                    self.is_ending |= bytes[3] == GOAWAY;
                    return Some(Frame { kind: bytes[3], flags: bytes[4], payload: bytes[9..].to_vec() });
                }
            }
            match self.wire.some() {
                bytes if bytes.is_empty() => return None,
                bytes => self.rest.extend(bytes),
            }
        }
    }

    /// The next frame of that kind. What has to be answered is.
    fn next_of(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame_there = self.next()?;
            match frame_there.kind {
                SETTINGS | PING if frame_there.flags & ACK == 0 => {
                    let payload = if frame_there.kind == PING { &frame_there.payload[..] } else { b"" };
                    let _ = self.wire.try_send(&frame(frame_there.kind, ACK, 0, payload));
                }
                _ => {}
            }
            if frame_there.kind == kind {
                return Some(frame_there);
            }
        }
    }

    /// The status of the answer to a request.
    fn status_of(&mut self, request: &[u8]) -> u16 {
        self.send(request);
        self.next_of(HEADERS).expect("an answer").status()
    }
}

#[test]
fn common_clients_multiplex() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(2).start();
    let mut wire = open(node.public, &ca.usual());
    let urls: String = (0..50)
        .map(|number| format!("https://{}/{}\n", node.public, wire.shorten(&format!("{TARGET}{number}"))))
        .collect();
    let file = dir.path().join("urls");
    fs::write(&file, urls).unwrap();
    let made = Command::new("h2load")
        .args(["-n", "4000", "-c", "8", "-m", "64", "-i", &file.display().to_string()])
        .output()
        .expect("h2load, which `make test` installs");
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(said.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("0 2xx, 4000 3xx, 0 4xx, 0 5xx"), "{said}");
    // A body that fills many windows comes whole, and many links are made from one.
    let lines: String =
        (0..2_000).map(|number| json!({"longUrl": format!("{TARGET}{number}")}).to_string() + "\n").collect();
    let bulk = dir.path().join("lines");
    fs::write(&bulk, &lines).unwrap();
    let curl = |arguments: &[&str], path: &str| {
        let made = Command::new("curl")
            .args(["-sS", "--http2", "--max-time", "20", "-k"])
            .args(arguments)
            .arg(format!("https://{}{path}", node.public))
            .output()
            .expect("curl, which `make test` installs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap()
    };
    let data = format!("@{}", bulk.display());
    let told =
        curl(&["-H", "Content-Type: application/x-ndjson", "--data-binary", &data], &format!("{SHORT_URLS}/bulk"));
    assert_eq!(told.lines().count(), 2_000);
    let all = curl(&[], &format!("{SHORT_URLS}/export"));
    assert_eq!(all.lines().count(), 2_050);
    assert!(curl(&["--compressed"], &format!("{SHORT_URLS}/export")) == all, "the compressed export is another one");
    // Answers that together are far more than may wait, all asked for at once.
    let lists = Command::new("h2load")
        .args(["-n", "100", "-c", "2", "-m", "50", &format!("https://{}{SHORT_URLS}?itemsPerPage=500", node.public)])
        .output()
        .expect("h2load, which `make test` installs");
    let said = String::from_utf8_lossy(&lists.stdout).into_owned();
    assert!(said.contains("100 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert!(said.contains("100 2xx, 0 3xx, 0 4xx, 0 5xx"), "{said}");
    // What is too long is refused, in an answer.
    let long = format!("{{\"longUrl\": \"{TARGET}{}\"}}", "x".repeat(1 << 20));
    fs::write(&bulk, &long).unwrap();
    let told =
        curl(&["-H", "Content-Type: application/json", "--data-binary", &data, "-w", "%{http_code}"], SHORT_URLS);
    assert!(told.ends_with("413"), "{told}");
    let shown = Command::new("nghttp")
        .args(["-v", &format!("https://{}/none", node.public)])
        .output()
        .expect("nghttp, which `make test` installs");
    let said = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(said.contains(":status: 404"), "{said}");
    drop(wire);
    node.terminate();
}

#[test]
fn lines_of_a_field_are_one_list() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(2).start();
    let mut wire = open(node.public, &ca.usual());
    let code = wire.shorten(TARGET);
    let french = json!({"type": "language", "matchKey": null, "matchValue": "fr"});
    let rules = json!({"redirectRules": [{"longUrl": "https://fr.test/", "conditions": [french]}]}).to_string();
    let set = wire.ask("POST", &format!("{SHORT_URLS}/{code}/redirect-rules"), JSON, rules.as_bytes());
    assert_eq!(set.status, 200, "{}", set.text());
    let redirect = |languages: &[&str]| {
        let fields = languages.iter().flat_map(|language| ["-H".to_owned(), format!("Accept-Language: {language}")]);
        let made = Command::new("curl")
            .args(["-q", "-sS", "--http2", "--max-time", "20", "-k", "-w", "%{http_version} %{redirect_url}"])
            .args(fields)
            .arg(format!("https://{}/{code}", node.public))
            .output()
            .expect("curl, which `make test` installs");
        String::from_utf8(made.stdout).unwrap()
    };
    assert_eq!(redirect(&["en"]), format!("2 {TARGET}"));
    assert_eq!(redirect(&["en", "de, fr;q=0.9"]), "2 https://fr.test/");
    drop(wire);
    node.terminate();
}

/// A page as Chromium shows it, in HTML, and what it tells of its connections.
fn chromium(dir: &Path, node: &Node, path: &str) -> (String, String) {
    let net = dir.join("net.json");
    let made = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--ignore-certificate-errors"])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--host-resolver-rules=MAP {NAME} {}", node.public.ip()))
        .arg(format!("--log-net-log={}", net.display()))
        .arg("--dump-dom")
        .arg(format!("https://{NAME}:{}{path}", node.public.port()))
        .output()
        .expect("Chromium, which `make test` installs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (String::from_utf8(made.stdout).unwrap(), fs::read_to_string(net).unwrap())
}

#[test]
fn browser_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(2).start();
    // It follows the link to a page of ours: what leads elsewhere is not to be loaded by a test.
    let target = format!("https://{NAME}:{}/none", node.public.port());
    let code = open(node.public, &ca.usual()).shorten(&target);
    let (page, net) = chromium(dir.path(), &node, &format!("/{code}"));
    assert!(page.contains("<h1>"), "{page}");
    assert!(net.contains(r#""next_proto":"h2""#), "it did not speak HTTP/2");
    let status = node.status();
    assert_eq!(sum(&status, "/redirects"), 1);
    assert_eq!(sum(&status, "/handshakeFailures"), 0);
    node.terminate();
}

#[test]
fn settings_bound_streams_and_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    let mut kept = Client::open(&node, &ca);
    let settings = kept.next_of(SETTINGS).unwrap();
    let of = |id: u16| {
        settings
            .payload
            .chunks(6)
            .find(|pair| pair[..2] == id.to_be_bytes())
            .map(|pair| u32::from_be_bytes(pair[2..].try_into().unwrap()))
    };
    // Streams at once, bytes of a stream, bytes of a head.
    assert_eq!([of(3), of(4), of(6)], [Some(128), Some(65_536), Some(16_384)]);
    assert_eq!(kept.status_of(&get(1, &path)), 302);
    node.terminate();
}

#[test]
fn rapid_resets_close_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    let mut kept = Client::open(&node, &ca);
    // Requests that are taken back at once, again and again, cost the sender the connection (CVE-2023-44487).
    let mut hasty = Client::open(&node, &ca);
    let all: Vec<u8> = (0..500)
        .flat_map(|number| {
            [get(2 * number + 1, &path), frame(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    let _ = hasty.wire.try_send(&all);
    assert_eq!(hasty.next_of(GOAWAY).expect("a word").number(4), ENHANCE_YOUR_CALM);
    // No other connection is affected.
    assert_eq!(kept.status_of(&get(9, &path)), 302);
    node.terminate();
}

#[test]
fn endless_heads_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    let mut kept = Client::open(&node, &ca);
    // A head that goes on and on, in many frames, is refused, and kept by nobody (CVE-2024-27316).
    let mut long = Client::open(&node, &ca);
    let field = [&[0x00][..], &text("a-field"), &text(&"x".repeat(100))].concat();
    let mut block = head(GET, &path, &[]);
    (0..300).for_each(|_| block.extend_from_slice(&field));
    let pieces: Vec<&[u8]> = block.chunks(8_000).collect();
    let mut bytes = frame(HEADERS, END_STREAM, 1, pieces[0]);
    for (number, piece) in pieces.iter().enumerate().skip(1) {
        let flags = if number + 1 == pieces.len() { END_HEADERS } else { 0 };
        bytes.extend(frame(CONTINUATION, flags, 1, piece));
    }
    assert_eq!(long.status_of(&bytes), 431);
    assert_eq!(long.status_of(&get(3, &path)), 302);
    let mut endless = Client::open(&node, &ca);
    let _ = endless.wire.try_send(&frame(HEADERS, END_STREAM, 1, &field));
    for _ in 0..2_000 {
        if endless.wire.try_send(&frame(CONTINUATION, 0, 1, &field.repeat(100))).is_err() {
            break;
        }
    }
    while endless.next().is_some() {}
    // No other connection is affected.
    assert_eq!(kept.status_of(&get(9, &path)), 302);
    node.terminate();
}

#[test]
fn contradicting_hosts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    let mut kept = Client::open(&node, &ca);
    // A request that names one host in its target and another in a field could be taken for one of two domains.
    assert_eq!(
        kept.status_of(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &head(GET, &path, &[("host", "other.example")]))),
        400
    );
    assert_eq!(kept.status_of(&frame(HEADERS, END_HEADERS | END_STREAM, 5, &head(GET, &path, &[("host", NAME)]))), 302);

    let hosts = [("host", NAME), ("host", NAME)];
    assert_eq!(kept.status_of(&frame(HEADERS, END_HEADERS | END_STREAM, 7, &head(GET, &path, &hosts))), 400);
    node.terminate();
}

#[test]
fn late_bodies_and_other_protocols_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.env("CAROM_LIMITS_BODY_SECONDS", "1").start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    let mut kept = Client::open(&node, &ca);
    // A body that does not come is not waited for.
    let mut slow = Client::open(&node, &ca);
    let fields = [("content-type", "application/json"), ("content-length", "100")];
    slow.send(&frame(HEADERS, END_HEADERS, 1, &head(POST, SHORT_URLS, &fields)));
    slow.send(&frame(DATA, 0, 1, b"{"));
    while slow.next_of(HEADERS).is_some() {}
    // What is not HTTP/2 at all ends the connection.
    let mut other = open(node.public, &ca.terms(rustls::ALL_VERSIONS, &["h2"]));
    other.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while !other.some().is_empty() {}
    // No other connection is affected.
    assert_eq!(kept.status_of(&get(9, &path)), 302);
    node.terminate();
}

#[test]
fn body_may_outlast_the_head_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.env("CAROM_LIMITS_HEAD_SECONDS", "5").start();
    let mut slow = Client::open(&node, &ca);
    slow.send(&frame(HEADERS, END_HEADERS, 1, &head(POST, SHORT_URLS, &[("content-type", "application/json")])));
    let mut body = json!({"longUrl": TARGET}).to_string();
    body += &" ".repeat(1_000);
    // One record of TLS, of which a piece comes now and then.
    let mut record = Vec::new();
    let tls = slow.wire.tls();
    tls.writer().write_all(&frame(DATA, END_STREAM, 1, body.as_bytes())).unwrap();
    tls.write_tls(&mut record).unwrap();
    for piece in record.chunks(record.len().div_ceil(16)) {
        slow.wire.send_raw(piece);
        std::thread::sleep(Duration::from_millis(400));
    }
    assert_eq!(slow.next_of(HEADERS).expect("an answer").status(), 200);
    drop(slow);
    node.terminate();
}

#[test]
fn connection_ends_with_goaway() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let setup = setup.env("CAROM_LIMITS_REQUESTS_PER_CONNECTION", "5");
    let node = setup.start();
    // After so many requests.
    let mut busy = Client::open(&node, &ca);
    assert!((0..5).all(|number| busy.status_of(&get(2 * number + 1, "/none")) == 404));
    while busy.next_of(PING).is_some() {}
    assert!(busy.is_ending);
    node.terminate();
    let node = setup.env("CAROM_LIMITS_IDLE_SECONDS", "3").start();
    // After a silence.
    let mut idle = Client::open(&node, &ca);
    assert!(idle.next_of(GOAWAY).is_some());
    // Who says nothing to that is not waited for either, and frames that ask for nothing do not keep it.
    while idle.next().is_some() {}
    let mut chatty = Client::open(&node, &ca);
    let since = Instant::now();
    while chatty.wire.try_send(&frame(PING, 0, 0, &[0; 8])).is_ok() {
        assert!(since.elapsed() < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    // And when the node ends. No silence is too long for this one.
    let node = node.terminate().env("CAROM_LIMITS_IDLE_SECONDS", "60").start();
    let mut last = Client::open(&node, &ca);
    assert_eq!(last.status_of(&get(1, "/none")), 404);
    node.signal(Signal::TERM);
    assert!(last.next_of(GOAWAY).is_some());
    while last.next_of(PING).is_some() {}
    let _ = node.drained();
}

#[test]
fn memory_per_connection_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let path = format!("/{}", open(node.public, &ca.usual()).shorten(TARGET));
    // Bodies that may be long are few at once: each may be kept whole. One too many is refused, and no other.
    let mut many = Client::open(&node, &ca);
    let body = json!({"longUrl": TARGET}).to_string() + &" ".repeat(20_000);
    let length = body.len().to_string();
    let fields = [("content-type", "application/json"), ("content-length", &*length)];
    for number in 0..5 {
        many.send(&frame(HEADERS, END_HEADERS, 2 * number + 1, &head(POST, SHORT_URLS, &fields)));
    }
    assert_eq!(many.next_of(HEADERS).unwrap().status(), 503);
    assert_eq!(many.status_of(&get(101, &path)), 302);
    for number in 0..4 {
        many.send(&frame(DATA, 0, 2 * number + 1, &body.as_bytes()[..16_000]));
        many.send(&frame(DATA, END_STREAM, 2 * number + 1, &body.as_bytes()[16_000..]));
    }
    assert!((0..4).all(|_| many.next_of(HEADERS).unwrap().status() == 200));
    // The answer to HEAD has no body, whatever would be in it.
    for path in ["/none", "/rest/health", &format!("{SHORT_URLS}?itemsPerPage=2"), &format!("{path}+")] {
        let told = Command::new("curl")
            .args(["-sS", "-k", "-I", "--http2", "--max-time", "20", &format!("https://{}{path}", node.public)])
            .output()
            .expect("curl, which `make test` installs");
        let said = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.status.success(), "{path}: {}", String::from_utf8_lossy(&told.stderr));
        assert!(said.starts_with("HTTP/2 "), "{said}");
        assert!(said.contains("content-length: "), "{said}");
    }
    // A client that takes no answers is given few, and costs nothing while they wait.
    let mut idle = Client::open(&node, &ca);
    let no_window = [0, 4, 0, 0, 0, 0];
    idle.send(&frame(SETTINGS, 0, 0, &no_window));
    (0..100).for_each(|number| idle.send(&get(2 * number + 1, "/rest/health")));
    wait_until("answers that nobody takes", || idle.next_of(HEADERS).is_some());
    comes_to_rest(&node);
    node.terminate();
}

#[test]
fn can_be_disabled() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.env("CAROM_TLS_HTTP2", "false").start();
    let mut both = open(node.public, &ca.terms(rustls::ALL_VERSIONS, &["h2", "http/1.1"]));
    assert_eq!(both.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(both.get("/none").status, 404);
    // Who speaks nothing else is told so in the handshake.
    let error = Wire::open(node.public).secured(&ca.terms(rustls::ALL_VERSIONS, &["h2"]), NAME).unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    wait_until("a handshake that came to nothing", || sum(&node.status(), "/handshakeFailures") == 1);
    drop(both);
    node.terminate();
}
