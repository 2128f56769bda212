//! One turn through the streams of all other origins: the order in which they are read, and what is missing of each.
//!
//! [`OtherOrigins`] keeps the rules, and `count_exchange` has the streams.

use std::time::Duration;

use super::unfinished::Unfinished;
use carom_model::visits::count_exchange::{CountsLack, OtherOrigins};
use carom_model::visits::origins::OriginId;

/// An origin as Redis describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotedOrigin<'n> {
    /// The identity of the origin.
    pub(super) id: OriginId,
    /// The number of its last batch.
    pub(super) number: u64,
    /// The name of its node.
    pub(super) node: &'n str,
}

/// The streams of other origins, and the snapshots of them.
pub(super) trait OtherStreams {
    /// Returns the number of the last batch of an origin that counts here.
    fn counted(&self, id: OriginId) -> u64;

    /// True if a snapshot of an origin is being received.
    fn is_receiving(&self, id: OriginId) -> bool;

    /// Applies the batches of an origin that Redis has. Returns the reason if some are missing after that. `is_held` is
    /// true if they waited in Redis at the last turn.
    fn read(&mut self, origin: NotedOrigin<'_>, is_held: bool) -> Result<Option<CountsLack>, Unfinished>;

    /// Asks for a snapshot of an origin. Returns false if one of another origin is being received.
    fn ask(&mut self, origin: NotedOrigin<'_>) -> Result<bool, Unfinished>;
}

/// Reads the streams of `origins` in turn, and asks for a snapshot of the first origin that has lacked a batch for long.
/// Ends with the first stream that cannot be read.
pub(super) fn follow(
    others: &mut OtherOrigins,
    mut origins: Vec<NotedOrigin<'_>>,
    streams: &mut impl OtherStreams,
    now: impl Fn() -> Duration,
) -> Result<(), Unfinished> {
    // Neither a snapshot that no node can send nor a stream whose server is away may keep the others waiting.
    origins.sort_by_key(|origin| others.tried(origin.id));
    for origin in origins {
        let id = origin.id;
        if streams.is_receiving(id) {
            continue;
        }
        let mut lack = None;
        if others.is_read(id, streams.counted(id), now()) {
            let read = streams.read(origin, others.is_held(id));
            lack = read.inspect_err(|_| others.note_tried(id, now()))?;
        }
        match lack {
            None => others.is_whole(id),
            Some(CountsLack::Missing) => {
                if others.is_late(id, now()) && streams.ask(origin)? {
                    others.note_tried(id, now());
                }
            }
            Some(why) => others.hold(id, why, now()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_store::links::StoreError;

    /// Streams with one batch each, and the origins that were read and asked for.
    #[derive(Default)]
    struct FakeStreams {
        away: Vec<OriginId>,
        missing: Vec<OriginId>,
        unstored: Vec<OriginId>,
        read: Vec<OriginId>,
        asked: Vec<OriginId>,
    }

    impl OtherStreams for FakeStreams {
        fn counted(&self, _: OriginId) -> u64 {
            0
        }

        fn is_receiving(&self, _: OriginId) -> bool {
            false
        }

        fn read(&mut self, origin: NotedOrigin<'_>, _: bool) -> Result<Option<CountsLack>, Unfinished> {
            self.read.push(origin.id);
            if self.away.contains(&origin.id) {
                return Err(Unfinished::Store(StoreError::Failed("no answer".to_owned())));
            }
            let is_missing = self.missing.contains(&origin.id).then_some(CountsLack::Missing);
            Ok(is_missing.or(self.unstored.contains(&origin.id).then_some(CountsLack::Unstored)))
        }

        fn ask(&mut self, origin: NotedOrigin<'_>) -> Result<bool, Unfinished> {
            self.asked.push(origin.id);
            Ok(true)
        }
    }

    const IDS: [OriginId; 3] = [OriginId(1), OriginId(2), OriginId(3)];

    /// Runs a turn, and returns the origins that it has read.
    fn turn(others: &mut OtherOrigins, streams: &mut FakeStreams, seconds: u64) -> Vec<OriginId> {
        let now = Duration::from_secs(seconds);
        others.hear(IDS.map(|id| (id, 1)), now);
        let origins = IDS.map(|id| NotedOrigin { id, number: 1, node: "n" }).to_vec();
        let is_done = follow(others, origins, streams, || now).is_ok();
        assert_eq!(is_done, streams.away.is_empty());
        std::mem::take(&mut streams.read)
    }

    #[test]
    fn streams_of_a_server_that_is_away_are_read_last() {
        let (mut others, away) = (OtherOrigins::default(), IDS[..2].to_vec());
        let mut streams = FakeStreams { away, ..FakeStreams::default() };
        assert_eq!(turn(&mut others, &mut streams, 0), [IDS[0]]);
        assert_eq!(turn(&mut others, &mut streams, 1), [IDS[1]]);
        // From now on, the others do not wait for the two.
        assert_eq!(turn(&mut others, &mut streams, 2), [IDS[2], IDS[0]]);
        assert_eq!(turn(&mut others, &mut streams, 3), [IDS[2], IDS[1]]);
        streams.away.clear();
        assert_eq!(turn(&mut others, &mut streams, 4), [IDS[2], IDS[0], IDS[1]]);
        assert_eq!(turn(&mut others, &mut streams, 5), IDS);
    }

    #[test]
    fn lacks_are_named_and_snapshots_sought_for_missing_batches() {
        let mut others = OtherOrigins::default();
        let mut streams = FakeStreams { missing: vec![IDS[0]], unstored: vec![IDS[2]], ..FakeStreams::default() };
        (0..4).for_each(|second| _ = turn(&mut others, &mut streams, second));
        assert_eq!(streams.asked, [IDS[0]], "it was late after three seconds, and no snapshot helps the other");
        let mut lacks: Vec<(OriginId, CountsLack)> = others.lacks().map(|(id, why, _)| (id, why)).collect();
        lacks.sort_by_key(|(id, _)| *id);
        assert_eq!(lacks, [(IDS[0], CountsLack::Missing), (IDS[2], CountsLack::Unstored)]);
        (streams.missing, streams.unstored) = (Vec::new(), Vec::new());
        turn(&mut others, &mut streams, 4);
        assert_eq!(others.lacks().count(), 0);
    }
}
