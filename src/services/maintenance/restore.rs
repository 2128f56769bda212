//! Makes a new store from a backup.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use carom_shards::CodeLength;

use crate::services::visit_log::copies as logged_visits;
use crate::services::visits::copies::put_log;
use carom_store::backup::frames::{FrameError, FrameReader};
use carom_store::backup::{RecordCounts, Section};
use carom_store::links::dump::NewStore;
use carom_store::links::{Links, StoreError, StoredRecord, is_quarantine_entry};

/// Codes that a node may have issued in each second since the backup, on average. That is many times what a large
/// service creates (500 million links a month are 200 a second). Codes that were issued after the backup are unknown,
/// so all of these are skipped for good.
const CODES_PER_SECOND: u64 = 200_000;

/// Smallest number of codes to skip: for bursts, and for codes that were prepared but not issued yet.
const CODES_AT_LEAST: u64 = 10_000_000;

/// Length of the shortest generated codes.
const SHORTEST: usize = 6;

/// Longest key that the store accepts, in bytes.
const KEY_LEN_MAX: usize = u16::MAX as usize;

/// Reasons why a restore failed.
#[derive(Debug)]
pub enum RestoreError {
    /// The backup is damaged.
    Backup(FrameError),
    /// The new store cannot be written.
    Store(StoreError),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Backup(error) => write!(f, "{error}"),
            RestoreError::Store(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<FrameError> for RestoreError {
    fn from(error: FrameError) -> RestoreError {
        RestoreError::Backup(error)
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> RestoreError {
        RestoreError::Store(error)
    }
}

/// A stream of records, section by section.
struct Stream<R> {
    reader: FrameReader<R>,
    /// The records of the last frame, in reverse order.
    waiting: Vec<(Section, StoredRecord)>,
    is_over: bool,
}

impl<R: Read> Stream<R> {
    /// Returns the section of the next record, without taking it.
    fn peek(&mut self) -> Result<Option<Section>, FrameError> {
        while self.waiting.is_empty() && !self.is_over {
            let waiting = &mut self.waiting;
            self.is_over = !self.reader.next_frame(|section, key, value| {
                waiting.push((section, (key.to_vec(), value.to_vec())));
                Ok::<_, FrameError>(())
            })?;
            self.waiting.reverse();
        }
        Ok(self.waiting.last().map(|(section, _)| *section))
    }

    /// Takes the next record of a section; `None` after the last one.
    fn next_of(&mut self, section: Section) -> Result<Option<StoredRecord>, FrameError> {
        let is_of = self.peek()? == Some(section);
        Ok(self.waiting.pop_if(|_| is_of).map(|(_, record)| record))
    }

    /// Returns the error for damage at the present position.
    fn damaged(&self, what: String) -> RestoreError {
        FrameError::Damaged { at: self.reader.position(), what }.into()
    }
}

/// Makes a store in `dir`, which must not exist yet, from the backup in `input`. Visits that are outside the store go
/// to `data_dir`. Calls `on_counts` with the progress.
///
/// # Errors
/// A description of what is wrong with the backup or the disk. The content of `dir` is then of no use.
pub fn restore(
    input: impl Read,
    dir: &Path,
    data_dir: &Path,
    mut on_counts: impl FnMut(&RecordCounts),
) -> Result<RecordCounts, RestoreError> {
    let mut stream = Stream { reader: FrameReader::begin(input)?, waiting: Vec::new(), is_over: false };
    let store = NewStore::begin(dir)?;
    for section in Section::ALL {
        match section {
            Section::CountLogs => restore_count_logs(&mut stream, data_dir)?,
            Section::VisitLog => restore_logged_visits(&mut stream, data_dir)?,
            _ => restore_records(&mut stream, &store, section, &mut on_counts)?,
        }
    }
    if let Some(section) = stream.peek()? {
        return Err(stream.damaged(format!("records of {section} come after records of a later section")));
    }
    store.end()?;
    Ok(*stream.reader.counts())
}

/// Fills a section of the store.
fn restore_records<R: Read>(
    stream: &mut Stream<R>,
    store: &NewStore,
    section: Section,
    on_counts: &mut impl FnMut(&RecordCounts),
) -> Result<(), RestoreError> {
    let mut last: Vec<u8> = Vec::new();
    store.fill(section, || -> Result<Option<StoredRecord>, RestoreError> {
        let mut next = stream.next_of(section)?;
        // Quarantine entries are not restored: their codes may have been reused since the backup. They stay unused.
        while next.as_ref().is_some_and(|(key, _)| section == Section::Ends && is_quarantine_entry(key)) {
            next = stream.next_of(section)?;
        }
        on_counts(stream.reader.counts());
        let Some((key, _)) = &next else { return Ok(None) };
        // The store's library panics on such keys, and a checksum does not catch a wrong write.
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err(stream.damaged(format!("{section}: a key of {} bytes", key.len())));
        }
        if *key <= last {
            let what = format!("{section}: the key {} occurs twice or is out of order", key.escape_ascii());
            return Err(stream.damaged(what));
        }
        last.clone_from(key);
        Ok(next)
    })
}

/// Writes the count logs, whose visits are not in the store yet.
fn restore_count_logs<R: Read>(stream: &mut Stream<R>, data_dir: &Path) -> Result<(), RestoreError> {
    while let Some((key, piece)) = stream.next_of(Section::CountLogs)? {
        let seq = key.first_chunk().copied().map_or(0, u32::from_be_bytes);
        put_log(data_dir, seq, &piece).map_err(|error| StoreError::Failed(error.to_string()))?;
    }
    Ok(())
}

/// Writes the files of the visit log.
fn restore_logged_visits<R: Read>(stream: &mut Stream<R>, data_dir: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| StoreError::Failed(format!("the visit log: {error}"));
    let mut is_empty = true;
    while let Some((key, piece)) = stream.next_of(Section::VisitLog)? {
        let Some(name) = logged_visits::file_of(&key) else {
            let what = format!("{}: the visit log has no file {}", Section::VisitLog, key.escape_ascii());
            return Err(stream.damaged(what));
        };
        logged_visits::put_piece(data_dir, name, &piece).map_err(failed)?;
        is_empty = false;
    }
    if !is_empty {
        logged_visits::sync(data_dir).map_err(failed)?;
    }
    Ok(())
}

/// Makes sure that no code is issued again that was issued in the `seconds` since the backup, of any length. Returns by
/// how much the counters were raised.
///
/// # Errors
/// If the store fails.
pub fn pass_over_codes(links: &Links, seconds: u64) -> Result<u64, StoreError> {
    let by = CODES_AT_LEAST.saturating_add(seconds.saturating_mul(CODES_PER_SECOND));
    let lengths = CodeLength::MIN.and_longer().filter(|length| length.get() >= SHORTEST);
    let lengths: Vec<(usize, u64)> = lengths.map(|length| (length.get(), length.codes())).collect();
    links.raise_high_water(by, &lengths)?;
    Ok(by)
}
