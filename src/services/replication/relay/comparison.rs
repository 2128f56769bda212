//! Compares all states of the partitions whose positions in the streams of the other site were lost.
//!
//! Some partitions are compared together, each group with a scan of its own. The positions of a group are stored once this
//! site has decided on its states, so an error repeats the comparison of one group. A state of a later version holds its own
//! partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::lost_positions::PartitionComparison;
use super::{OTHER_TIME, Relay, RelayFailure};
use crate::services::replication::redis::RedisError;
use carom_model::replication::Partition;
use carom_model::replication::follow::StreamPosition;

/// Number of keys in one piece of a scan. A quarter of them belongs to the partitions of a group.
const PIECE: usize = 4_096;

impl Relay {
    /// Offers some of the states that the other Redis has, in partitions whose positions were lost. Returns false if no
    /// partition is due.
    pub(super) fn compare(&mut self) -> Result<bool, RelayFailure> {
        let begun = match self.comparison.take() {
            Some(comparison) => Some(comparison),
            None => self.begin_comparison()?,
        };
        let Some(mut comparison) = begun else { return Ok(false) };
        // After an error this group starts over: a cluster may have moved codes that the scan had not seen.
        let codes = self.other.scan_on(&mut comparison.scan, PIECE, OTHER_TIME).map_err(RelayFailure::Other)?;
        let Some(mut codes) = codes else {
            self.end_comparison(comparison)?;
            return Ok(true);
        };
        codes.retain(|code| comparison.ends.contains_key(&Partition::of(code)));
        comparison.held.extend(self.offer_states_of(&codes)?);
        self.comparison = Some(comparison);
        Ok(true)
    }

    fn begin_comparison(&mut self) -> Result<Option<PartitionComparison>, RelayFailure> {
        let partitions = self.lost.due(Instant::now());
        if partitions.is_empty() {
            return Ok(None);
        }
        tracing::info!(site = self.site.other, streams = partitions.len(), "comparing links with the other site");
        // Changes that the scan misses come behind these ends of the streams.
        let answers = self.other.ends(&partitions, OTHER_TIME);
        let noted = |(of, end): (Partition, Result<StreamPosition, RedisError>)| {
            end.map(|end| (of, end)).map_err(RelayFailure::Other)
        };
        let ends = partitions.into_iter().zip(answers).map(noted).collect::<Result<BTreeMap<_, _>, RelayFailure>>()?;
        let scan = self.other.scan(OTHER_TIME).map_err(RelayFailure::Other)?;
        Ok(Some(PartitionComparison { scan, ends, held: BTreeSet::new() }))
    }

    /// Moves to the ends of the compared streams in which every state was offered.
    fn end_comparison(&mut self, comparison: PartitionComparison) -> Result<(), RelayFailure> {
        self.check_comparison()?;
        let PartitionComparison { ends, held, .. } = comparison;
        let done = self.lost.finish(ends, &held, Instant::now());
        self.move_to(done);
        if self.lost.is_empty() {
            tracing::info!(site = self.site.other, "all links have been compared with the other site");
        }
        Ok(())
    }
}
