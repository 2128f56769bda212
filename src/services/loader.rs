//! Loads all links at the start, and sends each to the core that owns it.
//!
//! Several threads read the image of the map ([`super::map_image`]) page by page, and each owner adopts its pages
//! unchanged. Links that changed since the image was made come from the store. Without a usable image, the threads scan
//! the store part by part and sort records by owner into batches. The cores decode these, so that all of them work at
//! once. The bytes in flight are bounded: a page or batch returns its share when the core drops it. A core keeps a
//! newer record that it has already, so the order does not matter.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::map::sealed::PAGE_BYTES;
use carom_shards::{Code, CodeHasher, CoreCount, CoreId, MapEntry, owner};

use super::derived::sealed_file::Unusable;
use super::map_image::{self, Image};
use super::threads::priority::{PacedLoop, Priority};
use super::threads::start_in;
use crate::bridge::{ChangedCodes, LoadBatch, LoadCredit, LoadedPage, Mailboxes, ToCore};
use carom_limits::{LOAD_BATCH_BYTES, LOAD_IN_FLIGHT_MAX, LOADERS_MAX};
use carom_model::link::record::{self, RecordRef};
use carom_store::links::{DamagedRange, KeyRange, Links, StoreError, key_ranges};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::NodeStats;

/// Pause of a loader while enough bytes are in flight: the time of a few batches.
const WAIT: Duration = Duration::from_micros(500);

/// The speed of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadPace {
    /// As fast as the CPUs allow.
    Full,
    /// Behind the cores of another node on the same machine, which has just given its links to this one.
    BesidePeer,
}

impl LoadPace {
    /// Returns the priority of the threads that load.
    fn priority(self) -> Priority {
        match self {
            LoadPace::Full => Priority::Urgent,
            LoadPace::BesidePeer => Priority::Joining,
        }
    }
}

/// The result of loading.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Number of records sent to cores. Records of an image count even if a change has replaced them since. A damaged
    /// record of an image is read from the store instead.
    pub records: u64,
    /// Number of tombstones, which are skipped.
    pub tombstones: u64,
    /// The ranges of keys that could not be read at all.
    pub damaged: Vec<DamagedRange>,
    /// Time until the last batch was posted.
    pub time: Duration,
    /// Number of links that had changed since the image was made; `None` if all links were read from the store.
    pub replayed: Option<u64>,
    /// True if the image was made for another number of cores. An image for this number should replace it before the
    /// next start.
    pub is_of_other_cores: bool,
}

/// Loads all links. Returns once the last batch and then [`ToCore::LoadDone`] are posted to every core. The image of
/// the map is looked for in `data_dir`.
///
/// # Errors
/// If the operating system cannot read. Damage is no error: it is reported, and all other links are served.
pub fn load(
    links: &Links,
    mailboxes: &Mailboxes,
    hasher: CodeHasher,
    cores: CoreCount,
    stats: &NodeStats,
    (data_dir, pace): (&Path, LoadPace),
) -> Result<LoadReport, StoreError> {
    let shared = LoaderState {
        pace,
        links,
        mailboxes,
        hasher,
        cores,
        stats,
        start: Instant::now(),
        in_flight: Arc::new(AtomicUsize::new(0)),
        records: AtomicU64::new(0),
        tombstones: AtomicU64::new(0),
    };
    assert!(mailboxes.all().len() >= cores.get(), "a core that owns links has no mailbox");
    let mut report = shared.load_image(data_dir)?;
    if report.is_none() {
        report = Some(shared.load_store()?);
    }
    let mut report = report.unwrap_or_default();
    let damaged: Arc<[DamagedRange]> = report.damaged.as_slice().into();
    for mailbox in mailboxes.all() {
        if !damaged.is_empty() {
            mailbox.post(ToCore::LoadDamaged(Arc::clone(&damaged)));
        }
        mailbox.post(ToCore::LoadDone);
    }
    report.tombstones = shared.tombstones.into_inner();
    report.time = shared.start.elapsed();
    Ok(report)
}

/// The state that the loading threads share.
struct LoaderState<'a> {
    pace: LoadPace,
    links: &'a Links,
    mailboxes: &'a Mailboxes,
    hasher: CodeHasher,
    cores: CoreCount,
    stats: &'a NodeStats,
    start: Instant,
    in_flight: Arc<AtomicUsize>,
    records: AtomicU64,
    tombstones: AtomicU64,
}

/// An image that is being loaded, and the progress.
struct FromImage {
    image: Image,
    changed: Arc<ChangedCodes>,
    /// Number of commits that had ended before the changed links were asked for.
    as_of: u64,
    next_page: AtomicU64,
    next_changed: AtomicUsize,
    /// The reason why the image turned out to be unusable.
    unusable: Mutex<Option<Unusable>>,
    is_unusable: AtomicBool,
}

impl FromImage {
    fn give_up(&self, why: Unusable) {
        self.is_unusable.store(true, Ordering::Release);
        self.unusable.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

impl LoaderState<'_> {
    /// Loads all links from the image, and the changed ones from the store. Returns `None` if that fails: cores may
    /// have some links then, and the store has all of them.
    fn load_image(&self, data_dir: &Path) -> Result<Option<LoadReport>, StoreError> {
        let as_of = self.links.commits();
        let Some((image, changed)) = map_image::open(self.links, data_dir, self.hasher)? else { return Ok(None) };
        self.begin(usize::try_from(image.records).unwrap_or(usize::MAX).saturating_add(changed.codes().len()));
        let source = FromImage {
            image,
            changed: Arc::new(changed),
            as_of,
            next_page: AtomicU64::new(0),
            next_changed: AtomicUsize::new(0),
            unusable: Mutex::default(),
            is_unusable: AtomicBool::new(false),
        };
        self.in_parallel(|| self.read_image(&source))?;
        if let Some(why) = source.unusable.into_inner().unwrap_or_else(PoisonError::into_inner) {
            map_image::give_up(data_dir, &why);
            self.records.store(0, Ordering::Relaxed);
            return Ok(None);
        }
        let replayed = Some(source.changed.codes().len() as u64);
        let is_of_other_cores = source.image.key.cores != self.cores;
        let records = self.records.load(Ordering::Relaxed);
        Ok(Some(LoadReport { records, replayed, is_of_other_cores, ..LoadReport::default() }))
    }

    /// Loads all links from the store.
    fn load_store(&self) -> Result<LoadReport, StoreError> {
        self.begin(self.links.approximate_len());
        let (parts, next) = (key_ranges(), AtomicUsize::new(0));
        let damaged = self.in_parallel(|| self.scan(&parts, &next))?;
        let records = self.records.load(Ordering::Relaxed);
        Ok(LoadReport { records, damaged: damaged.into_iter().flatten().collect(), ..LoadReport::default() })
    }

    /// Tells each core about how many links to expect.
    fn begin(&self, links: usize) {
        for mailbox in self.mailboxes.all() {
            mailbox.post(ToCore::LoadBegin { links: links / self.cores.get() });
        }
    }

    /// Runs `work` on a thread for each core, and logs the progress.
    fn in_parallel<T: Send>(&self, work: impl Fn() -> Result<T, StoreError> + Sync) -> Result<Vec<T>, StoreError> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.cores.get().min(LOADERS_MAX))
                .map(|_| start_in(scope, self.pace.priority(), "loader", &work))
                .collect();
            let progress = scope.spawn(|| self.log_progress(&done));
            let results = threads.into_iter().map(|thread| thread.join().expect("panics abort")).collect();
            done.store(true, Ordering::Release);
            progress.thread().unpark();
            results
        })
    }

    fn batches(&self) -> Vec<LoadBatch> {
        self.cores.cores().map(|_| LoadBatch::default()).collect()
    }

    /// Reads pages of the image, and then changed links, until none is left.
    fn read_image(&self, source: &FromImage) -> Result<(), StoreError> {
        let mut batches = self.batches();
        let next_page = || source.next_page.fetch_add(1, Ordering::Relaxed);
        while let Some(number) = page_in_turn(next_page(), source.image.pages, source.image.key.cores) {
            if number >= source.image.pages {
                continue;
            }
            if source.is_unusable.load(Ordering::Acquire) {
                return Ok(());
            }
            match self.read_page(source, number) {
                Ok(damaged) => self.look_up(source, &mut batches, &damaged)?,
                Err(why) => {
                    source.give_up(why);
                    return Ok(());
                }
            }
        }
        self.replay(source, batches)
    }

    /// Reads a page of the image and sends it to its owner, or to all cores if the image was made for another number of
    /// them. Returns the codes whose records were unreadable when the image was made: the store may be able to read
    /// them now.
    fn read_page(&self, source: &FromImage, number: u64) -> Result<Vec<Code>, Unusable> {
        let page = source.image.read(number)?;
        let first = page.records().next().map(|(code, _)| owner(self.hasher.hash(&code), self.cores));
        let Some(core) = first else { return Ok(Vec::new()) };
        let mut damaged = Vec::new();
        if page.damaged() > 0 {
            let codes = page.records().filter(|(_, entry)| *entry == MapEntry::Damaged).map(|(code, _)| code);
            damaged.extend(codes.filter(|code| !source.changed.has(code, self.hasher.hash(code))));
        }
        self.wait_for_cores();
        self.records.fetch_add((page.len() - page.damaged()) as u64, Ordering::Relaxed);
        let credit = LoadCredit::take(&self.in_flight, PAGE_BYTES);
        let loaded = LoadedPage { page, changed: Arc::clone(&source.changed), as_of: source.as_of, credit };
        if source.image.key.cores == self.cores {
            self.mailboxes.to(core).post(ToCore::LoadPage(Box::new(loaded)));
            return Ok(damaged);
        }
        let loaded = Arc::new(loaded);
        for core in self.cores.cores() {
            self.mailboxes.to(core).post(ToCore::LoadShared(Arc::clone(&loaded)));
        }
        Ok(damaged)
    }

    /// Reads links that changed since the image was made from the store, and sends the remaining batches.
    fn replay(&self, source: &FromImage, mut batches: Vec<LoadBatch>) -> Result<(), StoreError> {
        let next = || source.next_changed.fetch_add(1, Ordering::Relaxed);
        while let Some(codes) = source.changed.codes().chunks(REPLAYED_AT_ONCE).nth(next()) {
            if source.is_unusable.load(Ordering::Acquire) {
                return Ok(());
            }
            self.look_up(source, &mut batches, codes)?;
        }
        self.send_all(batches);
        Ok(())
    }

    /// Reads links from the store that the image does not have as they are.
    fn look_up(&self, source: &FromImage, batches: &mut [LoadBatch], codes: &[Code]) -> Result<(), StoreError> {
        for code in codes {
            match self.links.get(code) {
                Ok(Some(value)) => {
                    self.take(batches, code.key(&mut [0; CODE_KEY_LEN_MAX]), &value, source.as_of);
                }
                Ok(None) => {}
                Err(StoreError::Damaged(what)) => {
                    let why = format!("a link that changed after the image was written cannot be read: {what}");
                    source.give_up(Unusable::Damaged(why));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Scans parts of the store until none is left.
    fn scan(&self, parts: &[KeyRange], next: &AtomicUsize) -> Result<Vec<DamagedRange>, StoreError> {
        let (mut batches, mut paced) = (self.batches(), PacedLoop::default());
        let mut damaged = Vec::new();
        while let Some(&part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Counted before the read: the owner drops records that were changed since.
            let as_of = self.links.commits();
            let unread = self.links.scan(part, |key, value| {
                self.take(&mut batches, key, value, as_of);
                paced.step();
                true
            })?;
            for range in &unread {
                report_range(self.stats, range);
            }
            damaged.extend(unread);
        }
        self.send_all(batches);
        Ok(damaged)
    }

    fn send_all(&self, batches: Vec<LoadBatch>) {
        assert_eq!(batches.len(), self.cores.get(), "the links of a core would not be loaded");
        for (core, batch) in self.cores.cores().zip(batches) {
            self.send(core, batch);
        }
    }

    /// Adds a record to the batch of its owner.
    fn take(&self, batches: &mut [LoadBatch], key: &[u8], value: &[u8], as_of: u64) {
        let Ok(code) = Code::from_key(key) else {
            self.stats.store_damaged.add_shared(1);
            tracing::error!(key = %key.escape_ascii(), "a stored key is not a code");
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
        if batch.records == 0 {
            batch.as_of = as_of;
        }
        batch.push(key, value);
        // The next record may have any length. Sending early for the longest one keeps the buffer from growing.
        if batch.bytes.len() + LONGEST_RECORD > LOAD_BATCH_BYTES {
            self.send(core, std::mem::take(batch));
        }
    }

    fn send(&self, core: CoreId, mut batch: LoadBatch) {
        if batch.records == 0 {
            return;
        }
        self.wait_for_cores();
        self.records.fetch_add(u64::from(batch.records), Ordering::Relaxed);
        batch.credit = Some(LoadCredit::take(&self.in_flight, batch.bytes.capacity()));
        self.mailboxes.to(core).post(ToCore::Load(batch));
    }

    /// Waits while enough bytes are in flight.
    fn wait_for_cores(&self) {
        while self.in_flight.load(Ordering::Acquire) > LOAD_IN_FLIGHT_MAX {
            std::thread::sleep(WAIT);
        }
    }

    /// Logs a line each second until the load is done.
    fn log_progress(&self, done: &AtomicBool) {
        let mut before = 0;
        loop {
            std::thread::park_timeout(Duration::from_secs(1));
            if done.load(Ordering::Acquire) {
                return;
            }
            let records = self.records.load(Ordering::Relaxed);
            tracing::info!(
                records,
                per_second = records - before,
                seconds = self.start.elapsed().as_secs(),
                "loading links"
            );
            before = records;
        }
    }
}

/// Reports a range of the store that cannot be read, in the log and as an alarm.
pub(super) fn report_range(stats: &NodeStats, range: &DamagedRange) {
    stats.store_damaged.add_shared(1);
    tracing::error!(%range, "records cannot be read: a block of the store is damaged");
    let text = format!("{range} cannot be read; see the log for others, and restore them from a backup or an export");
    stats.alarms.raise(Alarm::StoreDamaged, text);
}

/// Returns the number of the page to read in a turn. Turns alternate between owners, so that all cores have work, and
/// take the pages of an owner in order. Returns `None` after the last turn; some turns yield a number past the last
/// page.
fn page_in_turn(turn: u64, pages: u64, cores: CoreCount) -> Option<u64> {
    // Each owner has about as many pages, and those of one owner are adjacent.
    let cores = cores.get() as u64;
    let run = pages.div_ceil(cores);
    (turn < run * cores).then(|| turn % cores * run + turn / cores)
}

/// Number of changed links that a thread looks up together: neighbours share blocks of the store.
const REPLAYED_AT_ONCE: usize = 256;

/// Upper bound for the bytes of one record in a batch.
const LONGEST_RECORD: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::testing::link;
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
        record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        batch.put(&Code::parse(b"broken").unwrap(), b"no record at all");
        node.links.commit(batch).unwrap();

        let report =
            load(&node.links, &node.mailboxes, node.hasher, node.cores, &node.stats, (dir.path(), LoadPace::Full))
                .unwrap();
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
    fn each_page_of_an_image_has_one_turn_and_owners_take_turns() {
        for (pages, cores) in [(0, 3), (1, 1), (1, 64), (7, 3), (64, 64), (1_000, 7)] {
            let count = CoreCount::new(cores).unwrap();
            let mut read: Vec<u64> = (0..).map_while(|turn| page_in_turn(turn, pages, count)).collect();
            read.retain(|&page| page < pages);
            if pages == 1_000 {
                let first: HashSet<u64> = read[..cores].iter().map(|page| page * cores as u64 / pages).collect();
                assert_eq!(first.len(), cores, "every core gets a page before one gets two");
            }
            read.sort_unstable();
            assert_eq!(read, (0..pages).collect::<Vec<_>>());
        }
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
