//! Tests of the map as a whole: against a model, and for the memory that it gives back.

use std::collections::HashMap;

use proptest::prelude::*;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::*;
use crate::code::DomainId;
use crate::link::{Policy, RedirectStatus};
use crate::owner::{CoreCount, owner};

impl LinkMap {
    /// Checks everything that holds between operations.
    pub(super) fn check(&self) {
        self.pages.check();
        let mut indexed = self.index.check(&hash_of(&self.pages, self.hasher));
        let mut live: Vec<_> = self.pages.live_records().map(|(reference, _)| reference).collect();
        indexed.sort_by_key(|reference| reference.get());
        live.sort_by_key(|reference| reference.get());
        assert_eq!(indexed, live, "index and pages hold the same records");
        assert_eq!(self.pages.live_records().map(|(_, record)| record.link_bytes()).sum::<u64>(), self.link_bytes);
    }
}

/// Small pages, so that a few hundred records fill many of them.
const SMALL: Geometry = Geometry { unit_bits: 10, pages_max: 1 << 12 };

/// A map beside its hasher.
struct Fixture {
    map: LinkMap,
    hasher: CodeHasher,
}

impl Fixture {
    fn new(geometry: Geometry) -> Fixture {
        let hasher = CodeHasher::new(0x5eed);
        Fixture { map: LinkMap::with_geometry(hasher, geometry), hasher }
    }

    fn put(&mut self, code: &Code, entry: MapEntry<'_>) -> Result<Put, MapFull> {
        self.map.put(code, self.hasher.hash(code), entry)
    }

    fn put_target(&mut self, code: &Code, target: &[u8]) -> Result<Put, MapFull> {
        self.put(code, MapEntry::Link { policy: Policy::default(), target })
    }

    fn remove(&mut self, code: &Code) -> bool {
        self.map.remove(code, self.hasher.hash(code))
    }

    fn get(&self, code: &Code) -> Option<MapEntry<'_>> {
        self.map.get(code, self.hasher.hash(code))
    }
}

/// Returns the code of a number, seven characters.
fn code(number: u32) -> Code {
    Code::parse(format!("{number:07}").as_bytes()).unwrap()
}

/// An entry that owns its target.
#[derive(Clone, PartialEq, Debug)]
enum Owned {
    Link(Policy, Vec<u8>),
    Damaged,
}

impl Owned {
    fn borrow(&self) -> MapEntry<'_> {
        match self {
            Owned::Link(policy, target) => MapEntry::Link { policy: *policy, target },
            Owned::Damaged => MapEntry::Damaged,
        }
    }

    fn target_len(&self) -> usize {
        match self {
            Owned::Link(_, target) => target.len(),
            Owned::Damaged => 0,
        }
    }
}

#[derive(Clone, Debug)]
enum MapStep {
    Put(Code, Owned),
    Remove(Code),
    Get(Code),
}

fn any_code() -> impl Strategy<Value = Code> {
    // Few keys, so that most steps meet an earlier one; of all lengths.
    (0u8..60, 1usize..=64, 0u8..4).prop_map(|(byte, len, domain)| {
        let len = if byte < 40 { 7 } else { len };
        let code = Code::parse(&vec![crate::code::ALPHABET[usize::from(byte)]; len]).unwrap();
        // Half of them are of the default domain.
        code.within(DomainId::from_bytes([domain.saturating_sub(1); 6]))
    })
}

fn any_entry() -> impl Strategy<Value = Owned> {
    let instant = || proptest::option::of(0..=INSTANT_MS_MAX);
    let policy = (0usize..5, any::<Option<u32>>(), instant(), instant(), any::<(bool, bool, u32)>());
    let policy = policy.prop_map(
        |(status, cache_seconds, valid_since_ms, valid_until_ms, (forward_query, archived, visits))| {
            let (status, max_visits) = (RedirectStatus::ALL[status], std::num::NonZeroU32::new(visits));
            Policy { status, cache_seconds, valid_since_ms, valid_until_ms, forward_query, archived, max_visits }
        },
    );
    let target = (prop_oneof![1usize..200, 1usize..=DESTINATION_LEN_MAX], any::<u8>());
    let target = target.prop_map(|(len, first)| (0..len).map(|at| first.wrapping_add(at as u8)).collect());
    prop_oneof![20 => (policy, target).prop_map(|(policy, target)| Owned::Link(policy, target)), 1 => Just(Owned::Damaged)]
}

fn any_step() -> impl Strategy<Value = MapStep> {
    prop_oneof![
        4 => (any_code(), any_entry()).prop_map(|(code, entry)| MapStep::Put(code, entry)),
        2 => any_code().prop_map(MapStep::Remove),
        1 => any_code().prop_map(MapStep::Get),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn behaves_like_a_hash_map(steps in proptest::collection::vec(any_step(), 1..2_500)) {
        let mut map = Fixture::new(SMALL);
        let mut model: HashMap<Code, Owned> = HashMap::new();
        let mut link_bytes = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                MapStep::Put(code, entry) => {
                    let put = map.put(&code, entry.borrow());
                    link_bytes += code.len() + entry.target_len();
                    let old = model.insert(code, entry);
                    prop_assert_eq!(put, Ok(if old.is_some() { Put::Replaced } else { Put::Inserted }));
                    link_bytes -= old.map_or(0, |old| code.len() + old.target_len());
                }
                MapStep::Remove(code) => {
                    let old = model.remove(&code);
                    prop_assert_eq!(map.remove(&code), old.is_some());
                    link_bytes -= old.map_or(0, |old| code.len() + old.target_len());
                }
                MapStep::Get(code) => prop_assert_eq!(map.get(&code), model.get(&code).map(Owned::borrow)),
            }
            prop_assert_eq!((map.map.len(), map.map.link_bytes()), (model.len(), link_bytes as u64));
            if number % 64 == 0 {
                map.map.check();
            }
        }
        map.map.check();
        for (code, entry) in &model {
            prop_assert_eq!(map.get(code), Some(entry.borrow()));
        }
        let all: HashMap<Code, MapEntry<'_>> = map.map.iter().collect();
        prop_assert_eq!(all, model.iter().map(|(code, entry)| (*code, entry.borrow())).collect());
    }
}

/// Bytes that an empty map may keep: one page, one chunk of buckets and two of overflow lines, and the tables.
const EMPTY_BYTES_MAX: u64 = (512 << 10) + 4 * (256 << 10);

#[test]
fn removing_gives_memory_back() {
    const LINKS: u32 = 200_000;
    let mut map = Fixture::new(Geometry::STANDARD);
    let empty = map.map.memory_bytes();
    for number in 0..LINKS {
        assert_eq!(map.put_target(&code(number), &[b'x'; 100]), Ok(Put::Inserted));
    }
    let full = map.map.memory_bytes();
    assert!(full <= u64::from(LINKS) * 140 + empty + EMPTY_BYTES_MAX, "{full} bytes for {LINKS} links");
    map.map.check();

    // One in twenty stays, spread over all pages.
    for number in (0..LINKS).filter(|number| number % 20 != 0) {
        assert!(map.remove(&code(number)));
    }
    map.map.check();
    let live = u64::from(LINKS / 20) * 140;
    let sparse = map.map.memory_bytes();
    assert!(sparse <= live + live / 3 + 2 * EMPTY_BYTES_MAX, "{sparse} bytes for {live} live ones, {full} before");
    for number in 0..LINKS {
        assert_eq!(map.get(&code(number)).is_some(), number % 20 == 0);
    }

    for number in (0..LINKS).step_by(20) {
        assert!(map.remove(&code(number)));
    }
    map.map.check();
    let after = map.map.memory_bytes();
    assert!(map.map.is_empty());
    assert!(map.map.link_bytes() == 0);
    assert!(after <= EMPTY_BYTES_MAX, "{after} bytes for nothing");
}

/// Expecting the wrong number of links costs nothing that stays: not when there are more, not when there are far fewer.
#[test]
fn a_wrong_expectation_is_made_good() {
    const LINKS: u32 = 100_000;
    let filled = |expected: usize| {
        let mut map = Fixture::new(Geometry::STANDARD);
        map.map.reserve(expected);
        for number in 0..LINKS {
            assert_eq!(map.put_target(&code(number), &[b'x'; 100]), Ok(Put::Inserted));
        }
        map.map.fit();
        map.map.check();
        for number in 0..LINKS {
            assert!(map.get(&code(number)).is_some());
        }
        map.map.memory_bytes()
    };
    let grown = filled(0);
    for expected in [1, LINKS as usize / 3, LINKS as usize, 50 * LINKS as usize] {
        let bytes = filled(expected);
        // Between four and six entries to a bucket are both right: 64 bytes for every twelfth link.
        assert!(bytes <= grown + u64::from(LINKS) / 12 * 64 + EMPTY_BYTES_MAX, "{bytes} bytes, not {grown}");
    }
}

/// Steady change of targets of all sizes must not make the map grow: the live records may be three quarters of it.
#[test]
fn steady_change_does_not_grow_the_map() {
    const LINKS: u32 = 20_000;
    let mut map = Fixture::new(Geometry { unit_bits: 14, ..Geometry::STANDARD });
    let mut random = Pcg64::new(11, 0);
    let target = [b'x'; DESTINATION_LEN_MAX];
    let mut peak = 0.0f64;
    for step in 0..LINKS * 15 {
        let drawn = random.next_u64();
        let code = code(drawn as u32 % LINKS);
        if drawn >> 62 == 0 {
            map.remove(&code);
        } else {
            let len = 1 + (drawn >> 32) as usize % 400;
            map.put_target(&code, &target[..len]).unwrap();
        }
        if step > LINKS * 3 && step % 64 == 0 {
            // Of a live record: its header, half a unit of padding, and the index.
            let live = map.map.link_bytes() + map.map.len() as u64 * (8 + 4 + 16);
            peak = peak.max(map.map.memory_bytes() as f64 / (live as f64 * 1.34 + (1 << 20) as f64));
        }
    }
    map.map.check();
    assert!(peak <= 1.0, "at its peak the map took {peak:.3} of what it may");
}

/// Small records that stay among large ones that come and go: the most to move for each byte of hole.
#[test]
fn large_changes_among_small_links_do_not_grow_the_map() {
    const SMALL_LINKS: u32 = 30_000;
    const LARGE_LINKS: u32 = 3_000;
    let mut map = Fixture::new(Geometry { unit_bits: 14, ..Geometry::STANDARD });
    let target = [b'x'; DESTINATION_LEN_MAX];
    for number in 0..SMALL_LINKS {
        map.put_target(&code(number), b"x").unwrap();
        map.put_target(&code(SMALL_LINKS + number % LARGE_LINKS), &target).unwrap();
    }
    let mut random = Pcg64::new(13, 0);
    let mut peak = 0;
    for _ in 0..60_000 {
        let drawn = random.next_u64();
        // Another size each time, so that the new record does not fit where the old one is.
        let len = DESTINATION_LEN_MAX - (drawn >> 32) as usize % 64 * 8;
        map.put_target(&code(SMALL_LINKS + drawn as u32 % LARGE_LINKS), &target[..len]).unwrap();
        peak = peak.max(map.map.memory_bytes());
    }
    map.map.check();
    let live = map.map.link_bytes() + map.map.len() as u64 * (8 + 8 + 16);
    assert!(peak as f64 <= live as f64 * 1.34 + 1e6, "{peak} bytes for {live} live ones");
}

#[test]
fn a_full_map_says_so_and_goes_on() {
    let mut map = Fixture::new(Geometry { unit_bits: 10, pages_max: 5 });
    let target = [b'x'; 100];
    let mut links = 0;
    while map.put_target(&code(links), &target) == Ok(Put::Inserted) {
        links += 1;
    }
    let (len, link_bytes) = (map.map.len(), map.map.link_bytes());
    assert_eq!(len, links as usize);
    assert_eq!(map.put_target(&code(links), &target), Err(MapFull));
    assert_eq!(map.put_target(&code(0), &[b'x'; 2000]), Err(MapFull), "a larger target has no room either");
    assert_eq!((map.map.len(), map.map.link_bytes()), (len, link_bytes));
    assert_eq!(map.get(&code(0)), Some(MapEntry::Link { policy: Policy::default(), target: &target }));
    assert_eq!(map.put_target(&code(0), &[b'y'; 100]), Ok(Put::Replaced), "the same size needs no room");
    map.map.check();

    // Holes everywhere are room again, because the page in reserve lets others be emptied.
    for number in (0..links).filter(|number| number % 4 != 0) {
        assert!(map.remove(&code(number)));
    }
    for number in 0..links / 2 {
        assert!(map.put_target(&code(1_000_000 + number), &target).is_ok(), "{number} of {links}");
    }
    map.map.check();
}

/// Tags must distinguish the codes of one bucket on one core, however many cores share the hash. Each tag bit is set in
/// half of the codes of an owner, and about as many tags occur as 65,536 bins get when so many balls are thrown.
#[test]
fn tags_are_spread_for_the_codes_of_one_owner() {
    let hasher = CodeHasher::new(3);
    for cores in [2, 3, 64] {
        let count = CoreCount::new(cores).unwrap();
        let mine =
            (0..).map(|number| hasher.hash(&code(number))).filter(|&hash| owner(hash, count).index() == cores / 2);
        const CODES: usize = 20_000;
        let tags: Vec<u16> = mine.take(CODES).map(index::tag).collect();
        for bit in 0..16 {
            let set = tags.iter().filter(|&&tag| tag >> bit & 1 == 1).count();
            assert!(set.abs_diff(CODES / 2) < 400, "bit {bit} of {cores} cores: {set} of {CODES}");
        }
        let distinct = tags.iter().collect::<std::collections::HashSet<_>>().len();
        // 65,536 * (1 - exp(-20,000 / 65,536)) = 17,237.
        assert!(distinct.abs_diff(17_237) < 200, "{distinct} tags on {cores} cores");
    }
}

#[test]
#[should_panic(expected = "a target has 1 to 2048 bytes")]
fn an_empty_target_is_a_contradiction() {
    let _ = Fixture::new(SMALL).put_target(&code(0), b"");
}
