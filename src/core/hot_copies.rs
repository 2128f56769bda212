//! Copies of other cores' links that this core is asked for again and again. A copy saves the question to the owner.
//!
//! The table has a fixed size and one place for each value of twelve bits of the hash. A link is admitted when it is
//! requested twice with no other link of the same few bits in between. Evenly spread traffic therefore leaves the table
//! alone. A link that is admitted replaces the copy in its place only if that copy was not requested since the last
//! link that tried.
//!
//! An owner recalls every copy before it acknowledges a change of its link ([`super::recall`]). A copy expires with its
//! link. The table keeps no unknown codes and no links with a visit limit.

use carom_shards::{Code, CodeHash, Policy};

use carom_model::redirect::{BorrowedLookup, Destination, Lookup};

/// Bytes of the longest destination that the table keeps: one message of the mesh holds it.
pub(super) const TARGET_BYTES_MAX: usize = 144;

const _: () = assert!(TARGET_BYTES_MAX <= u8::MAX as usize, "a place keeps the length in one byte");

/// HostRouter in the table. By Zipf's law with ten million links they serve half of all requests. They take 1 MiB.
const PLACES: usize = 4_096;

/// Entries of the table of recently requested codes.
const SEEN: usize = 4 * PLACES;

/// One core's copies of other cores' links.
#[derive(Debug)]
pub(super) struct HotLinks {
    /// One tag for each place: part of the link's hash, or zero if the place is empty.
    tags: Box<[u32]>,
    places: Box<[HotSlot]>,
}

#[derive(Clone, Debug)]
struct HotSlot {
    code: Code,
    policy: Policy,
    target_len: u8,
    /// True if a request came for it since another link last wanted its place.
    asked: bool,
    target: [u8; TARGET_BYTES_MAX],
}

/// Returns the place of a hash. Owners are chosen by the upper bits of a hash, so this uses the lower ones.
fn place_of(hash: CodeHash) -> usize {
    hash.0 as usize % PLACES
}

/// Returns the tag of a hash, which is never zero.
fn tag_of(hash: CodeHash) -> u32 {
    (hash.0 >> 16) as u32 | 1
}

impl HotLinks {
    pub(super) fn new() -> HotLinks {
        let nothing = HotSlot {
            code: Code::parse(b"0").expect("a code"),
            policy: Policy::default(),
            target_len: 0,
            asked: false,
            target: [0; TARGET_BYTES_MAX],
        };
        HotLinks { tags: vec![0; PLACES].into(), places: vec![nothing; PLACES].into() }
    }

    /// Returns the copy of a link, if the table has one that has not expired at `now_ms`.
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
        debug_assert!(place.policy.max_visits.is_none(), "only the owner may grant a limited visit");
        place.asked = true;
        let target = &place.target[..usize::from(place.target_len)];
        Some(Lookup::Live(Destination { policy: place.policy, target }))
    }

    /// Keeps a copy of a link, unless the copy in its place is in use, the destination is too long, or visits are
    /// limited.
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
        debug_assert!(self.tags[at] != 0, "the copy would count as none");
    }

    /// Drops the copy of a link, if the table has one.
    pub(super) fn forget(&mut self, hash: CodeHash) {
        let at = place_of(hash);
        if self.tags[at] == tag_of(hash) {
            self.tags[at] = 0;
        }
    }
}

/// A small table of the other cores' codes that this core was asked for recently.
#[derive(Debug)]
pub(super) struct Sightings {
    /// For each value of some bits of the hash, another part of the hash that was seen last.
    last: Box<[u16]>,
}

impl Sightings {
    pub(super) fn new() -> Sightings {
        Sightings { last: vec![0; SEEN].into() }
    }

    /// Records a request for a code without a copy. Returns true if its link should be kept when it arrives.
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

    /// A core's table. Whatever it lacks comes from the owner, and is kept if it is wanted.
    struct Asker {
        hot: HotLinks,
        seen: Sightings,
    }

    impl Asker {
        fn new() -> Asker {
            Asker { hot: HotLinks::new(), seen: Sightings::new() }
        }

        /// Returns true if the table had a copy.
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
            // Two thousand other codes, each requested twice in a row: all of them are admitted.
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
        // Enough codes that several share the few bits of each place.
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
