//! Copies batches of visit counts from the streams of the other site. A batch has the number that its origin gave it, and
//! each node counts it once. So it does no harm that a relay copies one again, or back to the site where it was counted.

use std::time::{Duration, Instant};

use super::{ANSWER_TIME, Courier, OTHER_TIME};
use crate::services::replication::redis::RedisError;
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
        for (origin, about) in theirs.origins {
            let (number, node) = parts(&about);
            let noted = ours.origins.iter().find(|(of, _)| *of == origin).map_or(0, |(_, about)| parts(about).0);
            // An origin of this site is ahead here, unless this Redis has lost its data.
            if number > noted {
                let copied = self.copy_origin(origin, (noted, number));
                let Some(copied) = self.visits_refused.note(origin, copied)? else { continue };
                // After the batches: a node that reads a number looks for them.
                let note = (origin, format!("{copied} {node}"));
                self.own.note_visits(&[note], ANSWER_TIME)?;
            }
        }
        Ok(())
    }

    /// Copies entries of one origin behind the batch `noted`, up to the batch `number`. Returns the number up to which this
    /// site has all that the other stream has. A node that misses a batch below it says so.
    fn copy_origin(&mut self, origin: OriginId, (noted, number): (u64, u64)) -> Result<u64, RedisError> {
        // A purge may have removed later entries that this site has had.
        let mut last = self.own.last_visits(origin, ANSWER_TIME)?.max(noted);
        for _ in 0..COPIES_MAX {
            if last >= number {
                break;
            }
            let behind = self.other.visits_behind(origin, last + 1, COPY_COUNT, OTHER_TIME);
            let (first, entries) = behind?;
            if entries.is_empty() {
                return Ok(number);
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
                last = last.max(batch);
            }
        }
        Ok(last)
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
