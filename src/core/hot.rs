//! Copies of other cores' links that this core is asked for again and again, so that it need not ask their owners each
//! time.
//!
//! The table has a fixed size and one place for each value of twelve bits of the hash. A link gets in when it is asked
//! for twice without another of the same few bits in between, so traffic that is spread evenly leaves the table alone; it
//! is thrown out by another that got that far only if nobody has asked for it since the last that tried.
//!
//! An owner recalls every copy before a change of its link is acknowledged ([`super::recall`]). A copy of a link with an
//! end ends with it. Codes without a link are not kept here, and no links that may be followed only so often.

use carom_shards::{Code, CodeHash, Policy};

use crate::redirect::{BorrowedLookup, Destination, Lookup};

/// Bytes of the longest target that is kept: what fits one message of the mesh.
pub(super) const TARGET_BYTES_MAX: usize = 144;

/// Places. With Zipf's law and ten million links, half of all requests are for this many; all of them take 1 MiB.
const PLACES: usize = 4_096;

/// Codes whose last request is remembered.
const SEEN: usize = 4 * PLACES;

/// One core's copies of other cores' links.
#[derive(Debug)]
pub(super) struct HotLinks {
    /// A part of the hash of each place's link; zero where there is none.
    tags: Box<[u32]>,
    places: Box<[Place]>,
}

#[derive(Clone, Debug)]
struct Place {
    code: Code,
    policy: Policy,
    target_len: u8,
    /// Whether it was asked for since another link last wanted its place.
    asked: bool,
    target: [u8; TARGET_BYTES_MAX],
}

/// The owner of a code has the upper bits of its hash for itself, so these take the lower ones.
fn place_of(hash: CodeHash) -> usize {
    hash.0 as usize % PLACES
}

/// Never zero.
fn tag_of(hash: CodeHash) -> u32 {
    (hash.0 >> 16) as u32 | 1
}

impl HotLinks {
    pub(super) fn new() -> HotLinks {
        let nothing = Place {
            code: Code::parse(b"0").expect("a code"),
            policy: Policy::default(),
            target_len: 0,
            asked: false,
            target: [0; TARGET_BYTES_MAX],
        };
        HotLinks { tags: vec![0; PLACES].into(), places: vec![nothing; PLACES].into() }
    }

    /// The copy of a link, if there is one.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, hash: CodeHash, now_ms: u64) -> Option<BorrowedLookup<'_>> {
        let at = place_of(hash);
        if self.tags[at] != tag_of(hash) || self.places[at].code != *code {
            return None;
        }
        let place = &mut self.places[at];
        if place.policy.valid_until_ms.is_some_and(|until| until <= now_ms) {
            self.tags[at] = 0;
            return None;
        }
        place.asked = true;
        let target = &place.target[..usize::from(place.target_len)];
        Some(Lookup::Live(Destination { policy: place.policy, target }))
    }

    /// Keeps a copy of a link, unless the one in its place is in use.
    pub(super) fn keep(&mut self, code: &Code, hash: CodeHash, policy: Policy, target: &[u8]) {
        let at = place_of(hash);
        let place = &mut self.places[at];
        let may_be_kept = target.len() <= TARGET_BYTES_MAX && policy.max_visits.is_none();
        if !may_be_kept || (self.tags[at] != 0 && std::mem::take(&mut place.asked)) {
            return;
        }
        (place.code, place.policy, place.asked) = (*code, policy, false);
        place.target_len = target.len() as u8;
        place.target[..target.len()].copy_from_slice(target);
        self.tags[at] = tag_of(hash);
    }

    /// Drops the copy of a link, if there is one.
    pub(super) fn forget(&mut self, hash: CodeHash) {
        let at = place_of(hash);
        if self.tags[at] == tag_of(hash) {
            self.tags[at] = 0;
        }
    }
}

/// Which other cores' codes were asked for lately.
#[derive(Debug)]
pub(super) struct Sightings {
    /// A part of the hash that was seen last, for each value of some other bits of it.
    last: Box<[u16]>,
}

impl Sightings {
    pub(super) fn new() -> Sightings {
        Sightings { last: vec![0; SEEN].into() }
    }

    /// Notes that a code was asked for of which there is no copy. Returns whether its link should be kept when it comes.
    #[inline]
    pub(super) fn wants(&mut self, hash: CodeHash) -> bool {
        let this = (hash.0 >> 24) as u16;
        std::mem::replace(&mut self.last[hash.0 as usize % SEEN], this) == this
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::CodeHasher;

    fn code(number: usize) -> (Code, CodeHash) {
        let code = Code::parse(format!("h{number}").as_bytes()).unwrap();
        (code, CodeHasher::new(3).hash(&code))
    }

    /// A core's table; what is not there is brought by its owner, and kept where it is wanted.
    struct Asker {
        hot: HotLinks,
        seen: Sightings,
    }

    impl Asker {
        fn new() -> Asker {
            Asker { hot: HotLinks::new(), seen: Sightings::new() }
        }

        /// Whether there was a copy.
        fn ask(&mut self, number: usize) -> bool {
            let (code, hash) = code(number);
            let target = format!("https://example.org/{number}");
            if let Some(found) = self.hot.find(&code, hash, 0) {
                assert_eq!(found, Lookup::Live(Destination { policy: Policy::default(), target: target.as_bytes() }));
                return true;
            }
            if self.seen.wants(hash) {
                self.hot.keep(&code, hash, Policy::default(), target.as_bytes());
            }
            false
        }
    }

    #[test]
    fn what_is_asked_for_twice_is_kept_until_it_is_recalled() {
        let mut asker = Asker::new();
        assert_eq!([(); 4].map(|()| asker.ask(7)), [false, false, true, true]);
        asker.hot.forget(code(7).1);
        assert_eq!([(); 3].map(|()| asker.ask(7)), [false, true, true]);
    }

    #[test]
    fn links_that_are_asked_for_often_stay_among_many_that_are_not() {
        let mut asker = Asker::new();
        for _ in 0..3 {
            (0..100).for_each(|number| _ = asker.ask(number));
        }
        let mut hits = 0;
        for round in 0..50 {
            // Two thousand others, each asked for twice in a row: they all get as far as wanting a place.
            for other in 0..2_000 {
                asker.ask(1_000 + round * 2_000 + other);
                asker.ask(1_000 + round * 2_000 + other);
            }
            hits += (0..100).filter(|&number| asker.ask(number)).count();
        }
        assert!(hits > 3_000, "{hits} of 5,000");
    }

    #[test]
    fn evenly_spread_requests_leave_it_alone() {
        let mut asker = Asker::new();
        // Enough of them that none has its few bits of the hash for itself.
        let hits = (0..3 * 500_000).filter(|number| asker.ask(number % 500_000)).count();
        let kept = asker.hot.tags.iter().filter(|&&tag| tag != 0).count();
        assert!(hits + kept < 200, "{hits} hits, {kept} kept");
    }

    #[test]
    fn long_targets_are_left_to_their_owners() {
        let mut hot = HotLinks::new();
        let (code, hash) = code(1);
        hot.keep(&code, hash, Policy::default(), &[b'x'; TARGET_BYTES_MAX + 1]);
        assert_eq!(hot.find(&code, hash, 0), None);
        hot.keep(&code, hash, Policy::default(), &[b'x'; TARGET_BYTES_MAX]);
        assert!(hot.find(&code, hash, 0).is_some());
    }

    #[test]
    fn a_copy_ends_with_its_link_and_none_is_made_of_what_is_counted() {
        let mut hot = HotLinks::new();
        let (code, hash) = code(1);
        let policy = Policy { valid_until_ms: Some(10), ..Policy::default() };
        hot.keep(&code, hash, policy, b"https://example.org/");
        assert!(hot.find(&code, hash, 9).is_some());
        assert_eq!(hot.find(&code, hash, 10), None);
        assert_eq!(hot.find(&code, hash, 9), None);
        let policy = Policy { max_visits: std::num::NonZeroU32::new(1), ..Policy::default() };
        hot.keep(&code, hash, policy, b"https://example.org/");
        assert_eq!(hot.find(&code, hash, 0), None);
    }
}
