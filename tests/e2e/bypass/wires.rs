//! Linux as the peer over wires that treat frames badly, tag them, or wrap them as a balancer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::bulk::{BULK, KIND};
use crate::support::bypass::{Pair, counter, open};
use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::tls::{Ca, NAME};
use crate::support::wire::{Badness, ETHERNET_LEN, Treatment, bad, checksum, is_ipv4};

/// A bad network: every frame has one chance in thirty to be treated badly.
const BAD: Badness = Badness { loss: 10, double: 10, late: 20, damage: 5, cut: 2 };

/// Links of an export of more than a megabyte.
const LINKS: usize = 3_000;

/// Links of one request that creates many: some 90 KB.
const PART: usize = 200;

/// Visits of an exchange.
const VISITS: usize = 300;

/// Visits over one connection.
const PER_CONNECTION: usize = 30;

/// Connections of an exchange.
const CONNECTIONS: u64 = 1 + (VISITS / PER_CONNECTION) as u64;

fn long_url(at: usize) -> String {
    format!("https://example.org/{at:05}/{}", "x".repeat(400))
}

/// Creates links with large requests, exports them, and visits some with small requests.
fn exchange(mut open: impl FnMut() -> Wire) {
    let mut wire = open();
    for part in 0..LINKS / PART {
        let link = |at| json!({"longUrl": long_url(at), "customSlug": format!("code-{at}")}).to_string() + "\n";
        let links: String = (part * PART..(part + 1) * PART).map(link).collect();
        let made = wire.ask("POST", BULK, KIND, links.as_bytes());
        assert_eq!((made.status, made.text().lines().count()), (200, PART), "{}", made.line);
    }
    let export = wire.get(&format!("{SHORT_URLS}/export"));
    let destination = |line| serde_json::from_str::<Value>(line).unwrap()["longUrl"].as_str().unwrap().to_owned();
    let mut found: Vec<String> = export.text().lines().map(destination).collect();
    found.sort();
    assert!(found == (0..LINKS).map(long_url).collect::<Vec<_>>(), "{} of {LINKS} links", found.len());
    for at in 0..VISITS {
        if at % PER_CONNECTION == 0 {
            wire = open();
        }
        assert_eq!(wire.get(&format!("/code-{at}")).location(), long_url(at));
    }
}

/// Waits until all connections of an exchange are counted as those of bypass. Returns the status.
fn counted(pair: &Pair, node: &Node) -> Value {
    wait_for("counted connections", || {
        let status = pair.status(node);
        (counter(&status, "opened") == CONNECTIONS).then_some(status)
    })
}

/// Runs the exchange over a bad wire. The seed is printed for a failed test.
fn survives(seed: u64, is_secure: bool) {
    println!("seed {seed}");
    let Some((pair, _wire)) = Pair::over_wire(0..0, bad(BAD, seed)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let mut setup = pair.setup(&dir.path().join("data"));
    if is_secure {
        setup = setup.env("CAROM_TLS_CERT", &ca.file("go.pem")).env("CAROM_TLS_KEY", &ca.file("go.key"));
    }
    let node = pair.start(&setup);
    let terms = ca.usual();
    pair.client.run(|| exchange(|| if is_secure { open().secured(&terms, NAME).unwrap() } else { open() }));
    let status = counted(&pair, &node);
    for name in ["retransmissions", "outOfOrder", "dropped"] {
        assert!(counter(&status, name) > 0, "{name}: {status}");
    }
    node.terminate();
}

#[test]
fn bytes_arrive_over_a_bad_wire() {
    survives(1, false);
}

#[test]
fn bytes_arrive_over_a_bad_wire_with_tls() {
    survives(2, true);
}

/// Returns a treatment that silently drops the node's packets of more than 1,280 bytes.
fn black_hole() -> Treatment {
    Box::new(|is_to_node, frame| {
        let is_long = frame.len() > ETHERNET_LEN + 1_280;
        if is_long && !is_to_node { vec![] } else { vec![(0, frame)] }
    })
}

#[test]
fn bytes_arrive_although_long_packets_are_lost() {
    let Some((pair, _wire)) = Pair::over_wire(0..0, black_hole()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.client.run(|| exchange(open));
    assert!(counter(&counted(&pair, &node), "timeouts") > 0, "long packets were lost");
    node.terminate();
}

/// Returns a treatment that loses redirects while it is told to, and counts them.
fn losing(is_losing: &Arc<AtomicBool>, lost: &Arc<AtomicU64>) -> Treatment {
    let (is_losing, lost) = (Arc::clone(is_losing), Arc::clone(lost));
    Box::new(move |is_to_node, frame| {
        let is_redirect = !is_to_node && frame.windows(REDIRECT.len()).any(|part| part == REDIRECT);
        if is_redirect && is_losing.load(Ordering::Relaxed) {
            lost.fetch_add(1, Ordering::Relaxed);
            return vec![];
        }
        vec![(0, frame)]
    })
}

const REDIRECT: &[u8] = b"HTTP/1.1 302";

#[test]
fn drain_waits_until_lost_answers_arrive() {
    let (is_losing, lost) = (Arc::default(), Arc::default());
    let Some((pair, _wire)) = Pair::over_wire(0..0, losing(&is_losing, &lost)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.ask(|mut wire| wire.shorten_as("abc", "https://example.org/"));
    is_losing.store(true, Ordering::Relaxed);
    let wire = pair.ask(|mut wire| {
        wire.send(&request("GET", "/abc", "Connection: close\r\n", b""));
        wire
    });
    wait_until("a lost answer", || lost.load(Ordering::Relaxed) > 0);
    node.signal(Signal::TERM);
    let before = lost.load(Ordering::Relaxed);
    // Only a node that still runs repeats the answer. The connection has ended, so within half a second nothing else
    // would keep the node; the fourth copy comes after more than a second.
    wait_until("four more copies", || lost.load(Ordering::Relaxed) >= before + 4);
    is_losing.store(false, Ordering::Relaxed);
    assert!(wire.read_to_end().starts_with(REDIRECT));
    node.drained();
}

/// The address from which the balancer sends. An answer to it reaches nobody.
const BALANCER: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

/// Returns a treatment that wraps what clients send in the header of a balancer, and passes answers as they are.
fn wrapped(protocol: u8, between: &'static [u8]) -> Treatment {
    Box::new(move |is_to_node, frame| {
        if !is_to_node || !is_ipv4(&frame) {
            return vec![(0, frame)];
        }
        let (ethernet, packet) = frame.split_at(ETHERNET_LEN);
        let mut ethernet = ethernet.to_vec();
        ethernet[6..12].copy_from_slice(&BALANCER);
        // Padding of short frames belongs to no packet.
        let packet = &packet[..usize::from(u16::from_be_bytes([packet[2], packet[3]]))];
        let len = (20 + between.len() + packet.len()) as u16;
        let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 10, 78, 0, 2];
        header[2..4].copy_from_slice(&len.to_be_bytes());
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum);
        let mut between = between.to_vec();
        if let Some(udp_len) = between.get_mut(4..6) {
            udp_len.copy_from_slice(&(len - 20).to_be_bytes());
        }
        vec![(0, [&ethernet[..], &header, &between, packet].concat())]
    })
}

/// UDP to port 6080 without a checksum, its length left open, and GUE with IPv4 inside.
const UDP_AND_GUE: [u8; 12] = [0x30, 0x39, 0x17, 0xc0, 0, 0, 0, 0, 0, 4, 0, 0];

/// Serves clients behind a balancer that wraps their packets, and answers them directly.
fn answers_directly(tunnel: &str, treatment: Treatment) {
    let Some((pair, _wire)) = Pair::over_wire(0..0, treatment) else { return };
    // As the guide says: longer packets between balancer and node, and answers of 1,500 bytes.
    pair.server.command("ip", "link set s0 mtu 1600").unwrap();
    pair.server.command("ip", "route replace 10.78.0.0/24 dev s0 src 10.78.0.2 mtu 1500").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).env("CAROM_BYPASS_DECAPSULATE", tunnel));
    let before = pair.kernel_segments();
    pair.client.run(|| exchange(open));
    assert_eq!(pair.kernel_segments(), before);
    counted(&pair, &node);
    node.terminate();
}

#[test]
fn clients_behind_ipip_are_answered_directly() {
    answers_directly("ipip", wrapped(4, &[]));
}

#[test]
fn clients_behind_gue_are_answered_directly() {
    answers_directly("gue:6080", wrapped(17, &UDP_AND_GUE));
}

/// The tag of the clients: VLAN 5.
const TAG: [u8; 4] = [0x81, 0, 0, 5];

/// Ports of the clients.
const PORTS: std::ops::Range<u16> = 40_000..40_016;

/// Tags what clients send, and removes the tag of answers. An answer without it is lost.
fn tagged() -> Treatment {
    Box::new(|is_to_node, frame| {
        let (addresses, rest) = frame.split_at(12);
        match (is_to_node, rest.strip_prefix(&TAG[..])) {
            (true, _) if is_ipv4(&frame) => vec![(0, [addresses, &TAG, rest].concat())],
            (false, None) if is_ipv4(&frame) => vec![],
            (_, untagged) => vec![(0, [addresses, untagged.unwrap_or(rest)].concat())],
        }
    })
}

#[test]
fn tagged_clients_get_tagged_answers() {
    let Some((pair, _wire)) = Pair::over_wire(PORTS, tagged()) else { return };
    let ports = format!("{} {}", PORTS.start, PORTS.end - 1);
    pair.client.run(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", ports).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    pair.client.run(|| exchange(open));
    counted(&pair, &node);
    node.terminate();
}
