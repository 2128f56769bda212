//! The image of the link map: a file from which a start loads links faster than from the store.
//!
//! An image has all records as of a [`LogPosition`](carom_store::links::LogPosition), or newer versions of them, in
//! pages as a map has them in memory ([`carom_shards::map::sealed`]). They are sorted like the index of a core, so a
//! core adopts pages unchanged. The change log of the store says which links changed since; a start takes these from
//! the store and all others from the image. So a start after a kill costs as much as one after a clean stop, and a
//! shutdown writes nothing. [`start`] runs the thread that makes a new image once many links have changed. If an image
//! is unusable for any reason, the store is read instead ([`super::loader`]).

mod file;
mod sorter;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use carom_shards::map::sealed::Sealed;
use carom_shards::{Code, CodeHasher, CoreCount, MapEntry};

use super::derived;
use super::derived::sealed_file::{self, NotWritten, WritePace};
use super::maintenance::disk_guard::DiskGuard;
use super::threads;
use super::threads::priority::{Priority, pause_if_due};
use crate::bridge::ChangedCodes;
use carom_limits::{
    IMAGE_CHANGES_MIN, IMAGE_CHANGES_SHARE, IMAGE_LINKS_MIN, IMAGE_LOOK_EVERY, IMAGE_REPLAYED_SHARE, IMAGE_SAMPLED,
};
use carom_model::link::record::{self, RecordRef};
use carom_store::links::{ChangesSince, Links, StoreError, key_ranges};

pub use self::file::FILE_NAME;
pub(super) use self::file::Image;
use self::file::ImageWriter;
use self::sorter::Sorter;

/// Returns the hasher of the image in a data directory; `None` if no image is readable. A start uses it for all cores:
/// it is as secret as the data directory.
pub fn hasher_of(data_dir: &Path) -> Option<CodeHasher> {
    Some(Image::open(&data_dir.join(FILE_NAME)).ok()??.key.hasher)
}

/// Opens the image in a data directory and finds the links that have changed since. Returns `None` if there is no
/// image, or none worth using; then the log has the reason.
///
/// # Errors
/// If the operating system cannot read the store.
pub(super) fn open(
    links: &Links,
    data_dir: &Path,
    hasher: CodeHasher,
) -> Result<Option<(Image, ChangedCodes)>, StoreError> {
    let image = match Image::open(&data_dir.join(FILE_NAME)) {
        Ok(Some(image)) => image,
        Ok(None) => return Ok(None),
        Err(unusable) => {
            give_up(data_dir, &unusable);
            return Ok(None);
        }
    };
    if image.key.hasher.seed() != hasher.seed() {
        tracing::info!("the image of the links was written with another hash seed; all links are read from the store");
        return Ok(None);
    }
    let most = image.records / IMAGE_REPLAYED_SHARE + IMAGE_CHANGES_MIN;
    let mut codes = Vec::new();
    let mut count = 0;
    let known = links.changes_since(image.key.position, |code| {
        count += 1;
        if count <= most {
            codes.push(code);
        }
    })?;
    if known == ChangesSince::Unknown {
        tracing::info!("links were changed outside the change log, as by an import; all links are read from the store");
        remove_unused(data_dir);
        return Ok(None);
    }
    if count > most {
        tracing::info!("the image of the links lacks the last {count} changes; all links are read from the store");
        return Ok(None);
    }
    Ok(Some((image, ChangedCodes::new(codes, hasher))))
}

/// Logs that an image cannot be used, and removes it.
pub(super) fn give_up(data_dir: &Path, why: &dyn std::fmt::Display) {
    let path = data_dir.join(FILE_NAME);
    // A warning, not an alarm: no data is lost, and the node makes another image.
    tracing::warn!(
        "the image of the links {} cannot be used ({why}); all links are read from the store",
        path.display()
    );
    remove_unused(data_dir);
}

/// Removes the image from a data directory, if it has one.
pub fn remove_unused(data_dir: &Path) {
    sealed_file::remove_unused(&data_dir.join(FILE_NAME));
}

/// Inputs of the thread that makes images.
#[derive(Debug)]
pub struct ImageSetup {
    /// The store of links.
    pub links: Links,
    /// The hasher of the process.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The data directory, which contains the image.
    pub data_dir: PathBuf,
    /// Number of links that had changed since the loaded image; `None` if the node has loaded no image, or one for
    /// another number of cores.
    pub replayed: Option<u64>,
    /// Number of committed changes ([`Links::changes`]) when `replayed` was counted.
    pub changes: u64,
}

/// A handle on the thread that makes images.
#[derive(Debug)]
pub struct ImageMaker {
    stop: Arc<AtomicBool>,
    hold: Arc<ImageHold>,
    thread: JoinHandle<()>,
}

/// A switch by which a purge keeps links out of images.
#[derive(Debug, Default)]
pub struct ImageHold {
    is_held: AtomicBool,
    is_removed: AtomicBool,
}

impl ImageHold {
    /// Makes the thread remove the image, and make no other until [`ImageHold::release`]. That takes some seconds.
    pub fn hold(&self) {
        self.is_removed.store(false, Ordering::Release);
        self.is_held.store(true, Ordering::Release);
    }

    /// True once no image is left, and none is being made.
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Lets the thread make images again.
    pub fn release(&self) {
        self.is_held.store(false, Ordering::Release);
    }

    fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }
}

impl ImageMaker {
    /// Returns the switch that holds back images.
    pub fn hold(&self) -> Arc<ImageHold> {
        Arc::clone(&self.hold)
    }

    /// Stops the thread and waits for it. It abandons an unfinished image.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread that makes images. Call it after all links are loaded.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: ImageSetup) -> io::Result<ImageMaker> {
    let (stop, hold) = (Arc::new(AtomicBool::new(false)), Arc::new(ImageHold::default()));
    let mut maker = Maker {
        path: setup.data_dir.join(FILE_NAME),
        disk: DiskGuard::new(setup.data_dir),
        links: setup.links,
        hasher: setup.hasher,
        cores: setup.cores,
        made_at: setup.replayed.map(|replayed| setup.changes.wrapping_sub(replayed)),
        pauses: true,
        stop: Arc::clone(&stop),
        hold: Arc::clone(&hold),
    };
    let run = move || {
        maker.remove_unfinished();
        // Loading has left free memory in the heaps of its threads.
        let mut was_busy = true;
        while !maker.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(IMAGE_LOOK_EVERY);
            if std::mem::replace(&mut was_busy, maker.look()) {
                carom_ring::return_free_memory();
            }
        }
    };
    let thread = threads::start(Priority::Long, "image", run)?;
    Ok(ImageMaker { stop, hold, thread })
}

struct Maker {
    links: Links,
    hasher: CodeHasher,
    cores: CoreCount,
    path: PathBuf,
    disk: DiskGuard,
    /// Value of [`Links::changes`] when the last image was begun, which may be a wrapped number from before the start
    /// of the node. `None` without an image.
    made_at: Option<u64>,
    /// True if a node serves meanwhile.
    pauses: bool,
    stop: Arc<AtomicBool>,
    hold: Arc<ImageHold>,
}

/// Writes an image of a store that no node has open. Blocks the calling thread: about 2 µs of CPU per link.
///
/// # Errors
/// The reason why there is no new image.
pub fn write_once(links: &Links, data_dir: &Path, hasher: CodeHasher, cores: CoreCount) -> Result<(), String> {
    let (path, disk) = (data_dir.join(FILE_NAME), DiskGuard::new(data_dir.to_owned()));
    let (links, stop) = (links.clone(), Arc::default());
    let maker = Maker { links, hasher, cores, path, disk, made_at: None, pauses: false, stop, hold: Arc::default() };
    let made = if maker.has_room() {
        maker.make().map(drop)
    } else {
        Err(NotWritten::Failed("the disk has no room for it".to_owned()))
    };
    made.map_err(|why| format!("{}: {why}", maker.path.display()))
}

impl Maker {
    /// Makes an image if one is due. Returns true if it tried.
    fn look(&mut self) -> bool {
        if self.hold.is_held() {
            self.remove_held();
            return false;
        }
        let links = self.links.approximate_len();
        let changes = self.links.changes();
        let due = IMAGE_CHANGES_MIN.max(links as u64 / IMAGE_CHANGES_SHARE);
        let is_due = self.made_at.is_none_or(|made_at| changes.wrapping_sub(made_at) >= due);
        if links < IMAGE_LINKS_MIN || !is_due || self.stop.load(Ordering::Acquire) || !self.has_room() {
            return false;
        }
        let start = Instant::now();
        match self.make() {
            Ok((records, bytes)) => {
                let seconds = start.elapsed().as_secs_f64();
                tracing::info!(records, bytes, seconds, "wrote an image of the links");
                self.made_at = Some(changes);
            }
            Err(NotWritten::Stopped) => {}
            Err(not_made) => {
                // The next attempt comes after as many changes. Until then, a start reads what it needs from the store.
                self.made_at = Some(changes);
                if let NotWritten::Failed(error) = not_made {
                    tracing::warn!("cannot write the image of the links to {}: {error}", self.path.display());
                }
            }
        }
        true
    }

    /// Removes the image for a purge. The next one is due as soon as the purge is over.
    fn remove_held(&mut self) {
        if self.hold.is_removed() {
            return;
        }
        self.remove_unfinished();
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {} for a purge: {error}", self.path.display());
            }
            Ok(()) | Err(_) => {
                self.made_at = None;
                self.hold.is_removed.store(true, Ordering::Release);
            }
        }
    }

    /// Removes unfinished files of a process that was killed: the next image may be long in coming.
    fn remove_unfinished(&self) {
        derived::remove_unfinished(&self.path, "an unfinished image of the links");
    }

    /// True if the disk has room for another image, the records that are sorted for it, and as much again for the
    /// store.
    fn has_room(&self) -> bool {
        let expected = self.links.disk_bytes().max(self.path.metadata().map_or(0, |metadata| metadata.len()));
        self.disk.has_room_for(3 * expected)
    }

    fn make(&self) -> Result<(u64, u64), NotWritten> {
        // The position comes before the scan: a link that changes during it is in the log after that position.
        let mut writer = ImageWriter::begin(&self.path, self.links.log_position(), self.hasher, self.cores)?;
        let made = self.fill(&mut writer).and_then(|records| Ok((records, writer.finish()?)));
        if made.is_err() {
            writer.abandon();
        }
        made
    }

    /// Gives all links to the writer, in their order, and syncs the store.
    fn fill(&self, writer: &mut ImageWriter) -> Result<u64, NotWritten> {
        let mut pace = WritePace::new(&self.disk, &self.stop, self.pauses).held_by(&self.hold.is_held);
        let mut sorter = self.sorter()?;
        for part in key_ranges() {
            let mut sorted = Ok(());
            let damaged = self.links.scan(part, |key, value| {
                sorted = sort(&mut sorter, &mut pace, key, value);
                sorted.is_ok()
            })?;
            sorted?;
            if !damaged.is_empty() {
                return Err(NotWritten::Damaged);
            }
        }
        let mut records = 0;
        while let Some(part) = sorter.next_part()? {
            if part.begins_core {
                writer.end_page()?;
            }
            for record in part.records() {
                write(writer, &mut pace, record)?;
                records += 1;
            }
        }
        // A power failure must not take links from the store that the image has.
        self.links.sync()?;
        Ok(records)
    }

    fn sorter(&self) -> Result<Sorter, NotWritten> {
        let record_bytes = self.record_bytes()?;
        Ok(Sorter::new(&self.path, self.hasher, self.cores, self.links.approximate_len(), record_bytes)?)
    }

    /// Estimates the bytes of a record in the image: the mean of a few in each part of the store.
    fn record_bytes(&self) -> Result<u64, StoreError> {
        let (mut bytes, mut seen) = (0, 0);
        for part in key_ranges() {
            let mut records = 0;
            self.links.scan(part, |key, value| {
                if let Ok(RecordRef::Link(link)) = record::decode(key, value) {
                    bytes += (RECORD_BYTES_BESIDE_TARGET + link.target.len()) as u64;
                    seen += 1;
                }
                records += 1;
                records < IMAGE_SAMPLED
            })?;
        }
        Ok(u64::checked_div(bytes, seen).unwrap_or(RECORD_BYTES_BESIDE_TARGET as u64))
    }
}

/// Gives the sorter the part of a record that the map needs: no tombstones, and neither titles nor tags.
fn sort(sorter: &mut Sorter, pace: &mut WritePace<'_>, key: &[u8], value: &[u8]) -> Result<(), NotWritten> {
    pause_if_due();
    let decoded = record::decode(key, value);
    let entry = match &decoded {
        Ok(RecordRef::Tombstone(_)) => return Ok(()),
        // The map does not hold it, or an older version must not: a start reads it from the store.
        Ok(RecordRef::Link(_)) if record::is_read_at_start(value) => MapEntry::Damaged,
        Ok(RecordRef::Link(link)) => MapEntry::Link { policy: link.policy, target: link.target.as_bytes() },
        // A start reads this record from the store and reports it if it still cannot be decoded: another version of the
        // program may be able to read it.
        Err(_) => MapEntry::Damaged,
    };
    let code = Code::from_key(key).map_err(|_| NotWritten::Damaged)?;
    let written = sorter.push(&code, &entry)?;
    pace.wrote(written, || sorter.sync())
}

fn write(writer: &mut ImageWriter, pace: &mut WritePace<'_>, record: Sealed<'_>) -> Result<(), NotWritten> {
    pause_if_due();
    let written = writer.push(record)?;
    pace.wrote(written, || writer.sync())
}

/// Average bytes of a record besides its target.
const RECORD_BYTES_BESIDE_TARGET: usize = 24;

#[cfg(test)]
mod tests;
