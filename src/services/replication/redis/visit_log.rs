//! Requests about the visit logs that nodes exchange: one stream of blocks per origin, the list of origins, and
//! deletions.

use std::collections::HashMap;
use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd};

use super::client::{KeyGroup, Redis, nonsense, pairs};
use super::space::FieldUpdate;
use super::visits::{OriginEntries, visit_entries};
use carom_model::formats::dates::INSTANT_MS_MAX;
use carom_model::visits::origins::OriginId;

/// The hash with a description of each origin. Its field [`REVISION`] belongs to no origin.
const NOTES: &str = "visitlog";

/// The field that changes with each deletion.
const REVISION: &str = "deletions";

/// The hash with deletions: the name of the deleted visits, and the instant up to which they are deleted.
const DELETED: &str = "visitlog:deleted";

/// The origins that all nodes see.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VisitLogNotes {
    /// Each origin with its description.
    pub origins: Vec<(OriginId, String)>,
    /// The number of changes of the list of deletions; empty before the first.
    pub revision: String,
}

/// The deletions of visits that Redis has: each field of the hash, with its value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeletedVisits(HashMap<String, Vec<u8>>);

impl DeletedVisits {
    /// Returns the deletions: the name of the deleted visits, and the instant up to which they are deleted, in
    /// milliseconds since 1970 UTC.
    pub fn all(&self) -> HashMap<String, u64> {
        let until = |(name, value): (&String, &Vec<u8>)| {
            let until_ms: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
            // A later instant would delete all future visits.
            (until_ms <= INSTANT_MS_MAX).then(|| (name.clone(), until_ms))
        };
        self.0.iter().filter_map(until).collect()
    }

    /// Returns the change that sets a deletion to an instant, or removes it.
    pub fn change(&self, name: &str, until_ms: Option<u64>) -> FieldUpdate {
        let before = self.0.get(name).cloned().unwrap_or_default();
        let after = until_ms.map_or_else(Vec::new, |until_ms| until_ms.to_string().into_bytes());
        FieldUpdate { field: name.to_owned(), before, after }
    }
}

impl Redis {
    pub(super) fn log_stream(&self, origin: OriginId) -> String {
        format!("{}:vl:{origin}", self.tag(Redis::group_of_origin(origin)))
    }

    /// Appends an entry to the stream of an origin. Its identifier is the number of its last block, so an entry is
    /// appended once only. Entries before `oldest` are removed.
    ///
    /// # Errors
    /// [`RedisError::Refused`] if the stream already has this block, or another [`RedisError`].
    pub fn publish_log(
        &mut self,
        origin: OriginId,
        last: u64,
        entry: &[u8],
        oldest: u64,
        within: Duration,
    ) -> Result<(), RedisError> {
        let stream = self.log_stream(origin);
        self.append_entry((origin, stream), (last, entry), oldest, within)
    }

    /// Returns the first and the last entry of the stream of an origin; nothing for an empty stream.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn log_ends(&mut self, origin: OriginId, within: Duration) -> Result<Vec<(u64, Vec<u8>)>, RedisError> {
        let (place, stream) = (Redis::group_of_origin(origin), self.log_stream(origin));
        let end = |command: &str, from: &str, to: &str| {
            RedisCommand::Plain(cmd(command).arg(&stream).arg(from).arg(to).arg("COUNT").arg(1).to_owned())
        };
        let together = vec![end("XRANGE", "-", "+"), end("XREVRANGE", "+", "-")];
        let answers = self.client.ask_groups(vec![(self.route(place), together)], within).remove(0)?;
        Ok(answers.iter().flat_map(visit_entries).collect())
    }

    /// Returns entries of the stream of an origin, from the one with the block `from` on: the number of the last block of
    /// each, and its bytes.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn log_entries(
        &mut self,
        origin: OriginId,
        from: u64,
        count: usize,
        within: Duration,
    ) -> Result<Vec<(u64, Vec<u8>)>, RedisError> {
        let stream = self.log_stream(origin);
        self.entries_from((origin, stream), from, count, within)
    }

    /// Returns for each of these origins the entries of its stream from the one with that block on, like
    /// [`Redis::visits_of_origins`].
    pub fn log_entries_of_origins(
        &mut self,
        from: &[(OriginId, u64)],
        count: usize,
        within: Duration,
    ) -> Vec<Result<OriginEntries, RedisError>> {
        let stream =
            |(origin, from): &(OriginId, u64)| (Redis::group_of_origin(*origin), self.log_stream(*origin), *from);
        let streams = from.iter().map(stream).collect();
        self.entries_of_streams(streams, count, within)
    }

    /// Sets the descriptions of origins.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn note_log(&mut self, set: &[(OriginId, String)], within: Duration) -> Result<(), RedisError> {
        if set.is_empty() {
            return Ok(());
        }
        let mut put = cmd("HSET").arg(self.space(NOTES)).to_owned();
        for (origin, about) in set {
            put.arg(origin.to_string()).arg(about);
        }
        self.ask(KeyGroup::Space, RedisCommand::Plain(put), within).map(|_| ())
    }

    /// Removes the descriptions of origins.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn forget_log(&mut self, origins: &[OriginId], within: Duration) -> Result<(), RedisError> {
        if origins.is_empty() {
            return Ok(());
        }
        let mut remove = cmd("HDEL").arg(self.space(NOTES)).to_owned();
        origins.iter().for_each(|origin| _ = remove.arg(origin.to_string()));
        self.ask(KeyGroup::Space, RedisCommand::Plain(remove), within).map(|_| ())
    }

    /// Returns the descriptions of all origins.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn log_notes(&mut self, within: Duration) -> Result<VisitLogNotes, RedisError> {
        let get = RedisCommand::Plain(cmd("HGETALL").arg(self.space(NOTES)).to_owned());
        let answer = self.ask(KeyGroup::Space, get, within)?;
        if !matches!(answer, Value::Array(_)) {
            return Err(nonsense("notes of visit logs"));
        }
        let mut notes = VisitLogNotes::default();
        for (field, about) in pairs(&answer) {
            match field.parse() {
                Ok(origin) => notes.origins.push((origin, about)),
                Err(_) if field == REVISION => notes.revision = about,
                Err(_) => {}
            }
        }
        Ok(notes)
    }

    /// Returns the deletions of visits.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn deleted_visits(&mut self, within: Duration) -> Result<DeletedVisits, RedisError> {
        Ok(DeletedVisits(self.fields(DELETED, within)?.into_iter().collect()))
    }

    /// Makes changes that [`DeletedVisits::change`] has returned, so that all nodes read the list again. Deletions that
    /// another node has changed meanwhile stay. Returns the revision of the list, and false if some stayed.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn change_deleted_visits(
        &mut self,
        changes: &[FieldUpdate],
        within: Duration,
    ) -> Result<(String, bool), RedisError> {
        let mut together = Vec::new();
        if !changes.is_empty() {
            together.push(self.call_update(DELETED, changes));
        }
        together.push(RedisCommand::Plain(cmd("HINCRBY").arg(self.space(NOTES)).arg(REVISION).arg(1).to_owned()));
        let answers = self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0)?;
        let is_whole = changes.is_empty() || answers.first() == Some(&Value::Int(0));
        match answers.last() {
            Some(Value::Int(revision)) => Ok((revision.to_string(), is_whole)),
            _ => Err(nonsense("a revision")),
        }
    }
}
