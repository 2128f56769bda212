//! Snapshots of the visits of one origin, from a node that has them to a node that misses a batch.
//!
//! The node that misses something publishes a request. The origin itself answers it, or after some seconds any node that
//! has more. One of them claims the request, and sends the histories of all subjects in chunks. Redis holds a few chunks
//! at a time. A snapshot that stops is asked for again, from the beginning.

use std::time::{Duration, Instant};

use super::aggregator::fleet::OriginView;
use super::reader::VisitReader;
use super::stored_rows::add_stored;
use super::unfinished::Unfinished;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::{Redis, VisitNotes};
use carom_limits::VISITS_CHUNK_BYTES;
use carom_model::visits::count_exchange::{STALE_AFTER, SeenRequests, SnapshotRequest, WantedSnapshot};
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::OriginId;
use carom_model::visits::tally::{push_number, take_bytes, take_number};
use carom_store::links::{Links, StoreError, VisitRow};

/// Timeout of one request.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of rows that one read of a snapshot takes.
const READ_ROWS: usize = 4_000;

/// Returns a random number other than 0.
///
/// # Errors
/// If the operating system has no random bytes.
pub(super) fn random() -> Result<u64, StoreError> {
    let number = getrandom::u64().map_err(|error| StoreError::Failed(format!("no random number: {error}")))?;
    Ok(number.max(1))
}

/// The snapshots on their way: at most one that this node sends, and one that it receives.
#[derive(Default)]
pub(super) struct Snapshots {
    outgoing: Option<OutgoingSnapshot>,
    incoming: Option<WantedSnapshot>,
    wanted: SeenRequests,
    /// The origin under which Redis may have a request of this node.
    asked: Option<OriginId>,
}

/// A snapshot that this node sends.
struct OutgoingSnapshot {
    request: String,
    view: OriginView,
    /// The key of the last row that was read.
    read: Vec<u8>,
    /// The history that is being put together, by its name.
    current: Option<(Vec<u8>, VisitHistory)>,
    is_read: bool,
    sent: u64,
    since: Instant,
}

/// Gives up a snapshot. If batches are still missing, the next turn asks for another one.
fn give_up(incoming: &WantedSnapshot, visits: &VisitReader) -> Result<(), Unfinished> {
    let Some(slot) = incoming.slot else { return Ok(()) };
    Ok(visits.aggregator().give_up_snapshot(slot)?)
}

/// A chunk of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct SnapshotChunk {
    /// The number of the chunk, from 0.
    number: u64,
    /// Names of subjects, each with its stored history.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of the last batch in the snapshot; only in the last chunk.
    applied: Option<u64>,
}

impl SnapshotChunk {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_number(self.number, &mut out);
        push_number(self.applied.map_or(0, |applied| applied + 1), &mut out);
        for bytes in self.rows.iter().flat_map(|(name, value)| [name, value]) {
            push_number(bytes.len() as u64, &mut out);
            out.extend_from_slice(bytes);
        }
        out
    }

    fn decode(mut bytes: &[u8]) -> Option<SnapshotChunk> {
        let number = take_number(&mut bytes)?;
        let applied = take_number(&mut bytes)?.checked_sub(1);
        let mut rows = Vec::new();
        while !bytes.is_empty() {
            rows.push((take_bytes(&mut bytes)?.to_vec(), take_bytes(&mut bytes)?.to_vec()));
        }
        Some(SnapshotChunk { number, rows, applied })
    }
}

impl OutgoingSnapshot {
    /// Reads the next chunk.
    fn next_chunk(&mut self, links: &Links) -> Result<SnapshotChunk, StoreError> {
        let mut chunk = SnapshotChunk { number: self.sent, ..SnapshotChunk::default() };
        let mut bytes = 0;
        while !self.is_read && bytes < VISITS_CHUNK_BYTES {
            let rows = links.visits_after_in(&self.view.view, &self.read, READ_ROWS)?;
            let Some(last) = rows.last() else {
                self.is_read = true;
                break;
            };
            self.read.clone_from(&last.key);
            for row in &rows {
                bytes += self.take_row(row, &mut chunk)?;
            }
        }
        if self.is_read {
            self.end_subject(&mut chunk);
            chunk.applied = Some(self.view.applied);
        }
        Ok(chunk)
    }

    /// Adds a row. Returns by how many bytes the chunk grew.
    fn take_row(&mut self, row: &VisitRow, chunk: &mut SnapshotChunk) -> Result<usize, StoreError> {
        // Every node derives visits from before an import from the record of the link.
        let is_of_origin = row.place.slot == self.view.slot && row.place.is_since(self.view.since);
        if row.place.is_of_writer() || !is_of_origin || row.place.log > self.view.folded {
            return Ok(0);
        }
        let mut bytes = 0;
        if self.current.as_ref().is_some_and(|(name, _)| *name != row.name) {
            bytes = self.end_subject(chunk);
        }
        let (_, history) = self.current.get_or_insert_with(|| (row.name.clone(), VisitHistory::default()));
        add_stored(history, row)?;
        Ok(bytes)
    }

    fn end_subject(&mut self, chunk: &mut SnapshotChunk) -> usize {
        let Some((name, history)) = self.current.take() else { return 0 };
        let mut value = Vec::new();
        history.encode(&mut value);
        let bytes = name.len() + value.len();
        chunk.rows.push((name, value));
        bytes
    }
}

impl Snapshots {
    /// Returns the state of a process that has asked for nothing yet. An earlier one may have left a request of `own` behind.
    pub(super) fn new(own: OriginId) -> Snapshots {
        Snapshots { asked: Some(own), ..Snapshots::default() }
    }

    /// True if a snapshot is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.outgoing.is_some() || self.incoming.is_some()
    }

    /// True if a snapshot of an origin is being received.
    pub(super) fn is_receiving(&self, origin: OriginId) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.origin == origin)
    }

    /// Asks for a snapshot of an origin. Returns false if one is being received already.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub(super) fn ask(&mut self, origin: OriginId, node: &str) -> Result<bool, StoreError> {
        if self.incoming.is_some() {
            return Ok(false);
        }
        let request = format!("{:016x}", random()?);
        self.incoming = Some(WantedSnapshot::new(origin, node, request, since_boot()));
        Ok(true)
    }

    /// Sends the next chunks of one snapshot, and stores those of the other that have come.
    ///
    /// # Errors
    /// If Redis does not answer, or the store fails.
    pub(super) fn turn(&mut self, redis: &mut Redis, visits: &VisitReader) -> Result<(), Unfinished> {
        self.send_some(redis, visits)?;
        self.receive_some(redis, visits)
    }

    /// Looks for a request that this node can answer.
    pub(super) fn answer_wanted(&mut self, own: OriginId, notes: &VisitNotes, redis: &mut Redis, visits: &VisitReader) {
        let wanted = notes.wanted.iter().filter_map(|(by, text)| SnapshotRequest::parse(*by, text)).collect();
        let due = self.wanted.due(own, wanted, since_boot());
        // Nobody takes its chunks any more, and the node may be asking again.
        if self.outgoing.as_ref().is_some_and(|outgoing| !self.wanted.is_wanted(&outgoing.request)) {
            self.outgoing = None;
        }
        for SnapshotRequest { request, of, after, .. } in due {
            if self.outgoing.is_some() {
                return;
            }
            let Some(view) = visits.aggregator().origin_view(of, after) else { continue };
            if redis.claim_wanted(&request, REDIS_TIMEOUT).is_ok_and(|is_claimed| is_claimed) {
                let (read, current, since) = (Vec::new(), None, Instant::now());
                self.outgoing = Some(OutgoingSnapshot { request, view, read, current, is_read: false, sent: 0, since });
            }
        }
    }

    /// Takes the request of this node back unless it waits for a snapshot. Otherwise nodes that start later would answer it,
    /// and would be busy with a snapshot that nobody takes.
    ///
    /// # Errors
    /// If Redis does not answer. A later call tries again.
    pub(super) fn take_back(&mut self, redis: &mut Redis) -> Result<(), Unfinished> {
        if let Some(by) = self.asked.filter(|_| self.incoming.is_none()) {
            redis.want_visits(by, None, REDIS_TIMEOUT)?;
            self.asked = None;
        }
        Ok(())
    }

    /// Sends the next chunks of a snapshot, if there is room for them.
    fn send_some(&mut self, redis: &mut Redis, visits: &VisitReader) -> Result<(), Unfinished> {
        // Without it after an error: the other node asks for another snapshot then.
        let Some(mut outgoing) = self.outgoing.take() else { return Ok(()) };
        let room = redis.room_for_chunks(&outgoing.request, REDIS_TIMEOUT)?;
        let links = visits.aggregator().links();
        for _ in 0..room {
            let chunk = outgoing.next_chunk(&links)?;
            redis.put_chunk(&outgoing.request, &chunk.encode(), REDIS_TIMEOUT)?;
            if chunk.applied.is_some() {
                return Ok(());
            }
            outgoing.sent += 1;
            outgoing.since = Instant::now();
        }
        self.outgoing = Some(outgoing).filter(|outgoing| outgoing.since.elapsed() < STALE_AFTER);
        Ok(())
    }

    /// Asks for a snapshot, and stores the chunks that have come.
    fn receive_some(&mut self, redis: &mut Redis, visits: &VisitReader) -> Result<(), Unfinished> {
        let Some(mut incoming) = self.incoming.take() else { return Ok(()) };
        let own = visits.aggregator().own_origin().0;
        if incoming.is_stuck(since_boot()) {
            return give_up(&incoming, visits);
        }
        if !incoming.is_asked {
            let after = visits.aggregator().counted_of(incoming.origin);
            let (request, of) = (incoming.request.clone(), incoming.origin);
            let text = SnapshotRequest { by: own, request, of, after, site: None }.to_text();
            self.asked = Some(own);
            let asked = redis.want_visits(own, Some(&text), REDIS_TIMEOUT);
            incoming.is_asked = asked.is_ok();
            self.incoming = Some(incoming);
            return asked.map_err(Unfinished::from);
        }
        match redis.take_chunk(&incoming.request, REDIS_TIMEOUT) {
            Ok(Some(bytes)) => match SnapshotChunk::decode(&bytes) {
                Some(chunk) if incoming.is_next(chunk.number) => self.store_chunk(incoming, &chunk, redis, visits),
                _ => give_up(&incoming, visits),
            },
            Ok(None) => {
                self.incoming = Some(incoming);
                Ok(())
            }
            Err(error) => {
                give_up(&incoming, visits)?;
                Err(error.into())
            }
        }
    }

    fn store_chunk(
        &mut self,
        mut incoming: WantedSnapshot,
        chunk: &SnapshotChunk,
        redis: &mut Redis,
        visits: &VisitReader,
    ) -> Result<(), Unfinished> {
        if incoming.slot.is_none() {
            incoming.slot = visits.aggregator().begin_snapshot((incoming.origin, &incoming.node))?;
        }
        let Some(slot) = incoming.slot else { return Ok(()) };
        incoming.progress(since_boot());
        let put = visits.aggregator().put_snapshot(slot, &chunk.rows);
        match put {
            Ok(true) => {}
            Ok(false) => return give_up(&incoming, visits),
            Err(error) => {
                give_up(&incoming, visits)?;
                return Err(error.into());
            }
        }
        match chunk.applied {
            Some(applied) => {
                visits.aggregator().end_snapshot(slot, applied)?;
                tracing::info!(node = incoming.node, batch = applied, "received a snapshot of the visits of a node");
                self.take_back(redis)?;
            }
            None => self.incoming = Some(incoming),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_is_read_as_it_was_written() {
        let rows = vec![(b"abc".to_vec(), vec![1, 2]), (vec![1], Vec::new())];
        for applied in [None, Some(0), Some(u64::from(u32::MAX))] {
            let chunk = SnapshotChunk { number: 7, rows: rows.clone(), applied };
            let bytes = chunk.encode();
            assert_eq!(SnapshotChunk::decode(&bytes), Some(chunk));
            assert_eq!(SnapshotChunk::decode(&bytes[..bytes.len() - 1]), None);
        }
    }
}
