//! Reads all links back at start and hands each to the core that owns it.
//!
//! Threads scan the store part by part and sort records by owner into batches; cores decode them, so that all of them
//! work at once. What waits for the cores is bounded: a batch gives its share back when the core drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carom_shards::{Code, CodeHasher, CoreCount, CoreId, owner};

use crate::alarms::Alarm;
use crate::limits::{LOAD_BATCH_BYTES, LOAD_IN_FLIGHT_MAX, LOADERS_MAX};
use crate::mail::{LoadBatch, LoadCredit, Post, ToCore};
use crate::record::{self, RecordRef};
use crate::stats::NodeStats;
use crate::store::links::{DamagedRange, Links, Part, StoreError, parts};

/// How long a loader sleeps while the cores have enough to do: a few batches' time.
const WAIT: Duration = Duration::from_micros(500);

/// What was read back.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Records given to cores.
    pub records: u64,
    /// Tombstones left out.
    pub tombstones: u64,
    /// What could not be read at all.
    pub damaged: Vec<DamagedRange>,
    /// How long it took, up to the last batch being posted.
    pub time: Duration,
}

/// Reads everything and returns when the last batch is posted, followed by [`ToCore::LoadDone`] for every core.
///
/// # Errors
/// Where the operating system refused to read. Damage is no error: it is reported, and the rest is served.
pub fn load(
    links: &Links,
    post: &Post,
    hasher: CodeHasher,
    cores: CoreCount,
    stats: &NodeStats,
) -> Result<LoadReport, StoreError> {
    let start = Instant::now();
    let shared = Shared {
        links,
        post,
        hasher,
        cores,
        stats,
        next_part: AtomicUsize::new(0),
        in_flight: Arc::new(AtomicUsize::new(0)),
        records: AtomicU64::new(0),
        tombstones: AtomicU64::new(0),
        done: AtomicBool::new(false),
    };
    let of_each = links.approximate_len() / cores.get();
    for mailbox in post.all() {
        mailbox.post(ToCore::LoadBegin { links: of_each });
    }
    let parts = parts();
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores.get().min(LOADERS_MAX)).map(|_| scope.spawn(|| shared.work(&parts))).collect();
        let progress = scope.spawn(|| shared.log_progress());
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("panics abort")).collect();
        shared.done.store(true, Ordering::Release);
        progress.thread().unpark();
        results
    });
    let mut report = LoadReport {
        records: shared.records.into_inner(),
        tombstones: shared.tombstones.into_inner(),
        damaged: Vec::new(),
        time: Duration::ZERO,
    };
    for result in results {
        report.damaged.extend(result?);
    }
    let damaged: Arc<[DamagedRange]> = report.damaged.as_slice().into();
    for mailbox in post.all() {
        if !damaged.is_empty() {
            mailbox.post(ToCore::LoadDamaged(Arc::clone(&damaged)));
        }
        mailbox.post(ToCore::LoadDone);
    }
    report.time = start.elapsed();
    Ok(report)
}

/// What the loaders share.
struct Shared<'a> {
    links: &'a Links,
    post: &'a Post,
    hasher: CodeHasher,
    cores: CoreCount,
    stats: &'a NodeStats,
    next_part: AtomicUsize,
    in_flight: Arc<AtomicUsize>,
    records: AtomicU64,
    tombstones: AtomicU64,
    done: AtomicBool,
}

impl Shared<'_> {
    /// Scans parts until none is left.
    fn work(&self, parts: &[Part]) -> Result<Vec<DamagedRange>, StoreError> {
        let mut batches: Vec<LoadBatch> = self.cores.cores().map(|_| LoadBatch::default()).collect();
        let mut damaged = Vec::new();
        while let Some(&part) = parts.get(self.next_part.fetch_add(1, Ordering::Relaxed)) {
            let unread = self.links.scan(part, |key, value| {
                self.take(&mut batches, key, value);
                true
            })?;
            for range in &unread {
                self.report_range(range);
            }
            damaged.extend(unread);
        }
        for (core, batch) in self.cores.cores().zip(batches) {
            self.send(core, batch);
        }
        Ok(damaged)
    }

    fn take(&self, batches: &mut [LoadBatch], key: &[u8], value: &[u8]) {
        let Ok(code) = Code::from_key(key) else {
            self.stats.store_damaged.add_shared(1);
            tracing::error!(key = %key.escape_ascii(), "a stored key is no code");
            return;
        };
        if record::may_be_tombstone(value) && matches!(record::decode(key, value), Ok(RecordRef::Tombstone(_))) {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let core = owner(self.hasher.hash(&code), self.cores);
        let batch = &mut batches[core.index()];
        if batch.bytes.capacity() == 0 {
            batch.bytes.reserve_exact(LOAD_BATCH_BYTES);
        }
        batch.push(key, value);
        // The next record may be of any length; stopping a longest one early keeps the buffer from growing.
        if batch.bytes.len() + LONGEST_RECORD > LOAD_BATCH_BYTES {
            self.send(core, std::mem::take(batch));
        }
    }

    fn send(&self, core: CoreId, mut batch: LoadBatch) {
        if batch.records == 0 {
            return;
        }
        while self.in_flight.load(Ordering::Acquire) > LOAD_IN_FLIGHT_MAX {
            std::thread::sleep(WAIT);
        }
        self.records.fetch_add(u64::from(batch.records), Ordering::Relaxed);
        batch.credit = Some(LoadCredit::take(&self.in_flight, batch.bytes.capacity()));
        self.post.to(core).post(ToCore::Load(batch));
    }

    fn report_range(&self, range: &DamagedRange) {
        self.stats.store_damaged.add_shared(1);
        tracing::error!(%range, "records cannot be read: a block of the store is damaged");
        let text = format!("{range} cannot be read; see the log for others, and restore them from an export");
        self.stats.alarms.raise(Alarm::StoreDamaged, text);
    }

    /// One line a second for loads that take longer.
    fn log_progress(&self) {
        let start = Instant::now();
        let mut before = 0;
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            if self.done.load(Ordering::Acquire) {
                return;
            }
            let records = self.records.load(Ordering::Relaxed);
            tracing::info!(
                records,
                per_second = records - before,
                seconds = start.elapsed().as_secs(),
                "reading links back"
            );
            before = records;
        }
    }
}

/// Bytes that one record takes in a batch at most, generously.
const LONGEST_RECORD: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::plan::tests::link;
    use crate::control::testing::TestNode;
    use crate::link::Origin;
    use std::collections::HashSet;

    #[test]
    fn every_link_comes_to_its_owner_once() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 3);
        let mut batch = node.links.batch();
        let mut record = Vec::new();
        for number in 0..5_000 {
            let link = link(&format!("{number}"), Origin::Issued);
            record.clear();
            record::encode_link(link.code.to_string().as_bytes(), &link, &mut record);
            batch.put(&link.code, &record);
        }
        record.clear();
        record::encode_tombstone(b"gone", &record::tests::a_tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        batch.put(&Code::parse(b"broken").unwrap(), b"no record at all");
        node.links.commit(batch).unwrap();

        let report = load(&node.links, &node.post, node.hasher, node.cores, &node.stats).unwrap();
        assert_eq!((report.records, report.tombstones, report.damaged.len()), (5_001, 1, 0));
        let (mut seen, mut broken) = (HashSet::new(), 0);
        for (core, mail) in node.mail.iter().enumerate() {
            let mut done = false;
            while let Ok(message) = mail.try_recv() {
                assert!(!done, "nothing comes after the end");
                let ToCore::Load(batch) = message else {
                    done = matches!(message, ToCore::LoadDone);
                    continue;
                };
                assert_eq!(batch.iter().count(), batch.records as usize);
                for (key, value) in batch.iter() {
                    let code = Code::from_key(key).unwrap();
                    assert_eq!(owner(node.hasher.hash(&code), node.cores).index(), core);
                    assert!(seen.insert(code));
                    broken += u32::from(record::decode(key, value).is_err());
                }
            }
            assert!(done);
        }
        assert_eq!((seen.len(), broken), (5_001, 1));
    }

    #[test]
    fn a_dropped_batch_gives_its_share_back() {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let batch = LoadBatch { credit: Some(LoadCredit::take(&in_flight, 100)), ..LoadBatch::default() };
        assert_eq!(in_flight.load(Ordering::Relaxed), 100);
        drop(batch);
        assert_eq!(in_flight.load(Ordering::Relaxed), 0);
    }
}
