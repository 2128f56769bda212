//! Hostile segments of scapy and scans of nmap, beside clients that notice nothing.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::bypass::{Pair, SERVER, counter, open};
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::steady_client::EndsClients;

const TARGET: &str = "https://example.org/";

/// The attacks, in the language of scapy.
const SEGMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/bypass/segments.py");

/// Debian's interpreter, which has Debian's scapy.
const PYTHON: &str = "/usr/bin/python3";

/// The MAC address of the node.
const MAC: &str = "02:00:00:00:00:78";

/// Clients that keep their connection, and as many that open one after another.
const CLIENTS: usize = 3;

/// Bytes that a node may need for hostile connections: a kilobyte and the buffers of a request for each of a thousand.
const GROWTH_MAX: u64 = 64 << 20;

/// True if a program that `make test` installs is here. In CI it must be.
fn has(name: &str, probe: &mut Command) -> bool {
    let is_there = probe.output().is_ok_and(|made| made.status.success());
    if !is_there {
        let is_required = std::env::var_os("E2E_NAMESPACES").is_some_and(|mode| mode == "required");
        assert!(!is_required, "{name} is required here: `make packages` installs it");
        println!("skipped: {name} is missing; `make packages` installs it");
    }
    is_there
}

/// Visits the link over one connection, or over one after another. Returns the first error.
fn visit(keeps: bool, is_over: &AtomicBool, visits: &AtomicU64) -> Result<(), String> {
    let mut wire = open();
    while !is_over.load(Ordering::Relaxed) {
        if !keeps {
            wire = open();
        }
        let reply = wire.try_ask("GET", "/abc", "", b"").map_err(|error| format!("keeps {keeps}: {error}"))?;
        if reply.field("location") != Some(TARGET) {
            return Err(format!("{reply:?}"));
        }
        visits.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Starts a node and clients, and attacks meanwhile. Returns the pair, the node, and what it was like before.
fn attacked(attack: impl FnOnce() + Send) -> Option<(Pair, Node, tempfile::TempDir)> {
    let pair = Pair::new()?;
    pair.server.command("ip", &format!("link set s0 address {MAC}")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    drop(pair.fill(TARGET));
    let (is_over, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = node.anonymous_bytes();
    std::thread::scope(|scope| {
        let ends = EndsClients(&is_over);
        let visit = |keeps| pair.client.run(|| visit(keeps, &is_over, &visits));
        let clients: Vec<_> = (0..2 * CLIENTS).map(|at| scope.spawn(move || visit(at % 2 == 0))).collect();
        wait_until("visits", || visits.load(Ordering::Relaxed) > 100);
        pair.client.run(attack);
        // Frames that the attack has taken come back.
        let so_far = visits.load(Ordering::Relaxed);
        wait_until("visits after the attack", || visits.load(Ordering::Relaxed) > so_far + 200);
        drop(ends);
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(()));
        }
    });
    let grown = node.anonymous_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    Some((pair, node, dir))
}

/// Waits until the first core has dropped frames for a reason. Returns the status.
fn dropped(pair: &Pair, node: &Node, reason: &str) -> Value {
    wait_for(reason, || {
        let status = pair.status(node);
        status["cores"][0]["bypass"]["droppedBy"][reason].is_u64().then_some(status)
    })
}

#[test]
fn segments_of_scapy_disturb_no_client() {
    if !has("python3-scapy", Command::new(PYTHON).args(["-c", "import scapy.all"])) {
        return;
    }
    let attack = || {
        let made = Command::new(PYTHON).args(["-B", SEGMENTS, "c0", SERVER.trim_end_matches(":8080"), MAC]).output();
        let made = made.expect("it was there a moment ago");
        let said = [made.stdout, made.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        println!("{said}");
        assert!(made.status.success(), "{said}");
    };
    let Some((pair, node, _dir)) = attacked(attack) else { return };
    for reason in [
        "truncated",
        "ipv4_header",
        "ipv4_checksum",
        "tcp_header",
        "tcp_options",
        "tcp_checksum",
        "martian",
        "unknown_flow",
        "out_of_window",
        "unacceptable_ack",
        "unexpected_flags",
    ] {
        dropped(&pair, &node, reason);
    }
    let status = wait_for("frames that are free again", || {
        let status = pair.status(&node);
        (counter(&status, "shed") > 0 && counter(&status, "framesHeld") < 4_928).then_some(status)
    });
    assert!(counter(&status, "framesOut") > 0, "{status}");
    node.terminate();
}

/// Scans the port of the node and some of the kernel. Returns what nmap says of the first.
fn scan(options: &[&str]) -> String {
    let host = SERVER.trim_end_matches(":8080");
    let made = Command::new("nmap")
        .args(["-n", "-Pn", "-p", "8070-8090", "--max-retries", "2", "--host-timeout", "60s"])
        .args(options)
        .arg(host)
        .output()
        .expect("it was there a moment ago");
    let said = [made.stdout, made.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    println!("{said}");
    assert!(made.status.success(), "{options:?}: {said}");
    let line = said.lines().find_map(|line| line.strip_prefix("8080/tcp "));
    line.and_then(|line| line.split_whitespace().next()).unwrap_or_default().to_owned()
}

#[test]
fn scans_of_nmap_disturb_no_client() {
    if !has("nmap", Command::new("nmap").arg("--version")) {
        return;
    }
    let attack = || {
        // RFC 9293 has a listener say nothing to segments without SYN, RST and ACK, and reset unknown ones with ACK.
        for (options, state) in [
            (&["-sS"][..], "open"),
            (&["-sT"], "open"),
            (&["-sX"], "open|filtered"),
            (&["-sN"], "open|filtered"),
            (&["-sF"], "open|filtered"),
            (&["-sA"], "unfiltered"),
            (&["-sW"], "closed"),
            (&["-sS", "-f"], "open"),
            (&["-sS", "-O", "--max-os-tries", "1"], "open"),
        ] {
            assert_eq!(scan(options), state, "{options:?}");
        }
    };
    let Some((pair, node, _dir)) = attacked(attack) else { return };
    dropped(&pair, &node, "unexpected_flags");
    node.terminate();
}
