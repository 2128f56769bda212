//! Copies batches of visit counts from the streams of the other site. A relay may copy a batch again, or back to the
//! site where it was counted. Each node counts it once, by the number that its origin gave it.

use std::collections::HashMap;

use super::copies::OriginCopy;
use super::stream_copies::{OriginStreams, PublishedNumbers};
use super::{OTHER_TIME, REDIS_TIMEOUT, SiteSync};
use crate::services::replication::redis::{OriginEntries, Redis, RedisError};
use carom_model::visits::origins::OriginId;
use carom_telemetry::counter::Counter;

impl SiteSync {
    /// Copies what the other site has published since the last look.
    pub(super) fn copy_visits(&mut self) -> Result<(), RedisError> {
        if !self.visits.is_due() {
            return Ok(());
        }
        let theirs = self.other.visit_notes(OTHER_TIME)?;
        let ours = self.own.visit_notes(REDIS_TIMEOUT)?;
        self.forward_wanted(&ours, &theirs)?;
        let (mut numbers, mut nodes) = (Vec::new(), HashMap::new());
        for (origin, about) in &theirs.origins {
            let (theirs, node) = parts(about);
            let ours = ours.origins.iter().find(|(of, _)| of == origin).map_or(0, |(_, about)| parts(about).0);
            numbers.push(PublishedNumbers { origin: *origin, theirs, ours });
            nodes.insert(*origin, node);
        }
        let copied = &self.fleet.stats.fleet.site.visits;
        let mut streams = VisitStreams { own: &mut self.own, other: &mut self.other, nodes, copied };
        self.visits.copy(&numbers, &mut streams)
    }
}

/// The streams of visit counts in the Redis of each site.
struct VisitStreams<'c> {
    own: &'c mut Redis,
    other: &'c mut Redis,
    /// The name of the node of each origin.
    nodes: HashMap<OriginId, &'c str>,
    /// Number of entries that were copied.
    copied: &'c Counter,
}

impl OriginStreams for VisitStreams<'_> {
    const ROUNDS_MAX: usize = 16;

    fn last(&mut self, origin: OriginId) -> Result<u64, RedisError> {
        self.own.last_visits(origin, REDIS_TIMEOUT)
    }

    fn behind(&mut self, wanted: &[(OriginId, u64)], count: usize) -> Vec<Result<OriginEntries, RedisError>> {
        self.other.visits_of_origins(wanted, count, OTHER_TIME)
    }

    fn put(&mut self, origin: OriginId, number: u64, entry: &[u8], oldest: u64) -> Result<(), RedisError> {
        self.own.publish_visits(origin, number, entry, oldest, REDIS_TIMEOUT)
    }

    fn count(&self) {
        self.copied.add(1);
    }

    /// Describes an origin whose copy may go on in the next turn: a node that misses a batch below the number says so.
    fn note(&mut self, copy: &OriginCopy) -> Result<(), RedisError> {
        let node = self.nodes.get(&copy.origin).copied().unwrap_or_default();
        self.own.note_visits(&[(copy.origin, format!("{} {node}", copy.last))], REDIS_TIMEOUT)
    }
}

/// Returns the number of the last batch and the name of the node in the description of an origin.
fn parts(about: &str) -> (u64, &str) {
    let (number, node) = about.split_once(' ').unwrap_or((about, ""));
    (number.parse().unwrap_or(0), node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_a_number_and_a_name() {
        assert_eq!(parts("17 n 1"), (17, "n 1"));
        assert_eq!(parts("17"), (17, ""));
        assert_eq!(parts("x n1"), (0, "n1"));
    }
}
