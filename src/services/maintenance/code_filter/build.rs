//! Builds the file of the filters from the store, with little memory. It sorts the hashes of all codes by the part of
//! the file that they belong to, and then fills the parts one after the other.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use carom_shards::{Code, CodeHash, CodeHasher};

use super::file::{FilterFile, FilterPage, FilterSize, FilterWriter};
use crate::bridge::RuledBits;
use crate::services::derived::sealed_file::{NotWritten, SealKey, WritePace};
use crate::services::derived::spill::Spill;
use crate::services::maintenance::disk_guard::DiskGuard;
use crate::services::threads::priority::{PacedLoop, pause_if_due};
use carom_limits::FILTER_PART_PAGES;
use carom_model::link::record::{self, RecordRef};
use carom_store::links::{DamagedRange, KeyRange, Links, StoreError, key_ranges};

/// Bytes on disk for each link while a file is built: eight for its hash, and two or three for its bits.
const BYTES_PER_LINK: u64 = 16;

/// Inputs of a new file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterOrder<'a> {
    /// The store of links.
    pub(super) links: &'a Links,
    /// The path of the file.
    pub(super) path: &'a Path,
    /// The hasher of the process.
    pub(super) hasher: CodeHasher,
    /// The disk of the file.
    pub(super) disk: &'a DiskGuard,
    /// True once the thread should end.
    pub(super) stop: &'a AtomicBool,
    /// True if a node serves meanwhile.
    pub(super) pauses: bool,
}

impl FilterOrder<'_> {
    /// Checks that the disk has room for another file, the hashes that are sorted for it, and a reserve for the store.
    pub(super) fn check_room(&self) -> Result<(), NotWritten> {
        let old = self.path.metadata().map_or(0, |metadata| metadata.len());
        if self.disk.has_room_for(old + BYTES_PER_LINK * self.links.approximate_len() as u64) {
            Ok(())
        } else {
            Err(NotWritten::Failed("the disk has no room for them".to_owned()))
        }
    }
}

/// The filters of all codes in the store.
#[derive(Debug)]
pub(super) struct BuiltFilter {
    /// The file. It has no name if `damaged` has ranges, because it lacks their codes.
    pub(super) file: FilterFile,
    /// The codes whose links may have redirect rules.
    pub(super) ruled: RuledBits,
    /// The ranges of the store that cannot be read.
    pub(super) damaged: Vec<DamagedRange>,
}

/// True if a record is a link or damaged, and not a tombstone.
pub(super) fn is_of_link(key: &[u8], value: &[u8]) -> bool {
    !(record::may_be_tombstone(value) && matches!(record::decode(key, value), Ok(RecordRef::Tombstone(_))))
}

/// Passes the codes of all links in a part of the store to `take`, until it returns false. Marks those whose links may
/// have redirect rules. Returns the ranges that cannot be read.
///
/// # Errors
/// If the operating system cannot read the store.
pub(super) fn scan_codes(
    (links, hasher): (&Links, CodeHasher),
    part: KeyRange,
    ruled: &mut RuledBits,
    mut take: impl FnMut(CodeHash) -> bool,
) -> Result<Vec<DamagedRange>, StoreError> {
    let mut paced = PacedLoop::default();
    links.scan(part, |key, value| {
        paced.step();
        // Nobody can request a key that is not a code.
        let Ok(code) = Code::from_key(key) else { return true };
        if !is_of_link(key, value) {
            return true;
        }
        let hash = hasher.hash(&code);
        if record::may_have_rules(value) {
            ruled.mark(hash);
        }
        take(hash)
    })
}

/// Builds a file of a size from a scan of the store. Blocks the thread for about a microsecond per link.
///
/// # Errors
/// If the disk has no room, the disk or the store fails, or the thread is stopping. Then there is no new file. Damage is
/// no error.
pub(super) fn build(order: &FilterOrder<'_>, size: FilterSize) -> Result<BuiltFilter, NotWritten> {
    order.check_room()?;
    // The position comes before the scan: a link that changes during it is in the log after that position.
    let key = SealKey { position: order.links.log_position(), hasher: order.hasher, cores: size.cores };
    let mut writer = FilterWriter::begin(order.path, key, size.codes)?;
    let built = fill(order, size, &mut writer);
    if !built.as_ref().is_ok_and(|built| built.damaged.is_empty()) {
        writer.abandon();
    }
    built
}

fn fill(order: &FilterOrder<'_>, size: FilterSize, writer: &mut FilterWriter) -> Result<BuiltFilter, NotWritten> {
    let mut pace = WritePace::new(order.disk, order.stop, order.pauses);
    let count = size.pages().div_ceil(FILTER_PART_PAGES) as usize;
    let mut spill = Spill::new(order.path, count, size_of::<u64>())?;
    let (mut ruled, mut damaged) = (RuledBits::default(), Vec::new());
    for part in key_ranges() {
        let mut taken = Ok(());
        let unread = scan_codes((order.links, order.hasher), part, &mut ruled, |hash| {
            taken = sort(&mut spill, size, hash, &mut pace);
            taken.is_ok()
        })?;
        taken?;
        damaged.extend(unread);
    }
    write_parts(size, &mut spill, writer, &mut pace)?;
    writer.write_ruled(&ruled)?;
    // A power failure must not take links from the store that the file has.
    order.links.sync()?;
    if damaged.is_empty() {
        writer.finish()?;
    }
    Ok(BuiltFilter { file: writer.reader()?, ruled, damaged })
}

/// Adds a hash to its part.
fn sort(spill: &mut Spill, size: FilterSize, hash: CodeHash, pace: &mut WritePace<'_>) -> Result<(), NotWritten> {
    let part = (size.place(hash).page / FILTER_PART_PAGES) as usize;
    let written = spill.push(part, |hashes| hashes.extend_from_slice(&hash.0.to_le_bytes()))?;
    pace.wrote(written, || spill.sync())
}

/// Writes all pages of blocks.
fn write_parts(
    size: FilterSize,
    spill: &mut Spill,
    writer: &mut FilterWriter,
    pace: &mut WritePace<'_>,
) -> Result<(), NotWritten> {
    let mut pages: Vec<FilterPage> = (0..FILTER_PART_PAGES).map(|_| FilterPage::default()).collect();
    let mut paced = PacedLoop::default();
    for part in 0..spill.parts() {
        let first = part as u64 * FILTER_PART_PAGES;
        pages.iter_mut().for_each(FilterPage::clear);
        for bytes in spill.take(part)?.as_chunks().0 {
            paced.step();
            let hash = CodeHash(u64::from_le_bytes(*bytes));
            let place = size.place(hash);
            pages[(place.page - first) as usize].insert(place.block, hash);
        }
        for (number, page) in (first..).zip(&mut pages) {
            pause_if_due();
            if size.block_pages().contains(&number) {
                let written = writer.write(number, page)?;
                pace.wrote(written, || writer.sync())?;
            }
        }
    }
    Ok(())
}
