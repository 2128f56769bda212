//! Copies blocks of the visit log from the streams of the other site, and deletions of visits. A block has the number that
//! its origin gave it, and each node takes it once.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::copies::OriginCopy;
use super::stream_copies::{OriginStreams, PublishedNumbers};
use super::{OTHER_TIME, REDIS_TIMEOUT, SiteSync};
use crate::services::replication::redis::{FieldUpdate, OriginEntries, Redis, RedisError, VisitLogNotes};
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::LogNote;

impl SiteSync {
    /// Copies what the other site has published since the last look, if this node shares its visit log.
    pub(super) fn copy_visit_log(&mut self) -> Result<(), RedisError> {
        let is_shared = self.fleet.stats.visit_log.is_shared.load(Ordering::Acquire);
        if !is_shared || !self.log.is_due() {
            return Ok(());
        }
        let theirs = self.other.log_notes(OTHER_TIME)?;
        let ours = self.own.log_notes(REDIS_TIMEOUT)?;
        // First: a node that takes a block must know what of it is deleted.
        self.copy_deletions(&theirs.revision)?;
        let (mut numbers, mut texts) = (Vec::new(), HashMap::new());
        for (origin, text) in &theirs.origins {
            let Some(note) = LogNote::parse(text) else { continue };
            let ours = number_of(&ours, *origin);
            numbers.push(PublishedNumbers { origin: *origin, theirs: note.number, ours });
            texts.insert(*origin, text.as_str());
        }
        let mut streams = LogStreams { own: &mut self.own, other: &mut self.other, texts };
        self.log.copy(&numbers, &mut streams)
    }

    /// Adds the deletions of the other site to those of this one, once for each change of its list.
    fn copy_deletions(&mut self, revision: &str) -> Result<(), RedisError> {
        if self.deletions.as_deref() == Some(revision) {
            return Ok(());
        }
        let theirs = self.other.deleted_visits(OTHER_TIME)?.all();
        let held = self.own.deleted_visits(REDIS_TIMEOUT)?;
        let ours = held.all();
        let is_news = |(name, until_ms): &(String, u64)| ours.get(name).is_none_or(|known| known < until_ms);
        let news = theirs.into_iter().filter(is_news).map(|(name, until_ms)| held.change(&name, Some(until_ms)));
        let changes: Vec<FieldUpdate> = news.collect();
        // If a node of this site has changed one of them meanwhile, the next turn compares again.
        if changes.is_empty() || self.own.change_deleted_visits(&changes, REDIS_TIMEOUT)?.1 {
            self.deletions = Some(revision.to_owned());
        }
        Ok(())
    }
}

/// The streams of visit logs in the Redis of each site.
struct LogStreams<'c> {
    own: &'c mut Redis,
    other: &'c mut Redis,
    /// The description of each origin in the other site.
    texts: HashMap<OriginId, &'c str>,
}

impl OriginStreams for LogStreams<'_> {
    const ROUNDS_MAX: usize = 8;

    fn last(&mut self, origin: OriginId) -> Result<u64, RedisError> {
        Ok(self.own.log_ends(origin, REDIS_TIMEOUT)?.last().map_or(0, |(last, _)| *last))
    }

    fn behind(&mut self, wanted: &[(OriginId, u64)], count: usize) -> Vec<Result<OriginEntries, RedisError>> {
        self.other.log_entries_of_origins(wanted, count, OTHER_TIME)
    }

    fn put(&mut self, origin: OriginId, number: u64, entry: &[u8], oldest: u64) -> Result<(), RedisError> {
        self.own.publish_log(origin, number, entry, oldest, REDIS_TIMEOUT)
    }

    /// Takes over the description of an origin, once this site has all that it describes.
    fn note(&mut self, copy: &OriginCopy) -> Result<(), RedisError> {
        match self.texts.get(&copy.origin) {
            Some(text) if copy.is_whole() => self.own.note_log(&[(copy.origin, (*text).to_owned())], REDIS_TIMEOUT),
            _ => Ok(()),
        }
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
