//! Purges of visits from the log: a purge ends once no file of the log has the visits.
//!
//! The next pass removes them from all segments. In a fleet, the files with blocks for other nodes have them until Redis
//! has received these blocks. A pass that had begun before may have missed some, so it does not count.

use std::fs;
use std::path::Path;

use super::FOLDER;
use super::deletions::{Deletions, named};
use super::outgoing::OUTGOING;
use crate::bridge::visit_log::VisitPurge;

/// The progress of a purge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VisitPurgeStage {
    /// The purge waits for the next pass.
    Waits,
    /// A pass removes the visits.
    Passes,
    /// Files for other nodes up to this segment may have the visits.
    IsSent(u64),
}

/// The purges that have not ended.
#[derive(Debug, Default)]
pub(super) struct VisitPurges(Vec<(VisitPurge, VisitPurgeStage)>);

/// Notes the deletions of a purge, durably.
///
/// # Errors
/// The reason why they cannot be stored.
pub(super) fn note(deletions: &mut Deletions, purge: &VisitPurge) -> Result<(), &'static str> {
    let all: Vec<(String, u64)> = purge.codes.iter().map(|(code, until_ms)| (named(Some(code)), *until_ms)).collect();
    match deletions.merge(&all) {
        Ok(true) => Ok(()),
        Ok(false) => Err("too many deletions of visits wait for the disk"),
        Err(error) => {
            tracing::warn!(%error, "cannot store the deletions of visits for a purge");
            Err("the deletions of visits cannot be stored")
        }
    }
}

/// True if a data directory has logged visits.
pub fn has_files(data_dir: &Path) -> bool {
    let is_of_visits = |name: &str| ["segment-", "active-", OUTGOING].iter().any(|kind| name.starts_with(kind));
    let entries = fs::read_dir(data_dir.join(FOLDER)).into_iter().flatten().flatten();
    let filled = entries.filter(|entry| entry.metadata().is_ok_and(|file| file.len() > 0));
    filled.filter_map(|entry| entry.file_name().into_string().ok()).any(|name| is_of_visits(&name))
}

/// Reports the end of a purge.
pub(super) fn end(purge: &VisitPurge, result: Result<(), &'static str>) {
    // Without a receiver, the node is shutting down.
    let _ = purge.ended.try_send(result);
}

impl VisitPurges {
    /// Adds a purge whose deletions are stored.
    pub(super) fn add(&mut self, purge: VisitPurge) {
        self.0.push((purge, VisitPurgeStage::Waits));
    }

    /// Notes that a pass begins, which removes the visits of all purges so far.
    pub(super) fn begin_pass(&mut self) {
        self.0
            .iter_mut()
            .filter(|(_, stage)| *stage == VisitPurgeStage::Waits)
            .for_each(|(_, stage)| *stage = VisitPurgeStage::Passes);
    }

    /// Ends the purges of the present pass with a failure: a segment may still have their visits.
    pub(super) fn fail_pass(&mut self, why: &'static str) {
        self.0.retain(|(purge, stage)| {
            let fails = *stage == VisitPurgeStage::Passes;
            if fails {
                end(purge, Err(why));
            }
            !fails
        });
    }

    /// Notes that a pass is over, when this was the last sealed segment.
    pub(super) fn end_pass(&mut self, last: u64) {
        let passing = self.0.iter_mut().filter(|(_, stage)| *stage == VisitPurgeStage::Passes);
        passing.for_each(|(_, stage)| *stage = VisitPurgeStage::IsSent(last));
    }

    /// True if a purge waits for files with blocks for other nodes.
    pub(super) fn wait_for_files(&self) -> bool {
        self.0.iter().any(|(_, stage)| matches!(stage, VisitPurgeStage::IsSent(_)))
    }

    /// Ends the purges whose visits are in no file. `is_kept` returns true if the log still has a file for other nodes of a
    /// segment up to a number.
    pub(super) fn end_all(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.0.retain(|(purge, stage)| match stage {
            VisitPurgeStage::IsSent(last) if !is_kept(*last) => {
                end(purge, Ok(()));
                false
            }
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn purge_fails_if_its_pass_leaves_a_segment_as_it_is() {
        let ([(first, first_end), (second, second_end)], mut purges) =
            ([0, 1].map(|_| sync_channel(1)), VisitPurges::default());
        purges.add(VisitPurge { codes: Vec::new(), ended: first });
        purges.begin_pass();
        purges.add(VisitPurge { codes: Vec::new(), ended: second });
        purges.fail_pass("damage");
        assert_eq!(first_end.try_recv(), Ok(Err("damage")));
        assert!(second_end.try_recv().is_err(), "it waits for the next pass");
        purges.end_pass(4);
        purges.begin_pass();
        purges.end_pass(4);
        purges.end_all(|_| false);
        assert_eq!(second_end.try_recv(), Ok(Ok(())));
    }

    #[test]
    fn purge_ends_after_a_pass_that_began_later() {
        let (ended, end) = sync_channel(1);
        let mut purges = VisitPurges::default();
        // A pass is on its way already.
        purges.begin_pass();
        purges.add(VisitPurge { codes: Vec::new(), ended });
        purges.end_pass(4);
        purges.end_all(|_| false);
        assert!(end.try_recv().is_err());
        purges.begin_pass();
        purges.end_all(|_| false);
        assert!(end.try_recv().is_err());
        purges.end_pass(5);
        purges.end_all(|seq| seq >= 5);
        assert!(end.try_recv().is_err(), "a file for other nodes is left");
        purges.end_all(|_| false);
        assert_eq!(end.try_recv(), Ok(Ok(())));
        assert!(purges.0.is_empty());
    }
}
