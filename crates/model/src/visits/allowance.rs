//! How many visits of a limited link are given out and left: arithmetic, without a disk or a clock.
//!
//! Visits are given out in *shares*, so that not each of them waits for the disk. What is stored says how many were given
//! out at most; what a crash takes is the rest of a share, never more.

use std::num::NonZeroU32;

/// Most visits of one share: what a crash may take from a link.
pub const SHARE_MAX: u64 = 1_024;

/// A share is at most this part of what is left, so that a crash near the end takes little.
const SHARE_PART: u64 = 4;

/// Which link the numbers are about: another link of the same code begins anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// When it was made, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// Its claim among the links of a fleet.
    pub claim: u64,
}

/// What is stored of a limited link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// Which link.
    pub of: Identity,
    /// Visits that were given out: made, or in somebody's share.
    pub taken: u64,
    /// How many of these are in no process's memory, so that the next one may have them.
    pub parked: u64,
}

/// The visits of a limited link, as a process has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    max: u64,
    /// Given out in all; in a fleet as far as this node has heard.
    taken: u64,
    /// Of these: free to be used.
    left: u64,
    /// Of these: free once it is stored that they are not parked any more.
    parked: u64,
}

impl Share {
    /// The share of a link, from what is stored and how often it was followed so far. `shared` is whether other nodes give
    /// out visits, too: then a lower maximum than before takes back what this one has.
    pub fn resume(max: NonZeroU32, stored: Stored, followed: u64, shared: bool) -> Share {
        let max = u64::from(max.get());
        let made = (stored.taken - stored.parked.min(stored.taken)).max(followed);
        let parked = stored.parked.min(stored.taken);
        let parked = match shared {
            true if stored.taken > max => 0,
            true => parked,
            false => parked.min(max.saturating_sub(made)),
        };
        let taken = if shared { stored.taken.max(made + parked) } else { made + parked };
        Share { max, taken, left: 0, parked }
    }

    /// Uses one visit, if one is free.
    pub fn take_one(&mut self) -> bool {
        let is_free = self.left > 0;
        self.left -= u64::from(is_free);
        is_free
    }

    /// How many more visits this node gives itself, where so many wait for one. None: all are given out.
    pub fn wanted(&self, waiting: usize) -> u64 {
        let rest = self.max.saturating_sub(self.taken);
        (waiting as u64).max(rest / SHARE_PART).min(SHARE_MAX).min(rest)
    }

    /// Whether visits lie parked, which are used before others.
    pub fn has_parked(&self) -> bool {
        self.parked > 0
    }

    /// More visits were given out: so many to this node, and in all so many then.
    pub fn give(&mut self, given: u64, taken: u64) {
        self.left += given;
        self.taken = self.taken.max(taken);
    }

    /// Gives visits to this node that were not given out before.
    pub fn give_here(&mut self, given: u64) {
        self.give(given, self.taken + given);
    }

    /// What is parked is free from now on.
    pub fn unpark(&mut self) {
        self.left += std::mem::take(&mut self.parked);
    }

    /// Visits given out in all.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The maximum.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// What is to be stored while this process uses the share.
    pub fn stored(&self, of: Identity) -> Stored {
        Stored { of, taken: self.taken, parked: 0 }
    }

    /// What is to be stored when it stops to; `None` where it has nothing to leave.
    pub fn parked(&self, of: Identity) -> Option<Stored> {
        (self.left > 0).then_some(Stored { of, taken: self.taken, parked: self.left + self.parked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What happens to a link of a node that is alone.
    #[derive(Clone, Debug)]
    enum Step {
        /// So many ask at once.
        Ask(usize),
        /// The process ends, and what it has left is stored.
        Park,
        /// The process is killed.
        Kill,
        /// The maximum changes.
        Change(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1usize..40).prop_map(Step::Ask),
            1 => Just(Step::Park),
            1 => Just(Step::Kill),
            1 => (1u32..300).prop_map(Step::Change),
        ]
    }

    proptest! {
        #[test]
        fn never_more_than_the_maximum_and_all_of_it_if_nobody_is_killed(
            first in 1u32..300,
            before in 0u64..50,
            steps in proptest::collection::vec(any_step(), 1..60),
        ) {
            let resume = |max: u32, stored, followed| Share::resume(NonZeroU32::new(max).unwrap(), stored, followed, false);
            let of = Identity { created_ms: 1, claim: 2 };
            let (mut max, mut followed, mut killed) = (first, before, false);
            let mut stored = Stored { of, ..Stored::default() };
            let mut share = resume(max, stored, followed);
            for step in steps {
                match step {
                    Step::Ask(mut waiting) => loop {
                        while waiting > 0 && share.take_one() {
                            (waiting, followed) = (waiting - 1, followed + 1);
                            prop_assert!(followed <= u64::from(max).max(before));
                        }
                        if waiting == 0 {
                            break;
                        }
                        if share.has_parked() {
                            share.unpark();
                        } else {
                            let given = share.wanted(waiting);
                            if given == 0 {
                                prop_assert!(killed || followed >= u64::from(max), "{followed} of {max}");
                                break;
                            }
                            share.give_here(given);
                        }
                        // Before any of it is used.
                        stored = share.stored(of);
                    },
                    Step::Park => {
                        stored = share.parked(of).unwrap_or(stored);
                        share = resume(max, stored, followed);
                    }
                    Step::Kill => {
                        killed = true;
                        // Nothing was counted since the maximum was set.
                        share = resume(max, stored, before);
                    }
                    Step::Change(to) => {
                        stored = share.parked(of).unwrap_or(stored);
                        // What was followed under a higher maximum was right then.
                        max = to.max(followed as u32).max(1);
                        share = resume(max, stored, followed);
                    }
                }
            }
        }
    }

    #[test]
    fn a_fleet_takes_back_what_a_lower_maximum_does_not_allow() {
        let of = Identity::default();
        let share =
            |max: u32| Share::resume(NonZeroU32::new(max).unwrap(), Stored { of, taken: 80, parked: 5 }, 75, true);
        assert!(share(100).has_parked() && !share(79).has_parked());
        assert_eq!((share(100).taken(), share(79).wanted(3), share(90).wanted(3)), (80, 0, 3));
    }
}
