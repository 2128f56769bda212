//! The purges that Redis knows, as far as this node has read their hash.
//!
//! The hash may have some hundred thousand fields, so it is read in pieces, and only once its number of fields has changed.
//! The number stays if as many fields were removed as added, so the hash is also read after some time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::registry::kept_since_ms;
use crate::services::replication::redis::{PurgeNote, Redis, RedisError};
use carom_model::purge::{PurgeId, PurgeList};
use serde_json::Value;

/// Time after which the hash is read although its number of fields is the same.
const READ_EVERY: Duration = Duration::from_secs(30);

/// Time after which the notes of a purge without a number count as left behind. Nodes that know a purge put its number back
/// within seconds.
const LEFT_AFTER: Duration = Duration::from_secs(3_600);

/// Pieces of the hash that are read at once. Each takes Redis less than a millisecond.
const PIECES: usize = 10;

/// The cursor at which `HSCAN` begins, and which it returns at the end.
const HASH_START: &str = "0";

/// The content of the hash of purges.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SharedPurges {
    /// The instants of the purges, in milliseconds since 1970 UTC.
    pub(super) at_ms: BTreeMap<PurgeId, u64>,
    /// The nodes that have carried out each purge.
    pub(super) done: BTreeMap<PurgeId, BTreeSet<String>>,
    /// The sites whose nodes have all carried out each purge.
    pub(super) sites: BTreeMap<PurgeId, BTreeSet<String>>,
    /// The sites whose streams of visits have been trimmed for each purge.
    pub(super) trimmed: BTreeMap<PurgeId, BTreeSet<String>>,
}

/// The list of links of a purge in Redis.
#[derive(Debug)]
pub(super) enum SharedList {
    /// The list, and its text, which may have fields of a later version.
    Readable(PurgeList, String),
    /// Redis no longer has the list.
    Lost,
    /// The list is malformed, or its key has another type. Other purges must not wait for it.
    Unreadable,
}

impl SharedList {
    /// Asks Redis for the list of a purge.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer.
    pub(super) fn ask(redis: &mut Redis, id: PurgeId, within: Duration) -> Result<SharedList, RedisError> {
        let list = match redis.purge_list(id, within) {
            Ok(Some(text)) => SharedList::of(text),
            Ok(None) => SharedList::Lost,
            Err(RedisError::Refused(_)) => SharedList::Unreadable,
            Err(error) => return Err(error),
        };
        if !matches!(list, SharedList::Readable(..)) {
            tracing::debug!(%id, ?list, "a Redis has no links of a purge");
        }
        Ok(list)
    }

    fn of(text: Vec<u8>) -> SharedList {
        let Ok(text) = String::from_utf8(text) else { return SharedList::Unreadable };
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        PurgeList::from_json(&json).map_or(SharedList::Unreadable, |list| SharedList::Readable(list, text))
    }
}

/// The reads of the hash of purges.
#[derive(Debug, Default)]
pub(super) struct PurgeReader {
    /// The content of the hash, by the last whole read and the changes of this node since then.
    pub(super) shared: SharedPurges,
    /// The read in progress.
    reading: Option<Reading>,
    /// The number of fields when the last whole read began, and the time of its end.
    last: Option<(u64, Instant)>,
    /// The purges of which the hash has notes but no number, and the time of the first of the last whole reads that found that.
    numberless: BTreeMap<PurgeId, Instant>,
}

/// A read in progress.
#[derive(Debug)]
struct Reading {
    /// The number of fields when it began.
    len: u64,
    cursor: String,
    found: SharedPurges,
}

impl SharedPurges {
    /// Adds fields of the hash. Ignores unknown ones, which a later version may write.
    fn add(&mut self, fields: &[(String, String)]) {
        for (field, value) in fields {
            // A name may have such a sign, too. The number has none.
            let Some(at) = field.find(['/', PurgeNote::Purged.sign(), PurgeNote::Trimmed.sign()]) else {
                if let (Some(id), Ok(at_ms)) = (PurgeId::parse(field), value.parse()) {
                    self.at_ms.insert(id, at_ms);
                }
                continue;
            };
            let (number, name) = field.split_at(at);
            let Some(id) = PurgeId::parse(number) else { continue };
            let names = match PurgeNote::ALL.into_iter().find(|note| name.starts_with(note.sign())) {
                Some(note) => self.notes_mut(note),
                None => &mut self.done,
            };
            // Each sign takes one byte.
            names.entry(id).or_default().insert(name[1..].to_owned());
        }
    }

    fn notes(&self, note: PurgeNote) -> &BTreeMap<PurgeId, BTreeSet<String>> {
        match note {
            PurgeNote::Purged => &self.sites,
            PurgeNote::Trimmed => &self.trimmed,
        }
    }

    fn notes_mut(&mut self, note: PurgeNote) -> &mut BTreeMap<PurgeId, BTreeSet<String>> {
        match note {
            PurgeNote::Purged => &mut self.sites,
            PurgeNote::Trimmed => &mut self.trimmed,
        }
    }

    /// Returns the purges that are older than [`carom_limits::PURGES_KEPT`].
    pub(super) fn old(&self, now_ms: u64) -> Vec<PurgeId> {
        let since_ms = kept_since_ms(now_ms);
        self.at_ms.iter().filter(|(_, at_ms)| **at_ms < since_ms).map(|(id, _)| *id).collect()
    }

    /// Returns the fields of a purge.
    pub(super) fn fields_of(&self, id: PurgeId) -> Vec<String> {
        let done = self.done.get(&id).into_iter().flatten().map(|node| format!("{id}/{node}"));
        let noted = PurgeNote::ALL.into_iter().flat_map(|note| {
            let sites = self.notes(note).get(&id).into_iter().flatten();
            sites.map(move |site| format!("{id}{}{site}", note.sign()))
        });
        let number = self.at_ms.contains_key(&id).then(|| id.to_string());
        number.into_iter().chain(done).chain(noted).collect()
    }

    /// Returns the purges of which the hash has notes but no number.
    fn numberless(&self) -> BTreeSet<PurgeId> {
        let noted = self.done.keys().chain(self.sites.keys()).chain(self.trimmed.keys());
        noted.filter(|id| !self.at_ms.contains_key(*id)).copied().collect()
    }

    /// True if a site has this note about a purge.
    pub(super) fn is_noted(&self, id: PurgeId, note: PurgeNote, site: &str) -> bool {
        self.notes(note).get(&id).is_some_and(|sites| sites.contains(site))
    }

    /// Adds a note that was stored.
    pub(super) fn note(&mut self, id: PurgeId, note: PurgeNote, site: &str) {
        self.notes_mut(note).entry(id).or_default().insert(site.to_owned());
    }

    /// Removes a purge.
    fn remove(&mut self, id: PurgeId) {
        self.at_ms.remove(&id);
        self.done.remove(&id);
        self.sites.remove(&id);
        self.trimmed.remove(&id);
    }
}

impl PurgeReader {
    /// Reads some pieces of the hash, if it may have changed. Returns the time by the clock of Redis, in milliseconds since
    /// 1970 UTC.
    ///
    /// # Errors
    /// [`RedisError`] if Redis did not answer, refused, or sent an unexpected response.
    pub(super) fn read_on(&mut self, redis: &mut Redis, within: Duration) -> Result<u64, RedisError> {
        let (len, now_ms) = redis.count_purge_fields(within)?;
        for _ in 0..PIECES {
            let Some(cursor) = self.next(len, Instant::now()) else { break };
            let (fields, cursor) = redis.purge_fields(&cursor, within)?;
            if self.take(&fields, cursor, Instant::now()) {
                break;
            }
        }
        Ok(now_ms)
    }

    /// Returns the cursor of the next piece to read, given the present number of fields; `None` if nothing is to be read.
    pub(super) fn next(&mut self, len: u64, now: Instant) -> Option<String> {
        let is_known = |(known, at): (u64, Instant)| known == len && now.saturating_duration_since(at) < READ_EVERY;
        if self.reading.is_none() && !self.last.is_some_and(is_known) {
            self.reading = Some(Reading { len, cursor: HASH_START.to_owned(), found: SharedPurges::default() });
        }
        self.reading.as_ref().map(|reading| reading.cursor.clone())
    }

    /// Takes a piece, with the cursor behind it. Returns true if it was the last piece of the hash.
    pub(super) fn take(&mut self, fields: &[(String, String)], cursor: String, now: Instant) -> bool {
        let Some(mut reading) = self.reading.take() else { return true };
        reading.found.add(fields);
        let is_whole = cursor == HASH_START;
        if is_whole {
            let since = |id: PurgeId| (id, self.numberless.get(&id).copied().unwrap_or(now));
            self.numberless = reading.found.numberless().into_iter().map(since).collect();
            self.shared = reading.found;
            self.last = Some((reading.len, now));
        } else {
            self.reading = Some(Reading { cursor, ..reading });
        }
        is_whole
    }

    /// True if the hash has been read as a whole.
    pub(super) fn was_read(&self) -> bool {
        self.last.is_some()
    }

    /// Returns the purges of which only notes are left: a node adds one while another node removes the purge, and nodes of
    /// earlier versions remove no notes of sites.
    pub(super) fn left_behind(&self, now: Instant) -> Vec<PurgeId> {
        let old = self.numberless.iter().filter(|(_, since)| now.saturating_duration_since(**since) >= LEFT_AFTER);
        old.map(|(id, _)| *id).collect()
    }

    /// Notes that the fields of a purge were removed.
    pub(super) fn forget(&mut self, id: PurgeId) {
        self.shared.remove(id);
        self.numberless.remove(&id);
    }

    /// Gives up a read in progress: another server has other cursors.
    pub(super) fn restart(&mut self) {
        self.reading = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
    }

    fn read(all: &[(&str, &str)]) -> SharedPurges {
        let mut shared = SharedPurges::default();
        shared.add(&fields(all));
        shared
    }

    #[test]
    fn malformed_lists_are_unreadable() {
        let is_readable = |text: &[u8]| matches!(SharedList::of(text.to_vec()), SharedList::Readable(..));
        assert!(is_readable(br#"{"at": 1, "links": ["5 a"], "claims": [7]}"#));
        for text in [&b""[..], b"{", b"{}", b"\xff", br#"{"at": 1, "links": ["x"]}"#] {
            assert!(!is_readable(text), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn fields_name_purges_and_nodes() {
        let (first, second) = (PurgeId(1).to_string(), PurgeId(2).to_string());
        let (of_first, of_second) = (format!("{first}/node/a"), format!("{second}/b"));
        let of_site = format!("{first}@berlin");
        let trimmed = format!("{second}#ber/lin@1");
        let read = read(&[
            (first.as_str(), "7"),
            (second.as_str(), "soon"),
            (of_first.as_str(), "done"),
            (of_second.as_str(), "done"),
            (of_site.as_str(), "done"),
            (trimmed.as_str(), "done"),
            ("later", "7"),
            ("later/a", "done"),
            ("later@a", "done"),
            ("later#a", "done"),
            ("#", "done"),
        ]);
        assert!(read.is_noted(PurgeId(2), PurgeNote::Trimmed, "ber/lin@1"), "a name may have each sign");
        assert_eq!(read.trimmed.len(), 1);
        assert!(read.is_noted(PurgeId(1), PurgeNote::Purged, "berlin"));
        assert_eq!(read.sites.len(), 1, "the second purge has none");
        assert_eq!(read.at_ms, BTreeMap::from([(PurgeId(1), 7)]));
        assert_eq!(read.done[&PurgeId(1)], BTreeSet::from(["node/a".to_owned()]));
        assert_eq!(read.done[&PurgeId(2)], BTreeSet::from(["b".to_owned()]));
        assert_eq!(read.done.len(), 2);
    }

    #[test]
    fn fields_of_old_purges_are_removed() {
        let kept_ms = carom_limits::PURGES_KEPT.as_millis() as u64;
        let [old, fresh] = [1, 2].map(|number| PurgeId(number).to_string());
        let (of_old, of_fresh, of_site) = (format!("{old}/a"), format!("{fresh}/a"), format!("{old}@berlin"));
        let trimmed = format!("{old}#berlin");
        let mut read = read(&[
            (old.as_str(), "6"),
            (fresh.as_str(), "7"),
            (of_old.as_str(), "done"),
            (of_fresh.as_str(), "done"),
            (of_site.as_str(), "done"),
            (trimmed.as_str(), "done"),
        ]);
        assert_eq!(read.old(kept_ms + 7), [PurgeId(1)]);
        assert_eq!(read.fields_of(PurgeId(1)), [old, of_old, of_site, trimmed]);
        read.remove(PurgeId(1));
        assert_eq!(read.old(kept_ms + 7), []);
        assert_eq!(read.fields_of(PurgeId(2)), [fresh, of_fresh]);
    }

    #[test]
    fn hash_is_read_once_its_number_of_fields_changes() {
        let (mut reader, begin) = (PurgeReader::default(), Instant::now());
        let [first, second] = [1, 2].map(|number| PurgeId(number).to_string());
        assert_eq!(reader.next(2, begin).as_deref(), Some("0"), "it was never read");
        assert!(!reader.take(&fields(&[(first.as_str(), "7")]), "9".to_owned(), begin));
        assert!(!reader.was_read());
        assert_eq!(reader.shared, SharedPurges::default(), "the rest may have more of this purge");
        assert_eq!(reader.next(3, begin).as_deref(), Some("9"), "the read goes on");
        assert!(reader.take(&fields(&[(second.as_str(), "8")]), "0".to_owned(), begin));
        assert!(reader.was_read());
        assert_eq!(reader.shared.at_ms, BTreeMap::from([(PurgeId(1), 7), (PurgeId(2), 8)]));
        assert_eq!(reader.next(2, begin + READ_EVERY / 2), None);
        assert_eq!(reader.next(3, begin + READ_EVERY / 2).as_deref(), Some("0"));
        assert!(reader.take(&[], "0".to_owned(), begin + READ_EVERY / 2));
        assert_eq!(reader.shared, SharedPurges::default(), "Redis has lost them");
    }

    #[test]
    fn notes_without_a_purge_are_left_behind() {
        let (mut reader, begin) = (PurgeReader::default(), Instant::now());
        let [gone, back, kept] = [1, 2, 3].map(|number| PurgeId(number).to_string());
        let notes = [format!("{gone}@berlin"), format!("{gone}/a"), format!("{back}#berlin"), format!("{kept}/a")];
        let mut all: Vec<(&str, &str)> = notes.iter().map(|note| (note.as_str(), "done")).collect();
        all.push((kept.as_str(), "7"));
        let mut read = |more: &[(&str, &str)], now: Instant| {
            reader.next(0, now);
            assert!(reader.take(&fields(&[&all[..], more].concat()), "0".to_owned(), now));
            reader.left_behind(now)
        };
        assert_eq!(read(&[], begin), [], "a node may put the numbers back");
        assert_eq!(read(&[(back.as_str(), "8")], begin + LEFT_AFTER / 2), []);
        assert_eq!(read(&[], begin + LEFT_AFTER), [PurgeId(1)], "the second one was back");
        assert_eq!(reader.shared.fields_of(PurgeId(1)), [format!("{gone}/a"), format!("{gone}@berlin")]);
        reader.forget(PurgeId(1));
        assert_eq!(reader.left_behind(begin + LEFT_AFTER), []);
    }

    #[test]
    fn hash_is_read_again_after_some_time() {
        let (mut reader, begin) = (PurgeReader::default(), Instant::now());
        reader.next(2, begin);
        assert!(reader.take(&[], "0".to_owned(), begin));
        assert_eq!(reader.next(2, begin + READ_EVERY / 2), None);
        let cursor = reader.next(2, begin + READ_EVERY);
        assert_eq!(cursor.as_deref(), Some("0"), "one field may have replaced another");
        assert!(!reader.take(&[], "9".to_owned(), begin));
        reader.restart();
        assert_eq!(reader.next(2, begin + READ_EVERY).as_deref(), Some("0"));
    }
}
