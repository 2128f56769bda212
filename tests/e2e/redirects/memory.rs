//! Nodes with a memory limit: every link redirects, memory stays under the limit, and links in use come from memory.

use std::path::Path;

use carom_shards::Code;
use serde_json::json;

use crate::support::http::{Wire, request};
use crate::support::ledger::Ledger;
use crate::support::memory::{code, import, keeping, map_bytes, target};
use crate::support::node::{Dice, Setup, sum, wait_until};
use crate::support::store::open_store;

const LINKS: u64 = 100_000;

/// Requests that are sent before the first answer is read.
const TOGETHER: u64 = 64;

/// A node that may take so many bytes of memory for links.
fn hot(data: &Path, limit: u64) -> Setup {
    keeping(Setup::new(data), limit)
}

/// Follows links by their numbers, and checks each answer.
fn follow(wire: &mut Wire, numbers: &[u64]) {
    for numbers in numbers.chunks(TOGETHER as usize) {
        let requests: Vec<u8> =
            numbers.iter().flat_map(|&number| request("GET", &format!("/{}", code(number)), "", b"")).collect();
        wire.send(&requests);
        for &number in numbers {
            let reply = wire.reply();
            assert_eq!((reply.status, reply.field("location")), (302, Some(target(number).as_str())), "{number}");
        }
    }
}

/// Numbers of links, the n-th most wanted with a probability of about 1/n. Neighbours in popularity are none in number.
fn zipf(dice: &mut Dice, count: usize) -> Vec<u64> {
    let rank = |dice: &mut Dice| {
        let share = dice.below(1 << 53) as f64 / (1u64 << 53) as f64;
        (LINKS as f64).powf(share) as u64 - 1
    };
    (0..count).map(|_| rank(dice) * 7_919 % LINKS).collect()
}

#[test]
fn tenth_of_memory_serves_most_redirects() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, LINKS);
    let node = Setup::new(&data).cores(2).start();
    let whole = map_bytes(&node.status());
    node.terminate();
    let limit = whole / 10;
    let node = hot(&data, limit).cores(2).start();
    let mut dice = Dice::new();
    let mut wires: Vec<Wire> = (0..8).map(|_| node.wire()).collect();
    for wire in &mut wires {
        follow(wire, &zipf(&mut dice, 2_500));
    }
    let before = node.status();
    for wire in &mut wires {
        follow(wire, &zipf(&mut dice, 2_500));
        let taken = map_bytes(&node.status());
        assert!(taken <= limit, "{taken} of {limit}");
    }
    let status = node.status();
    let count = |name: &str| status["cache"][name].as_u64().unwrap() - before["cache"][name].as_u64().unwrap();
    let (hits, misses) = (count("hit"), count("miss"));
    println!("{whole} bytes for all, limit {limit}: {hits} from memory, {misses} not; {}", status["residency"]);
    assert_eq!(hits + misses, 20_000);
    // About seven in a hundred links fit. The best choice of them would serve three of four requests (LINKS^0.77).
    assert!(hits > 11_000, "{hits} from memory");
    assert!((2_000..LINKS / 5).contains(&status["links"].as_u64().unwrap()), "{status}");
    assert_eq!(status["residency"]["memoryLimitBytes"], json!(limit));

    // What exists nowhere is known to.
    let fetches = sum(&status, "/fetches");
    for number in 0..2_000 {
        assert_eq!(wires[number % 8].get(&format!("/nowhere-{number}")).status, 404);
    }
    let more = sum(&node.status(), "/fetches") - fetches;
    assert!(more < 100, "{more} of 2,000 unknown codes were looked for in the store");
}

#[test]
fn evicted_links_keep_changing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, 20_000);
    let node = hot(&data, 3 * (512 << 10)).cores(3).start();
    let mut dice = Dice::new();
    let mut wires: Vec<Wire> = (0..6).map(|_| node.wire()).collect();
    // The API is answered by hyper, whose redirects find links in the store as well.
    let mut slow = node.wire();
    for life in 0..30u64 {
        let slugs: Vec<String> = (0..20).map(|number| format!("slug-{number}")).collect();
        let of = |slug: &str| format!("https://example.org/{slug}/{life}");
        for slug in &slugs {
            slow.shorten_as(slug, &of(slug));
        }
        let crowd: Vec<u64> = (0..3_000).map(|_| dice.below(20_000)).collect();
        follow(&mut wires[life as usize % 6], &crowd);
        for slug in &slugs {
            let path = format!("/{slug}");
            for wire in wires.iter_mut().chain([&mut slow]) {
                assert_eq!(wire.get(&path).location(), of(slug));
            }
            assert_eq!(slow.delete(slug).status, 204);
            for wire in wires.iter_mut().chain([&mut slow]) {
                assert_eq!(wire.get(&path).status, 404, "{slug} in life {life}");
            }
        }
    }
    let status = node.status();
    assert!(sum(&status, "/fetches") > 1_000, "{status}");
    assert!(map_bytes(&status) <= 3 * (512 << 10), "{status}");
}

#[test]
fn kills_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, 20_000);
    let mut dice = Dice::new();
    let mut ledger = Ledger::new(4, &mut dice);
    let mut setup = hot(&data, 2 * (512 << 10)).cores(2);
    for _ in 0..3 {
        let node = setup.start();
        let address = node.public;
        let mut wire = node.wire();
        setup = ledger.run(address, || {
            let numbers: Vec<u64> = (0..5_000).map(|_| dice.below(20_000)).collect();
            follow(&mut wire, &numbers);
            node.kill()
        });
    }
    let node = setup.start();
    assert_eq!(ledger.check(&node, 1), Vec::<String>::new());
    follow(&mut node.wire(), &(0..20_000).collect::<Vec<u64>>());
}

#[test]
fn damaged_record_is_named_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, 20_000);
    let setup = hot(&data, 512 << 10).expect("a stored record is damaged").expect("store_damaged");
    let store = open_store(&setup);
    let mut batch = store.batch();
    let damaged: Vec<u64> = (0..20_000).step_by(400).collect();
    for &number in &damaged {
        batch.put(&Code::parse(code(number).as_bytes()).unwrap(), b"neither a link nor a tombstone");
    }
    store.commit(batch).unwrap();
    store.sync().unwrap();
    drop(store);
    let node = setup.start();
    let mut wire = node.wire();
    for _ in 0..2 {
        for &number in &damaged {
            assert_eq!(wire.get(&format!("/{}", code(number))).status, 500, "{number}");
            follow(&mut wire, &[number + 1]);
        }
    }
    // Each is read and named once: that it is damaged stays in memory.
    let status = node.status();
    assert_eq!(status["store"]["damaged"], json!(damaged.len()), "{status}");
    assert_eq!(status["alarms"][0]["name"], "store_damaged");
}

#[test]
fn too_low_limit_raises_an_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, 300_000);
    let node = hot(&data, 512 << 10).expect("memory_limit_low").start();
    follow(&mut node.wire(), &(0..2_000).map(|number| number * 149).collect::<Vec<u64>>());
    let status = node.status();
    assert_eq!(status["alarms"][0]["name"], "memory_limit_low", "{status}");
    crate::support::alarms::is_seen(&node, "memory_limit_low");
    assert!(map_bytes(&status) <= 512 << 10);
    assert_eq!(node.wire().get("/nowhere").status, 404);
}

#[test]
fn deleted_codes_cost_no_read() {
    const MADE: u64 = 9_000;
    const LEFT: u64 = 500;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, MADE);
    let node = hot(&data, 512 << 10).start();
    std::thread::scope(|scope| {
        for part in 0..16 {
            let mut wire = node.wire();
            let numbers = (LEFT..MADE).filter(move |number| number % 16 == part);
            scope.spawn(move || numbers.for_each(|number| assert_eq!(wire.delete(&code(number)).status, 204)));
        }
    });
    // Links that come make room for another filter beside the one that is full.
    let mut wire = node.wire();
    (0..400).for_each(|number| _ = wire.shorten(&target(number)));
    // Each deleted code looks like a link that is not in memory, until the codes have been read from the store.
    wait_until("codes that are forgotten", || {
        let fetches = sum(&node.status(), "/fetches");
        let asked = (LEFT..MADE).step_by(17);
        asked.clone().for_each(|number| assert_eq!(wire.get(&format!("/{}", code(number))).status, 404));
        // What was deleted after the other filter was begun may still be in it.
        sum(&node.status(), "/fetches") - fetches < asked.count() as u64 * 3 / 5
    });
    follow(&mut wire, &(0..LEFT).collect::<Vec<u64>>());
    // A deleted code can be used again.
    wire.shorten_as(&code(LEFT), "https://example.org/again");
    assert_eq!(wire.get(&format!("/{}", code(LEFT))).location(), "https://example.org/again");
}

/// A store that does not answer at all.
#[cfg(feature = "faults")]
mod fault_tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::support::http::Reply;

    /// Redirects are answered 503 after two seconds, counted with what the sweep of connections and this machine add.
    const GIVEN_UP: std::ops::Range<Duration> = Duration::from_secs(2)..Duration::from_secs(8);

    #[test]
    fn stalled_store_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        import(&data, 60_000);
        let setup = hot(&data, 1 << 20).cores(2).env("CAROM_FAULT", "deaf-fetchers");
        let node = setup.expect("CAROM_FAULT is not a setting").start();
        node.wire().shorten_as("warm", "https://example.org/warm");
        let mut wires: Vec<Wire> = (0..60).map(|_| node.wire()).collect();
        // The API is answered by hyper, and all that comes on its connection from then on.
        wires[..20].iter_mut().for_each(|wire| assert_eq!(wire.get("/rest/health").status, 200));
        let begin = Instant::now();
        for (number, wire) in wires.iter_mut().enumerate() {
            wire.send(&request("GET", &format!("/{}", code(number as u64 * 997)), "", b""));
        }
        // Redirects from memory go on: one that waited for the store would wait for as long as all may take.
        let mut rounds = 0;
        while rounds <= 10 || begin.elapsed() < GIVEN_UP.start - Duration::from_millis(200) {
            assert_eq!(node.wire().get("/warm").location(), "https://example.org/warm");
            rounds += 1;
        }
        // Some of them were in memory.
        let replies: Vec<_> = wires.iter_mut().map(Wire::reply).collect();
        assert!(GIVEN_UP.contains(&begin.elapsed()), "{:?}", begin.elapsed());
        let given_up = |replies: &[Reply]| {
            let unanswered: Vec<&Reply> = replies.iter().filter(|reply| reply.status != 302).collect();
            for reply in &unanswered {
                assert_eq!(reply.status, 503, "{reply:?}");
                assert!(reply.field("retry-after").is_some(), "{reply:?}");
            }
            unanswered.len()
        };
        let (slow, fast) = (given_up(&replies[..20]), given_up(&replies[20..]));
        assert!(slow > 3, "{slow} and {fast}");
        assert!(fast > 6, "{slow} and {fast}");
        assert_eq!(sum(&node.status(), "/unavailable"), (slow + fast) as u64, "{}", node.status());
    }
}
