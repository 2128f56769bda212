//! Accounting of the visits of a limited link: pure arithmetic, without a disk or a clock.
//!
//! Visits are granted in *shares*, so that most of them need not wait for the disk. The stored number is an upper bound
//! of the visits that were granted. A crash loses at most the rest of a share.

use crate::link::LinkIdentity;

/// Maximum number of visits of one share: the most that a crash can take from a link.
pub const SHARE_MAX: u64 = 1_024;

/// Divisor of the remaining visits that bounds a share, so that a crash near the maximum loses little.
const SHARE_PART: u64 = 4;

/// The stored accounting of a limited link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredAllowance {
    /// The link that the numbers are about. Another link with the same code starts from zero.
    pub of: LinkIdentity,
    /// Visits that were granted: either made, or part of a share.
    pub taken: u64,
    /// Granted visits that no process holds in memory, so that the next process may use them.
    pub parked: u64,
}

/// A grant of visits of a link to this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VisitGrant {
    /// Visits granted to this node.
    pub given: u64,
    /// Visits granted in total, with these.
    pub taken: u64,
}

/// The visits of a limited link that a process holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    max: u64,
    /// Visits granted in total; in a fleet, as far as this node knows.
    taken: u64,
    /// Granted visits that are ready for use.
    left: u64,
    /// Granted visits that become ready once the store no longer has them as parked.
    parked: u64,
}

impl Share {
    /// Resumes the share of a link from its maximum, its stored numbers and its visits so far. `shared` is true if
    /// other nodes grant visits, too; a lowered maximum then takes back visits that this node holds.
    pub fn resume(max: u64, stored: StoredAllowance, followed: u64, shared: bool) -> Share {
        let made = (stored.taken - stored.parked.min(stored.taken)).max(followed);
        let parked = stored.parked.min(stored.taken);
        let parked = if !shared {
            parked.min(max.saturating_sub(made))
        } else if stored.taken > max {
            0
        } else {
            parked
        };
        let taken = if shared { stored.taken.max(made + parked) } else { made + parked };
        Share { max, taken, left: 0, parked }
    }

    /// Uses one visit. Returns false if none is ready.
    pub fn take_one(&mut self) -> bool {
        let is_free = self.left > 0;
        self.left -= u64::from(is_free);
        is_free
    }

    /// Returns the number of visits to request while `waiting` visits wait; 0 if all are granted.
    pub fn wanted(&self, waiting: usize) -> u64 {
        let rest = self.max.saturating_sub(self.taken);
        (waiting as u64).max(rest / SHARE_PART).min(SHARE_MAX).min(rest)
    }

    /// True if the share has parked visits, which are used before new ones.
    pub fn has_parked(&self) -> bool {
        self.parked > 0
    }

    /// Records a grant.
    pub fn give(&mut self, VisitGrant { given, taken }: VisitGrant) {
        self.left += given;
        self.taken = self.taken.max(taken);
    }

    /// Makes the parked visits ready for use.
    pub fn unpark(&mut self) {
        self.left += std::mem::take(&mut self.parked);
    }

    /// Returns the visits granted in total.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the maximum number of visits.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the numbers to store while this process uses the share.
    pub fn stored(&self, of: LinkIdentity) -> StoredAllowance {
        StoredAllowance { of, taken: self.taken, parked: 0 }
    }

    /// Returns the numbers to store when the process stops; `None` if the share has nothing left.
    pub fn parked(&self, of: LinkIdentity) -> Option<StoredAllowance> {
        (self.left > 0).then_some(StoredAllowance { of, taken: self.taken, parked: self.left + self.parked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A step in the life of a limited link on a single node.
    #[derive(Clone, Debug)]
    enum Step {
        /// A number of visits that arrive at once.
        Ask(usize),
        /// The process stops, and stores what is left.
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
            let resume = |max: u32, stored, followed| Share::resume(u64::from(max), stored, followed, false);
            let of = LinkIdentity { created_ms: 1, claim: 2 };
            let (mut max, mut followed, mut killed) = (first, before, false);
            let mut stored = StoredAllowance { of, ..StoredAllowance::default() };
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
                            let taken = share.taken() + given;
                            share.give(VisitGrant { given, taken });
                        }
                        // The store has the grant before any visit uses it.
                        stored = share.stored(of);
                    },
                    Step::Park => {
                        stored = share.parked(of).unwrap_or(stored);
                        share = resume(max, stored, followed);
                    }
                    Step::Kill => {
                        killed = true;
                        // No visit counted since the maximum was set.
                        share = resume(max, stored, before);
                    }
                    Step::Change(to) => {
                        stored = share.parked(of).unwrap_or(stored);
                        // Visits under a higher maximum were allowed at the time.
                        max = to.max(followed as u32).max(1);
                        share = resume(max, stored, followed);
                    }
                }
            }
        }
    }

    #[test]
    fn a_fleet_takes_back_what_a_lower_maximum_does_not_allow() {
        let of = LinkIdentity::default();
        let share = |max: u32| Share::resume(u64::from(max), StoredAllowance { of, taken: 80, parked: 5 }, 75, true);
        assert!(share(100).has_parked());
        assert!(!share(79).has_parked());
        assert_eq!((share(100).taken(), share(79).wanted(3), share(90).wanted(3)), (80, 0, 3));
    }
}
