//! Tests of the cache as a whole: against a model, against S3-FIFO on plain structures, and against its limit.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use proptest::prelude::*;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::link::Policy;
use crate::map::LinkMap;

fn hasher() -> CodeHasher {
    CodeHasher::new(0x5eed)
}

impl CachedLinks {
    /// Checks everything that holds between operations.
    fn check(&self) {
        self.queues.check();
        let mut indexed = self.index.check(&hash_of(&self.queues.table, self.hasher));
        let mut live: Vec<_> = self.queues.table.live_records().map(|(reference, _)| reference).collect();
        indexed.sort_by_key(|reference| reference.get());
        live.sort_by_key(|reference| reference.get());
        assert_eq!(indexed, live, "index and pages hold the same records");
        let link_bytes = self.queues.table.live_records().map(|(_, record)| record.link_bytes()).sum::<u64>();
        assert_eq!(link_bytes, self.link_bytes);
    }

    fn put_target(&mut self, number: u32, target: &[u8]) -> Result<Put, MapFull> {
        let (code, hash) = code(number);
        let put = self.put(&code, hash, link(target));
        assert!(self.memory_bytes() <= self.limit_bytes(), "{} of {}", self.memory_bytes(), self.limit_bytes());
        put
    }

    fn ask(&mut self, number: u32) -> Option<MapEntry<'_>> {
        let (code, hash) = code(number);
        self.get(&code, hash)
    }
}

/// Returns the code of a number, seven characters, and its hash.
fn code(number: u32) -> (Code, CodeHash) {
    let mut digits = *b"0000000";
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    let code = Code::parse(&digits).unwrap();
    (code, hasher().hash(&code))
}

fn link(target: &[u8]) -> MapEntry<'_> {
    MapEntry::Link { policy: Policy::default(), target }
}

#[derive(Clone, Debug)]
enum CacheStep {
    /// Puts so many codes from this one on, with targets of about so many bytes.
    Put(u32, u32, usize),
    Remove(u32),
    Forget(u32),
    Get(u32),
}

/// Number of codes that are requested again and again: more than the smallest cache holds.
const CODES: u32 = 4_000;

fn any_step() -> impl Strategy<Value = CacheStep> {
    let len = prop_oneof![4 => 1usize..200, 1 => 1usize..=2048];
    prop_oneof![
        6 => (0..CODES, 1u32..20, len).prop_map(|(first, count, len)| CacheStep::Put(first, count, len)),
        1 => (0..CODES).prop_map(CacheStep::Remove),
        1 => (0..CODES).prop_map(CacheStep::Forget),
        6 => (0..CODES / 16).prop_map(|number| CacheStep::Get(number * number % CODES)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn holds_what_was_last_put_or_nothing(
        steps in proptest::collection::vec(any_step(), 1..2_500),
        limit in CachedLinks::LIMIT_BYTES_MIN..1 << 20,
    ) {
        let mut cache = CachedLinks::new(hasher(), limit);
        let mut model: HashMap<u32, Vec<u8>> = HashMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                CacheStep::Put(first, count, len) => for number in first..first + count {
                    let target = vec![at as u8; (len - 1 + number as usize % 4).clamp(1, 2048)];
                    let was_there = cache.peek(&code(number).0, code(number).1).is_some();
                    let put = cache.put_target(number, &target);
                    prop_assert_eq!(put, Ok(if was_there { Put::Replaced } else { Put::Inserted }));
                    prop_assert_eq!(cache.ask(number), Some(link(&target)), "what was just put is there");
                    model.insert(number, target);
                },
                CacheStep::Remove(number) => {
                    let (code, hash) = code(number);
                    let was_there = cache.peek(&code, hash).is_some();
                    prop_assert_eq!(cache.remove(&code, hash), was_there);
                    model.remove(&number);
                }
                CacheStep::Forget(number) => {
                    let (code, hash) = code(number);
                    let was_there = cache.peek(&code, hash).is_some();
                    prop_assert_eq!(cache.forget(hash), was_there);
                    model.remove(&number);
                }
                CacheStep::Get(number) => {
                    if let Some(entry) = cache.ask(number) {
                        prop_assert_eq!(Some(entry), model.get(&number).map(|target| link(target)));
                    }
                }
            }
            prop_assert!(cache.memory_bytes() <= limit);
            prop_assert!(cache.limit_bytes() == limit);
            if at % 64 == 0 {
                cache.check();
            }
        }
        cache.check();
        let there = (0..CODES + 20).filter(|&number| {
            let found = cache.peek(&code(number).0, code(number).1);
            assert!(found.is_none() || found == model.get(&number).map(|target| link(target)));
            found.is_some()
        });
        prop_assert_eq!(there.count(), cache.len());
    }
}

/// S3-FIFO as its authors describe it, for numbers and a limit in entries. Before it is full, the surplus of the small
/// queue passes to the main one.
struct Ideal {
    capacity: usize,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: VecDeque<u32>,
    /// By number: its frequency, true if it is there, and how often it is in the ghost queue.
    frequency: Vec<u8>,
    present: Vec<bool>,
    ghost: Vec<u8>,
}

impl Ideal {
    fn new(numbers: usize, capacity: usize) -> Ideal {
        Ideal {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            frequency: vec![0; numbers],
            present: vec![false; numbers],
            ghost: vec![0; numbers],
        }
    }

    /// Returns true for a hit. After a miss the number is there.
    fn ask(&mut self, number: u32) -> bool {
        let at = number as usize;
        if self.present[at] {
            self.frequency[at] = (self.frequency[at] + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            if self.small.len() * 10 >= self.capacity { self.evict_small() } else { self.evict_main() }
        }
        if self.small.len() * 10 >= self.capacity && self.small.len() + self.main.len() < self.capacity * 98 / 100 {
            self.main.extend(self.small.pop_front());
        }
        let queue = if self.ghost[at] > 0 { &mut self.main } else { &mut self.small };
        queue.push_back(number);
        (self.present[at], self.frequency[at]) = (true, 0);
        false
    }

    fn evict_small(&mut self) {
        let Some(number) = self.small.pop_front() else { return };
        let at = number as usize;
        if self.frequency[at] > 1 {
            self.frequency[at] = 0;
            self.main.push_back(number);
            return;
        }
        self.present[at] = false;
        self.ghost[at] += 1;
        self.ghosts.push_back(number);
        if self.ghosts.len() > self.capacity * 9 / 10 {
            let gone = self.ghosts.pop_front().unwrap();
            self.ghost[gone as usize] -= 1;
        }
    }

    fn evict_main(&mut self) {
        let Some(number) = self.main.pop_front() else { return };
        let at = number as usize;
        if self.frequency[at] > 0 {
            self.frequency[at] -= 1;
            self.main.push_back(number);
        } else {
            self.present[at] = false;
        }
    }
}

/// Returns the hits of a plain queue.
fn fifo(requests: &[u32], numbers: usize, capacity: usize) -> Vec<bool> {
    let (mut queue, mut present) = (VecDeque::new(), vec![false; numbers]);
    let mut ask = |number: u32| {
        if std::mem::replace(&mut present[number as usize], true) {
            return true;
        }
        queue.push_back(number);
        if queue.len() > capacity {
            present[queue.pop_front().unwrap() as usize] = false;
        }
        false
    };
    requests.iter().map(|&number| ask(number)).collect()
}

/// Requests for numbers by Zipf's law with exponent 1.
fn zipf(numbers: usize, requests: usize) -> Vec<u32> {
    let mut sum = 0.0;
    let mut cumulative: Vec<f64> = Vec::with_capacity(numbers);
    cumulative.extend((1..=numbers).map(|rank| {
        sum += 1.0 / rank as f64;
        sum
    }));
    let mut random = Pcg64::new(23, 0);
    let mut draw = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * sum;
    (0..requests)
        .map(|_| {
            let drawn = draw();
            cumulative.partition_point(|&up_to| up_to <= drawn).min(numbers - 1) as u32
        })
        .collect()
}

/// Returns the memory of a map with `links` links.
fn plain_bytes(links: u32, target: &[u8]) -> u64 {
    let mut map = LinkMap::new(hasher());
    for number in 0..links {
        let (code, hash) = code(number);
        map.put(&code, hash, link(target)).unwrap();
    }
    map.memory_bytes()
}

/// A request to the cache: a miss fetches the link.
fn ask_or_fetch(cache: &mut CachedLinks, number: u32, target: &[u8]) -> bool {
    let hit = cache.ask(number).is_some();
    if !hit {
        cache.put_target(number, target).unwrap();
    }
    hit
}

fn put_all(cache: &mut CachedLinks, numbers: Range<u32>) {
    for number in numbers {
        cache.put_target(number, &[b'x'; 90]).unwrap();
    }
}

/// Returns the share of hits in the second half.
fn ratio(hits: &[bool]) -> f64 {
    let counted = &hits[hits.len() / 2..];
    counted.iter().filter(|&&hit| hit).count() as f64 / counted.len() as f64
}

#[test]
fn hits_are_those_of_s3_fifo() {
    const NUMBERS: usize = 1_000_000;
    const CAPACITY: usize = NUMBERS / 10;
    let target = [b'x'; 90];
    let requests = zipf(NUMBERS, 2_000_000);
    let mut cache = CachedLinks::new(hasher(), plain_bytes(CAPACITY as u32, &target));
    let hits: Vec<bool> = requests.iter().map(|&number| ask_or_fetch(&mut cache, number, &target)).collect();
    cache.check();
    let mut ideal = Ideal::new(NUMBERS, CAPACITY);
    let ideal_hits: Vec<bool> = requests.iter().map(|&number| ideal.ask(number)).collect();
    let (cached, ideal, fifo) = (ratio(&hits), ratio(&ideal_hits), ratio(&fifo(&requests, NUMBERS, CAPACITY)));
    assert!((cached - ideal).abs() < 0.004, "{cached:.4} are hits, {ideal:.4} should be");
    assert!(cached > fifo + 0.03, "{cached:.4} are hits, {fifo:.4} with a plain queue");
    assert!(cache.len() > CAPACITY * 9 / 10, "{} links in the memory of {CAPACITY}", cache.len());
}

/// Links in use stay while many times as many others come that are never requested again.
#[test]
fn a_scan_leaves_the_links_in_use() {
    const IN_USE: u32 = 5_000;
    let target = [b'x'; 90];
    let mut cache = CachedLinks::new(hasher(), plain_bytes(2 * IN_USE, &target));
    for _ in 0..4 {
        for number in 0..IN_USE {
            ask_or_fetch(&mut cache, number, &target);
        }
    }
    let mut misses = 0;
    for round in 0..20 {
        for number in 0..IN_USE {
            misses += u32::from(!ask_or_fetch(&mut cache, number, &target));
            for scanned in 0..5 {
                ask_or_fetch(&mut cache, IN_USE + (round * IN_USE + number) * 5 + scanned, &target);
            }
        }
    }
    assert!(misses < IN_USE / 50, "{misses} of {} requests", 20 * IN_USE);
}

/// Returns a full cache of 4 MiB, and somewhat less than the number of links in its small queue.
fn full_cache() -> (CachedLinks, u32) {
    let mut cache = CachedLinks::new(hasher(), 4 << 20);
    put_all(&mut cache, 0..100_000);
    let small = cache.len() as u32 / 10 * 8 / 10;
    (cache, small)
}

fn is_there(cache: &CachedLinks, number: u32) -> bool {
    let (code, hash) = code(number);
    cache.peek(&code, hash).is_some()
}

/// A code that was removed and comes back is as new as any, whatever the queues had of it.
#[test]
fn what_was_removed_and_comes_back_is_new() {
    let (mut cache, small) = full_cache();
    for round in 0..50 {
        let (number, others) = (1_000_000 + round, 2_000_000 + round * 2 * small);
        put_all(&mut cache, number..number + 1);
        put_all(&mut cache, others..others + small);
        let (code, hash) = code(number);
        assert!(cache.remove(&code, hash));
        put_all(&mut cache, number..number + 1);
        put_all(&mut cache, others + small..others + 2 * small);
        assert!(cache.remove(&code, hash), "it was evicted before its time");
    }
    cache.check();
}

/// An entry that was evicted a short time ago goes to the main queue when it comes back.
#[test]
fn what_comes_back_from_the_ghosts_stays() {
    let (mut cache, small) = full_cache();
    put_all(&mut cache, 1_000_000..1_000_001);
    put_all(&mut cache, 2_000_000..2_000_000 + 2 * small);
    assert!(!is_there(&cache, 1_000_000));
    put_all(&mut cache, 1_000_000..1_000_001);
    put_all(&mut cache, 3_000_000..3_000_000 + 5 * small);
    assert!(is_there(&cache, 1_000_000));
}

/// At the end of the main queue each use counts for one more round.
#[test]
fn uses_in_the_main_queue_are_used_up() {
    let (mut cache, small) = full_cache();
    let main = cache.len() as u32 * 9 / 10;
    // Each of them is new, evicted, and comes back from the ghosts.
    let mut next = 1_000_000;
    let mut fill_main = |cache: &mut CachedLinks, links: u32| {
        for number in next..next + links {
            put_all(cache, number..number + 1);
            put_all(cache, number - 2 * small..number - 2 * small + 1);
        }
        next += links;
    };
    fill_main(&mut cache, 2 * main);
    let (unused, used) = (1_000_000 + 2 * main - 2 * small - 2, 1_000_000 + 2 * main - 2 * small - 1);
    assert!(cache.ask(used).is_some());
    assert!(is_there(&cache, unused));
    fill_main(&mut cache, main + main / 2);
    assert!(is_there(&cache, used));
    assert!(!is_there(&cache, unused));
    fill_main(&mut cache, main);
    assert!(!is_there(&cache, used));
    cache.check();
}

/// At the end of the small queue two uses count, one does not.
#[test]
fn one_use_of_a_new_link_is_not_enough() {
    let (mut cache, small) = full_cache();
    put_all(&mut cache, 1_000_000..1_000_002);
    assert!(cache.ask(1_000_000).is_some());
    assert!(cache.ask(1_000_001).is_some());
    assert!(cache.ask(1_000_001).is_some());
    put_all(&mut cache, 2_000_000..2_000_000 + 3 * small);
    assert!(!is_there(&cache, 1_000_000));
    assert!(is_there(&cache, 1_000_001));
}

/// A change keeps the count of uses.
#[test]
fn changed_links_keep_their_uses() {
    let (mut cache, small) = full_cache();
    for (number, len) in [(1_000_000, 90), (1_000_001, 50), (1_000_002, 130)] {
        put_all(&mut cache, number..number + 1);
        assert!(cache.ask(number).is_some());
        assert!(cache.ask(number).is_some());
        assert_eq!(cache.put_target(number, &vec![b'y'; len]), Ok(Put::Replaced));
    }
    put_all(&mut cache, 2_000_000..2_000_000 + 3 * small);
    assert!((1_000_000..1_000_003).all(|number| is_there(&cache, number)));
}

/// If everything has the highest count of uses, a new link takes a bounded share of sweeping, and no long time.
#[test]
fn a_cache_of_links_in_use_takes_new_ones() {
    let target = [b'x'; 90];
    let mut cache = CachedLinks::new(hasher(), 4 << 20);
    for round in 0..50 {
        let first = round * 1_000;
        for number in first..first + 1_000 {
            cache.put_target(number, &target).unwrap();
            assert!(cache.room() > 1, "the next page is there before it is needed");
        }
        for number in (0..first + 1_000).cycle().take(150_000) {
            cache.ask(number);
        }
        let newest = (first..first + 1_000).filter(|&number| cache.ask(number).is_some()).count();
        assert_eq!(newest, 1_000);
    }
    cache.check();
}

/// Removed links leave holes, which are room again when their pages have been swept.
#[test]
fn removed_links_make_room() {
    let target = [b'x'; 90];
    let mut cache = CachedLinks::new(hasher(), 4 << 20);
    for number in 0..200_000 {
        ask_or_fetch(&mut cache, number % 20_000, &target);
    }
    let full = cache.len();
    for number in (0..20_000).filter(|number| number % 8 != 0) {
        let (code, hash) = code(number);
        cache.remove(&code, hash);
    }
    cache.check();
    assert!(cache.len() < full / 4);
    for number in 100_000..160_000 {
        ask_or_fetch(&mut cache, number, &target);
        ask_or_fetch(&mut cache, 100_000 + number % 1_000, &target);
    }
    assert!(cache.len() > full * 9 / 10, "{} of {full}", cache.len());
    for number in 0..200_000 {
        let (code, hash) = code(number);
        cache.remove(&code, hash);
    }
    cache.check();
    assert!(cache.is_empty());
    assert!(cache.link_bytes() == 0);
    assert!(cache.memory_bytes() < cache.limit_bytes() / 8, "{} bytes for nothing", cache.memory_bytes());
}

/// If the kernel refuses more pages, the existing ones continue.
#[test]
fn makes_do_with_what_the_kernel_gives() {
    let geometry = Geometry { unit_bits: UNIT_BITS_MIN, pages_max: 40 };
    let mut cache = CachedLinks::with_geometry(hasher(), 4 << 20, geometry);
    for number in 0..20_000 {
        assert_eq!(cache.put_target(number, &[b'x'; 90]), Ok(Put::Inserted));
    }
    cache.check();
    assert!(cache.len() > 1_500);
    assert!(cache.limit_bytes() < 1 << 20);
    let refused = Geometry { pages_max: 0, ..geometry };
    let mut cache = CachedLinks::with_geometry(hasher(), 4 << 20, refused);
    assert_eq!(cache.put_target(0, b"x"), Err(MapFull));
    assert!(cache.is_empty());
    cache.check();
}
