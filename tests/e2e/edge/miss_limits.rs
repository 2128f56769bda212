//! The miss limiter: it throttles one guessing address, delays no other client, and takes no more memory.

use std::net::IpAddr;
use std::time::Instant;

use carom_model::redirect::Notice;

use crate::support::http::{Reply, Wire, replies, request};
use crate::support::node::{Node, Setup, sum};

const TARGET: &str = "https://example.org/target";

/// Number of guesses; a campaign asks for more.
fn guesses() -> u64 {
    std::env::var("CAROM_GUESSES").ok().and_then(|number| number.parse().ok()).unwrap_or(60_000)
}

/// Asks for so many codes that nobody has, and counts the answers of each status: 404 and 429.
fn guess(node: &Node, source: IpAddr, count: u64) -> (u64, u64) {
    let mut wire = Wire::open_from(source, node.public);
    let (mut missing, mut throttled) = (0, 0);
    for first in (0..count).step_by(200) {
        let numbers = first..(first + 200).min(count);
        let bytes: Vec<u8> =
            numbers.clone().flat_map(|number| request("GET", &format!("/z{number:07}"), "", b"")).collect();
        wire.send(&bytes);
        for _ in numbers {
            let reply = wire.reply();
            match reply.status {
                404 => missing += 1,
                429 => {
                    let said = ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
                    assert_eq!(said.map(|name| reply.field(name)), [Some("1"), Some("10"), Some("0"), Some("1")]);
                    throttled += 1;
                }
                _ => panic!("{reply:?}"),
            }
        }
    }
    (missing, throttled)
}

#[test]
fn misses_throttle_one_address_only() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        // It asks from 2,000 addresses, which only loopback has. The limit is the default, which the harness turns off.
        let setup = Setup::new(dir.path()).over_kernel().cores(cores).env("CAROM_LIMITS_MISSES_PER_SECOND", "10");
        let node = setup.start();
        let code = node.wire().shorten(TARGET);
        let before = node.anonymous_bytes();
        let begin = Instant::now();
        let (missing, throttled) = std::thread::scope(|scope| {
            let guesser = scope.spawn(|| guess(&node, "127.0.0.9".parse().unwrap(), guesses()));
            let mut wire = node.wire();
            while !guesser.is_finished() {
                assert_eq!(wire.get(&format!("/{code}")).status, 302);
            }
            guesser.join().unwrap()
        });
        // One connection is one core's. A burst of ten seconds' worth, and ten a second.
        let most = 100 + 10 * (begin.elapsed().as_secs() + 1);
        assert!(missing >= 100, "{missing} of {} were told, at most {most} may", guesses());
        assert!(missing <= most, "{missing} of {} were told, at most {most} may", guesses());
        assert_eq!(missing + throttled, guesses());
        let status = node.status();
        assert_eq!(sum(&status, "/throttled"), throttled, "{status}");
        // However many addresses there are: 2,000 of them.
        for number in 0..2_000u32 {
            let source = IpAddr::from([127, 1, (number >> 8) as u8, number as u8]);
            let mut wire = Wire::open_from(source, node.public);
            assert_eq!(wire.get("/none").status, 404, "{source} is somebody else");
        }
        let grown = node.anonymous_bytes().saturating_sub(before);
        assert!(grown < (8 + 2 * cores as u64) << 20, "{grown} bytes more");
        node.terminate();
    }
}

#[test]
fn misses_count_for_the_whole_node() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(3).env("CAROM_LIMITS_MISSES_PER_SECOND", "5");
    let node = setup.start();
    let source: IpAddr = "127.0.0.9".parse().unwrap();
    // Connections on every core.
    let mut wires: Vec<Wire> = (0..24).map(|_| Wire::open_from(source, node.public)).collect();
    let begin = Instant::now();
    let missing = (0..20).flat_map(|_| wires.iter_mut().map(|wire| wire.get("/none").status).collect::<Vec<_>>());
    let missing = missing.filter(|status| *status == 404).count() as u64;
    let most = 50 + 5 * (begin.elapsed().as_secs() + 1);
    assert!((50..=most).contains(&missing), "{missing} were told, at most {most} may");
    node.terminate();
}

#[test]
fn misses_through_hyper_count() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).env("CAROM_LIMITS_MISSES_PER_SECOND", "1").start();
    let code = node.wire().shorten(TARGET);
    let mut wire = node.wire();
    // From here on hyper drives it.
    assert_eq!(wire.get("/rest/health").status, 200);
    let begin = Instant::now();
    let statuses: Vec<u16> = (0..30).map(|_| wire.get("/none").status).collect();
    assert!(statuses[..10].iter().all(|status| *status == 404), "{statuses:?}");
    assert!(statuses[15..].contains(&429), "{statuses:?}");
    assert_eq!(wire.get(&format!("/{code}")).status, 302, "an address of a private network may stand for many");
    // Over the fast way it is the same address.
    let bytes: Vec<u8> = (0..20).flat_map(|_| request("GET", "/none", "", b"")).collect();
    let mut fast = node.wire();
    fast.send(&bytes);
    fast.end_sending();
    let fast: Vec<u16> = replies(&fast.read_to_end()).iter().map(|reply| reply.status).collect();
    // A burst of ten seconds' worth, and one a second.
    let most = 10 + begin.elapsed().as_secs() + 1;
    let missing = statuses.iter().chain(&fast).filter(|status| **status == 404).count() as u64;
    assert!(missing <= most, "{missing} were told, at most {most} may: {statuses:?}, then {fast:?}");
    // More at once than the limit allows again meanwhile.
    let bytes: Vec<u8> = (0..30).flat_map(|_| request("GET", "/none", "Accept: text/html\r\n", b"")).collect();
    wire.send(&bytes);
    let pages: Vec<Reply> = (0..30).map(|_| wire.reply()).collect();
    let page = pages.iter().find(|page| page.status == 429).expect("a page for who asks too much");
    assert!(page.text().contains(Notice::TooMany.heading()), "{page:?}");
    node.terminate();
}

#[test]
fn no_limit_throttles_no_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).env("CAROM_LIMITS_MISSES_PER_SECOND", "0").start();
    assert_eq!(guess(&node, "127.0.0.1".parse().unwrap(), 2_000), (2_000, 0));
    node.terminate();
}
