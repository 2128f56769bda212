//! Sends filters, and codes for them, to the cores.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carom_shards::{CodeHash, CodeHasher, CoreCount, CoreId, owner};

use super::file::{FILE_NAME, FilterFile, FilterPage};
use crate::bridge::{FilterBlocks, LoadCredit, Mailboxes, RuledBits, StoredCodes, ToCore};
use crate::services::derived::sealed_file::Unusable;
use carom_limits::CODES_SENT_TOGETHER;
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

/// Pause of the thread while enough is on its way to the cores: the time of a few batches.
const WAIT: Duration = Duration::from_micros(500);

/// The store, the cores and the files of the filters.
#[derive(Clone, Debug)]
pub struct FilterNode {
    /// The store of links.
    pub links: Links,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The hasher of the process, which finds the owner of a code.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The alarms of the node.
    pub stats: Arc<NodeStats>,
    /// The data directory, which has the file of the filters.
    pub data_dir: PathBuf,
}

impl FilterNode {
    /// Returns the path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.data_dir.join(FILE_NAME)
    }

    /// Sends a message to each core that owns links.
    pub(super) fn broadcast(&self, message: impl Fn() -> StoredCodes) {
        self.cores.cores().for_each(|core| self.mailboxes.to(core).post(ToCore::StoredCodes(message())));
    }

    /// Tells the cores which links of the store may have redirect rules; `None` if that is unknown. Core 0 keeps
    /// it for all of them.
    pub(super) fn tell_ruled(&self, bits: Option<RuledBits>) {
        self.mailboxes.to(CoreId(0)).post(ToCore::StoredCodes(StoredCodes::Ruled(bits.map(Arc::new))));
    }

    /// Sends all blocks of a file to the cores. Returns false if the thread is stopping. At most `in_flight_max` bytes
    /// are on their way at once.
    ///
    /// # Errors
    /// If a page cannot be read or is damaged. The cores must not use what they have received.
    pub(super) fn send_blocks(
        &self,
        file: &FilterFile,
        in_flight_max: usize,
        stop: &AtomicBool,
    ) -> Result<bool, Unusable> {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let mut page = FilterPage::default();
        for number in file.head.size().pages_in_turns() {
            file.read(number, &mut page)?;
            let (core, first, count) = file.head.size().blocks_of(number);
            let bytes = page.first_blocks(count);
            if !wait_for_cores(&in_flight, in_flight_max - bytes.len(), stop) {
                return Ok(false);
            }
            let credit = LoadCredit::take(&in_flight, bytes.len());
            let blocks = FilterBlocks { first, bytes, codes: page.codes() as usize, credit };
            self.mailboxes.to(core).post(ToCore::StoredCodes(StoredCodes::Blocks(blocks)));
        }
        Ok(true)
    }
}

/// Waits while more than `most` bytes or codes are on their way to the cores. Returns false if the thread is stopping.
fn wait_for_cores(in_flight: &AtomicUsize, most: usize, stop: &AtomicBool) -> bool {
    while in_flight.load(Ordering::Acquire) > most && !stop.load(Ordering::Acquire) {
        std::thread::sleep(WAIT);
    }
    !stop.load(Ordering::Acquire)
}

/// Codes on their way to the cores that own them, in batches.
#[derive(Debug)]
pub(super) struct CodeBatches<'a> {
    node: &'a FilterNode,
    stop: &'a AtomicBool,
    in_flight_max: usize,
    in_flight: Arc<AtomicUsize>,
    /// The next batch for each core.
    batches: Vec<Vec<CodeHash>>,
    /// Number of codes that were sent.
    pub(super) sent: u64,
}

impl<'a> CodeBatches<'a> {
    /// Returns empty batches. At most `in_flight_max` codes are on their way at once, beside one batch.
    pub(super) fn new(node: &'a FilterNode, stop: &'a AtomicBool, in_flight_max: usize) -> CodeBatches<'a> {
        let batches = node.cores.cores().map(|_| Vec::new()).collect();
        CodeBatches { node, stop, in_flight_max, in_flight: Arc::new(AtomicUsize::new(0)), batches, sent: 0 }
    }

    /// Adds a code to the batch of its owner.
    pub(super) fn push(&mut self, hash: CodeHash) {
        let core = owner(hash, self.node.cores);
        self.batches[core.index()].push(hash);
        if self.batches[core.index()].len() == CODES_SENT_TOGETHER {
            self.send(core);
        }
    }

    /// Sends all batches.
    pub(super) fn send_all(&mut self) {
        self.node.cores.cores().for_each(|core| self.send(core));
    }

    fn send(&mut self, core: CoreId) {
        let hashes = std::mem::take(&mut self.batches[core.index()]);
        // A thread that is stopping sends the batch, too: its caller ends the transfer as incomplete.
        let _ = wait_for_cores(&self.in_flight, self.in_flight_max, self.stop);
        self.sent += hashes.len() as u64;
        let credit = LoadCredit::take(&self.in_flight, hashes.len());
        self.node.mailboxes.to(core).post(ToCore::StoredCodes(StoredCodes::Some { hashes, credit }));
    }
}
