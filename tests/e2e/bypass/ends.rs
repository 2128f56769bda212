//! Ends of connections and of nodes over bypass.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use socket2::SockRef;

use crate::support::alarms::is_seen;
use crate::support::bypass::{Pair, SERVER, counter, open};
use crate::support::http::{Wire, request};
use crate::support::node::wait_until;
use crate::support::steady_client::ask_first;
use crate::support::stop::StopOnDrop;

const TARGET: &str = "https://example.org/";

#[test]
fn connection_ends_when_the_client_asks() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| {
        wire.shorten_as("abc", TARGET);
        assert_eq!(wire.get("/abc").location(), TARGET);
        wire.send(&request("GET", "/abc", "Connection: close\r\n", b""));
        let last = wire.read_to_end();
        assert!(last.starts_with(b"HTTP/1.1 302"), "{}", String::from_utf8_lossy(&last));
    });
    pair.ask(|mut wire| {
        wire.send(&request("GET", "/abc", "", b""));
        wire.end_sending();
        let last = wire.read_to_end();
        assert!(last.starts_with(b"HTTP/1.1 302"), "{}", String::from_utf8_lossy(&last));
    });
    wait_until("closed connections", || pair.status(&node)["cores"][0]["connections"] == 0);
    node.terminate();
}

#[test]
fn last_answer_carries_the_end() {
    const VISITS: u64 = 50;
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| wire.shorten_as("abc", TARGET));
    wait_until("closed connections", || pair.status(&node)["cores"][0]["connections"] == 0);
    let before = counter(&pair.status(&node), "framesOut");
    pair.client.run(|| {
        for _ in 0..VISITS {
            let mut wire = open();
            wire.send(&request("GET", "/abc", "Connection: close\r\n", b""));
            assert!(wire.read_to_end().starts_with(b"HTTP/1.1 302"));
        }
    });
    wait_until("counted visits", || counter(&pair.status(&node), "opened") == VISITS + 1);
    let sent = counter(&pair.status(&node), "framesOut") - before;
    // SYN-ACK, the answer with the FIN, and the acknowledgement of the client's FIN. A busy machine may repeat some.
    assert!(sent <= 3 * VISITS + VISITS / 2, "{sent} frames for {VISITS} connections");
    node.terminate();
}

#[test]
fn reset_of_the_client_frees_the_connection() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.client.run(|| {
        for _ in 0..10 {
            let stream = TcpStream::connect(SERVER).unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
    });
    wait_until("counted resets", || counter(&pair.status(&node), "resetsReceived") == 10);
    wait_until("closed connections", || pair.status(&node)["cores"][0]["connections"] == 0);
    assert_eq!(counter(&pair.status(&node), "open"), 0);
    node.terminate();
}

/// Follows the link over new connections until nobody listens. Returns what went wrong. A client that the machine keeps
/// from asking gets no answer.
fn visit_until_gone(is_over: &AtomicBool, visits: &AtomicU64) -> Vec<String> {
    let mut unanswered = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        // A node that drains takes nobody new.
        let Ok(mut wire) = Wire::try_open(SERVER.parse().unwrap()) else { break };
        match ask_first(&mut wire, "/abc", begin) {
            Ok(Some(reply)) if reply.status == 302 => _ = visits.fetch_add(1, Ordering::Relaxed),
            Ok(None) => {}
            Ok(Some(reply)) => unanswered.push(format!("{reply:?}")),
            Err(error) => unanswered.push(error.to_string()),
        }
    }
    unanswered
}

#[test]
fn drain_answers_everyone_who_got_in() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| wire.shorten_as("abc", TARGET));
    let (is_over, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        let visit = || pair.client.run(|| visit_until_gone(&is_over, &visits));
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(visit)).collect();
        wait_until("visitors", || visits.load(Ordering::Relaxed) > 200);
        node.signal(Signal::TERM);
        node.drained();
        drop(stop);
        for client in clients {
            assert_eq!(client.join().unwrap(), Vec::<String>::new());
        }
    });
}

#[test]
fn kernel_takes_over_from_a_killed_node() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| wire.shorten_as("abc", TARGET));
    let setup = node.kill();
    let node = pair.start(&pair.setup_over_kernel(setup.data_dir()));
    let before = pair.kernel_segments();
    pair.client.run(|| assert_eq!(open().get("/abc").location(), TARGET));
    assert!(pair.kernel_segments() > before);
    assert_eq!(pair.status(&node)["cores"][0]["bypass"], serde_json::Value::Null);
    node.kill();
    let node = pair.start(&setup);
    pair.client.run(|| assert_eq!(open().get("/abc").location(), TARGET));
    wait_until("frames", || counter(&pair.status(&node), "framesIn") > 0);
    node.terminate();
}

#[test]
fn node_without_bypass_serves_unless_required() {
    let dir = tempfile::tempdir().unwrap();
    let setup = crate::support::node::Setup::new(dir.path()).env("CAROM_BYPASS_INTERFACE", "none0");
    let (code, said) = setup.clone().env("CAROM_BYPASS_REQUIRED", "true").fail();
    assert_eq!(code, 23, "{said}");
    assert!(said.contains("none0"), "{said}");
    let node = setup.expect("kernel bypass").start();
    node.wire().shorten_as("abc", TARGET);
    assert_eq!(node.wire().get("/abc").location(), TARGET);
    is_seen(&node, "bypass_off");
    let bypass = node.status()["bypass"].clone();
    assert_eq!((&bypass["interface"], &bypass["active"]), (&"none0".into(), &false.into()));
    assert!(bypass["obstacle"].as_str().unwrap().contains("cannot read interface none0"), "{bypass}");
    node.terminate();
}
