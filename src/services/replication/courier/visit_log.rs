//! Copies blocks of the visit log from the streams of the other site, and deletions of visits. A block has the number that
//! its origin gave it, and each node takes it once.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::copies::{OpenCopies, OriginCopy};
use super::{ANSWER_TIME, Courier, OTHER_TIME};
use crate::services::replication::redis::{EntriesBehind, RedisError, VisitLogNotes};
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::LogNote;

/// Interval between two looks at the logs of the other site.
const COPY_EVERY: Duration = Duration::from_secs(1);

/// Number of entries of one origin that are copied at once, each of up to 256 KiB.
const COPY_COUNT: usize = 2;

/// Number of times that entries of one origin are copied in one turn. The rest waits for the next turn.
const COPIES_MAX: usize = 8;

impl Courier {
    /// Copies what the other site has published since the last look, if this node shares its visit log.
    pub(super) fn copy_visit_log(&mut self) -> Result<(), RedisError> {
        let is_shared = self.fleet.stats.visit_log.is_shared.load(Ordering::Acquire);
        if !is_shared || self.log_copied.is_some_and(|at| at.elapsed() < COPY_EVERY) {
            return Ok(());
        }
        self.log_copied = Some(Instant::now());
        let theirs = self.other.log_notes(OTHER_TIME)?;
        let ours = self.own.log_notes(ANSWER_TIME)?;
        // First: a node that takes a block must know what of it is deleted.
        self.copy_deletions(&theirs.revision)?;
        let (mut open, mut texts) = (OpenCopies::default(), HashMap::new());
        for (origin, text) in &theirs.origins {
            let Some(note) = LogNote::parse(text) else { continue };
            let noted = number_of(&ours, *origin);
            if note.number > noted {
                let last = self.last_block(*origin);
                let Some(last) = self.log_refused.note(*origin, last)? else { continue };
                // A purge may have removed later entries that this site has had.
                open.add(OriginCopy::new(*origin, (last.max(noted), note.number), COPIES_MAX));
                texts.insert(*origin, text);
            }
        }
        while let Some(some) = open.next(self.log_pace.together()) {
            let wanted: Vec<(OriginId, u64)> = some.iter().map(OriginCopy::wanted).collect();
            let answers = self.other.log_behind(&wanted, COPY_COUNT, OTHER_TIME);
            self.log_pace.hear(&answers);
            for (copy, behind) in some.into_iter().zip(answers) {
                let put = behind.and_then(|behind| self.put_log(copy, behind));
                let Some(copy) = self.log_refused.note(copy.origin, put)? else { continue };
                if open.again(copy) {
                    continue;
                }
                if copy.is_whole()
                    && let Some(text) = texts.get(&copy.origin)
                {
                    self.own.note_log(&[(copy.origin, (*text).clone())], ANSWER_TIME)?;
                }
                self.log_refused.copied(copy.origin);
            }
        }
        Ok(())
    }

    /// Gives this site some blocks of an origin. Returns the copy with its progress.
    fn put_log(&mut self, mut copy: OriginCopy, behind: EntriesBehind) -> Result<OriginCopy, RedisError> {
        let (origin, EntriesBehind { first, entries }) = (copy.origin, behind);
        if entries.is_empty() {
            // Nodes note a gap for blocks that no stream has.
            copy.end();
        }
        for (block, bytes) in entries {
            let published = self.own.publish_log(origin, block, &bytes, first.min(block), ANSWER_TIME);
            // A stream that has this block or a later one refuses it.
            if let Err(error) = published
                && self.last_block(origin)? < block
            {
                return Err(error);
            }
            copy.has(block);
        }
        Ok(copy)
    }

    /// Returns the number of the last block of an origin in the Redis of this site; 0 if it has none.
    fn last_block(&mut self, origin: OriginId) -> Result<u64, RedisError> {
        Ok(self.own.log_ends(origin, ANSWER_TIME)?.last().map_or(0, |(last, _)| *last))
    }

    /// Adds the deletions of the other site to those of this one, once for each change of its list.
    fn copy_deletions(&mut self, revision: &str) -> Result<(), RedisError> {
        if self.deletions.as_deref() == Some(revision) {
            return Ok(());
        }
        let theirs = self.other.deleted_visits(OTHER_TIME)?;
        let ours: HashMap<String, u64> = self.own.deleted_visits(ANSWER_TIME)?.into_iter().collect();
        let is_news = |(name, until_ms): &(String, u64)| ours.get(name).is_none_or(|known| known < until_ms);
        let news: Vec<(String, u64)> = theirs.into_iter().filter(is_news).collect();
        if !news.is_empty() {
            self.own.change_deleted_visits(&news, &[], ANSWER_TIME)?;
        }
        self.deletions = Some(revision.to_owned());
        Ok(())
    }
}

/// Returns the number of the last block in the description of an origin; 0 without a description.
fn number_of(notes: &VisitLogNotes, origin: OriginId) -> u64 {
    let text = notes.origins.iter().find(|(of, _)| *of == origin).map(|(_, text)| text.as_str());
    text.and_then(LogNote::parse).map_or(0, |note| note.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_without_description_has_no_blocks() {
        let note = LogNote { number: 7, last_ms: 9, lacking: None, node: "n0".to_owned() };
        let notes = VisitLogNotes {
            origins: vec![(OriginId(1), note.to_text()), (OriginId(2), "?".to_owned())],
            ..VisitLogNotes::default()
        };
        assert_eq!([1, 2, 3].map(|origin| number_of(&notes, OriginId(origin))), [7, 0, 0]);
    }
}
