//! Changes that wait until no other core holds a copy of the changed link.
//!
//! A core keeps copies of other cores' hot links ([`super::hot_copies`]). When an owner changes a link, it asks every
//! other core to drop its copy. It answers the requester of the change once all of them have. The request to drop goes
//! through the same ring as the owner's answers, so an older answer cannot arrive after the recall.

use std::collections::HashMap;

use carom_shards::CodeHash;

use crate::bridge::WriterReply;

/// The waiting changes of one owner.
#[derive(Debug, Default)]
pub(super) struct PendingRecalls {
    last: u64,
    waiting: HashMap<u64, PendingRecall>,
    /// Number of waiting changes for each code.
    codes: HashMap<CodeHash, usize>,
}

#[derive(Debug)]
struct PendingRecall {
    hash: CodeHash,
    /// Cores that have not dropped their copy yet.
    remaining_cores: usize,
    /// The answer to send at the end; `None` if another node made the change.
    answer: Option<WriterReply>,
}

impl PendingRecalls {
    /// True if a change of this code waits, so that some core may still hold an older copy.
    pub(super) fn has(&self, hash: CodeHash) -> bool {
        !self.codes.is_empty() && self.codes.contains_key(&hash)
    }

    /// Adds a change that `peers` other cores must confirm. Returns its number.
    pub(super) fn begin(&mut self, hash: CodeHash, peers: usize, answer: Option<WriterReply>) -> u64 {
        assert!(peers > 0, "no core would ever confirm the change");
        self.last += 1;
        self.waiting.insert(self.last, PendingRecall { hash, remaining_cores: peers, answer });
        *self.codes.entry(hash).or_default() += 1;
        self.assert_counted();
        self.last
    }

    /// Notes that one core has dropped its copy. Returns the answer to send if it was the last.
    pub(super) fn confirm_dropped(&mut self, number: u64) -> Option<WriterReply> {
        let recall = self.waiting.get_mut(&number)?;
        assert!(recall.remaining_cores > 0, "a core has confirmed the change twice");
        recall.remaining_cores -= 1;
        if recall.remaining_cores > 0 {
            return None;
        }
        let recall = self.waiting.remove(&number)?;
        assert!(self.codes.contains_key(&recall.hash), "a later change of the code would not wait for this one");
        if let Some(others) = self.codes.get_mut(&recall.hash) {
            *others -= 1;
            if *others == 0 {
                self.codes.remove(&recall.hash);
            }
        }
        self.assert_counted();
        recall.answer
    }

    /// Asserts that each waiting change counts for its code.
    fn assert_counted(&self) {
        assert!(self.codes.len() <= self.waiting.len(), "a code waits for no change");
        debug_assert_eq!(self.codes.values().sum::<usize>(), self.waiting.len(), "a waiting change counts for no code");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{DeleteAnswer, Ticket, WriterAnswer};
    use carom_shards::CoreId;

    #[test]
    fn the_last_core_releases_the_answer() {
        let mut recalls = PendingRecalls::default();
        let reply = |token| DeleteAnswer::Deleted.to(Ticket::new(CoreId(0), token));
        let (one, other) = (CodeHash(1), CodeHash(2));
        let first = recalls.begin(one, 2, Some(reply(1)));
        let second = recalls.begin(one, 1, Some(reply(2)));
        assert_eq!(recalls.confirm_dropped(first), None);
        assert_eq!(recalls.confirm_dropped(second), Some(reply(2)));
        assert!(recalls.has(one));
        assert!(!recalls.has(other));
        assert_eq!(recalls.confirm_dropped(first), Some(reply(1)));
        assert_eq!(recalls.confirm_dropped(first), None);
        assert!(!recalls.has(one));
    }
}
