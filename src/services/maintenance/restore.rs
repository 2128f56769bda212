//! Makes a new store from a backup.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use carom_shards::CodeLength;

use crate::services::threads::priority::PacedLoop;
use crate::services::visit_log::copies as logged_visits;
use crate::services::visits::copies::put_log;
use carom_store::backup::frames::{FrameError, FrameReader, ReadFrame};
use carom_store::backup::{RecordCounts, Section};
use carom_store::links::dump::NewStore;
use carom_store::links::{Links, StoreError, is_quarantine_entry};

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
struct RecordStream<R> {
    reader: FrameReader<R>,
    /// The frame whose records come next.
    frame: Option<ReadFrame>,
    is_over: bool,
}

impl<R: Read> RecordStream<R> {
    /// Returns the section of the next records, without taking them.
    fn peek(&mut self) -> Result<Option<Section>, FrameError> {
        if self.frame.is_none() && !self.is_over {
            self.frame = self.reader.read()?;
            self.is_over = self.frame.is_none();
        }
        Ok(self.frame.as_ref().map(|frame| frame.section))
    }

    /// Passes the records of the next frame to `each`, if they are of this section, with the position behind the frame.
    /// Returns false after the last record of the section.
    fn next_of(
        &mut self,
        section: Section,
        mut each: impl FnMut(u64, &[u8], &[u8]) -> Result<(), RestoreError>,
    ) -> Result<bool, RestoreError> {
        self.peek()?;
        let Some(frame) = self.frame.take_if(|frame| frame.section == section) else { return Ok(false) };
        let at = self.reader.position();
        self.reader.each_record(frame, |key, value| each(at, key, value))?;
        Ok(true)
    }
}

/// Returns the error for damage at a position.
fn damaged(at: u64, what: String) -> RestoreError {
    FrameError::Damaged { at, what }.into()
}

/// Makes a store in `dir`, which must not exist yet, from the backup in `input`. Visits that are outside the store go
/// to `data_dir`. Calls `on_counts` with the progress after each frame.
///
/// # Errors
/// A description of what is wrong with the backup or the disk. The content of `dir` is then useless.
pub fn restore(
    input: impl Read,
    dir: &Path,
    data_dir: &Path,
    mut on_counts: impl FnMut(&RecordCounts),
) -> Result<RecordCounts, RestoreError> {
    let mut stream = RecordStream { reader: FrameReader::begin(input)?, frame: None, is_over: false };
    let store = NewStore::begin(dir)?;
    for section in Section::ALL {
        match section {
            Section::CountLogs => restore_count_logs(&mut stream, data_dir)?,
            Section::VisitLog => restore_logged_visits(&mut stream, data_dir)?,
            _ => restore_records(&mut stream, &store, section, &mut on_counts)?,
        }
    }
    if let Some(section) = stream.peek()? {
        let what = format!("records of {section} come after records of a later section");
        return Err(damaged(stream.reader.position(), what));
    }
    store.end()?;
    Ok(*stream.reader.counts())
}

/// Fills a section of the store.
fn restore_records<R: Read>(
    stream: &mut RecordStream<R>,
    store: &NewStore,
    section: Section,
    on_counts: &mut impl FnMut(&RecordCounts),
) -> Result<(), RestoreError> {
    let mut last: Vec<u8> = Vec::new();
    let mut paced = PacedLoop::default();
    store.fill(section, |add| -> Result<(), RestoreError> {
        let mut add_next = |at: u64, key: &[u8], value: &[u8]| -> Result<(), RestoreError> {
            // Quarantine entries are not restored: their codes may have been reused since the backup. They stay unused.
            if section == Section::Ends && is_quarantine_entry(key) {
                return Ok(());
            }
            // The store's library panics on such keys, and a checksum does not catch a wrong write.
            if key.is_empty() || key.len() > KEY_LEN_MAX {
                return Err(damaged(at, format!("{section}: a key of {} bytes", key.len())));
            }
            if *key <= last[..] {
                let what = format!("{section}: the key {} occurs twice or is out of order", key.escape_ascii());
                return Err(damaged(at, what));
            }
            last.clear();
            last.extend_from_slice(key);
            paced.step();
            Ok(add(key, value)?)
        };
        while stream.next_of(section, &mut add_next)? {
            on_counts(stream.reader.counts());
        }
        Ok(())
    })
}

/// Writes the count logs, whose visits are not in the store yet.
fn restore_count_logs<R: Read>(stream: &mut RecordStream<R>, data_dir: &Path) -> Result<(), RestoreError> {
    let put = |_: u64, key: &[u8], piece: &[u8]| -> Result<(), RestoreError> {
        let seq = key.first_chunk().copied().map_or(0, u32::from_be_bytes);
        put_log(data_dir, seq, piece).map_err(|error| StoreError::Failed(error.to_string()).into())
    };
    while stream.next_of(Section::CountLogs, put)? {}
    Ok(())
}

/// Writes the files of the visit log.
fn restore_logged_visits<R: Read>(stream: &mut RecordStream<R>, data_dir: &Path) -> Result<(), RestoreError> {
    let failed = |error: io::Error| StoreError::Failed(format!("the visit log: {error}"));
    let put = |at: u64, key: &[u8], piece: &[u8]| -> Result<(), RestoreError> {
        let Some(name) = logged_visits::file_of(key) else {
            let what = format!("{}: the visit log has no file {}", Section::VisitLog, key.escape_ascii());
            return Err(damaged(at, what));
        };
        Ok(logged_visits::put_piece(data_dir, name, piece).map_err(failed)?)
    };
    let mut is_empty = true;
    while stream.next_of(Section::VisitLog, put)? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::sleeps_of;
    use crate::services::threads::priority::Priority;
    use carom_store::backup::frames::FrameWriter;

    fn stream(keys: impl IntoIterator<Item = u32>) -> Vec<u8> {
        let mut writer = FrameWriter::begin(Vec::new()).unwrap();
        keys.into_iter().for_each(|key| writer.add(Section::Links, &key.to_be_bytes(), b"record").unwrap());
        writer.end().unwrap()
    }

    #[test]
    fn long_restores_pause_beside_cores() {
        let dir = tempfile::tempdir().unwrap();
        let (input, path) = (stream(0..3_200), dir.path().to_owned());
        let sleeps = sleeps_of(Priority::Long, move || {
            restore(&input[..], &path.join("links"), &path, |_| {}).unwrap();
        });
        assert!(sleeps >= 90, "{sleeps} for 3,200 records");
    }

    #[test]
    fn records_out_of_order_are_damage() {
        for keys in [[2, 1], [1, 1]] {
            let dir = tempfile::tempdir().unwrap();
            let restored = restore(&stream(keys)[..], &dir.path().join("links"), dir.path(), |_| {});
            assert!(matches!(&restored, Err(RestoreError::Backup(FrameError::Damaged { .. }))), "{restored:?}");
        }
    }

    #[test]
    fn progress_is_told_after_each_frame() {
        let dir = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let count = |counts: &RecordCounts| told.push(counts.of(Section::Links));
        restore(&stream(0..40_000)[..], &dir.path().join("links"), dir.path(), count).unwrap();
        assert_eq!(told.last(), Some(&40_000));
        assert!(told.len() >= 2, "{told:?}");
        assert!(told.is_sorted(), "{told:?}");
    }
}
