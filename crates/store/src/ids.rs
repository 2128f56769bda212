//! The id table: the segments of codes that cores use up, and the counters that they came from. The only module that
//! names sled.
//!
//! Losing the table costs unused codes and nothing else. A code is unique because its link is inserted only if absent,
//! and no counter starts below the high-water marks in the store of links. So a table that does not open is moved aside
//! and replaced by a new one. For the same reason the library's `flush`, which is less than an fsync, is enough. After
//! the start, only the replenisher uses the table.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt, io};

use carom_shards::{CodeLength, CoreId, CounterValue, GeneratedCode, Run};
use xxhash_rust::xxh3::xxh3_64;

/// Cache for pages, in bytes. Rows are read once, at the start.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// The format version of a row.
const ROW_VERSION: u8 = 1;

/// Bytes of a row before its codes: format version, core, length, start, number of values.
const ROW_HEAD_LEN: usize = 1 + 2 + 1 + 8 + 8;

/// A segment, as the table stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// The number of the row; later rows have larger ones.
    pub id: u64,
    /// The core that uses the segment.
    pub core: CoreId,
    /// The counter values that the codes were made from.
    pub run: Run,
    /// The codes, in the order of their use.
    pub codes: Vec<GeneratedCode>,
    /// Number of codes that may have been used.
    pub cursor: usize,
}

/// Attempts to open a table whose lock is held.
const LOCK_ATTEMPTS: u32 = 100;

/// Pause between two attempts.
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// A request to the table failed. The machine is at fault; a retry succeeds once the cause is gone.
#[derive(Debug)]
pub struct IdError(String);

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the code table failed: {}", self.0)
    }
}

impl error::Error for IdError {}

impl From<sled::Error> for IdError {
    fn from(error: sled::Error) -> IdError {
        IdError(error.to_string())
    }
}

/// A table that could not be opened, and was moved aside.
#[derive(Debug)]
pub struct MovedAside {
    /// The new path of the table.
    pub path: PathBuf,
    /// The reason for which it could not be opened.
    pub reason: IdError,
}

impl std::fmt::Display for MovedAside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the code table could not be opened ({}); it was moved to {} and replaced, which loses only unused codes",
            self.reason,
            self.path.display()
        )
    }
}

/// An open id table.
#[derive(Debug)]
pub struct IdTable {
    db: sled::Db,
}

impl IdTable {
    /// Opens the table in `dir`, or creates it. A table that does not open is moved aside and replaced.
    ///
    /// # Errors
    /// [`IdError`] if even a new table cannot be created.
    pub fn open(dir: &Path) -> Result<(IdTable, Option<MovedAside>), IdError> {
        let reason = match IdTable::open_existing(dir) {
            Ok(table) => return Ok((table, None)),
            Err(reason) => reason,
        };
        let path = dir.with_extension(format!("damaged-{}", carom_telemetry::clock::unix_ms()));
        std::fs::rename(dir, &path).map_err(|error: io::Error| IdError(format!("{}; {error}", reason.0)))?;
        Ok((IdTable::open_existing(dir)?, Some(MovedAside { path, reason })))
    }

    fn open_existing(dir: &Path) -> Result<IdTable, IdError> {
        let mut tries = LOCK_ATTEMPTS;
        loop {
            match sled::Config::new().path(dir).cache_capacity(CACHE_BYTES).flush_every_ms(None).open() {
                Ok(db) => return Ok(IdTable { db }),
                // Threads of a table that was just closed may still hold its lock. Another process cannot, because the
                // data directory is locked. So the table need not be moved aside.
                Err(sled::Error::Io(error)) if tries > 0 && error.to_string().contains("lock") => tries -= 1,
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(LOCK_WAIT);
        }
    }

    /// Returns the rows in the order of their numbers, and the number of damaged rows, which are removed.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be read.
    pub fn rows(&self) -> Result<(Vec<SegmentRow>, usize), IdError> {
        let (mut rows, mut damaged) = (Vec::new(), 0);
        for entry in self.db.scan_prefix(b"row/") {
            let (key, value) = entry?;
            let row = id_of(&key).and_then(|id| decode_row(id, &value));
            match row {
                Some(row) => {
                    let cursor = self.db.get(cursor_key(row.id))?.and_then(|value| number(&value)).unwrap_or(0);
                    let cursor = usize::try_from(cursor).unwrap_or(usize::MAX).min(row.codes.len());
                    rows.push(SegmentRow { cursor, ..row });
                }
                None => {
                    damaged += 1;
                    self.db.remove(&key)?;
                }
            }
        }
        Ok((rows, damaged))
    }

    /// Adds a row with its cursor, and raises the counter to the end of its values.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be written.
    pub fn add(&self, row: &SegmentRow) -> Result<(), IdError> {
        assert!(row.cursor <= row.codes.len(), "the cursor is beyond the codes of the row");
        assert!(
            row.run.len == 0 || row.codes.len() as u64 <= row.run.len,
            "the row has more codes than counter values, so another row has some of them too"
        );
        let stored = encode_row(row);
        debug_assert_eq!(
            decode_row(row.id, &stored).map(|stored| SegmentRow { cursor: row.cursor, ..stored }).as_ref(),
            Some(row),
            "a restart would take the row for damaged, or use other codes"
        );
        self.db.insert(row_key(row.id), stored)?;
        self.db.insert(cursor_key(row.id), &(row.cursor as u64).to_be_bytes())?;
        // A row that was taken over from another node has lower values.
        let counter = self.counter(row.run.length)?.0.max(row.run.end().0);
        self.db.insert(counter_key(row.run.length), &counter.to_be_bytes())?;
        self.flush()
    }

    /// Moves the cursor of a row, before the codes up to it are used.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be written. The codes must not be used then.
    pub fn set_cursor(&self, id: u64, cursor: usize) -> Result<(), IdError> {
        self.db.insert(cursor_key(id), &(cursor as u64).to_be_bytes())?;
        self.flush()
    }

    /// Removes a row that is used up or no longer needed.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be written.
    pub fn remove(&self, id: u64) -> Result<(), IdError> {
        self.db.remove(row_key(id))?;
        self.db.remove(cursor_key(id))?;
        Ok(())
    }

    /// Returns the lowest counter value of a length that this table has never leased.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be read.
    pub fn counter(&self, length: CodeLength) -> Result<CounterValue, IdError> {
        Ok(CounterValue(self.db.get(counter_key(length))?.and_then(|value| number(&value)).unwrap_or(0)))
    }

    /// Writes all changes so far to the operating system.
    ///
    /// # Errors
    /// [`IdError`] if the table cannot be written.
    pub fn flush(&self) -> Result<(), IdError> {
        self.db.flush()?;
        Ok(())
    }
}

fn row_key(id: u64) -> Vec<u8> {
    [b"row/", &id.to_be_bytes()[..]].concat()
}

fn cursor_key(id: u64) -> Vec<u8> {
    [b"cursor/", &id.to_be_bytes()[..]].concat()
}

fn counter_key(length: CodeLength) -> String {
    format!("counter/{:02}", length.get())
}

fn id_of(key: &[u8]) -> Option<u64> {
    number(key.strip_prefix(b"row/")?)
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn encode_row(row: &SegmentRow) -> Vec<u8> {
    let mut out = Vec::with_capacity(ROW_HEAD_LEN + 8 * row.codes.len() + 8);
    out.push(ROW_VERSION);
    out.extend_from_slice(&row.core.0.to_be_bytes());
    out.push(row.run.length.get() as u8);
    out.extend_from_slice(&row.run.start.0.to_be_bytes());
    out.extend_from_slice(&row.run.len.to_be_bytes());
    for code in &row.codes {
        out.extend_from_slice(&code.to_bits().to_be_bytes());
    }
    out.extend_from_slice(&(xxh3_64(&out) ^ row.id).to_be_bytes());
    out
}

fn decode_row(id: u64, stored: &[u8]) -> Option<SegmentRow> {
    let (body, sum) = stored.split_last_chunk::<8>()?;
    if xxh3_64(body) ^ id != u64::from_be_bytes(*sum) {
        return None;
    }
    let (head, codes) = body.split_first_chunk::<ROW_HEAD_LEN>()?;
    if head[0] != ROW_VERSION || !codes.len().is_multiple_of(8) {
        return None;
    }
    let run = Run {
        length: CodeLength::new(usize::from(head[3]))?,
        start: CounterValue(number(&head[4..12])?),
        len: number(&head[12..])?,
    };
    let codes = codes.chunks_exact(8).map(|bits| GeneratedCode::from_bits(number(bits)?)).collect::<Option<_>>()?;
    Some(SegmentRow { id, core: CoreId(u16::from_be_bytes([head[1], head[2]])), run, codes, cursor: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::{CodeSecret, CodeSpace, Segment};

    fn row(id: u64) -> SegmentRow {
        let run = Run { length: CodeLength::DEFAULT, start: CounterValue(id * 100), len: 100 };
        let space = CodeSpace::new(&CodeSecret::from_bytes([1; 32]));
        let codes = Segment::prepare(&space, run, [2; 16]).into_codes();
        SegmentRow { id, core: CoreId(1), run, codes, cursor: 7 }
    }

    #[test]
    fn rows_and_counters_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        let (table, moved) = IdTable::open(&path).unwrap();
        assert!(moved.is_none());
        (1..=3).for_each(|id| table.add(&row(id)).unwrap());
        table.set_cursor(2, 60).unwrap();
        table.remove(1).unwrap();
        drop(table);
        let (table, moved) = IdTable::open(&path).unwrap();
        assert!(moved.is_none());
        assert_eq!(table.rows().unwrap(), (vec![SegmentRow { cursor: 60, ..row(2) }, row(3)], 0));
        assert_eq!(table.counter(CodeLength::DEFAULT).unwrap(), CounterValue(400));
        assert_eq!(table.counter(CodeLength::MIN).unwrap(), CounterValue(0));
    }

    #[test]
    fn a_damaged_row_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let (table, _) = IdTable::open(&dir.path().join("ids")).unwrap();
        table.add(&row(1)).unwrap();
        let mut damaged = encode_row(&row(2));
        damaged[50] ^= 1;
        table.db.insert(row_key(2), damaged).unwrap();
        assert_eq!(table.rows().unwrap(), (vec![row(1)], 1));
        assert_eq!(table.rows().unwrap(), (vec![row(1)], 0));
    }

    #[test]
    fn a_table_that_does_not_open_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("conf"), b"this was never a table").unwrap();
        let (table, moved) = IdTable::open(&path).unwrap();
        let moved = moved.expect("it could not be opened");
        assert!(moved.path.join("conf").exists());
        assert_eq!(table.rows().unwrap(), (vec![], 0));
    }
}
