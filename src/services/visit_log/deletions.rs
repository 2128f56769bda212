//! Deletions of visits that are still on disk: queries leave these visits out, and the daily pass removes them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::segment::write_whole;
use crate::bridge::visit_log::VisitDeletion;
use carom_limits::VISIT_DELETIONS_MAX;
use carom_model::visits::record::VisitRecord;

/// The name of the file in the folder of the log.
pub(super) const FILE: &str = "deletions";

/// The name of orphan visits in the file. No code has it.
const ORPHANS: &str = "*";

/// The deletions, and their file: a line for each, with the instant up to which visits are deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletions {
    path: PathBuf,
    links: HashMap<Code, u64>,
    orphans_ms: Option<u64>,
}

impl Deletions {
    /// Reads the file.
    ///
    /// # Errors
    /// If it exists and cannot be read. Lines that make no sense are left out.
    pub(super) fn open(dir: &Path) -> io::Result<Deletions> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let mut deletions = Deletions { path, ..Deletions::default() };
        for (until_ms, name) in text.lines().filter_map(|line| line.split_once(' ')) {
            match (until_ms.parse(), Code::from_key(name.as_bytes())) {
                (Ok(until_ms), _) if name == ORPHANS => deletions.orphans_ms = Some(until_ms),
                (Ok(until_ms), Ok(code)) => _ = deletions.links.insert(code, until_ms),
                _ => {}
            }
        }
        Ok(deletions)
    }

    /// Adds a deletion of all visits up to an instant, durably. Returns false if there are too many.
    ///
    /// # Errors
    /// If the file cannot be written. The deletion then does not apply.
    pub(super) fn add(&mut self, deletion: VisitDeletion, until_ms: u64) -> io::Result<bool> {
        let mut next = self.clone();
        match deletion {
            VisitDeletion::Orphans => next.orphans_ms = Some(until_ms),
            VisitDeletion::Link(code) => _ = next.links.insert(code, until_ms),
        }
        if next.links.len() > VISIT_DELETIONS_MAX {
            return Ok(false);
        }
        next.write()?;
        *self = next;
        Ok(true)
    }

    /// Removes deletions that were made up to an instant, since their visits are no longer on disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn forget_until(&mut self, last_ms: u64) -> io::Result<()> {
        let mut next = self.clone();
        next.links.retain(|_, until_ms| *until_ms > last_ms);
        next.orphans_ms = next.orphans_ms.filter(|until_ms| *until_ms > last_ms);
        next.write()?;
        *self = next;
        Ok(())
    }

    /// True if a visit is deleted.
    pub(super) fn has(&self, visit: &VisitRecord<'_>) -> bool {
        let until_ms = match &visit.code {
            None => self.orphans_ms,
            Some(code) => self.links.get(code).copied(),
        };
        until_ms.is_some_and(|until_ms| visit.at_ms <= until_ms)
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty() && self.orphans_ms.is_none()
    }

    fn write(&self) -> io::Result<()> {
        let mut text = String::new();
        for (code, until_ms) in &self.links {
            let mut buffer = [0; CODE_KEY_LEN_MAX];
            let _ = writeln!(text, "{until_ms} {}", String::from_utf8_lossy(code.key(&mut buffer)));
        }
        if let Some(until_ms) = self.orphans_ms {
            let _ = writeln!(text, "{until_ms} {ORPHANS}");
        }
        write_whole(&self.path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::visits::record::{LoggedKind, RequestPart};

    fn visit(code: Option<Code>, at_ms: u64) -> VisitRecord<'static> {
        let kind = if code.is_some() { LoggedKind::Link } else { LoggedKind::InvalidShortUrl };
        let (is_secure, forwards, is_bot, request, target) = (false, false, false, RequestPart::default(), &b""[..]);
        VisitRecord { at_ms, kind, is_secure, forwards, is_bot, request, location: None, code, target }
    }

    #[test]
    fn deletions_survive_a_restart_until_their_visits_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let code = Code::parse(b"abc").ok();
        let mut deletions = Deletions::open(dir.path()).unwrap();
        assert!(deletions.is_empty());
        assert!(deletions.add(VisitDeletion::Link(code.unwrap()), 100).unwrap());
        assert!(deletions.add(VisitDeletion::Orphans, 200).unwrap());
        let mut read = Deletions::open(dir.path()).unwrap();
        for deletions in [&deletions, &read] {
            let has = |code, at_ms| deletions.has(&visit(code, at_ms));
            assert_eq!((has(code, 100), has(code, 101), has(None, 200), has(None, 201)), (true, false, true, false));
            assert!(!has(Code::parse(b"abd").ok(), 1));
        }
        read.forget_until(100).unwrap();
        let read = Deletions::open(dir.path()).unwrap();
        assert!(!read.has(&visit(code, 1)) && read.has(&visit(None, 1)));
    }
}
