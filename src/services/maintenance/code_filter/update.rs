//! Brings the file of the filters up to date: the codes that changed since it was written are inserted, page by page.

use std::io;
use std::sync::atomic::Ordering;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, CodeHash};

use super::build::{FilterOrder, is_of_link};
use super::file::{FilterFile, FilterPage, FilterSize, FilterWriter};
use crate::bridge::RuledBits;
use crate::services::derived::sealed_file::{NotWritten, SealKey, Unusable, WritePace};
use carom_limits::FILTER_UPDATED_MAX;
use carom_model::link::record;
use carom_store::links::{ChangesSince, LogPosition, StoreError};

/// The codes that changed since a file was written, as the store has them now.
#[derive(Debug)]
pub(super) struct LaterCodes {
    /// The position up to which these are all changes.
    position: LogPosition,
    /// Codes with a link, possibly with duplicates.
    live: Vec<CodeHash>,
    /// Codes without a link, possibly with duplicates.
    gone: Vec<CodeHash>,
    /// Codes whose links may have redirect rules.
    pub(super) ruled: RuledBits,
}

/// Reasons why a file was not brought up to date.
#[derive(Debug)]
pub(super) enum NotUpdated {
    /// The old file cannot be used.
    Unusable(Unusable),
    /// The new file cannot be written.
    NotWritten(NotWritten),
}

impl From<Unusable> for NotUpdated {
    fn from(why: Unusable) -> NotUpdated {
        NotUpdated::Unusable(why)
    }
}

impl From<NotWritten> for NotUpdated {
    fn from(why: NotWritten) -> NotUpdated {
        NotUpdated::NotWritten(why)
    }
}

impl From<io::Error> for NotUpdated {
    fn from(error: io::Error) -> NotUpdated {
        NotUpdated::NotWritten(error.into())
    }
}

impl From<StoreError> for NotUpdated {
    fn from(error: StoreError) -> NotUpdated {
        NotUpdated::NotWritten(error.into())
    }
}

impl LaterCodes {
    fn len(&self) -> usize {
        self.live.len() + self.gone.len()
    }

    fn add(&mut self, order: &FilterOrder<'_>, code: &Code) -> Result<(), NotWritten> {
        if order.stop.load(Ordering::Relaxed) {
            return Err(NotWritten::Stopped);
        }
        let hash = order.hasher.hash(code);
        match order.links.get(code) {
            Ok(Some(value)) if is_of_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) => {
                if record::may_have_rules(&value) {
                    self.ruled.mark(hash);
                }
                self.live.push(hash);
            }
            Ok(_) => self.gone.push(hash),
            // A request for it must find the damage.
            Err(StoreError::Damaged(_)) => self.live.push(hash),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Looks up all codes that changed since a position. Returns `None` if the change log lacks some of them, or they are
/// too many to update a file.
///
/// # Errors
/// If the store cannot be read, or the thread is stopping.
pub(super) fn later_codes(order: &FilterOrder<'_>, since: LogPosition) -> Result<Option<LaterCodes>, NotWritten> {
    let ruled = RuledBits::default();
    let mut later = LaterCodes { position: since, live: Vec::new(), gone: Vec::new(), ruled };
    let mut added = Ok(());
    let known = order.links.changes_since(since, |code| {
        if added.is_ok() && later.len() <= FILTER_UPDATED_MAX {
            added = later.add(order, &code);
        }
    })?;
    added?;
    let ChangesSince::UpTo(position) = known else { return Ok(None) };
    later.position = position;
    Ok((later.len() <= FILTER_UPDATED_MAX).then_some(later))
}

/// Writes a file that has the codes of an old one and later ones, and replaces the old one.
///
/// # Errors
/// If the old file is damaged, the disk has no room, the disk or the store fails, or the thread is stopping. The old file
/// stays.
pub(super) fn update(order: &FilterOrder<'_>, old: &FilterFile, later: LaterCodes) -> Result<(), NotUpdated> {
    order.check_room()?;
    let key = SealKey { position: later.position, ..old.head.key };
    let mut writer = FilterWriter::begin(order.path, key, old.head.codes_of_core)?;
    let updated = fill(order, old, later, &mut writer);
    if updated.is_err() {
        writer.abandon();
    }
    updated
}

fn fill(
    order: &FilterOrder<'_>,
    old: &FilterFile,
    later: LaterCodes,
    writer: &mut FilterWriter,
) -> Result<(), NotUpdated> {
    let size = old.head.size();
    let mut ruled = old.ruled()?;
    ruled.add(&later.ruled);
    let mut pace = WritePace::new(order.disk, order.stop, order.pauses);
    let mut live = in_order(later.live, size).peekable();
    let mut gone = in_order(later.gone, size).peekable();
    let (mut page, mut stale) = (FilterPage::default(), old.head.stale);
    for number in size.block_pages() {
        old.read(number, &mut page)?;
        while let Some(hash) = live.next_if(|&hash| size.place(hash).page == number) {
            page.insert(size.place(hash).block, hash);
        }
        while let Some(hash) = gone.next_if(|&hash| size.place(hash).page == number) {
            stale += u64::from(page.holds(size.place(hash).block, hash));
        }
        let written = writer.write(number, &mut page)?;
        pace.wrote(written, || writer.sync())?;
    }
    assert!(live.next().is_none(), "a later code is not in the file");
    writer.add_stale(stale);
    writer.write_ruled(&ruled)?;
    // A power failure must not take links from the store that the file has.
    order.links.sync()?;
    writer.finish()?;
    Ok(())
}

/// Returns hashes in the order of their places, each once.
fn in_order(mut hashes: Vec<CodeHash>, size: FilterSize) -> impl Iterator<Item = CodeHash> {
    hashes.sort_unstable_by_key(|&hash| (size.place(hash), hash.0));
    hashes.dedup();
    hashes.into_iter()
}
