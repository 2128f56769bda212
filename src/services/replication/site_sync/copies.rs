//! Copies of the streams of many origins. The other site is asked for several of them at once, so the round trip to it
//! counts once for all of these.

use std::collections::VecDeque;

use crate::services::replication::redis::{OriginEntries, RedisError};
use carom_model::visits::origins::OriginId;

/// Origins that are asked for at once, at most.
const TOGETHER_MAX: usize = 64;

/// Origins that are asked for at once at first.
const TOGETHER_FIRST: usize = 8;

/// Bytes of one answer beyond which fewer origins are asked for: a slow connection takes them in less than the timeout.
const BYTES: usize = 2 << 20;

/// The copy of the stream of one origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OriginCopy {
    pub(super) origin: OriginId,
    /// The number of the last entry that this site has.
    pub(super) last: u64,
    /// The number up to which the origin has published.
    pub(super) number: u64,
    /// Number of times that the other site may still be asked for entries in this turn.
    pub(super) rounds: usize,
}

impl OriginCopy {
    /// Returns the origin, and the number of the first entry that this site lacks.
    pub(super) fn wanted(&self) -> (OriginId, u64) {
        (self.origin, self.last + 1)
    }

    /// Notes that this site has an entry.
    pub(super) fn has(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// Notes that the other stream has no further entry.
    pub(super) fn end(&mut self) {
        self.has(self.number);
    }

    /// True if this site has everything that the other stream has.
    pub(super) fn is_whole(&self) -> bool {
        self.last >= self.number
    }
}

/// The copies of one turn that are not complete.
#[derive(Debug, Default)]
pub(super) struct OpenCopies(VecDeque<OriginCopy>);

impl OpenCopies {
    /// Adds a copy that begins.
    pub(super) fn add(&mut self, copy: OriginCopy) {
        self.0.push_back(copy);
    }

    /// Returns the next copies for one request, at most `together`; `None` if all have ended.
    pub(super) fn next(&mut self, together: usize) -> Option<Vec<OriginCopy>> {
        let some: Vec<OriginCopy> = self.0.drain(..together.min(self.0.len())).collect();
        (!some.is_empty()).then_some(some)
    }

    /// Takes a copy back after a request, behind the others. Returns false if it ends: it is complete, or the rest waits for
    /// the next turn.
    pub(super) fn again(&mut self, mut copy: OriginCopy) -> bool {
        copy.rounds = copy.rounds.saturating_sub(1);
        let goes_on = copy.rounds > 0 && !copy.is_whole();
        if goes_on {
            self.0.push_back(copy);
        }
        goes_on
    }
}

/// The number of origins that are asked for at once, by the sizes of earlier answers.
#[derive(Debug)]
pub(super) struct CopyPace(usize);

impl Default for CopyPace {
    fn default() -> CopyPace {
        CopyPace(TOGETHER_FIRST)
    }
}

impl CopyPace {
    /// Returns the number of origins to ask for.
    pub(super) fn together(&self) -> usize {
        self.0
    }

    /// Takes the answers to a request. An answer that is large, or late, makes the next one smaller.
    pub(super) fn hear(&mut self, answers: &[Result<OriginEntries, RedisError>]) {
        let is_late = answers.iter().any(|answer| matches!(answer, Err(RedisError::Unavailable { .. })));
        let entries = answers.iter().flatten().flat_map(|behind| &behind.entries);
        let bytes: usize = entries.map(|(_, bytes)| bytes.len()).sum();
        if is_late || bytes > BYTES {
            self.0 = (self.0 / 2).max(1);
        } else if bytes <= BYTES / 2 {
            self.0 = (self.0 * 2).min(TOGETHER_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Result<OriginEntries, RedisError> {
        Ok(OriginEntries { first: 1, entries: vec![(1, vec![0; bytes / 2]), (2, vec![0; bytes / 2])] })
    }

    fn origins(some: Option<Vec<OriginCopy>>) -> Vec<u64> {
        some.into_iter().flatten().map(|copy| copy.origin.0).collect()
    }

    #[test]
    fn origins_take_turns() {
        let mut open = OpenCopies::default();
        (1..=3).for_each(|origin| open.add(OriginCopy { origin: OriginId(origin), last: 0, number: 9, rounds: 2 }));
        let first = open.next(2).unwrap();
        assert_eq!(first.iter().map(OriginCopy::wanted).collect::<Vec<_>>(), [(OriginId(1), 1), (OriginId(2), 1)]);
        for mut copy in first {
            copy.has(4);
            assert!(open.again(copy));
        }
        assert_eq!(origins(open.next(1)), [3]);
        let second = open.next(64).unwrap();
        assert_eq!(second.iter().map(OriginCopy::wanted).collect::<Vec<_>>(), [(OriginId(1), 5), (OriginId(2), 5)]);
        for copy in second {
            assert!(!open.again(copy), "the rest waits for the next turn");
            assert!(!copy.is_whole());
        }
        assert_eq!(open.next(1), None);
    }

    #[test]
    fn copies_end_with_the_other_stream() {
        let (mut open, mut copy) =
            (OpenCopies::default(), OriginCopy { origin: OriginId(1), last: 3, number: 9, rounds: 5 });
        copy.has(2);
        assert_eq!(copy.last, 3, "this site has more");
        copy.end();
        assert_eq!(copy.last, 9, "no stream has the rest");
        assert!(copy.is_whole());
        assert!(!open.again(copy));
        assert_eq!(open.next(1), None);
    }

    #[test]
    fn small_answers_let_more_origins_share_a_request() {
        let mut pace = CopyPace::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            pace.hear(&[answer(100), Err(RedisError::Refused("WRONGTYPE".to_owned()))]);
            seen.push(pace.together());
        }
        assert_eq!(seen, [16, 32, 64, 64]);
    }

    #[test]
    fn large_or_late_answers_are_shared_by_fewer() {
        let mut pace = CopyPace::default();
        pace.hear(&[answer(BYTES), answer(2)]);
        assert_eq!(pace.together(), 4);
        pace.hear(&[answer(BYTES / 2), answer(2)]);
        assert_eq!(pace.together(), 4, "twice as many would be too much");
        for _ in 0..3 {
            pace.hear(&[Err(RedisError::Unavailable { what: "late".to_owned(), was_sent: true })]);
        }
        assert_eq!(pace.together(), 1);
        pace.hear(&[answer(2)]);
        assert_eq!(pace.together(), 2);
    }
}
