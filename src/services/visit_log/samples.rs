//! Visits that no node has logged: those of a demonstration, written as sealed segments.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::FOLDER;
use super::segment::{sealed, sealed_path};
use crate::services::whole_file::write_whole;
use carom_limits::VISIT_SEGMENT_BYTES;
use carom_model::visits::record::VisitRecord;

/// A new log in a data directory that no node has open.
#[derive(Debug)]
pub struct SampleLog {
    dir: PathBuf,
    /// The encoded records of the next segment.
    raw: Vec<u8>,
    /// The number of the next segment.
    seq: u64,
}

impl SampleLog {
    /// Creates an empty log.
    ///
    /// # Errors
    /// If the data directory has a log, or cannot be written.
    pub fn create(data_dir: &Path) -> io::Result<SampleLog> {
        let dir = data_dir.join(FOLDER);
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(SampleLog { dir, raw: Vec::new(), seq: 1 })
    }

    /// Adds a visit. Visits need no order.
    ///
    /// # Errors
    /// If a full segment cannot be written.
    pub fn add(&mut self, visit: &VisitRecord<'_>) -> io::Result<()> {
        visit.encode(&mut self.raw);
        if self.raw.len() >= VISIT_SEGMENT_BYTES { self.seal() } else { Ok(()) }
    }

    /// Writes the rest of the visits.
    ///
    /// # Errors
    /// If the last segment cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.seal()
    }

    fn seal(&mut self) -> io::Result<()> {
        if let Some(content) = sealed(std::iter::once(&self.raw[..]), |_| true) {
            write_whole(&sealed_path(&self.dir, self.seq), &content)?;
            self.seq += 1;
            self.raw.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::visit_log::segment::{SealedSegment, each_record};
    use carom_model::visits::record::{LoggedKind, RequestPart};

    #[test]
    fn visits_are_read_back_from_all_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = SampleLog::create(folder.path()).unwrap();
        let visit = |at_ms| VisitRecord {
            at_ms,
            kind: LoggedKind::BaseUrl,
            is_secure: false,
            forwards: false,
            is_bot: false,
            request: RequestPart { agent: &[b'a'; 500], query: &[b'q'; 1_000], ..RequestPart::default() },
            location: None,
            code: None,
            target: b"",
        };
        let count = (VISIT_SEGMENT_BYTES / 1_500 + 10) as u64;
        (0..count).for_each(|at_ms| log.add(&visit(at_ms)).unwrap());
        log.finish().unwrap();
        let mut found = 0;
        for seq in [1, 2] {
            let segment = SealedSegment::open(&folder.path().join(FOLDER), seq).unwrap();
            assert!(segment.is_readable);
            segment
                .each_block(None, |raw| {
                    each_record(&raw, |_, _| found += 1);
                    true
                })
                .unwrap();
        }
        assert_eq!(found, count);
        assert!(SampleLog::create(folder.path()).is_err(), "a log is never replaced");
    }
}
