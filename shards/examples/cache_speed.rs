//! Prints the time of a hit in a cache under a limit, and of a new link that evicts another, beside those of a plain
//! link map.
//!
//! `cargo run --release -p carom-shards --example cache_speed [links]`; three million links by default. The worst times
//! are by the wall clock, so they include everything else that the machine does.

#![expect(clippy::print_stdout, reason = "the output is what the example is for")]

use std::hint::black_box;
use std::time::Instant;

use carom_shards::{CachedLinks, Code, CodeFilter, CodeHash, CodeHasher, LinkMap, MapEntry, Policy};

const TARGET: [u8; 100] = [b'x'; 100];

fn main() {
    if cfg!(debug_assertions) {
        panic!("a debug build says nothing about speed: use --release");
    }
    let links: usize = std::env::args().nth(1).map_or(3_000_000, |links| links.parse().expect("a number of links"));
    let codes: Vec<(Code, CodeHash)> = (0..2 * links).map(code).collect();
    let (old, new) = codes.split_at(links);
    // A step that shares no small factor with the number of links visits them in an order that no cache foresees.
    let step = (0x9e37_79b9_7f4a_7c15 % links) | 1;
    let asked: Vec<(Code, CodeHash)> = (0..links).map(|turn| old[turn * step % links]).collect();

    let mut map = LinkMap::new(hasher());
    for (code, hash) in old {
        map.put(code, *hash, entry()).expect("there is memory for the links");
    }
    let plain_bytes = map.memory_bytes();
    hits("plain map: hit", &asked, |code, hash| map.get(code, hash).is_some());
    each("plain map: a new link and the oldest removed", new.iter().zip(old), |((code, hash), (oldest, its_hash))| {
        map.put(code, *hash, entry()).expect("there is memory for the links");
        map.remove(oldest, *its_hash);
    });
    drop(map);

    let mut cache = CachedLinks::new(hasher(), plain_bytes + plain_bytes / 16);
    let put = |cache: &mut CachedLinks, (code, hash): &(Code, CodeHash)| {
        cache.put(code, *hash, entry()).expect("others make room");
    };
    old.iter().for_each(|link| put(&mut cache, link));
    for uses in 1..=4 {
        hits(&format!("cache: hit {uses}"), &asked, |code, hash| cache.get(code, hash).is_some());
    }
    each("cache: a new link, others in use", new.iter(), |link| put(&mut cache, link));
    // Codes that come back from the ghosts go to the main queue, where everything was used three times.
    let back = new.iter().zip(&new[links / 4..]).flat_map(|(back, new)| [back, new]);
    each("cache: every other one comes back, others in use", back, |link| put(&mut cache, link));
    println!("{} links in {} bytes of {}", cache.len(), cache.memory_bytes(), cache.limit_bytes());
    drop(cache);

    let mut filter = CodeFilter::with_capacity(links);
    each("filter: insert", old.iter(), |(_, hash)| filter.insert(*hash));
    hits("filter, there", &asked, |_, hash| filter.may_hold(hash));
    let start = Instant::now();
    let wrong = new.iter().filter(|(_, hash)| filter.may_hold(*hash)).count();
    let each = start.elapsed().as_nanos() as f64 / links as f64;
    println!("filter, not there: mean {each:.0} ns, {:.2} % wrong", wrong as f64 / links as f64 * 100.0);
}

fn hasher() -> CodeHasher {
    CodeHasher::new(7)
}

fn code(number: usize) -> (Code, CodeHash) {
    let code = Code::parse(format!("{number:07}").as_bytes()).expect("digits are a code");
    (code, hasher().hash(&code))
}

fn entry() -> MapEntry<'static> {
    MapEntry::Link { policy: Policy::default(), target: &TARGET }
}

/// Times look-ups as a whole.
fn hits(what: &str, asked: &[(Code, CodeHash)], mut get: impl FnMut(&Code, CodeHash) -> bool) {
    let start = Instant::now();
    let hits = asked.iter().filter(|(code, hash)| black_box(get(code, *hash))).count();
    let mean = start.elapsed().as_nanos() as f64 / asked.len() as f64;
    println!("{what}: mean {mean:.0} ns, {hits} hits of {}", asked.len());
}

/// Times changes one by one.
fn each<T>(what: &str, items: impl Iterator<Item = T>, mut change: impl FnMut(T)) {
    let (mut count, mut total, mut worst, mut slow) = (0u64, 0, 0, 0);
    for item in items {
        let start = Instant::now();
        change(item);
        let took = start.elapsed().as_nanos() as u64;
        (count, total, worst) = (count + 1, total + took, worst.max(took));
        slow += u64::from(took > 100_000);
    }
    println!(
        "{what}: mean {:.0} ns, worst {:.0} us, {slow} above 100 us",
        total as f64 / count as f64,
        worst as f64 / 1e3
    );
}
