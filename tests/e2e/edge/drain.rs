//! A drain answers every open request, and the counters of the status add up.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire, create_request, request};
use crate::support::links::codes_left;
use crate::support::node::{CAROM, Node, Setup, sum, wait_for, wait_until};
use crate::support::steady_client::ask_first;
use crate::support::stop::StopOnDrop;

const TARGET: &str = "https://example.org/target";

/// Connects one client after the other until the node is gone. A client that the node lets in must get an answer, unless
/// the machine keeps it from asking. Counts the answers in `visits`, and returns what happened to the clients without one.
fn visit_until_gone(address: SocketAddr, over: &AtomicBool, visits: &AtomicU64) -> Vec<String> {
    let mut unanswered = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        // Nobody listens any more, or the node takes nobody new: that client goes elsewhere.
        let Ok(mut wire) = Wire::try_open(address) else { return unanswered };
        match ask_first(&mut wire, "/kept", begin) {
            Ok(Some(reply)) if (reply.status, reply.location()) == (302, TARGET) => {
                _ = visits.fetch_add(1, Ordering::Relaxed);
            }
            Ok(None) => {}
            Ok(Some(reply)) => unanswered.push(format!("{reply:?}")),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    unanswered
}

/// Drains a node by a signal while clients visit, requests are half sent, and others sit idle.
fn drain(signal: Signal, cores: usize) {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(cores).env("CAROM_LIMITS_HEAD_SECONDS", "120").start();
    node.wire().shorten_as("kept", TARGET);
    let post = create_request(&json!({"longUrl": TARGET, "customSlug": "in-flight"}));
    let (mut posting, mut asking, mut idle) = (node.wire(), node.wire(), node.wire());
    posting.send(&post[..post.len() - 5]);
    let head = request("GET", "/kept", "", b"");
    asking.send(&head[..20]);
    assert_eq!(idle.get("/kept").status, 302);
    let (address, admin) = (node.public, node.admin);
    let (over, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let setup = std::thread::scope(|scope| {
        let stop = StopOnDrop(&over);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| visit_until_gone(address, &over, &visits))).collect();
        wait_until("visitors", || visits.load(Ordering::Relaxed) > 100);
        node.signal(signal);
        // Requests in flight hold the drain up, so that this can be seen without a race.
        wait_until("a node that says that it drains", || Wire::open(admin).get("/readyz").status == 503);
        assert_eq!(Wire::open(admin).get("/healthz").status, 200);
        assert_eq!(idle.try_reply(false).unwrap_err().kind(), ErrorKind::UnexpectedEof, "idle clients are let go");
        posting.send(&post[post.len() - 5..]);
        assert_eq!(posting.reply().code(), "in-flight");
        asking.send(&head[20..]);
        assert_eq!(asking.reply().location(), TARGET);
        let setup = node.drained();
        drop(stop);
        for client in clients {
            let unanswered = client.join().expect("a client does not panic");
            assert_eq!(unanswered, Vec::<String>::new(), "of {visits:?} visits");
        }
        setup
    });
    assert!(Wire::try_open(address).is_err(), "somebody still listens");
    assert!(Wire::try_open(admin).is_err(), "somebody still listens");
    let node = setup.start();
    for slug in ["/kept", "/in-flight"] {
        assert_eq!(node.wire().get(slug).location(), TARGET);
    }
    node.terminate();
}

#[test]
fn sigterm_finishes_open_requests() {
    drain(Signal::TERM, 2);
}

#[test]
fn sigint_finishes_open_requests() {
    drain(Signal::INT, 1);
}

#[test]
fn second_signal_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut asking = node.wire();
    // The first answer shows that the node has read the start of the next request, which is in the same piece.
    asking.send(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\n");
    assert_eq!(asking.reply().status, 404);
    node.signal(Signal::TERM);
    node.signal(Signal::INT);
    wait_until("the drain", || Wire::open(node.admin).get("/readyz").status == 503);
    node.signal(Signal::TERM);
    asking.send(b"Host: a\r\n\r\n");
    assert_eq!(asking.reply().status, 404);
    node.drained();
}

/// Checks that the status has every promised field with its type.
fn has_every_field(status: &Value, cores: usize) {
    let numbers = [
        "/uptimeSeconds",
        "/cache/hit",
        "/cache/miss",
        "/cache/error",
        "/store/update",
        "/store/select",
        "/store/error",
        "/lock/get",
        "/lock/error",
        "/issuer/current",
        "/issuer/remaining",
        "/issuer/error",
        "/redis/error",
    ];
    for path in numbers {
        assert!(status.pointer(path).is_some_and(Value::is_u64), "{path} in {status}");
    }
    assert_eq!(status["version"], json!(env!("CARGO_PKG_VERSION")));
    assert_eq!(status["ready"], json!(true));
    assert_eq!(&status["redis"]["configured"], &json!(false));
    assert_eq!(&status["redis"]["connected"], &json!(false));
    let list = status["cores"].as_array().expect("a list of cores");
    assert_eq!(list.len(), cores);
    for (index, core) in list.iter().enumerate() {
        assert_eq!(core["core"], json!(index));
        let numbers = [
            "/cpu",
            "/links",
            "/linkBytes",
            "/connections",
            "/redirects",
            "/misses",
            "/unavailable",
            "/forwardedOut",
            "/forwardedIn",
            "/hotHits",
            "/codes/remaining",
            "/codes/capacity",
            "/codes/refills",
            "/codes/errors",
        ];
        for path in numbers {
            assert!(core.pointer(path).is_some_and(Value::is_u64), "{path} in {core}");
        }
        for path in ["/p50", "/p80", "/p99", "/p999", "/max"] {
            let value = core["latencyMicros"].pointer(path);
            assert!(value.is_some_and(Value::is_number), "{path} in {core}");
        }
    }
}

/// Known traffic over connections that reach every core, and what the status makes of it.
fn adds_up(cores: usize) {
    const LINKS: u64 = 60;
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(cores).start();
    has_every_field(&node.status(), cores);
    wait_until("codes for every core", || {
        node.status()["cores"].as_array().unwrap().iter().all(|core| core["codes"]["remaining"].as_u64() > Some(5_000))
    });
    let codes_before = codes_left(&node);
    let mut wires: Vec<Wire> = (0..16).map(|_| node.wire()).collect();
    wait_until("all connections", || sum(&node.status(), "/connections") == 16);
    let codes: Vec<String> = (0..LINKS).map(|at| wires[at as usize % 8].shorten(&format!("{TARGET}/{at}"))).collect();
    for wire in &mut wires {
        for code in &codes {
            assert_eq!(wire.get(&format!("/{code}")).status, 302);
        }
        assert_eq!(wire.get("/missing").status, 404);
    }
    assert_eq!(wires[0].delete(&codes[0]).status, 204);
    assert_eq!(wires[0].get(&format!("{SHORT_URLS}/{}", codes[1])).status, 200);
    // Counters are read while cores go on, so the last of them may be a moment late.
    let status = wait_for("counters that add up", || {
        let status = node.status();
        let forwarded = sum(&status, "/forwardedOut");
        let settled = forwarded == sum(&status, "/forwardedIn")
            && codes_before.checked_sub(sum(&status, "/codes/remaining")) == Some(LINKS)
            && sum(&status, "/links") == LINKS - 1
            && sum(&status, "/latencyMicros/count") >= 16 * (LINKS + 1);
        settled.then_some(status)
    });
    has_every_field(&status, cores);
    assert_eq!(sum(&status, "/redirects"), 16 * LINKS);
    assert_eq!(sum(&status, "/misses"), 16);
    assert_eq!(&status["cache"]["hit"], &json!(16 * LINKS));
    assert_eq!(&status["cache"]["miss"], &json!(16));
    assert_eq!(sum(&status, "/links"), LINKS - 1);
    let bytes: usize = (1..LINKS).map(|at| 7 + TARGET.len() + 1 + at.to_string().len()).sum();
    assert_eq!(sum(&status, "/linkBytes"), bytes as u64);
    assert_eq!(status["store"]["update"], json!(LINKS + 1));
    assert_eq!(status["store"]["error"], json!(0));
    assert!(status["store"]["select"].as_u64() >= Some(1), "{status}");
    assert_eq!(status["alarms"], json!([]));
    // Those over the eight connections that spoke to the API are counted, too.
    assert_eq!(sum(&status, "/latencyMicros/count"), 16 * (LINKS + 1));
    assert_eq!(sum(&status, "/forwardedOut") > 0, cores > 1, "cores ask each other when there are others");
    same_status_for_everybody(&node);
    node.terminate();
}

/// The other forms and names of the status.
fn same_status_for_everybody(node: &Node) {
    let mut wire = Wire::open(node.admin);
    assert_eq!(wire.get("/shorturl_status").json()["links"], wire.get("/status").json()["links"]);
    let page = wire.ask("GET", "/status", "Accept: text/html\r\n", b"");
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let has_table = page.text().contains(r#"<td data-label="Core">0</td>"#);
    let cores = node.status()["cores"].as_array().unwrap().len();
    assert_eq!(has_table, cores > 1, "a single core has no table");
    // No script stands in the page, and none of others is loaded.
    let text = page.text().replace(r#"<script src="/status.js" defer></script>"#, "");
    assert!(text.len() < page.text().len());
    assert!(!text.contains("<script"));
    assert!(!text.contains("style="));
    assert!(!text.contains("//"));
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for (path, kind) in [("/status.js", "javascript"), ("/runbook.js", "javascript"), ("/status.css", "css")] {
        assert_eq!(wire.get(path).field("content-type"), Some(&*format!("text/{kind}; charset=utf-8")), "{path}");
    }
    assert_eq!(wire.get("/healthz").status, 200);
    assert_eq!(wire.get("/none").status, 404);
    assert_eq!(wire.ask("POST", "/status", "", b"").status, 405);
    // What is for the operator is not for the public, nor the other way round.
    for path in ["/status", "/healthz", "/readyz", "/metrics", "/admin/", "/admin/api/session", "/apps"] {
        assert_eq!(node.wire().get(path).status, 404, "{path}");
    }
    assert_eq!(wire.ask("POST", "/", "", b"").status, 405, "the form of the public");
}

#[test]
fn status_of_one_core_adds_up() {
    adds_up(1);
}

#[test]
fn status_of_two_cores_adds_up() {
    adds_up(2);
}

/// Links that take some time to read back: a quarter of a second in the build that tests use.
const MANY: usize = 150_000;

#[test]
fn loading_node_stops_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("links"));
    let lines: String =
        (0..MANY).map(|n| format!("{{\"shortCode\":\"many{n}\",\"longUrl\":\"{TARGET}/{n}\"}}\n")).collect();
    std::fs::write(&file, lines).unwrap();
    let status = Command::new(CAROM).arg("import").arg("--data-dir").arg(&data).arg(&file).status().unwrap();
    assert!(status.success());
    let setup = Setup::new(&data).cores(2);
    // The moment is what matters here: later and later ones, until the load is over before the signal. On a busy machine, a
    // start takes longer at some times than at others.
    wait_until("a signal during the load", || {
        let (mut while_reading, mut moment) = (0, Duration::from_millis(5));
        loop {
            let (status, announced) = setup.start_and_ask_to_end(moment);
            // Before it listens to signals, this one ends it.
            let is_early = status.signal() == Some(Signal::TERM.as_raw());
            assert!(status.success() || is_early, "after {moment:?}: {status}");
            if announced {
                return while_reading > 0;
            }
            while_reading += u32::from(status.success());
            moment = moment * 4 / 3;
        }
    });
    let node = setup.start();
    assert_eq!(node.wire().get("/many77").location(), format!("{TARGET}/77"));
    assert_eq!(sum(&node.status(), "/links"), MANY as u64);
    node.terminate();
}
