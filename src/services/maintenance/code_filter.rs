//! Rebuilds the cores' filters of codes from the store, on a node that keeps only the links in use in memory.
//!
//! A core cannot remove codes from its filter, so links that come and go fill it with codes of removed links
//! ([`CoreStats::wants_codes`]). This thread then asks the cores to begin a new filter, and only after that reads the
//! store. Codes that are put later are added by the core itself (see `core::codes`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeHash, CodeHasher, CoreCount, CoreId, owner};

use crate::bridge::{LoadCredit, Mailboxes, StoredCodes, ToCore};
use crate::services::threads::priority::let_cores_go_first;
use carom_limits::{CODES_IN_FLIGHT_MAX, CODES_SENT_TOGETHER};
use carom_model::link::record::{self, RecordRef};
use carom_store::links::{Links, parts};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{CoreStats, NodeStats};

/// Interval between two checks whether a core wants the codes.
const CHECK_CORES_EVERY: Duration = Duration::from_secs(1);

/// Pause of the thread while enough codes are on their way to the cores: the time of a few batches.
const WAIT: Duration = Duration::from_micros(500);

/// Inputs of the thread.
#[derive(Clone, Debug)]
pub struct CodeFilterSetup {
    /// The store of links.
    pub links: Links,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The hasher of the process, which finds the owner of a code.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The statistics of the cores, which include the state of their filters.
    pub core_stats: Arc<[Arc<CoreStats>]>,
    /// The alarms of the node.
    pub stats: Arc<NodeStats>,
}

/// A handle on the thread.
pub struct CodeFilters {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl CodeFilters {
    /// Stops the thread and waits for it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread. All links must have been loaded before.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: CodeFilterSetup) -> io::Result<CodeFilters> {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let run = move || {
        let_cores_go_first();
        while !until.load(Ordering::Acquire) {
            setup.look(&until);
            std::thread::park_timeout(CHECK_CORES_EVERY);
        }
    };
    let thread = std::thread::Builder::new().name("code-filter".to_owned()).spawn(run)?;
    Ok(CodeFilters { stop, thread })
}

impl CodeFilterSetup {
    fn look(&self, stop: &AtomicBool) {
        if self.core_stats.iter().any(|core| core.wants_codes.get() > 0) {
            self.send_codes(stop);
        }
        let is_in_doubt = self.core_stats.iter().any(|core| core.in_doubt.get() > 0);
        if !is_in_doubt && self.stats.alarms.is_on(Alarm::MemoryLimitLow) {
            self.stats.alarms.clear(Alarm::MemoryLimitLow);
        }
    }

    /// Sends every core its codes.
    fn send_codes(&self, stop: &AtomicBool) {
        let start = Instant::now();
        // Before the read: a later commit reaches its owner as a change, after this message.
        self.broadcast(|| StoredCodes::Begin);
        let mut sending = Sending {
            setup: self,
            stop,
            in_flight: Arc::new(AtomicUsize::new(0)),
            batches: self.cores.cores().map(|_| Vec::new()).collect(),
            sent: 0,
        };
        let is_whole = sending.send_all();
        let codes = sending.sent;
        self.broadcast(|| StoredCodes::End { is_whole });
        if is_whole {
            tracing::info!(
                codes,
                seconds = start.elapsed().as_secs_f64(),
                "rebuilt the code filter without removed links"
            );
        } else if !stop.load(Ordering::Acquire) {
            tracing::warn!("cannot rebuild the code filter without removed links: parts of the store cannot be read");
        }
    }

    fn broadcast(&self, message: impl Fn() -> StoredCodes) {
        self.cores.cores().for_each(|core| self.mailboxes.to(core).post(ToCore::StoredCodes(message())));
    }
}

/// A pass through the store that sends codes to the cores.
struct Sending<'a> {
    setup: &'a CodeFilterSetup,
    stop: &'a AtomicBool,
    in_flight: Arc<AtomicUsize>,
    /// The next batch for each core.
    batches: Vec<Vec<CodeHash>>,
    sent: u64,
}

impl Sending<'_> {
    /// Sends all codes of the store. Returns false if some could not be read, or the thread is stopping.
    fn send_all(&mut self) -> bool {
        for part in parts() {
            let unread = self.setup.links.scan(part, |key, value| {
                self.take(key, value);
                !self.stop.load(Ordering::Acquire)
            });
            // A filter that lacks an existing code would hide its link.
            if !unread.is_ok_and(|unread| unread.is_empty()) || self.stop.load(Ordering::Acquire) {
                return false;
            }
        }
        self.setup.cores.cores().for_each(|core| self.send(core));
        true
    }

    fn take(&mut self, key: &[u8], value: &[u8]) {
        let Ok(code) = Code::from_key(key) else { return };
        if record::may_be_tombstone(value) && matches!(record::decode(key, value), Ok(RecordRef::Tombstone(_))) {
            return;
        }
        let hash = self.setup.hasher.hash(&code);
        let core = owner(hash, self.setup.cores);
        self.batches[core.index()].push(hash);
        if self.batches[core.index()].len() == CODES_SENT_TOGETHER {
            self.send(core);
        }
    }

    fn send(&mut self, core: CoreId) {
        let hashes = std::mem::take(&mut self.batches[core.index()]);
        while self.in_flight.load(Ordering::Acquire) > CODES_IN_FLIGHT_MAX && !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(WAIT);
        }
        self.sent += hashes.len() as u64;
        let credit = LoadCredit::take(&self.in_flight, hashes.len());
        self.setup.mailboxes.to(core).post(ToCore::StoredCodes(StoredCodes::Some { hashes, credit }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::testing::link;

    #[test]
    fn every_code_of_a_link_comes_to_its_owner_and_those_of_tombstones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 2);
        let (mut batch, mut record) = (node.links.batch(), Vec::new());
        let mut expected = HashSet::new();
        for number in 0..3 * CODES_SENT_TOGETHER {
            let link = link(&format!("{number}"), Origin::Issued);
            record.clear();
            record::encode_link(link.code.to_string().as_bytes(), &link, &mut record);
            batch.put(&link.code, &record);
            expected.insert(node.hasher.hash(&link.code));
        }
        record.clear();
        record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        node.links.commit(batch).unwrap();

        let core_stats: Arc<[Arc<CoreStats>]> = (0..2).map(|_| Arc::default()).collect();
        let setup = CodeFilterSetup {
            links: node.links.clone(),
            mailboxes: node.mailboxes.clone(),
            hasher: node.hasher,
            cores: node.cores,
            core_stats: Arc::clone(&core_stats),
            stats: Arc::clone(&node.stats),
        };
        let stop = AtomicBool::new(false);
        setup.look(&stop);
        assert!(node.mail.iter().all(|mail| mail.try_recv().is_err()), "no core wants them");
        core_stats[1].wants_codes.set(1);
        let sender = std::thread::spawn({
            let setup = setup.clone();
            move || setup.look(&AtomicBool::new(false))
        });
        let mut seen = HashSet::new();
        for (core, mail) in node.mail.iter().take(2).enumerate() {
            assert!(matches!(mail.recv(), Ok(ToCore::StoredCodes(StoredCodes::Begin))));
            loop {
                match mail.recv().expect("an end") {
                    ToCore::StoredCodes(StoredCodes::Some { hashes, .. }) => {
                        let is_owned = |hash: &CodeHash| owner(*hash, node.cores).index() == core;
                        assert!(hashes.iter().all(is_owned));
                        seen.extend(hashes);
                    }
                    ToCore::StoredCodes(StoredCodes::End { is_whole }) => break assert!(is_whole),
                    other => panic!("{other:?}"),
                }
            }
        }
        sender.join().unwrap();
        assert_eq!(seen, expected);
        // The alarm clears once no core is in doubt.
        node.stats.alarms.raise(Alarm::MemoryLimitLow, String::new());
        core_stats[0].in_doubt.set(1);
        core_stats[1].wants_codes.set(0);
        setup.look(&stop);
        assert!(node.stats.alarms.is_on(Alarm::MemoryLimitLow));
        core_stats[0].in_doubt.set(0);
        setup.look(&stop);
        assert!(!node.stats.alarms.is_on(Alarm::MemoryLimitLow));
    }
}
