//! The image of the map: a file from which a start loads links faster than from the store.
//!
//! An image has the records of all links as they were at a [`LogPosition`], some of them newer. The change log of the store
//! says which links changed since; a start takes these from the store and all others from the image. So a start after a
//! kill costs what a start after a clean stop does, and nothing must be written when the node stops. [`start`] runs the
//! thread that makes an image anew when many links have changed. Whatever is wrong with an image, the store is read
//! instead ([`super::loader`]).

mod file;

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use carom_shards::{Code, CodeHash, CodeHasher};

use super::disk::DiskGuard;
use super::priority::let_cores_go_first;
use crate::labels::Labels;
use crate::limits::{
    IMAGE_CHANGES_MIN, IMAGE_CHANGES_SHARE, IMAGE_LINKS_MIN, IMAGE_LOOK_EVERY, IMAGE_REPLAYED_SHARE, IMAGE_SYNC_BLOCKS,
    IMAGE_SYNC_PAUSE,
};
use crate::record::{self, RecordRef};
use crate::store::links::{ChangesSince, Links, StoreError, parts};

pub use self::file::FILE_NAME;
pub(super) use self::file::Image;
use self::file::{ImageWriter, Unusable};

/// A code's hash is as good as any hash of it.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The links that changed since an image was made.
#[derive(Debug, Default)]
pub(super) struct Changed {
    hashes: HashSet<CodeHash, BuildHasherDefault<Itself>>,
    /// In their order, each once.
    pub(super) codes: Vec<Code>,
}

impl Changed {
    /// Whether the image may be out of date for a code.
    #[inline]
    pub(super) fn has(&self, code: &Code, hash: CodeHash) -> bool {
        self.hashes.contains(&hash) && self.codes.binary_search(code).is_ok()
    }
}

/// Opens the image in a data directory and finds out which links have changed since. `None` where there is none, or none
/// that is worth to be used: the log then says why.
///
/// # Errors
/// Where the operating system refused to read the store.
pub(super) fn open(links: &Links, data_dir: &Path, hasher: CodeHasher) -> Result<Option<(Image, Changed)>, StoreError> {
    let image = match Image::open(&data_dir.join(FILE_NAME)) {
        Ok(Some(image)) => image,
        Ok(None) => return Ok(None),
        Err(unusable) => {
            give_up(data_dir, &unusable);
            return Ok(None);
        }
    };
    let most = image.records / IMAGE_REPLAYED_SHARE + IMAGE_CHANGES_MIN;
    let mut codes = Vec::new();
    let mut count = 0;
    let known = links.changes_since(image.position, |code| {
        count += 1;
        if count <= most {
            codes.push(code);
        }
    })?;
    if known == ChangesSince::Unknown {
        tracing::info!("links were changed outside the change log, as by an import; all links are read from the store");
        remove(data_dir);
        return Ok(None);
    }
    if count > most {
        tracing::info!("{count} changes are newer than the image of the links; all links are read from the store");
        return Ok(None);
    }
    codes.sort_unstable();
    codes.dedup();
    let hashes = codes.iter().map(|code| hasher.hash(code)).collect();
    Ok(Some((image, Changed { hashes, codes })))
}

/// Removes an image that cannot be used.
pub(super) fn give_up(data_dir: &Path, why: &dyn std::fmt::Display) {
    let path = data_dir.join(FILE_NAME);
    // A warning, no alarm: nothing is lost, and the node makes another image.
    tracing::warn!(
        "the image of the links {} cannot be used ({why}); all links are read from the store",
        path.display()
    );
    remove(data_dir);
}

fn remove(data_dir: &Path) {
    if let Err(error) = std::fs::remove_file(data_dir.join(FILE_NAME)) {
        tracing::warn!("cannot remove the image of the links in {}: {error}", data_dir.display());
    }
}

/// Describes why a block of an image could not be read.
pub(super) type BlockError = Unusable;

/// What the thread that makes images needs.
#[derive(Debug)]
pub struct ImageSetup {
    /// The store.
    pub links: Links,
    /// Where the image is.
    pub data_dir: PathBuf,
    /// How many links had changed since the image that the node has loaded; `None` where it has loaded none.
    pub replayed: Option<u64>,
    /// How many changes had been committed when that was found out ([`Links::changes`]).
    pub changes: u64,
}

/// The thread that makes images.
#[derive(Debug)]
pub struct ImageMaker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ImageMaker {
    /// Ends the thread. An image in the making is given up.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread that makes images. To be called after all links are loaded.
///
/// # Errors
/// Where the operating system gives no thread.
pub fn start(setup: ImageSetup) -> io::Result<ImageMaker> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut maker = Maker {
        path: setup.data_dir.join(FILE_NAME),
        disk: DiskGuard::new(setup.data_dir),
        links: setup.links,
        made_at: setup.replayed.map(|replayed| setup.changes.wrapping_sub(replayed)),
        stop: Arc::clone(&stop),
    };
    let run = move || {
        let_cores_go_first();
        // The load has left free memory in the heaps of its threads.
        let mut was_busy = true;
        while !maker.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(IMAGE_LOOK_EVERY);
            if std::mem::replace(&mut was_busy, maker.look()) {
                carom_ring::return_free_memory();
            }
        }
    };
    let thread = std::thread::Builder::new().name("image".to_owned()).spawn(run)?;
    Ok(ImageMaker { stop, thread })
}

struct Maker {
    links: Links,
    path: PathBuf,
    disk: DiskGuard,
    /// [`Links::changes`] when the image was begun; before the start of the node by so many less. `None` without an image.
    made_at: Option<u64>,
    stop: Arc<AtomicBool>,
}

/// Why there is no new image.
enum NotMade {
    Stopped,
    /// There will be one when the damage is repaired; the start has reported it.
    Damaged,
    Failed(String),
}

impl From<io::Error> for NotMade {
    fn from(error: io::Error) -> NotMade {
        NotMade::Failed(error.to_string())
    }
}

impl From<StoreError> for NotMade {
    fn from(error: StoreError) -> NotMade {
        NotMade::Failed(error.to_string())
    }
}

impl Maker {
    /// Makes an image if it is time to. Returns whether it was.
    fn look(&mut self) -> bool {
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
            Err(NotMade::Stopped) => {}
            Err(not_made) => {
                // Tried again after as many changes: the next start reads what it needs from the store.
                self.made_at = Some(changes);
                if let NotMade::Failed(error) = not_made {
                    tracing::warn!("cannot write the image of the links to {}: {error}", self.path.display());
                }
            }
        }
        true
    }

    /// Whether the disk has room for another image, and as much again for the store.
    fn has_room(&self) -> bool {
        let expected = self.links.disk_bytes().max(self.path.metadata().map_or(0, |metadata| metadata.len()));
        self.disk.space().is_ok_and(|space| space.free > space.reserve() + 2 * expected)
    }

    fn make(&self) -> Result<(u64, u64), NotMade> {
        // Before the scan: a link that changes meanwhile is in the log from there on.
        let mut writer = ImageWriter::begin(&self.path, self.links.log_position())?;
        match self.fill(&mut writer) {
            Ok(records) => Ok((records, writer.finish()?)),
            Err(error) => {
                writer.abandon();
                Err(error)
            }
        }
    }

    /// Gives all links to the writer; all that they have is durable then.
    fn fill(&self, writer: &mut ImageWriter) -> Result<u64, NotMade> {
        let (mut records, mut blocks, mut stripped) = (0, 0, Vec::new());
        for part in parts() {
            let mut pushed = Ok(());
            let damaged = self.links.scan(part, |key, value| {
                pushed = self.push(writer, key, value, &mut stripped).map(|written| {
                    records += u64::from(written.is_some());
                    blocks += u64::from(written == Some(true));
                });
                if pushed.is_ok() && written_much(&mut blocks) {
                    pushed = writer.sync().map_err(NotMade::from);
                    std::thread::park_timeout(IMAGE_SYNC_PAUSE);
                }
                if self.stop.load(Ordering::Relaxed) {
                    pushed = Err(NotMade::Stopped);
                }
                pushed.is_ok()
            })?;
            pushed?;
            if !damaged.is_empty() {
                return Err(NotMade::Damaged);
            }
        }
        // What the image says must not be lost by a power failure that leaves the image.
        self.links.sync()?;
        Ok(records)
    }

    /// Adds what the map needs of a record. Returns whether a block was written; `None` for a tombstone, which is left out.
    fn push(
        &self,
        writer: &mut ImageWriter,
        key: &[u8],
        value: &[u8],
        stripped: &mut Vec<u8>,
    ) -> Result<Option<bool>, NotMade> {
        match record::decode(key, value) {
            Ok(RecordRef::Tombstone(_)) => return Ok(None),
            Ok(RecordRef::Link(link)) if link.title.is_some() || !link.tags.is_empty() => {
                if let Ok(code) = Code::from_key(key) {
                    let mut link = link.to_link(code);
                    link.labels = Labels { domain: link.labels.domain.take(), ..Labels::default() };
                    stripped.clear();
                    record::encode_link(key, &link, stripped);
                    return Ok(Some(writer.push(key, stripped)?));
                }
            }
            // A start reports a damaged record wherever it finds it.
            Ok(RecordRef::Link(_)) | Err(_) => {}
        }
        Ok(Some(writer.push(key, value)?))
    }
}

/// Whether so much was written that the disk is to be waited for. Counts from the beginning then.
fn written_much(blocks: &mut u64) -> bool {
    let is_much = *blocks >= IMAGE_SYNC_BLOCKS;
    if is_much {
        *blocks = 0;
    }
    is_much
}

#[cfg(test)]
mod tests;
