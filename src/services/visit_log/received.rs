//! The blocks of a shared log on their way to the disk: own ones get a number, those of other nodes come from the
//! exchange.

use std::collections::HashMap;
use std::fs;
use std::io;

use super::deletions::Deletions;
use super::mark::{BlockContent, BlockMark};
use super::outgoing::{OwnBlock, open_blocks};
use super::segment::{active_path, each_record, push_block};
use super::sharing::{self, LogSharing, ReceivedBlock};
use super::{LogState, VisitLogState, VisitLogWriter, locked};
use carom_limits::VISIT_DELETIONS_KEPT;
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::{LogSpan, OriginPosition, SharedLogState};
use carom_telemetry::clock::unix_ms;

impl VisitLogState {
    /// Returns the mark of the next own block; `None` if the log is not shared.
    pub(super) fn next_mark(&self) -> Option<BlockMark> {
        let state = locked(&self.state);
        let shared_log = state.shared_log.as_ref()?;
        let origin = shared_log.own();
        Some(BlockMark { origin, number: shared_log.position(origin).number + 1 })
    }

    /// Notes the number of an own block, and its place: the segment, the offset and the length. A block that could not be
    /// written uses up its number, so that other nodes notice the gap.
    pub(super) fn note_own(&self, mark: BlockMark, place: Option<(u64, u64, u32)>, chunk: &[u8]) {
        let mut state = locked(&self.state);
        let LogState { shared_log, outgoing, .. } = &mut *state;
        let Some(shared_log) = shared_log.as_mut().filter(|shared_log| shared_log.own() == mark.origin) else { return };
        let span = BlockContent::of(chunk).span.unwrap_or(LogSpan { from_ms: 0, to_ms: 0 });
        shared_log.reach(mark.origin, mark.number, span.to_ms);
        if let Some((seq, at, len)) = place {
            outgoing.push(OwnBlock { number: mark.number, seq, at, len, span });
        }
    }

    /// Changes the knowledge about the logs of all nodes, durably. `change` returns false if nothing is to be stored.
    ///
    /// # Errors
    /// If it cannot be stored. The change then does not apply.
    pub(super) fn change_shared_log(&self, change: impl FnOnce(&mut SharedLogState) -> bool) -> io::Result<()> {
        let mut state = locked(&self.state);
        let Some(mut next) = state.shared_log.clone() else { return Ok(()) };
        if change(&mut next) {
            next.forget_before(self.oldest_ms());
            self.store_shared_log(&mut state, next)?;
        }
        Ok(())
    }

    /// Stores the knowledge about the logs of all nodes, after the blocks that its positions count.
    fn store_shared_log(&self, state: &mut LogState, next: SharedLogState) -> io::Result<()> {
        match open_blocks(&self.dir, state.active_seq) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => opened?.sync_data()?,
        }
        sharing::write(&self.dir, &next)?;
        state.shared_log = Some(next);
        Ok(())
    }

    /// Gives the log another identity, because this directory is an older copy. `common` is the last own block that the newer
    /// copy has as well.
    ///
    /// # Errors
    /// If it cannot be stored.
    pub(super) fn renew_log(&self, id: OriginId, common: OriginPosition) -> io::Result<()> {
        let mut state = locked(&self.state);
        let Some(mut next) = state.shared_log.clone() else { return Ok(()) };
        next.renew(id, common, unix_ms());
        self.store_shared_log(&mut state, next)?;
        state.outgoing.clear();
        Ok(())
    }

    /// Leaves the file of a segment that is sealed. In a fleet, its marks are stored elsewhere first, and it is kept for
    /// other nodes.
    ///
    /// # Errors
    /// If the disk fails. The next start then does the same.
    pub(super) fn leave_active(&self, seq: u64) -> io::Result<()> {
        let mut state = locked(&self.state);
        let LogState { shared_log, outgoing, .. } = &mut *state;
        match shared_log {
            None => fs::remove_file(active_path(&self.dir, seq)),
            Some(shared_log) => {
                shared_log.note_sealed(seq);
                sharing::write(&self.dir, shared_log)?;
                outgoing.keep(&self.dir, seq)
            }
        }
    }

    /// True if the log has the visits of a span of all nodes.
    pub(super) fn is_whole(&self, span: LogSpan) -> bool {
        match self.sharing.mode() {
            LogSharing::Alone => true,
            LogSharing::Apart => false,
            LogSharing::Shared => {
                let state = locked(&self.state);
                let has_gap = state.shared_log.as_ref().is_none_or(|shared_log| shared_log.gaps().touch(span));
                !has_gap && self.sharing.is_current(span, unix_ms())
            }
        }
    }

    /// Returns the instant since which deletions are kept for visits that arrive later.
    pub(super) fn deletions_since_ms(&self) -> u64 {
        match self.sharing.mode() {
            LogSharing::Alone | LogSharing::Apart => u64::MAX,
            LogSharing::Shared => unix_ms().saturating_sub(VISIT_DELETIONS_KEPT.as_millis() as u64),
        }
    }
}

impl VisitLogWriter {
    /// Appends the blocks of other nodes that have arrived, without deleted visits. Blocks without the next number of their
    /// origin are left out: the exchange reads them again.
    pub(super) fn write_received(&mut self) {
        let received = {
            let mut inbox = self.shared.sharing.inbox();
            if inbox.blocks.is_empty() {
                return;
            }
            inbox.is_busy = true;
            std::mem::take(&mut inbox.blocks)
        };
        self.append_received(received);
        self.shared.sharing.inbox().is_busy = false;
    }

    fn append_received(&mut self, mut received: Vec<ReceivedBlock>) {
        self.retain_next(&mut received);
        if received.is_empty() {
            return;
        }
        self.leave_deleted_out(&mut received);
        self.block.clear();
        received.iter().for_each(|of| self.block.extend_from_slice(&of.block));
        // The marks reach the disk with the visits. A crash in between cuts off whole blocks.
        if let Err(error) = self.append_block() {
            self.fail(&format!("visits of other nodes cannot be written: {error}"));
            return;
        }
        let visits: u64 = received.iter().map(|of| of.visits).sum();
        let mut state = locked(&self.shared.state);
        for ReceivedBlock { mark, raw, last_ms, .. } in received {
            state.push(raw);
            state.shared_log.iter_mut().for_each(|of| of.reach(mark.origin, mark.number, last_ms));
        }
        drop(state);
        self.shared.stats.visit_log.received.add(visits);
    }

    /// Removes the visits that were deleted before they came. A purge of theirs may be over, and so is the pass that would
    /// have removed them.
    fn leave_deleted_out(&self, received: &mut [ReceivedBlock]) {
        let state = locked(&self.shared.state);
        if state.deletions.is_empty() {
            return;
        }
        for of in received {
            if let Some(rest) = without_deleted(of, &state.deletions) {
                *of = rest;
            }
        }
    }

    /// Keeps the blocks that follow upon those that the log has.
    fn retain_next(&self, received: &mut Vec<ReceivedBlock>) {
        let state = locked(&self.shared.state);
        let Some(shared_log) = &state.shared_log else { return received.clear() };
        let mut next: HashMap<OriginId, u64> = HashMap::new();
        received.retain(|of| {
            let BlockMark { origin, number } = of.mark;
            let due = next.entry(origin).or_insert_with(|| shared_log.position(origin).number + 1);
            let is_next = number == *due && origin != shared_log.own();
            *due += u64::from(is_next);
            is_next
        });
    }
}

/// Returns a block without its deleted visits, with the same mark; `None` if it has none.
fn without_deleted(of: &ReceivedBlock, deletions: &Deletions) -> Option<ReceivedBlock> {
    let (mut raw, mut visits, mut is_whole) = (Vec::with_capacity(of.raw.len()), 0, true);
    each_record(&of.raw, |bytes, visit| {
        if deletions.has(visit) {
            is_whole = false;
        } else {
            raw.extend_from_slice(bytes);
            visits += 1;
        }
    });
    if is_whole {
        return None;
    }
    let mut block = Vec::new();
    of.mark.push(&mut raw);
    push_block(&raw, &mut block);
    Some(ReceivedBlock { block, raw: raw.into(), visits, ..*of })
}
