//! Takes the blocks of other nodes from their streams, checks them, and hands them to the thread that writes the log.
//!
//! The position in each stream is the number of the last block on disk, so a crash at any moment repeats no block and
//! leaves none out. Redis may hold anything: a block counts only with the right checksum, origin and number.

use std::time::{Duration, Instant};

use super::block_exchange::{Interrupted, LogExchange, REDIS_TIMEOUT, own_of};
use super::mark::{BlockContent, BlockMark};
use super::segment::take_block;
use super::sharing::ReceivedBlock;
use super::{VisitLogState, locked};
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::VisitLogNotes;
use carom_limits::VISIT_LOG_INBOX_BYTES;
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::{LogEntry, LogNote, OriginPosition, ReadEntry};
use carom_telemetry::clock::unix_ms;

/// Number of entries read from one stream at once.
const READ_COUNT: usize = 16;

/// Longest time of one turn for the blocks of one origin.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for which the exchange waits until blocks are written.
const WRITE_TIME_MAX: Duration = Duration::from_secs(2);

/// Interval at which it looks whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Blocks of one origin that are ready to be written.
pub(super) struct ReadyBlocks<'s> {
    shared: &'s VisitLogState,
    origin: OriginId,
    /// The number of the next block.
    due: u64,
    blocks: Vec<ReceivedBlock>,
    bytes: usize,
}

impl LogExchange {
    /// Takes the blocks of all other origins. Returns true if the log has all that Redis names.
    pub(super) fn follow(&mut self, notes: &VisitLogNotes) -> Result<bool, Interrupted> {
        let own = own_of(&self.shared).0;
        let others = notes.origins.iter().filter(|(id, _)| *id != own);
        let read: Vec<(OriginId, LogNote)> =
            others.clone().filter_map(|(id, text)| Some((*id, LogNote::parse(text)?))).collect();
        let mut has_all = read.len() == others.count();
        // A node that joins stores all of them with one write.
        self.shared.change_shared_log(|shared_log| {
            read.iter().fold(false, |is_changed, (id, note)| shared_log.meet(*id, note) || is_changed)
        })?;
        for (id, note) in &read {
            if self.others.is_read(*id, position_of(&self.shared, *id).number, since_boot()) {
                has_all &= self.follow_one(*id, note)?;
            }
        }
        Ok(has_all)
    }

    /// Takes the blocks of one origin. Returns true if the log has all up to the one that Redis names.
    fn follow_one(&mut self, id: OriginId, note: &LogNote) -> Result<bool, Interrupted> {
        let begun = Instant::now();
        while begun.elapsed() < FOLLOW_TIME_MAX {
            if !is_written(&self.shared) {
                return Ok(false);
            }
            let before = position_of(&self.shared, id);
            let entries = self.redis.log_entries(id, before.number + 1, READ_COUNT, REDIS_TIMEOUT)?;
            if entries.is_empty() {
                return self.end(id, note, before);
            }
            let blocks = ReadyBlocks::new(&self.shared, id, before).take(entries)?;
            if !blocks.is_empty() {
                self.shared.sharing.inbox().blocks.extend(blocks);
            }
            if !is_written(&self.shared) || position_of(&self.shared, id) == before {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Ends the reading of a stream. Blocks that Redis names and the stream lacks for long are lost.
    fn end(&mut self, id: OriginId, note: &LogNote, position: OriginPosition) -> Result<bool, Interrupted> {
        if position.number >= note.number {
            self.others.is_whole(id);
            return Ok(true);
        }
        if self.others.is_late(id, since_boot()) {
            let (node, number) = (note.node.as_str(), note.number);
            tracing::warn!(node, origin = %id, number, "logged visits of another node are missing in Redis");
            self.shared.change_shared_log(|shared_log| {
                shared_log.skip(id, note.number, note.last_ms);
                true
            })?;
            self.others.is_whole(id);
        }
        Ok(false)
    }
}

impl<'s> ReadyBlocks<'s> {
    pub(super) fn new(shared: &'s VisitLogState, origin: OriginId, position: OriginPosition) -> ReadyBlocks<'s> {
        ReadyBlocks { shared, origin, due: position.number + 1, blocks: Vec::new(), bytes: 0 }
    }

    /// Returns the blocks of entries, up to the first gap behind them. A gap before them is stored, with the new position.
    pub(super) fn take(mut self, entries: Vec<(u64, Vec<u8>)>) -> Result<Vec<ReceivedBlock>, Interrupted> {
        for (last, bytes) in entries {
            if !ReadEntry::is_number(last) || last < self.due {
                continue;
            }
            let continues = match ReadEntry::read(&bytes, last) {
                ReadEntry::Known(entry) => self.take_entry(entry)?,
                ReadEntry::Later(_, span) => self.skip(last, span.to_ms, "a later version wrote it")?,
                ReadEntry::Damaged => self.skip(last, unix_ms(), "its checksum or form is wrong")?,
            };
            if !continues {
                break;
            }
        }
        Ok(self.blocks)
    }

    /// Takes the blocks of an entry. Returns false if what was taken must be written first.
    fn take_entry(&mut self, entry: LogEntry) -> Result<bool, Interrupted> {
        if entry.first > self.due {
            if !self.blocks.is_empty() {
                return Ok(false);
            }
            let (origin, first, from_ms) = (self.origin, entry.first, entry.span.from_ms);
            self.shared.change_shared_log(|shared_log| shared_log.bridge(origin, first, from_ms))?;
            self.due = first;
        }
        for (number, block) in (entry.first..).zip(entry.blocks) {
            if number < self.due {
                continue;
            }
            match received(BlockMark { origin: self.origin, number }, block) {
                Some(block) => {
                    self.bytes += block.raw.len();
                    self.blocks.push(block);
                    self.due = number + 1;
                    if self.bytes >= VISIT_LOG_INBOX_BYTES {
                        // A small entry can have large blocks. The rest of it is read again.
                        return Ok(false);
                    }
                }
                None => {
                    if !self.skip(number, entry.span.to_ms, "a block is damaged, or of a later version")? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Skips blocks that cannot be read. Returns false if what was taken must be written first.
    fn skip(&mut self, number: u64, to_ms: u64, why: &str) -> Result<bool, Interrupted> {
        if !self.blocks.is_empty() {
            return Ok(false);
        }
        let origin = self.origin;
        tracing::warn!(%origin, number, why, "visits of another node cannot be read, and are left out");
        self.shared.stats.visit_log.unread.add(number + 1 - self.due);
        self.shared.change_shared_log(|shared_log| {
            shared_log.skip(origin, number, to_ms);
            true
        })?;
        self.due = number + 1;
        Ok(true)
    }
}

/// Returns a block of another node with its records; `None` if it is damaged, has another mark, or records that this
/// version cannot read.
fn received(mark: BlockMark, block: Vec<u8>) -> Option<ReceivedBlock> {
    let mut rest = &block[..];
    let raw = take_block(&mut rest)?;
    let content = BlockContent::of(&raw);
    let is_right = rest.is_empty() && content.is_sound && content.mark == Some(mark);
    let last_ms = content.span.map_or(0, |span| span.to_ms);
    is_right.then(|| ReceivedBlock { mark, block, raw: raw.into(), visits: content.visits, last_ms })
}

/// Waits until the thread that writes has written all blocks. Returns false if it takes too long.
fn is_written(shared: &VisitLogState) -> bool {
    let begun = Instant::now();
    loop {
        let is_done = {
            let inbox = shared.sharing.inbox();
            inbox.blocks.is_empty() && !inbox.is_busy
        };
        if is_done || begun.elapsed() >= WRITE_TIME_MAX {
            return is_done;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Returns how far the log has the blocks of an origin.
pub(super) fn position_of(shared: &VisitLogState, id: OriginId) -> OriginPosition {
    locked(&shared.state).shared_log.as_ref().map(|shared_log| shared_log.position(id)).unwrap_or_default()
}
