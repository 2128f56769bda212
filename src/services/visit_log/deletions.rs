//! Deletions of visits that are still on disk: queries leave these visits out, and the next pass removes them.
//!
//! In a fleet, visits of other nodes may arrive after their deletion. So a deletion is *kept* after its pass.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use crate::bridge::visit_log::VisitDeletion;
use crate::services::whole_file::write_whole;
use carom_limits::VISIT_DELETIONS_MAX;
use carom_model::visits::record::VisitRecord;

/// The name of the file in the folder of the log.
pub(super) const FILE: &str = "deletions";

/// The name of orphan visits in the file. No code has it.
const ORPHANS: &str = "*";

/// The word behind the name of a deletion whose pass is over.
const KEPT: &str = "kept";

/// The progress of a deletion: whether its visits have left the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeletionState {
    /// The visits wait for a pass.
    Pending,
    /// A pass is removing them.
    Passing,
    /// The visits are gone. Visits that arrive later are left out.
    Kept,
}

/// A deletion of all visits up to an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Deletion {
    until_ms: u64,
    progress: DeletionState,
}

/// The deletions, and their file: a line for each, with the instant up to which visits are deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Deletions {
    path: PathBuf,
    /// By code; `None` for orphan visits.
    all: HashMap<Option<Code>, Deletion>,
    revision: u64,
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
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (until_ms, name, progress) = match words[..] {
                [until_ms, name] => (until_ms, name, DeletionState::Pending),
                [until_ms, name, KEPT] => (until_ms, name, DeletionState::Kept),
                _ => continue,
            };
            if let (Ok(until_ms), Some(of)) = (until_ms.parse(), parsed(name)) {
                deletions.all.insert(of, Deletion { until_ms, progress });
            }
        }
        Ok(deletions)
    }

    /// Adds a deletion of all visits up to an instant, durably. Returns false if there are too many.
    ///
    /// # Errors
    /// If the file cannot be written. The deletion then does not apply.
    pub(super) fn add(&mut self, deletion: VisitDeletion, until_ms: u64) -> io::Result<bool> {
        let of = match deletion {
            VisitDeletion::Orphans => None,
            VisitDeletion::Link(code) => Some(code),
        };
        let mut next = self.clone();
        if !next.put(of, until_ms) {
            return Ok(false);
        }
        self.replace(next)?;
        Ok(true)
    }

    /// Adds the deletions of other nodes, by name, durably. Returns false if some wait until the pass over others is done.
    /// Those that are older than all of a full list are left out.
    ///
    /// # Errors
    /// If the file cannot be written. None of them applies then.
    pub(super) fn merge(&mut self, others: &[(String, u64)]) -> io::Result<bool> {
        let mut next = self.clone();
        let mut is_full = false;
        for (name, until_ms) in others {
            // A name of a later version belongs to no visits that this one knows.
            let Some(of) = parsed(name) else { continue };
            if !is_full || next.all.contains_key(&of) {
                is_full |= !next.put(of, *until_ms);
            }
        }
        let waits = is_full && next.all.values().any(|of| of.progress != DeletionState::Kept);
        if next.all != self.all {
            self.replace(next)?;
        }
        Ok(!waits)
    }

    /// Puts a deletion, unless the list has a later one of the same code. A full list drops its oldest deletion whose pass
    /// is over, if that is older than the new one. Returns false if the list is full and can drop no deletion.
    fn put(&mut self, of: Option<Code>, until_ms: u64) -> bool {
        if self.all.get(&of).is_some_and(|deletion| deletion.until_ms >= until_ms) {
            return true;
        }
        if !self.all.contains_key(&of) && self.all.len() >= VISIT_DELETIONS_MAX {
            let kept = self.all.iter().filter(|(_, of)| of.progress == DeletionState::Kept && of.until_ms < until_ms);
            let Some(oldest) = kept.min_by_key(|(_, deletion)| deletion.until_ms).map(|(of, _)| *of) else {
                return false;
            };
            self.all.remove(&oldest);
        }
        self.all.insert(of, Deletion { until_ms, progress: DeletionState::Pending });
        self.revision += 1;
        true
    }

    /// Notes that a pass begins, which removes the visits of all deletions so far.
    pub(super) fn begin_pass(&mut self) {
        let pending = self.all.values_mut().filter(|deletion| deletion.progress == DeletionState::Pending);
        pending.for_each(|deletion| deletion.progress = DeletionState::Passing);
    }

    /// Notes that the pass is over. Its deletions are kept if they are from `kept_since_ms` on, and else removed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn end_pass(&mut self, kept_since_ms: u64) -> io::Result<()> {
        let mut next = self.clone();
        let over = next.all.values_mut().filter(|deletion| deletion.progress == DeletionState::Passing);
        over.for_each(|deletion| deletion.progress = DeletionState::Kept);
        next.all.retain(|_, of| of.progress == DeletionState::Pending || of.until_ms >= kept_since_ms);
        self.replace(next)
    }

    /// True if a visit is deleted.
    pub(super) fn has(&self, visit: &VisitRecord<'_>) -> bool {
        self.all.get(&visit.code).is_some_and(|deletion| visit.at_ms <= deletion.until_ms)
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if visits wait for their removal from the disk.
    pub(super) fn is_pending(&self) -> bool {
        self.all.values().any(|deletion| deletion.progress == DeletionState::Pending)
    }

    /// Returns a number that grows with each new deletion.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns all deletions, by name.
    pub(super) fn named(&self) -> HashMap<String, u64> {
        self.all.iter().map(|(of, deletion)| (named(of.as_ref()), deletion.until_ms)).collect()
    }

    fn replace(&mut self, next: Deletions) -> io::Result<()> {
        let mut text = String::new();
        for (of, Deletion { until_ms, progress }) in &next.all {
            let end = if *progress == DeletionState::Kept { format!(" {KEPT}") } else { String::new() };
            let _ = writeln!(text, "{until_ms} {}{end}", named(of.as_ref()));
        }
        write_whole(&next.path, text.as_bytes())?;
        *self = next;
        Ok(())
    }
}

/// Returns the name of the visits of a link, or of orphan visits.
pub(super) fn named(code: Option<&Code>) -> String {
    let name = |code: &Code| String::from_utf8_lossy(code.key(&mut [0; CODE_KEY_LEN_MAX])).into_owned();
    code.map_or_else(|| ORPHANS.to_owned(), name)
}

/// Returns the code that a name stands for, or `Some(None)` for orphan visits; `None` if it stands for nothing.
fn parsed(name: &str) -> Option<Option<Code>> {
    if name == ORPHANS { Some(None) } else { Code::from_key(name.as_bytes()).ok().map(Some) }
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
        deletions.begin_pass();
        assert!(deletions.add(VisitDeletion::Orphans, 200).unwrap());
        let read = Deletions::open(dir.path()).unwrap();
        for deletions in [&deletions, &read] {
            let has = |code, at_ms| deletions.has(&visit(code, at_ms));
            assert_eq!((has(code, 100), has(code, 101), has(None, 200), has(None, 201)), (true, false, true, false));
            assert!(!has(Code::parse(b"abd").ok(), 1));
            assert!(deletions.is_pending());
        }
        deletions.end_pass(u64::MAX).unwrap();
        let read = Deletions::open(dir.path()).unwrap();
        assert!(!read.has(&visit(code, 1)));
        assert!(read.has(&visit(None, 1)));
        assert!(read.is_pending());
    }

    #[test]
    fn deletions_of_a_fleet_are_kept_for_later_visits() {
        let dir = tempfile::tempdir().unwrap();
        let code = Code::parse(b"abc").ok();
        let mut deletions = Deletions::open(dir.path()).unwrap();
        let others = [("abc", 100), ("*", 5), ("of a later version", 7)].map(|(name, at)| (name.to_owned(), at));
        assert!(deletions.merge(&others).unwrap());
        assert!(deletions.is_pending());
        let revision = deletions.revision();
        assert!(deletions.merge(&[("abc".to_owned(), 99)]).unwrap());
        assert_eq!((deletions.revision(), deletions.named()["abc"]), (revision, 100));
        deletions.begin_pass();
        deletions.end_pass(50).unwrap();
        let mut read = Deletions::open(dir.path()).unwrap();
        for deletions in [&deletions, &read] {
            assert!(deletions.has(&visit(code, 100)));
            assert!(!deletions.is_pending());
            assert!(!deletions.has(&visit(None, 5)), "too old to be kept");
        }
        // A later deletion of the link needs another pass.
        assert!(read.add(VisitDeletion::Link(code.unwrap()), 300).unwrap());
        assert!(read.is_pending());
    }

    #[test]
    fn kept_deletions_give_way_to_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut deletions = Deletions::open(dir.path()).unwrap();
        let many: Vec<(String, u64)> = (0..VISIT_DELETIONS_MAX as u64).map(|at| (format!("c{at}"), at + 1)).collect();
        assert!(deletions.merge(&many).unwrap());
        assert!(!deletions.add(VisitDeletion::Orphans, 9).unwrap());
        deletions.begin_pass();
        deletions.end_pass(0).unwrap();
        assert!(deletions.add(VisitDeletion::Orphans, 9).unwrap());
        assert!(!deletions.has(&visit(Code::parse(b"c0").ok(), 1)));
        assert!(deletions.has(&visit(None, 9)));
        // A list of other nodes with older ones changes nothing, so no pass is due.
        deletions.begin_pass();
        deletions.end_pass(0).unwrap();
        assert!(deletions.merge(&[("other".to_owned(), 1)]).unwrap());
        assert!(!deletions.is_pending());
    }
}
