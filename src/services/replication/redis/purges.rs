//! Requests about purges: the hash of purges and of the nodes that have carried them out, their lists of links, and what
//! the streams have of purged links.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use carom_redis::{RedisCommand, RedisError, Value, cmd, text};
use carom_shards::Code;

use super::client::{KeyGroup, Redis, Script, nonsense, pairs};
use super::sites::time_ms;
use super::streams::entries;
use carom_limits::PURGES_KEPT;
use carom_model::purge::PurgeId;
use carom_model::replication::{EntryId, Partition};
use carom_model::visits::origins::OriginId;

/// The hash of purges. A purge has a field named by its number, and one for each node that has carried it out (number,
/// slash, node). With two sites, it also has a field for each note (number, sign of the note, site).
const PURGES: &str = "purges";

/// Fields of the hash that are read at once, approximately.
const PIECE_LEN: usize = 1_000;

/// Entries of a stream that are read at once.
const PAGE_LEN: usize = 256;

/// Entries of a stream that one script removes.
const REMOVED_TOGETHER: usize = 5_000;

/// Entries of a stream that one script writes once more, approximately. Redis takes 4 to 8 µs for each, in which it does
/// nothing else.
const STEP_ENTRIES: usize = 2_000;

/// Bytes of entries that one script writes once more, approximately: an entry with a long destination has several KiB.
const STEP_BYTES: usize = 1 << 20;

/// Entries that the script reads at once. It may exceed [`STEP_BYTES`] by these.
const STEP_PAGE: usize = 32;

/// Number of times that the copy of a stream begins again. Only nodes of an earlier version remove entries from the middle
/// of a stream meanwhile.
const RESTARTS_MAX: usize = 5;

/// Fields of a hash, each with its value.
type HashFields = Vec<(String, String)>;

/// The last entry that a stream of visits had at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VisitStreamEnd {
    origin: OriginId,
    /// True for the stream of a visit log, false for one of visit counts.
    is_log: bool,
    number: u64,
}

/// A note of a site about a purge, in a fleet of two sites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeNote {
    /// All nodes of the site have carried the purge out.
    Purged,
    /// The site has trimmed its streams of visits, after both sites had carried the purge out.
    Trimmed,
}

impl PurgeNote {
    /// All notes.
    pub const ALL: [PurgeNote; 2] = [PurgeNote::Purged, PurgeNote::Trimmed];

    /// Returns the sign between the number of a purge and the site.
    pub fn sign(self) -> char {
        match self {
            PurgeNote::Purged => '@',
            PurgeNote::Trimmed => '#',
        }
    }
}

/// Returns the key of the copy that takes the place of a stream once it is whole.
fn copy_of(stream: &str) -> String {
    format!("{stream}:copy")
}

/// Returns the key of the list of a purge.
fn list_key(id: PurgeId) -> String {
    format!("purge:{id}")
}

impl Redis {
    /// Returns the number of fields of the hash of purges, and the present time in milliseconds since 1970 UTC by the clock
    /// of Redis.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub fn count_purge_fields(&mut self, within: Duration) -> Result<(u64, u64), RedisError> {
        let count = cmd("HLEN").arg(self.space(PURGES)).to_owned();
        let answers = self.ask_space(vec![count, cmd("TIME")], within)?;
        match &answers[..] {
            [Value::Int(count), time] => Ok((count.unsigned_abs(), time_ms(time)?)),
            _ => Err(nonsense("HLEN")),
        }
    }

    /// Returns some fields of the hash of purges from a cursor on, and the cursor behind them. `0` is the first cursor, and
    /// follows the last fields.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub fn purge_fields(&mut self, cursor: &str, within: Duration) -> Result<(HashFields, String), RedisError> {
        let mut scan = cmd("HSCAN");
        scan.arg(self.space(PURGES)).arg(cursor).arg("COUNT").arg(PIECE_LEN);
        let answer = self.ask(KeyGroup::Space, RedisCommand::Plain(scan), within)?;
        let Value::Array(parts) = &answer else { return Err(nonsense("HSCAN")) };
        let [cursor, fields @ Value::Array(_)] = &parts[..] else { return Err(nonsense("HSCAN")) };
        Ok((pairs(fields), text(cursor)))
    }

    /// Returns the list of links of a purge; `None` if Redis no longer has it.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn purge_list(&mut self, id: PurgeId, within: Duration) -> Result<Option<Vec<u8>>, RedisError> {
        self.text(&list_key(id), within)
    }

    /// Adds a purge of this instant, in milliseconds since 1970 UTC, with its list of links.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn put_purge(&mut self, id: PurgeId, at_ms: u64, list: &str, within: Duration) -> Result<(), RedisError> {
        let kept_ms = PURGES_KEPT.as_millis() as u64;
        // The list first: a node that finds the number reads the list at once.
        let set = cmd("SET").arg(self.space(&list_key(id))).arg(list).arg("PX").arg(kept_ms).to_owned();
        let note = cmd("HSET").arg(self.space(PURGES)).arg(id.to_string()).arg(at_ms).to_owned();
        let together = vec![RedisCommand::Plain(set), RedisCommand::Plain(note)];
        self.client.ask_groups(vec![(self.route(KeyGroup::Space), together)], within).remove(0).map(|_| ())
    }

    /// Notes that a node has carried out a purge.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn note_purged(&mut self, id: PurgeId, node: &str, within: Duration) -> Result<(), RedisError> {
        let note = cmd("HSET").arg(self.space(PURGES)).arg(format!("{id}/{node}")).arg("done").to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(note), within).map(|_| ())
    }

    /// Stores a note of a site about a purge.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn note_purged_at(
        &mut self,
        id: PurgeId,
        (note, site): (PurgeNote, &str),
        within: Duration,
    ) -> Result<(), RedisError> {
        let field = format!("{id}{}{site}", note.sign());
        let note = cmd("HSET").arg(self.space(PURGES)).arg(field).arg("done").to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(note), within).map(|_| ())
    }

    /// Removes fields of the hash of purges.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn forget_purges(&mut self, fields: &[String], within: Duration) -> Result<(), RedisError> {
        if fields.is_empty() {
            return Ok(());
        }
        let remove = cmd("HDEL").arg(self.space(PURGES)).arg(fields).to_owned();
        self.ask(KeyGroup::Space, RedisCommand::Plain(remove), within).map(|_| ())
    }

    /// Removes the entries of a stream with links of these codes, up to the last deletion of each code, and their bytes. What
    /// follows a deletion is about another link. A node that has not read a removed entry reads the deletion instead.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn purge_stream(
        &mut self,
        partition: Partition,
        codes: &HashSet<Code>,
        within: Duration,
    ) -> Result<(), RedisError> {
        let mut from = "-".to_owned();
        // The entries of each code since its last deletion.
        let mut seen: HashMap<Code, Vec<EntryId>> = HashMap::new();
        let mut purged = Vec::new();
        loop {
            let mut range = cmd("XRANGE");
            range.arg(self.stream(partition)).arg(&from).arg("+").arg("COUNT").arg(PAGE_LEN);
            let answer = self.ask(KeyGroup::Partition(partition), RedisCommand::Plain(range), within)?;
            let is_last = !matches!(&answer, Value::Array(read) if read.len() >= PAGE_LEN);
            let page = entries(&answer);
            for entry in &page {
                let Some(code) = entry.code.filter(|code| codes.contains(code)) else { continue };
                match entry.text.first() {
                    // The tombstones of issued and of chosen codes.
                    Some(b'B' | b'F') => purged.extend(seen.remove(&code).unwrap_or_default()),
                    _ => seen.entry(code).or_default().push(entry.id),
                }
            }
            match page.last() {
                Some(last) if !is_last => from = format!("({}", last.id),
                _ => break,
            }
        }
        let (place, stream) = (KeyGroup::Partition(partition), self.stream(partition));
        // The first chunk may be empty: an earlier purge may have ended before its copy of the stream did.
        let (first, more) = purged.split_at(purged.len().min(REMOVED_TOGETHER));
        let mut has_copy = self.remove_entries((place, stream.as_str()), first, false, within)?;
        for some in more.chunks(REMOVED_TOGETHER) {
            has_copy |= self.remove_entries((place, stream.as_str()), some, false, within)?;
        }
        if has_copy { self.rewrite_stream(place, &stream, within) } else { Ok(()) }
    }

    /// Removes entries of a stream. Returns true if the other entries have to be written once more; always with `is_forced`.
    fn remove_entries(
        &mut self,
        (place, stream): (KeyGroup, &str),
        removed: &[EntryId],
        is_forced: bool,
        within: Duration,
    ) -> Result<bool, RedisError> {
        let kept_ms = PURGES_KEPT.as_millis().to_string();
        let ids = removed.iter().map(ToString::to_string);
        let arguments = [kept_ms, u8::from(is_forced).to_string()].into_iter().chain(ids);
        let arguments = arguments.map(String::into_bytes).collect();
        let script = Script::Purge.call(vec![stream.to_owned(), copy_of(stream)], arguments);
        Ok(self.ask(place, script, within)? == Value::Int(1))
    }

    /// Writes the entries of a stream once more, without the bytes of removed ones. Each step takes Redis some milliseconds.
    fn rewrite_stream(&mut self, place: KeyGroup, stream: &str, within: Duration) -> Result<(), RedisError> {
        let mut restarts = 0;
        while restarts <= RESTARTS_MAX {
            let arguments = [STEP_ENTRIES, STEP_BYTES, STEP_PAGE].map(|number| number.to_string().into_bytes());
            let step = Script::Rewrite.call(vec![stream.to_owned(), copy_of(stream)], arguments.to_vec());
            match self.ask(place, step, within)? {
                Value::Int(0) => return Ok(()),
                Value::Int(1) => {}
                Value::Int(2) => restarts += 1,
                _ => return Err(nonsense("a copy of a stream")),
            }
        }
        Err(RedisError::Refused(format!("others remove entries of {stream} while it is written once more")))
    }

    /// Returns the present ends of all streams of visits.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn visit_stream_ends(&mut self, within: Duration) -> Result<Vec<VisitStreamEnd>, RedisError> {
        let mut ends = Vec::new();
        for (origin, _) in self.visit_notes(within)?.origins {
            ends.push(VisitStreamEnd { origin, is_log: false, number: self.last_visits(origin, within)? });
        }
        for (origin, _) in self.log_notes(within)?.origins {
            let last = self.log_ends(origin, within)?.last().map_or(0, |(number, _)| *number);
            ends.push(VisitStreamEnd { origin, is_log: true, number: last });
        }
        ends.retain(|end| end.number > 0);
        Ok(ends)
    }

    /// Removes the entries of streams of visits up to these ends, and their bytes. Nodes that have not read them note a gap, or
    /// get a snapshot.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, or refused.
    pub fn trim_visit_streams(&mut self, ends: &[VisitStreamEnd], within: Duration) -> Result<(), RedisError> {
        for end in ends {
            let stream = if end.is_log { self.log_stream(end.origin) } else { self.visit_stream(end.origin) };
            let mut trim = cmd("XTRIM");
            trim.arg(&stream).arg("MINID").arg(format!("{}-0", end.number.saturating_add(1)));
            let place = Redis::group_of_origin(end.origin);
            self.ask(place, RedisCommand::Plain(trim), within)?;
            self.remove_entries((place, stream.as_str()), &[], true, within)?;
            self.rewrite_stream(place, &stream, within)?;
        }
        Ok(())
    }
}
