//! Copies of frequently requested links of other cores. A copy saves a round trip to the owner.
//!
//! The table has a fixed number of slots; twelve bits of a link's hash choose its slot. A second table,
//! [`RecentRequests`], has more slots, and remembers the last requested link of each. A link becomes a candidate for a
//! copy when it is requested while it is still remembered there. Evenly spread traffic makes almost no candidates, and
//! so leaves the copies alone. A candidate replaces the copy in its slot only if nobody has requested that copy since
//! the previous candidate.
//!
//! An owner recalls every copy before it acknowledges a change of its link ([`super::recalls`]). A copy expires
//! with its link. The table keeps no unknown codes and no links with a visit limit.

use carom_shards::{Code, CodeHash, Policy};

use carom_model::redirect::{BorrowedLookup, Destination, Lookup};

/// Bytes of the longest destination that the table keeps: one message of the mesh holds it.
pub(super) const COPY_DESTINATION_LEN_MAX: usize = 144;

const _: () = assert!(COPY_DESTINATION_LEN_MAX <= u8::MAX as usize, "a slot keeps the length in one byte");

/// Slots of the table. By Zipf's law, with ten million links, they serve half of all requests. They take 1 MiB.
const SLOTS: usize = 4_096;

/// Entries of the table of recently requested codes.
const RECENT_SLOTS: usize = 4 * SLOTS;

/// The hash whose recall drops all copies. A change of a link that has this hash by chance does so, too.
pub(super) const ALL_COPIES: CodeHash = CodeHash(0);

/// One core's copies of other cores' links.
#[derive(Debug)]
pub(super) struct LinkCopies {
    /// One tag for each slot: part of the link's hash, or zero if the slot is empty.
    tags: Box<[u32]>,
    slots: Box<[CopySlot]>,
}

#[derive(Clone, Debug)]
struct CopySlot {
    code: Code,
    policy: Policy,
    target_len: u8,
    /// True if a request came for it since another link last wanted its slot.
    referenced: bool,
    target: [u8; COPY_DESTINATION_LEN_MAX],
}

/// Returns the slot of a hash. Owners are chosen by the upper bits of a hash, so this uses the lower ones.
fn slot_of(hash: CodeHash) -> usize {
    hash.0 as usize % SLOTS
}

/// Returns the tag of a hash, which is never zero.
fn tag_of(hash: CodeHash) -> u32 {
    (hash.0 >> 16) as u32 | 1
}

impl LinkCopies {
    pub(super) fn new() -> LinkCopies {
        let nothing = CopySlot {
            code: Code::parse(b"0").expect("a code"),
            policy: Policy::default(),
            target_len: 0,
            referenced: false,
            target: [0; COPY_DESTINATION_LEN_MAX],
        };
        LinkCopies { tags: vec![0; SLOTS].into(), slots: vec![nothing; SLOTS].into() }
    }

    /// Returns the copy of a link, if the table has one that has not expired at `now_ms`.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, hash: CodeHash, now_ms: u64) -> Option<BorrowedLookup<'_>> {
        let at = slot_of(hash);
        if self.tags[at] != tag_of(hash) || self.slots[at].code != *code {
            return None;
        }
        let slot = &mut self.slots[at];
        if slot.policy.valid_until_ms.is_some_and(|until| until <= now_ms) {
            self.tags[at] = 0;
            return None;
        }
        debug_assert!(slot.policy.max_visits.is_none(), "only the owner may grant a limited visit");
        slot.referenced = true;
        let target = &slot.target[..usize::from(slot.target_len)];
        Some(Lookup::Live(Destination { policy: slot.policy, target }))
    }

    /// Keeps a copy of a link, unless the copy in its slot is in use, the destination is too long, or visits are
    /// limited.
    pub(super) fn keep(&mut self, code: &Code, hash: CodeHash, policy: Policy, target: &[u8]) {
        let at = slot_of(hash);
        let slot = &mut self.slots[at];
        let may_be_kept = target.len() <= COPY_DESTINATION_LEN_MAX && policy.max_visits.is_none();
        if !may_be_kept || (self.tags[at] != 0 && std::mem::take(&mut slot.referenced)) {
            return;
        }
        (slot.code, slot.policy, slot.referenced) = (*code, policy, false);
        slot.target_len = target.len() as u8;
        slot.target[..target.len()].copy_from_slice(target);
        self.tags[at] = tag_of(hash);
        debug_assert!(self.tags[at] != 0, "the copy would count as none");
    }

    /// Drops the copy of a link, if the table has one, or all of them ([`ALL_COPIES`]).
    pub(super) fn forget(&mut self, hash: CodeHash) {
        if hash == ALL_COPIES {
            self.tags.fill(0);
        }
        let at = slot_of(hash);
        if self.tags[at] == tag_of(hash) {
            self.tags[at] = 0;
        }
    }
}

/// A small table of the other cores' codes that this core was asked for recently.
#[derive(Debug)]
pub(super) struct RecentRequests {
    /// For each value of some bits of the hash, another part of the hash that was seen last.
    last: Box<[u16]>,
}

impl RecentRequests {
    pub(super) fn new() -> RecentRequests {
        RecentRequests { last: vec![0; RECENT_SLOTS].into() }
    }

    /// Records a request for a code without a copy. Returns true if its link should be kept when it arrives.
    #[inline]
    pub(super) fn note_request(&mut self, hash: CodeHash) -> bool {
        let this = (hash.0 >> 24) as u16;
        std::mem::replace(&mut self.last[hash.0 as usize % RECENT_SLOTS], this) == this
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
        hot: LinkCopies,
        seen: RecentRequests,
    }

    impl Asker {
        fn new() -> Asker {
            Asker { hot: LinkCopies::new(), seen: RecentRequests::new() }
        }

        /// Returns true if the table had a copy.
        fn ask(&mut self, number: usize) -> bool {
            let (code, hash) = code(number);
            let target = format!("https://example.org/{number}");
            if let Some(found) = self.hot.find(&code, hash, 0) {
                assert_eq!(found, Lookup::Live(Destination { policy: Policy::default(), target: target.as_bytes() }));
                return true;
            }
            if self.seen.note_request(hash) {
                self.hot.keep(&code, hash, Policy::default(), target.as_bytes());
            }
            false
        }
    }

    #[test]
    fn all_copies_go_at_once() {
        let mut copies = LinkCopies::new();
        let (first, second) = (code(1), code(2));
        for (code, hash) in [first, second] {
            copies.keep(&code, hash, Policy::default(), b"https://example.org/");
            assert!(copies.find(&code, hash, 0).is_some());
        }
        copies.forget(ALL_COPIES);
        assert!(copies.find(&first.0, first.1, 0).is_none());
        assert!(copies.find(&second.0, second.1, 0).is_none());
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
        // Enough codes that several share the few bits of each slot.
        let hits = (0..3 * 500_000).filter(|number| asker.ask(number % 500_000)).count();
        let kept = asker.hot.tags.iter().filter(|&&tag| tag != 0).count();
        assert!(hits + kept < 200, "{hits} hits, {kept} kept");
    }

    #[test]
    fn long_targets_are_left_to_their_owners() {
        let mut hot = LinkCopies::new();
        let (code, hash) = code(1);
        hot.keep(&code, hash, Policy::default(), &[b'x'; COPY_DESTINATION_LEN_MAX + 1]);
        assert_eq!(hot.find(&code, hash, 0), None);
        hot.keep(&code, hash, Policy::default(), &[b'x'; COPY_DESTINATION_LEN_MAX]);
        assert!(hot.find(&code, hash, 0).is_some());
    }

    #[test]
    fn a_copy_ends_with_its_link_and_none_is_made_of_what_is_counted() {
        let mut hot = LinkCopies::new();
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
