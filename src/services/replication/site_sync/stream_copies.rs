//! The copy of streams of one kind from the other site, which has one stream for each origin. [`OriginStreams`] has the
//! requests of a kind. An entry keeps the number that its origin gave it, and each node takes it once, so a second copy does
//! no harm.

use std::time::{Duration, Instant};

use super::copies::{CopyPace, OpenCopies, OriginCopy};
use super::refusals::Refusals;
use crate::services::replication::redis::{OriginEntries, RedisError};
use carom_model::visits::origins::OriginId;

/// Interval between two looks at the origins of the other site.
const COPY_EVERY: Duration = Duration::from_secs(1);

/// Number of entries of one origin that one request asks for, each of at most a megabyte.
const COPY_COUNT: usize = 2;

/// The streams of one kind in the Redis of each site.
pub(super) trait OriginStreams {
    /// Number of requests for entries of one origin in one turn. The rest waits for the next turn.
    const ROUNDS_MAX: usize;

    /// Returns the number of the last entry that this site has of an origin; 0 if it has none.
    ///
    /// # Errors
    /// [`RedisError`] if the Redis of this site did not answer, or refused.
    fn last(&mut self, origin: OriginId) -> Result<u64, RedisError>;

    /// Returns for each origin the entries of the other site from that number on, at most `count`. Each result has the error of
    /// its own stream.
    fn behind(&mut self, wanted: &[(OriginId, u64)], count: usize) -> Vec<Result<OriginEntries, RedisError>>;

    /// Appends an entry to the stream of this site, and removes entries before the number `oldest` from it.
    ///
    /// # Errors
    /// [`RedisError`] if the Redis of this site did not answer, or refused. A stream refuses an entry if it has it or a later
    /// one.
    fn put(&mut self, origin: OriginId, number: u64, entry: &[u8], oldest: u64) -> Result<(), RedisError>;

    /// Counts an entry that was put.
    fn count(&self) {}

    /// Tells the nodes of this site up to which number it has the entries of an origin. Called once in a turn, after the
    /// entries: a node that reads the number looks for them.
    ///
    /// # Errors
    /// [`RedisError`] if the Redis of this site did not answer, or refused.
    fn note(&mut self, copy: &OriginCopy) -> Result<(), RedisError>;
}

/// The number up to which an origin has published, by its description in each site.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublishedNumbers {
    pub(super) origin: OriginId,
    /// The number in the other site.
    pub(super) theirs: u64,
    /// The number in this site; 0 without a description.
    pub(super) ours: u64,
}

/// The copier of streams of one kind, with what it remembers between turns.
#[derive(Debug)]
pub(super) struct StreamCopier {
    /// The time of the last look at the origins of the other site.
    looked: Option<Instant>,
    pace: CopyPace,
    refused: Refusals,
}

impl StreamCopier {
    /// Returns a copier of streams with that content, which the log names.
    pub(super) fn new(content: &'static str) -> StreamCopier {
        StreamCopier { looked: None, pace: CopyPace::default(), refused: Refusals::new(content) }
    }

    /// Returns true if it is time to look at the origins of the other site, and remembers that look.
    pub(super) fn is_due(&mut self) -> bool {
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= COPY_EVERY);
        if is_due {
            self.looked = Some(Instant::now());
        }
        is_due
    }

    /// Copies what the other site has of the origins that are ahead there, for at most [`OriginStreams::ROUNDS_MAX`] requests
    /// each. A site that refuses the stream of one origin does not stop the others.
    ///
    /// # Errors
    /// [`RedisError`] if a site did not answer, or this one refused a description. The next turn goes on.
    pub(super) fn copy<S: OriginStreams>(
        &mut self,
        numbers: &[PublishedNumbers],
        streams: &mut S,
    ) -> Result<(), RedisError> {
        let mut open = self.begin(numbers, streams)?;
        while let Some(some) = open.next(self.pace.together()) {
            let wanted: Vec<(OriginId, u64)> = some.iter().map(OriginCopy::wanted).collect();
            let answers = streams.behind(&wanted, COPY_COUNT);
            self.pace.hear(&answers);
            for (copy, behind) in some.into_iter().zip(answers) {
                let put = behind.and_then(|behind| put_entries(streams, copy, behind));
                let Some(copy) = self.refused.note(copy.origin, put)? else { continue };
                if open.again(copy) {
                    continue;
                }
                streams.note(&copy)?;
                self.refused.copied(copy.origin);
            }
        }
        Ok(())
    }

    /// Returns the copies of the origins that are ahead in the other site. An origin of this site is ahead here, unless this
    /// Redis has lost its data.
    fn begin<S: OriginStreams>(
        &mut self,
        numbers: &[PublishedNumbers],
        streams: &mut S,
    ) -> Result<OpenCopies, RedisError> {
        let mut open = OpenCopies::default();
        for PublishedNumbers { origin, theirs, ours } in numbers.iter().copied() {
            if theirs > ours {
                let last = streams.last(origin);
                let Some(last) = self.refused.note(origin, last)? else { continue };
                // A purge may have removed later entries that this site has had.
                open.add(OriginCopy { origin, last: last.max(ours), number: theirs, rounds: S::ROUNDS_MAX });
            }
        }
        Ok(open)
    }
}

/// Gives this site some entries of an origin. Returns the copy with its progress.
fn put_entries<S: OriginStreams>(
    streams: &mut S,
    mut copy: OriginCopy,
    behind: OriginEntries,
) -> Result<OriginCopy, RedisError> {
    let (origin, OriginEntries { first, entries }) = (copy.origin, behind);
    if entries.is_empty() {
        // Nodes note a gap for entries that no stream has.
        copy.end();
    }
    for (number, bytes) in entries {
        let put = streams.put(origin, number, &bytes, first.min(number));
        // A stream that has this entry or a later one refuses it.
        if let Err(error) = put
            && streams.last(origin)? < number
        {
            return Err(error);
        }
        streams.count();
        copy.has(number);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const ONE: OriginId = OriginId(1);
    const TWO: OriginId = OriginId(2);

    /// The streams of two sites in memory: the numbers of their entries.
    #[derive(Default)]
    struct FakeStreams {
        theirs: BTreeMap<OriginId, BTreeSet<u64>>,
        ours: BTreeMap<OriginId, BTreeSet<u64>>,
        /// The numbers that nodes of this site were told.
        noted: BTreeMap<OriginId, u64>,
        /// The origins whose entries this site refuses.
        refused: BTreeSet<OriginId>,
        /// True if the other site does not answer.
        is_away: bool,
        requests: usize,
        counted: Cell<u64>,
    }

    impl FakeStreams {
        fn with_theirs(theirs: &[(OriginId, u64)]) -> FakeStreams {
            let theirs = theirs.iter().map(|(origin, last)| (*origin, (1..=*last).collect())).collect();
            FakeStreams { theirs, ..FakeStreams::default() }
        }

        /// Returns the numbers as the other site describes them, beside those that this site was told.
        fn numbers(&self) -> Vec<PublishedNumbers> {
            let numbers = self.theirs.iter().map(|(origin, entries)| PublishedNumbers {
                origin: *origin,
                theirs: entries.last().copied().unwrap_or(9),
                ours: self.noted.get(origin).copied().unwrap_or_default(),
            });
            numbers.collect()
        }

        fn copy(&mut self, copier: &mut StreamCopier) -> Result<(), RedisError> {
            let numbers = self.numbers();
            copier.copy(&numbers, self)
        }
    }

    impl OriginStreams for FakeStreams {
        const ROUNDS_MAX: usize = 3;

        fn last(&mut self, origin: OriginId) -> Result<u64, RedisError> {
            Ok(self.ours.get(&origin).and_then(BTreeSet::last).copied().unwrap_or_default())
        }

        fn behind(&mut self, wanted: &[(OriginId, u64)], count: usize) -> Vec<Result<OriginEntries, RedisError>> {
            self.requests += 1;
            let behind = |(origin, from): &(OriginId, u64)| {
                if self.is_away {
                    return Err(RedisError::Unavailable { what: "no answer".to_owned(), was_sent: true });
                }
                let stream = &self.theirs[origin];
                let entries = stream.range(*from..).take(count).map(|number| (*number, vec![7])).collect();
                Ok(OriginEntries { first: stream.first().copied().unwrap_or_default(), entries })
            };
            wanted.iter().map(behind).collect()
        }

        fn put(&mut self, origin: OriginId, number: u64, _entry: &[u8], oldest: u64) -> Result<(), RedisError> {
            if self.refused.contains(&origin) || self.last(origin)? >= number {
                return Err(RedisError::Refused("ERR equal or smaller than the target".to_owned()));
            }
            let stream = self.ours.entry(origin).or_default();
            stream.insert(number);
            stream.retain(|number| *number >= oldest);
            Ok(())
        }

        fn count(&self) {
            self.counted.set(self.counted.get() + 1);
        }

        fn note(&mut self, copy: &OriginCopy) -> Result<(), RedisError> {
            self.noted.insert(copy.origin, copy.last);
            Ok(())
        }
    }

    #[test]
    fn entries_of_all_origins_are_copied() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 5), (TWO, 3)]);
        streams.ours.insert(TWO, BTreeSet::from([1]));
        streams.copy(&mut StreamCopier::new("visits")).unwrap();
        assert_eq!(streams.ours, streams.theirs);
        assert_eq!(streams.noted, BTreeMap::from([(ONE, 5), (TWO, 3)]));
        assert_eq!(streams.counted.get(), 7, "one for each entry that was put");
    }

    #[test]
    fn origins_that_are_not_ahead_are_not_asked_for() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 5)]);
        streams.noted.insert(ONE, 5);
        streams.copy(&mut StreamCopier::new("visits")).unwrap();
        assert_eq!(streams.requests, 0);
    }

    #[test]
    fn entries_removed_here_are_not_copied_again() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 5)]);
        streams.noted.insert(ONE, 4);
        streams.copy(&mut StreamCopier::new("visits")).unwrap();
        assert_eq!(streams.ours[&ONE], BTreeSet::from([5]));
    }

    #[test]
    fn rest_of_a_long_stream_waits_for_the_next_turn() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 10)]);
        let mut copier = StreamCopier::new("visits");
        streams.copy(&mut copier).unwrap();
        assert_eq!(streams.noted[&ONE], 6, "two entries in each of three requests");
        streams.copy(&mut copier).unwrap();
        assert_eq!(streams.noted[&ONE], 10);
        assert_eq!(streams.ours, streams.theirs);
    }

    #[test]
    fn copy_of_an_empty_stream_ends() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 0)]);
        streams.copy(&mut StreamCopier::new("visits")).unwrap();
        assert_eq!(streams.noted[&ONE], 9, "the number of its description");
        assert_eq!(streams.requests, 1);
    }

    #[test]
    fn refused_stream_stops_no_other_one() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 4), (TWO, 4)]);
        streams.refused.insert(ONE);
        streams.copy(&mut StreamCopier::new("visits")).unwrap();
        assert_eq!(streams.noted, BTreeMap::from([(TWO, 4)]));
        assert!(!streams.ours.contains_key(&ONE));
    }

    #[test]
    fn entry_that_this_site_has_by_now_is_no_refusal() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 2)]);
        let copy = OriginCopy { origin: ONE, last: 0, number: 2, rounds: 1 };
        let behind = streams.behind(&[copy.wanted()], COPY_COUNT).remove(0).unwrap();
        streams.ours.insert(ONE, BTreeSet::from([1]));
        let copy = put_entries(&mut streams, copy, behind).unwrap();
        assert!(copy.is_whole());
        assert_eq!(streams.ours[&ONE], BTreeSet::from([1, 2]));
    }

    #[test]
    fn site_that_does_not_answer_ends_the_turn() {
        let mut streams = FakeStreams::with_theirs(&[(ONE, 4), (TWO, 4)]);
        streams.is_away = true;
        assert!(streams.copy(&mut StreamCopier::new("visits")).is_err());
        assert_eq!(streams.requests, 1);
        assert!(streams.noted.is_empty());
    }

    #[test]
    fn second_look_waits_for_the_interval() {
        let mut copier = StreamCopier::new("visits");
        assert!(copier.is_due());
        assert!(!copier.is_due());
        copier.looked = Instant::now().checked_sub(COPY_EVERY);
        assert!(copier.is_due());
    }
}
