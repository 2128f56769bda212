//! Copies batches of visit counts from the streams of the other site. A batch has the number that its origin gave it, and
//! each node counts it once. So it does no harm that a relay copies one again, or back to the site where it was counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::copies::{OpenCopies, OriginCopy};
use super::{ANSWER_TIME, Courier, OTHER_TIME};
use crate::services::replication::redis::{EntriesBehind, RedisError};
use carom_model::visits::origins::OriginId;

/// Interval between two looks at the origins of the other site.
const COPY_EVERY: Duration = Duration::from_secs(1);

/// Number of entries of one origin that are copied at once, each of at most a megabyte.
const COPY_COUNT: usize = 2;

/// Number of times that entries of one origin are copied in one turn. The rest waits for the next turn.
const COPIES_MAX: usize = 16;

impl Courier {
    /// Copies what the other site has published since the last look.
    pub(super) fn copy_visits(&mut self) -> Result<(), RedisError> {
        if self.visits_copied.is_some_and(|at| at.elapsed() < COPY_EVERY) {
            return Ok(());
        }
        self.visits_copied = Some(Instant::now());
        let theirs = self.other.visit_notes(OTHER_TIME)?;
        let ours = self.own.visit_notes(ANSWER_TIME)?;
        self.forward_wanted(&ours, &theirs)?;
        let (mut open, mut nodes) = (OpenCopies::default(), HashMap::new());
        for (origin, about) in &theirs.origins {
            let (number, node) = parts(about);
            let noted = ours.origins.iter().find(|(of, _)| of == origin).map_or(0, |(_, about)| parts(about).0);
            // An origin of this site is ahead here, unless this Redis has lost its data.
            if number > noted {
                let last = self.own.last_visits(*origin, ANSWER_TIME);
                let Some(last) = self.visits_refused.note(*origin, last)? else { continue };
                // A purge may have removed later entries that this site has had.
                open.add(OriginCopy::new(*origin, (last.max(noted), number), COPIES_MAX));
                nodes.insert(*origin, node);
            }
        }
        while let Some(some) = open.next(self.visits_pace.together()) {
            let wanted: Vec<(OriginId, u64)> = some.iter().map(OriginCopy::wanted).collect();
            let answers = self.other.visits_behind(&wanted, COPY_COUNT, OTHER_TIME);
            self.visits_pace.hear(&answers);
            for (copy, behind) in some.into_iter().zip(answers) {
                let put = behind.and_then(|behind| self.put_visits(copy, behind));
                let Some(copy) = self.visits_refused.note(copy.origin, put)? else { continue };
                if open.again(copy) {
                    continue;
                }
                // After the batches: a node that reads a number looks for them. A node that misses a batch below it says so.
                let node = nodes.get(&copy.origin).copied().unwrap_or_default();
                self.own.note_visits(&[(copy.origin, format!("{} {node}", copy.last))], ANSWER_TIME)?;
                self.visits_refused.copied(copy.origin);
            }
        }
        Ok(())
    }

    /// Gives this site some entries of an origin. Returns the copy with its progress.
    fn put_visits(&mut self, mut copy: OriginCopy, behind: EntriesBehind) -> Result<OriginCopy, RedisError> {
        let (origin, EntriesBehind { first, entries }) = (copy.origin, behind);
        if entries.is_empty() {
            copy.end();
        }
        for (batch, bytes) in entries {
            let published = self.own.publish_visits(origin, batch, &bytes, first.min(batch), ANSWER_TIME);
            // A stream that has this batch or a later one refuses it.
            if let Err(error) = published
                && self.own.last_visits(origin, ANSWER_TIME)? < batch
            {
                return Err(error);
            }
            self.fleet.stats.fleet.site.visits.add(1);
            copy.has(batch);
        }
        Ok(copy)
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
