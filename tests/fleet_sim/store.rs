//! The store of a node: batches are atomic and ordered, and a power loss may take the last ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use carom::services::writer::planner::{CodeState, Writes};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::Delivery;

use crate::codes::{Index, PARTS, States, index_of};

/// The data on disk after some batches.
#[derive(Clone, Default, Debug)]
pub(crate) struct Disk {
    /// The states of codes.
    pub(crate) states: States,
    /// Marked codes, with the texts that this version could not decode.
    pub(crate) unread: BTreeMap<Index, Arc<[u8]>>,
    /// The entries of the outbox, in order.
    pub(crate) outbox: Vec<Delivery>,
    /// The places in the streams.
    pub(crate) positions: [Option<StreamPosition>; PARTS],
    /// The partitions that must be compared.
    pub(crate) compare: [bool; PARTS],
    /// The partitions that must be compared after an upgrade.
    pub(crate) compare_later: [bool; PARTS],
    /// Counter values up to here were leased by this node.
    pub(crate) mark: u64,
    /// Counter values up to here were heard of.
    pub(crate) floor: u64,
}

/// A batch.
#[derive(Debug)]
pub(crate) enum Batch {
    /// A commit of the writer.
    Commit(Box<Writes>),
    /// The mark and the floor.
    Leases(u64, u64),
}

impl Disk {
    fn apply(&mut self, batch: &Batch) {
        match batch {
            Batch::Leases(mark, floor) => (self.mark, self.floor) = (*mark, *floor),
            Batch::Commit(writes) => {
                for (code, state) in &writes.states {
                    self.states.set(index_of(code), state.clone());
                }
                for (code, text) in &writes.unread {
                    match text {
                        Some(text) => _ = self.unread.insert(index_of(code), Arc::clone(text)),
                        None => _ = self.unread.remove(&index_of(code)),
                    }
                }
                self.outbox.retain(|delivery| !writes.outbox.removed.contains(&delivery.seq));
                self.outbox.extend(&writes.outbox.added);
                for (partition, position) in &writes.positions {
                    self.positions[partition.index()] = Some(*position);
                }
                for (partition, compare) in &writes.compare {
                    self.compare[partition.index()] = *compare;
                }
                for partition in &writes.compare_later {
                    self.compare_later[partition.index()] = true;
                }
            }
        }
    }

    /// The partitions that were noted for an upgrade must be compared now.
    fn upgrade(&mut self) {
        for (compare, later) in self.compare.iter_mut().zip(&mut self.compare_later) {
            *compare |= std::mem::take(later);
        }
    }

    /// The stored state of a code.
    pub(crate) fn code_state(&self, index: Index) -> CodeState {
        match (self.unread.get(&index), self.states.get(index)) {
            (Some(text), _) => CodeState::Unread(Arc::clone(text)),
            (None, state) => state.cloned().map_or(CodeState::Absent, CodeState::Held),
        }
    }

    /// The highest counter value that this node can tell of.
    pub(crate) fn known(&self) -> u64 {
        self.mark.max(self.floor)
    }
}

/// The store of a node.
#[derive(Default, Debug)]
pub(crate) struct Store {
    /// The data that a reader sees.
    pub(crate) now: Disk,
    synced: Disk,
    unsynced: Vec<Batch>,
}

impl Store {
    /// Writes a batch.
    pub(crate) fn commit(&mut self, batch: Batch) {
        self.now.apply(&batch);
        self.unsynced.push(batch);
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&mut self) {
        for batch in self.unsynced.drain(..) {
            self.synced.apply(&batch);
        }
    }

    /// Forgets which codes were marked.
    pub(crate) fn forget_marks(&mut self) {
        self.sync();
        self.now.unread.clear();
        self.synced.unread.clear();
    }

    /// The node reads more than before.
    pub(crate) fn upgrade(&mut self) {
        if self.now.compare_later.contains(&true) {
            self.sync();
            self.now.upgrade();
            self.synced.upgrade();
        }
    }

    /// Number of batches that a power loss may take.
    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The power is lost; so many of the batches that were not synced are there all the same.
    pub(crate) fn lose_power(&mut self, kept: usize) {
        for batch in self.unsynced.drain(..).take(kept) {
            self.synced.apply(&batch);
        }
        self.now = self.synced.clone();
    }
}
