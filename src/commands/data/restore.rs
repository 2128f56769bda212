//! A new store, made of a backup.

use std::fmt;
use std::io::Read;
use std::path::Path;

use carom_shards::CodeLength;

use crate::services::visits::copies::put_log;
use carom_store::backup::frames::{FrameError, FrameReader};
use carom_store::backup::{Counts, Section};
use carom_store::links::dump::NewStore;
use carom_store::links::{Links, StoreError, StoredRecord, is_grave};

/// Codes that a node may have given out in each second since the backup was taken, on average: many times what a large service
/// makes (500 million links a month are 200 a second). What it gave out then is known to nobody any more but to those who have the
/// links, so these codes are never given out again.
const CODES_PER_SECOND: u64 = 200_000;

/// The least that is passed over: for bursts, and for codes that were prepared and not given out yet.
const CODES_AT_LEAST: u64 = 10_000_000;

/// The shortest codes that may be given out by themselves.
const SHORTEST: usize = 6;

/// Longest key that the store takes, bytes.
const KEY_LEN_MAX: usize = u16::MAX as usize;

/// Why a store could not be made.
#[derive(Debug)]
pub enum RestoreError {
    /// The backup is not what was written.
    Backup(FrameError),
    /// The store does not take it.
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

/// The records of a stream, one after the other.
struct Stream<R> {
    reader: FrameReader<R>,
    /// Those of the last frame, the last of them first.
    waiting: Vec<(Section, StoredRecord)>,
    is_over: bool,
}

impl<R: Read> Stream<R> {
    /// Looks at the next record, which stays there.
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

    /// Takes the next record of a section; none where that is over.
    fn next_of(&mut self, section: Section) -> Result<Option<StoredRecord>, FrameError> {
        let is_of = self.peek()? == Some(section);
        Ok(self.waiting.pop_if(|_| is_of).map(|(_, record)| record))
    }
}

/// Makes a store in `dir`, which is not there yet, of what `input` has, and puts visits that are not in it to the data directory. `told`
/// hears how far it is.
///
/// # Errors
/// What is wrong with the backup or the disk. What is in `dir` then is of no use.
pub fn restore(
    input: impl Read,
    dir: &Path,
    data_dir: &Path,
    mut told: impl FnMut(&Counts),
) -> Result<Counts, RestoreError> {
    let mut stream = Stream { reader: FrameReader::begin(input)?, waiting: Vec::new(), is_over: false };
    let store = NewStore::begin(dir)?;
    for section in Section::ALL {
        if section == Section::VisitLogs {
            while let Some((key, piece)) = stream.next_of(section)? {
                let seq = key.first_chunk().copied().map_or(0, u32::from_be_bytes);
                put_log(data_dir, seq, &piece).map_err(|error| StoreError::Failed(error.to_string()))?;
            }
            continue;
        }
        let mut last: Vec<u8> = Vec::new();
        store.fill(section, || -> Result<Option<StoredRecord>, RestoreError> {
            let mut next = stream.next_of(section)?;
            // Codes of links that had ended may have been given to others since. They stay unused.
            while next.as_ref().is_some_and(|(key, _)| section == Section::Ends && is_grave(key)) {
                next = stream.next_of(section)?;
            }
            told(stream.reader.counts());
            if let Some((key, _)) = &next {
                // The library panics at such keys; checksums do not see what was written wrongly.
                if key.is_empty() || key.len() > KEY_LEN_MAX {
                    let what = format!("{section}: a key of {} bytes", key.len());
                    return Err(FrameError::Damaged { at: stream.reader.position(), what }.into());
                }
                if *key <= last {
                    let what = format!("{section}: the key {} occurs twice or is out of order", key.escape_ascii());
                    return Err(FrameError::Damaged { at: stream.reader.position(), what }.into());
                }
                last.clone_from(key);
            }
            Ok(next)
        })?;
    }
    if let Some(section) = stream.peek()? {
        let what = format!("records of {section} come after records of a later section");
        return Err(FrameError::Damaged { at: stream.reader.position(), what }.into());
    }
    store.end()?;
    Ok(*stream.reader.counts())
}

/// Sees to it that no code is given out again that was given out after the backup was taken, so many seconds ago, of whatever length it
/// was. Returns by how much the counters were raised.
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
