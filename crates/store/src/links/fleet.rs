//! The replication state of a fleet node: the outbox, its position in each stream, the partitions to compare, and the
//! known counters. It is in the store of links, because it is written with them.

use std::time::Duration;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::Slice;
use xxhash_rust::xxh3::xxh3_64;

use super::changes::LogPosition;
use super::handles::{Batch, Links, sealed, unsealed};
use crate::error::StoreError;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::Delivery;
use carom_model::replication::retention::FollowedSpan;
use carom_model::replication::{EntryId, Partition, formats};
use carom_model::visits::grants::GrantEpoch;

/// Key of the time of the last contact with the fleet. It exists as soon as the node has joined a fleet.
const LAST_CONTACT: &str = "heard";

/// Key of the time in which the node has followed the streams.
const FOLLOWED: &str = "span";

/// Key of the names of the other nodes that may hold granted visits.
const HOLDERS: &str = "holders";

/// First byte of the keys of positions of the change log by their times.
const LOG_TIME: u8 = b't';

/// Returns the value of a replication record for a node that joins with a snapshot of this store; `None` if the
/// snapshot leaves the record out. The time of the last contact is empty in a snapshot, because it proves the leases of
/// this node. Positions of the change log are left out, because the joining node has a log of its own.
pub fn value_for_joining_node<'v>(key: &[u8], value: &'v [u8]) -> Option<&'v [u8]> {
    match key.first() {
        Some(&LOG_TIME) => None,
        _ if key == LAST_CONTACT.as_bytes() => Some(b""),
        _ => Some(value),
    }
}

impl Batch {
    /// Adds an entry to the outbox.
    pub fn add_to_outbox(&mut self, delivery: &Delivery) {
        self.inner.insert(&self.fleet, outbox_key(delivery.seq), delivery.code.key(&mut [0; CODE_KEY_LEN_MAX]));
    }

    /// Removes an entry from the outbox.
    pub fn remove_from_outbox(&mut self, seq: u64) {
        self.inner.remove(&self.fleet, Slice::from(&outbox_key(seq)[..]));
    }

    /// Sets the position of this node in the stream of a partition.
    pub fn set_position(&mut self, partition: Partition, position: &StreamPosition) {
        self.inner.insert(&self.fleet, position_key(partition), sealed_position(partition, position));
    }

    /// Marks a partition as one to compare with Redis, or clears that mark.
    pub fn set_compare(&mut self, partition: Partition, needed: bool) {
        let key = [b'c', partition.0];
        if needed {
            self.inner.insert(&self.fleet, key, []);
        } else {
            self.inner.remove(&self.fleet, Slice::from(&key[..]));
            self.clear_compare_after(partition);
        }
    }

    /// Sets the highest counter value of this length that any node of the fleet knows.
    pub fn set_floor(&mut self, code_len: usize, value: u64) {
        let key = floor_key(code_len);
        self.inner.insert(&self.fleet, key.as_str(), sealed(&key, value));
    }

    /// Marks the store as part of a fleet, with an unknown time of last contact.
    pub fn join_fleet(&mut self) {
        self.inner.insert(&self.fleet, LAST_CONTACT, "");
    }

    /// Records the last contact with the fleet, as the time since the boot of the machine with this ID.
    pub fn set_last_contact(&mut self, boot: &str, since_boot: Duration) {
        let value = format!("{boot} {}", since_boot.as_millis());
        self.inner.insert(&self.fleet, LAST_CONTACT, value.as_str());
    }

    /// Records the time in which the node has followed the streams. A node that is a copy of another one has the record
    /// of that node.
    pub fn set_followed(&mut self, span: &FollowedSpan) {
        let numbers = [span.began_ms, span.until_ms, span.expiring_ms];
        self.inner.insert(&self.fleet, FOLLOWED, sealed_numbers(numbers, 0));
    }

    /// Sets the last epoch of granted visits that this node reports to, for a partition.
    pub fn set_grant_epoch(&mut self, partition: Partition, epoch: &GrantEpoch) {
        let numbers = [epoch.number, epoch.nonce, 0];
        self.inner.insert(&self.fleet, [b'g', partition.0], sealed_numbers(numbers, partition.0));
    }

    /// Records the names of the other nodes that may hold granted visits.
    pub fn set_grant_holders<'n>(&mut self, names: impl IntoIterator<Item = &'n String>) {
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        let text = names.join("\n").into_bytes();
        self.inner.insert(&self.fleet, HOLDERS, [&xxh3_64(&text).to_le_bytes()[..], &text].concat());
    }

    /// Records the position that the change log had at a time, in milliseconds since 1970 by the clock of Redis.
    pub fn set_log_time(&mut self, at_ms: u64, position: LogPosition) {
        self.inner.insert(&self.fleet, log_time_key(at_ms), position.0.to_be_bytes());
    }

    /// Removes the position that the change log had at a time.
    pub fn remove_log_time(&mut self, at_ms: u64) {
        self.inner.remove(&self.fleet, Slice::from(&log_time_key(at_ms)[..]));
    }
}

impl Links {
    /// Returns the highest counter value of this length that any node of the fleet is known to have seen; 0 if unknown.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it cannot be read.
    pub fn floor(&self, code_len: usize) -> Result<u64, StoreError> {
        let key = floor_key(code_len);
        self.fleet.get(&key)?.map_or(Ok(0), |value| unsealed(&key, &value))
    }

    /// Returns the last contact with the fleet as the time since this boot of the machine; `None` if it was before the
    /// boot.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn last_contact(&self, boot: &str) -> Result<Option<Duration>, StoreError> {
        let stored = self.fleet.get(LAST_CONTACT)?;
        let text = stored.as_deref().and_then(|stored| std::str::from_utf8(stored).ok()).unwrap_or_default();
        let millis = text.split_once(' ').filter(|(of, _)| *of == boot && !boot.is_empty());
        Ok(millis.and_then(|(_, millis)| millis.parse().ok()).map(Duration::from_millis))
    }

    /// True if the store has been part of a fleet.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be read.
    pub fn has_joined_fleet(&self) -> Result<bool, StoreError> {
        Ok(self.fleet.get(LAST_CONTACT)?.is_some())
    }

    /// Returns the outbox, in the order of its entries. A damaged entry is skipped: it contains only a code, whose
    /// state is delivered again at the next comparison of everything.
    ///
    /// # Errors
    /// [`StoreError`] if the outbox cannot be read.
    pub fn outbox(&self) -> Result<Vec<Delivery>, StoreError> {
        let mut entries = Vec::new();
        for guard in self.fleet.prefix([b'o']) {
            let (key, value) = guard.into_inner()?;
            let seq = key.get(1..).and_then(|seq| seq.try_into().ok()).map(u64::from_be_bytes);
            if let (Some(seq), Ok(code)) = (seq, Code::from_key(&value)) {
                entries.push(Delivery { seq, code });
            }
        }
        Ok(entries)
    }

    /// Returns the position of this node in the stream of a partition; `None` if it has none, or the stored one is
    /// damaged.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn position(&self, partition: Partition) -> Result<Option<StreamPosition>, StoreError> {
        let stored = self.fleet.get(position_key(partition))?;
        Ok(stored.and_then(|stored| unsealed_position(partition, &stored)))
    }

    /// Returns the time in which the node has followed the streams; all zeros if it is unknown or damaged.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    pub fn followed(&self) -> Result<FollowedSpan, StoreError> {
        let numbers = self.fleet.get(FOLLOWED)?.and_then(|stored| unsealed_numbers(&stored, 0));
        let span = |[began_ms, until_ms, expiring_ms]: [u64; 3]| FollowedSpan { began_ms, until_ms, expiring_ms };
        Ok(numbers.map_or_else(FollowedSpan::default, span))
    }

    /// Returns the last epoch of granted visits that this node reports to; that of number 0 if none is stored.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the stored one is damaged: the node may have grants.
    pub fn grant_epoch(&self, partition: Partition) -> Result<GrantEpoch, StoreError> {
        let Some(stored) = self.fleet.get([b'g', partition.0])? else { return Ok(GrantEpoch::default()) };
        let damaged = || StoreError::Damaged(format!("the epoch of grants of partition {} is damaged", partition.0));
        let [number, nonce, _] = unsealed_numbers(&stored, partition.0).ok_or_else(damaged)?;
        Ok(GrantEpoch { number, nonce })
    }

    /// Returns the names of the other nodes that may hold granted visits.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if they cannot be read.
    pub fn grant_holders(&self) -> Result<Vec<String>, StoreError> {
        let Some(stored) = self.fleet.get(HOLDERS)? else { return Ok(Vec::new()) };
        let intact = stored.split_first_chunk::<8>().filter(|(sum, text)| u64::from_le_bytes(**sum) == xxh3_64(text));
        let text = intact.and_then(|(_, text)| std::str::from_utf8(text).ok());
        let text = text.ok_or_else(|| StoreError::Damaged("the names of the other nodes are damaged".to_owned()))?;
        Ok(text.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the recorded positions of the change log with their times, the earliest first. A damaged one is left out.
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be read.
    pub fn log_times(&self) -> Result<Vec<(u64, LogPosition)>, StoreError> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
        let mut times = Vec::new();
        for guard in self.fleet.prefix([LOG_TIME]) {
            let (key, value) = guard.into_inner()?;
            if let (Some(at_ms), Some(position)) = (key.get(1..).and_then(number), number(&value[..])) {
                times.push((at_ms, LogPosition(position)));
            }
        }
        Ok(times)
    }

    /// True if a partition must be compared with Redis, also because its stream had an entry that an earlier version
    /// could not understand.
    ///
    /// # Errors
    /// [`StoreError`] if that cannot be read.
    pub fn must_compare(&self, partition: Partition) -> Result<bool, StoreError> {
        let is_noted = self.fleet.get([b'c', partition.0])?.is_some();
        Ok(is_noted || self.compares_after(partition)?.is_some_and(|format| format < formats::newest()))
    }
}

fn floor_key(code_len: usize) -> String {
    format!("floor/{code_len:02}")
}

fn outbox_key(seq: u64) -> [u8; 9] {
    let mut key = [b'o'; 9];
    key[1..].copy_from_slice(&seq.to_be_bytes());
    key
}

fn position_key(partition: Partition) -> [u8; 2] {
    [b'p', partition.0]
}

fn log_time_key(at_ms: u64) -> [u8; 9] {
    let mut key = [LOG_TIME; 9];
    key[1..].copy_from_slice(&at_ms.to_be_bytes());
    key
}

/// Encodes a position with a checksum over it and its partition.
fn sealed_position(partition: Partition, position: &StreamPosition) -> [u8; 32] {
    sealed_numbers([position.id.ms, position.id.seq, position.check], partition.0)
}

fn unsealed_position(partition: Partition, stored: &[u8]) -> Option<StreamPosition> {
    let [ms, seq, check] = unsealed_numbers(stored, partition.0)?;
    Some(StreamPosition { id: EntryId { ms, seq }, check })
}

/// Encodes three numbers with a checksum over them and their owner.
fn sealed_numbers(numbers: [u64; 3], owner: u8) -> [u8; 32] {
    let mut out = [0; 32];
    for (place, number) in out.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = xxh3_64(&out[..24]) ^ u64::from(owner);
    out[24..].copy_from_slice(&sum.to_le_bytes());
    out
}

fn unsealed_numbers(stored: &[u8], owner: u8) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = stored.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let &[first, second, third, sum] = &numbers[..] else { return None };
    let intact = stored.len() == 32 && sum == xxh3_64(&stored[..24]) ^ u64::from(owner);
    intact.then_some([first, second, third])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_node_gets_no_leases() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let position = StreamPosition { id: EntryId { ms: 7, seq: 8 }, check: 9 };
        let mut batch = links.batch();
        batch.set_last_contact("boot", Duration::from_millis(1_234));
        batch.set_position(Partition(3), &position);
        batch.set_log_time(900, LogPosition(7));
        links.commit(batch).unwrap();
        let (copy_dir, mut left_out) = (tempfile::tempdir().unwrap(), Vec::new());
        let (peer, (links, _)) = (links, Links::open(copy_dir.path(), "key").unwrap());
        let mut copy = links.batch();
        for guard in peer.fleet.iter() {
            let (key, value) = guard.into_inner().unwrap();
            match value_for_joining_node(&key, &value) {
                Some(value) => copy.inner.insert(&links.fleet, &key[..], value),
                None => left_out.push(key[0]),
            }
        }
        links.commit(copy).unwrap();
        assert_eq!(left_out, b"t");
        assert_eq!(links.log_times().unwrap(), []);
        assert_eq!(links.last_contact("boot").unwrap(), None);
        assert!(links.has_joined_fleet().unwrap());
        assert_eq!(links.position(Partition(3)).unwrap(), Some(position));
    }

    #[test]
    fn everything_comes_back_and_what_is_damaged_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let (here, there) = (Partition(3), Partition(4));
        let position = StreamPosition { id: EntryId { ms: 7, seq: 8 }, check: 9 };
        let delivery = |seq: u64, code: &str| Delivery { seq, code: Code::parse(code.as_bytes()).unwrap() };
        assert!(!links.has_joined_fleet().unwrap());
        let mut batch = links.batch();
        [delivery(300, "c"), delivery(2, "a"), delivery(9, "b")].iter().for_each(|entry| batch.add_to_outbox(entry));
        batch.remove_from_outbox(9);
        batch.set_position(here, &position);
        batch.set_compare(there, true);
        batch.set_floor(7, 55);
        batch.join_fleet();
        links.commit(batch).unwrap();
        assert!(links.has_joined_fleet().unwrap());
        assert_eq!(links.last_contact("boot").unwrap().or(links.last_contact("").unwrap()), None);
        let mut batch = links.batch();
        batch.set_last_contact("boot", Duration::from_millis(1_234));
        links.commit(batch).unwrap();
        assert_eq!(links.outbox().unwrap(), [delivery(2, "a"), delivery(300, "c")]);
        assert_eq!((links.position(here).unwrap(), links.position(there).unwrap()), (Some(position), None));
        assert_eq!((links.must_compare(here).unwrap(), links.must_compare(there).unwrap()), (false, true));
        assert_eq!((links.floor(7).unwrap(), links.floor(8).unwrap()), (55, 0));
        assert_eq!(links.last_contact("boot").unwrap(), Some(Duration::from_millis(1_234)));
        assert_eq!(links.last_contact("another").unwrap(), None, "the time since another start says nothing");
        assert!(links.has_joined_fleet().unwrap());
        let mut batch = links.batch();
        batch.set_compare(there, false);
        batch.inner.insert(&batch.fleet.clone(), position_key(here), sealed_position(there, &position));
        links.commit(batch).unwrap();
        assert_eq!(links.position(here).unwrap(), None, "that was the place in another stream");
        assert!(!links.must_compare(there).unwrap());
    }

    #[test]
    fn epochs_and_holders_of_grants_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        assert_eq!(links.grant_epoch(Partition(3)).unwrap(), GrantEpoch::default());
        assert_eq!(links.grant_holders().unwrap(), Vec::<String>::new());
        let (epoch, names) = (GrantEpoch { number: 4, nonce: 5 }, ["n1", "n2"].map(str::to_owned));
        let mut batch = links.batch();
        batch.set_grant_epoch(Partition(3), &epoch);
        batch.set_grant_holders(&names);
        links.commit(batch).unwrap();
        assert_eq!(links.grant_epoch(Partition(3)).unwrap(), epoch);
        assert_eq!(links.grant_epoch(Partition(4)).unwrap(), GrantEpoch::default());
        assert_eq!(links.grant_holders().unwrap(), names);
        let mut batch = links.batch();
        batch.inner.insert(&batch.fleet.clone(), HOLDERS, "n1");
        batch.inner.insert(&batch.fleet.clone(), [b'g', 4], sealed_numbers([4, 5, 0], 3));
        links.commit(batch).unwrap();
        assert!(links.grant_holders().is_err(), "nobody would wait for n1");
        let found = links.grant_epoch(Partition(4));
        assert!(matches!(found, Err(StoreError::Damaged(_))), "that was the epoch of another one");
    }

    #[test]
    fn followed_time_and_log_times_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        assert_eq!(links.followed().unwrap(), FollowedSpan::default());
        assert_eq!(links.log_times().unwrap(), []);
        let span = FollowedSpan { began_ms: 5, until_ms: 9, expiring_ms: 4 };
        let mut batch = links.batch();
        batch.set_followed(&span);
        [(900, 7), (80, 3), (1_000, 8)]
            .iter()
            .for_each(|&(at, position)| batch.set_log_time(at, LogPosition(position)));
        links.commit(batch).unwrap();
        assert_eq!(links.followed().unwrap(), span);
        let mut batch = links.batch();
        batch.remove_log_time(900);
        links.commit(batch).unwrap();
        assert_eq!(links.log_times().unwrap(), [(80, LogPosition(3)), (1_000, LogPosition(8))]);
        let mut batch = links.batch();
        let mut damaged = sealed_numbers([5, 9, 4], 0);
        damaged[3] ^= 1;
        batch.inner.insert(&batch.fleet, FOLLOWED, damaged);
        links.commit(batch).unwrap();
        assert_eq!(links.followed().unwrap(), FollowedSpan::default(), "the node is taken for one that has nothing");
    }
}
