//! The nodes of the fleet, as purges count them. Their names are in the file `members.json` of the folder `purges`: Redis may
//! lose the heartbeat of a node that is away, and this node may restart before a purge begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::registry::FOLDER;
use crate::services::whole_file::write_whole;

/// The file in the folder of purges. No purge has such a number.
const FILE: &str = "members.json";

/// The nodes of the fleet, as a purge counts them: also those whose heartbeats Redis has lost while they were away, and
/// those from before a restart.
pub(super) struct KnownNodes {
    path: PathBuf,
    /// The names in the file.
    stored: BTreeSet<String>,
    /// The instant of the last heartbeat of each node. A node of the file counts as heard at the start of this process.
    heard: BTreeMap<String, Instant>,
    /// The time after which Redis forgets a silent node. A node that it no longer has is gone only after this time.
    reclaim_after: Duration,
}

impl KnownNodes {
    /// Reads the nodes of a data directory, whose folder of purges exists.
    ///
    /// # Errors
    /// If the file cannot be read. A malformed one is logged, and names no nodes.
    pub(super) fn open(data_dir: &Path, reclaim_after: Duration, now: Instant) -> io::Result<KnownNodes> {
        let path = data_dir.join(FOLDER).join(FILE);
        let stored: BTreeSet<String> = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::error!(path = %path.display(), %error, "the nodes that purges wait for cannot be read");
                BTreeSet::new()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        let heard = stored.iter().map(|node| (node.clone(), now)).collect();
        Ok(KnownNodes { path, stored, heard, reclaim_after })
    }

    /// Takes the nodes that Redis has now, each with the instant of its last heartbeat. Returns the names of all nodes, which
    /// are in the file by then; none before the first heartbeat of this node.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn take(&mut self, listed: &BTreeMap<String, Instant>, now: Instant) -> io::Result<Vec<String>> {
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        self.heard.retain(|_, heard| now.saturating_duration_since(*heard) < self.reclaim_after);
        self.heard.extend(listed.iter().map(|(node, heard)| (node.clone(), *heard)));
        if !self.stored.iter().eq(self.heard.keys()) {
            let names: BTreeSet<String> = self.heard.keys().cloned().collect();
            write_whole(&self.path, json!(names).to_string().as_bytes())?;
            self.stored = names;
        }
        Ok(self.heard.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECLAIM_AFTER: Duration = Duration::from_secs(100);

    /// A folder of purges, and the instants in its life.
    struct Folder {
        dir: tempfile::TempDir,
        begun: Instant,
    }

    impl Folder {
        fn new() -> Folder {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join(FOLDER)).unwrap();
            Folder { dir, begun: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.begun + Duration::from_secs(seconds)
        }

        fn open(&self, seconds: u64) -> KnownNodes {
            KnownNodes::open(self.dir.path(), RECLAIM_AFTER, self.at(seconds)).unwrap()
        }

        /// Takes nodes, each with the second of its last heartbeat, at some second.
        fn take(&self, known: &mut KnownNodes, heard: &[(&str, u64)], seconds: u64) -> Vec<String> {
            let listed = heard.iter().map(|(node, last)| ((*node).to_owned(), self.at(*last))).collect();
            known.take(&listed, self.at(seconds)).unwrap()
        }
    }

    #[test]
    fn nodes_that_redis_has_lost_still_count() {
        let folder = Folder::new();
        let mut known = folder.open(0);
        assert_eq!(folder.take(&mut known, &[], 1), Vec::<String>::new(), "no heartbeat was answered yet");
        assert_eq!(folder.take(&mut known, &[("a", 10), ("b", 4)], 10), ["a", "b"]);
        // Redis came back empty while one of them was away.
        assert_eq!(folder.take(&mut known, &[("a", 50)], 50), ["a", "b"]);
        assert_eq!(folder.take(&mut known, &[("a", 103)], 103), ["a", "b"]);
        let only = folder.take(&mut known, &[("a", 104)], 104);
        assert_eq!(only, ["a"], "it was silent for the time to forget a node");
        let both = folder.take(&mut known, &[("a", 105), ("c", 0)], 105);
        assert_eq!(both, ["a", "c"], "Redis has not forgotten it yet");
    }

    #[test]
    fn nodes_from_before_a_restart_still_count() {
        let folder = Folder::new();
        folder.take(&mut folder.open(0), &[("a", 10), ("b", 4)], 10);
        // Redis came back empty, and this node restarted.
        let mut known = folder.open(200);
        assert_eq!(folder.take(&mut known, &[], 201), Vec::<String>::new());
        assert_eq!(folder.take(&mut known, &[("a", 202)], 202), ["a", "b"]);
        assert_eq!(folder.take(&mut folder.open(250), &[("a", 251)], 251), ["a", "b"]);
        assert_eq!(folder.take(&mut known, &[("a", 300)], 300), ["a"]);
        assert_eq!(folder.take(&mut folder.open(301), &[("a", 302)], 302), ["a"], "it left the file as well");
    }

    #[test]
    fn malformed_file_names_no_nodes() {
        let folder = Folder::new();
        fs::write(folder.dir.path().join(FOLDER).join(FILE), "[7").unwrap();
        assert_eq!(folder.take(&mut folder.open(0), &[("a", 1)], 1), ["a"]);
        assert_eq!(folder.take(&mut folder.open(2), &[("b", 3)], 3), ["a", "b"]);
    }
}
