//! The states that a node without a copy of all links stores for a while after Redis has them: Redis could still lose
//! them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use carom_shards::Code;

use crate::replication::Partition;

/// The codes without an entry in the outbox whose states a node keeps for a while.
#[derive(Clone, Default, Debug)]
pub(super) struct Settling {
    /// Codes that lost their entry since the last call of [`Settling::settle`].
    left: Vec<Code>,
    /// Codes in the order of the calls of [`Settling::settle`] that took them from `left`.
    waiting: VecDeque<(Duration, Code)>,
    /// The instant of the last such call for each code that is kept.
    latest: HashMap<Code, Duration>,
    /// The codes of the last stream entries that this node has applied, as in the outbox.
    applied: VecDeque<Code>,
}

impl Settling {
    /// Adds a code that has lost its entry.
    pub(super) fn add(&mut self, code: Code) {
        self.left.push(code);
    }

    /// Removes a code whose state is not stored.
    pub(super) fn remove(&mut self, code: &Code) {
        self.left.retain(|left| left != code);
        self.latest.remove(code);
    }

    /// True if a code is kept since the last call of [`Settling::settle`] or longer.
    pub(super) fn has(&self, code: &Code) -> bool {
        self.latest.contains_key(code)
    }

    /// Returns the number of codes. One that was added again counts several times.
    pub(super) fn len(&self) -> usize {
        self.left.len() + self.waiting.len()
    }

    /// Removes the codes of a partition, and returns them in their order.
    pub(super) fn take_of(&mut self, partition: Partition) -> Vec<Code> {
        let is_of = |code: &Code| Partition::of(code) == partition;
        let mut taken: Vec<Code> = self.left.extract_if(.., |code| is_of(code)).collect();
        self.waiting.retain(|(_, code)| !is_of(code));
        taken.extend(self.latest.keys().copied().filter(is_of));
        self.latest.retain(|code, _| !is_of(code));
        taken.sort_unstable();
        taken.dedup();
        taken
    }

    /// Removes the codes that were added up to the instant `until`, and returns them. Codes that were added since the last
    /// call count as added at `now`.
    pub(super) fn settle(&mut self, now: Duration, until: Duration) -> Vec<Code> {
        for code in self.left.drain(..) {
            self.waiting.push_back((now, code));
            self.latest.insert(code, now);
        }
        let mut settled = Vec::new();
        while let Some((at, code)) = self.waiting.front().copied().filter(|(at, _)| *at <= until) {
            self.waiting.pop_front();
            // A code that has lost another entry since waits for longer.
            if self.latest.get(&code) == Some(&at) {
                self.latest.remove(&code);
                settled.push(code);
            }
        }
        settled
    }

    /// Records the code of a stream entry that this node has applied. Forgets the first one if `is_full`.
    pub(super) fn note_applied(&mut self, code: Code, is_full: bool) {
        self.applied.push_back(code);
        if is_full {
            self.applied.pop_front();
        }
    }

    /// True if an entry after the one at this index has the code.
    pub(super) fn was_applied_after(&self, at: usize, code: &Code) -> bool {
        self.applied.iter().skip(at + 1).any(|applied| applied == code)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outbox;
    use super::*;
    use crate::replication::follow::StreamPosition;
    use crate::replication::{Echo, EntryId};

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    fn echo(seq: u64) -> Echo {
        Echo { partition: Partition(3), id: EntryId { ms: 1, seq }, check: seq }
    }

    /// Returns the position of that entry.
    fn at(seq: u64) -> StreamPosition {
        StreamPosition { id: echo(seq).id, check: seq }
    }

    #[test]
    fn a_state_settles_once_redis_has_kept_it() {
        let seconds = Duration::from_secs;
        let mut outbox = Outbox::default().with_settling();
        outbox.note(code("a"), Some(echo(5)));
        assert_eq!(outbox.settle(seconds(1), seconds(1)), [], "the stream has not shown it");
        outbox.note_seen(echo(5));
        assert_eq!(outbox.settle(seconds(2), seconds(1)), [], "that was just now");
        assert_eq!(outbox.settling(), 1);
        assert_eq!(outbox.settle(seconds(20), seconds(2)), [code("a")]);
        assert_eq!(outbox.settling(), 0);
        // A further change restarts the wait.
        outbox.note(code("a"), Some(echo(6)));
        outbox.note_seen(echo(6));
        assert_eq!(outbox.settle(seconds(30), seconds(20)), []);
        outbox.note(code("a"), Some(echo(7)));
        assert_eq!(outbox.settle(seconds(45), seconds(35)), [], "it is on its way");
        outbox.note_seen(echo(7));
        assert_eq!(outbox.settle(seconds(50), seconds(40)), []);
        assert_eq!(outbox.settle(seconds(60), seconds(50)), [code("a")]);
    }

    #[test]
    fn a_lost_position_sends_settling_states_again() {
        let mut outbox = Outbox::default().with_settling();
        let of = Partition::of(&code("a"));
        let (first, second) = (Echo { partition: of, ..echo(5) }, Echo { partition: of, ..echo(6) });
        outbox.note(code("a"), Some(first));
        outbox.note_seen(first);
        outbox.settle(Duration::from_secs(1), Duration::ZERO);
        outbox.note_lost_position(of, at(9));
        assert!(outbox.is_undelivered(&code("a")), "Redis may have lost it");
        let delivery = outbox.take_deliveries()[0];
        assert_eq!((delivery.code, outbox.settling()), (code("a"), 0));
        outbox.note_accepted(delivery, Echo { id: EntryId { ms: 2, seq: 0 }, ..second });
        assert_eq!(outbox.undelivered(), 0);
        let mut all = Outbox::default();
        all.note(code("a"), Some(first));
        all.note_seen(first);
        all.note_lost_position(of, at(9));
        assert!(all.is_empty(), "a comparison finds the loss");
    }

    #[test]
    fn a_state_that_is_not_stored_is_not_kept() {
        let seconds = Duration::from_secs;
        let mut outbox = Outbox::default().with_settling();
        let (stored, other) = (code("a"), code("b"));
        outbox.begin_settling(stored);
        outbox.begin_settling(other);
        assert_eq!(outbox.settle(seconds(1), seconds(0)), []);
        assert!(outbox.is_settling(&stored));
        outbox.stop_settling(&other);
        assert!(!outbox.is_settling(&other));
        outbox.note_lost_position(Partition::of(&other), at(9));
        assert!(!outbox.has(&other), "an entry without a state would never be delivered");
        let kept = if Partition::of(&other) == Partition::of(&stored) { vec![] } else { vec![stored] };
        assert_eq!(outbox.settle(seconds(20), seconds(10)), kept);
    }

    #[test]
    fn a_state_that_redis_reported_is_left_to_its_node() {
        let mut outbox = Outbox::default().with_settling();
        outbox.note(code("a"), None);
        outbox.note_reported(code("a"));
        assert!(!outbox.has(&code("a")), "the node that made the change sends it again");
        let mut all = Outbox::default();
        all.note_reported(code("a"));
        assert!(all.has(&code("a")), "perhaps no other node would send it again");
    }

    #[test]
    fn later_entries_of_a_code_are_known() {
        let mut outbox = Outbox::default().with_settling();
        outbox.note_applied(echo(5), code("a"));
        outbox.note_applied(echo(6), code("b"));
        assert!(!outbox.was_superseded(echo(5), &code("a")));
        outbox.note_applied(echo(7), code("a"));
        assert!(outbox.was_superseded(echo(5), &code("a")));
        assert!(!outbox.was_superseded(echo(7), &code("a")));
        assert!(!outbox.was_superseded(echo(6), &code("b")));
        let mut all = Outbox::default();
        all.note_applied(echo(5), code("a"));
        all.note_applied(echo(7), code("a"));
        assert!(!all.was_superseded(echo(5), &code("a")), "the node has the newest state");
    }
}
