//! The nodes of the fleet that this node knows, in the file `members.json` of the data directory: Redis may lose the
//! heartbeat of a node that is away, and this node may restart before that node returns.
//!
//! [`carom_model::replication::known_members`] decides which of them may have links that Redis lacks. Purges wait for all
//! of them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::services::whole_file::write_whole;
use carom_model::replication::known_members::{KnownMembers, ListedMember, MemberRecord};
use carom_model::replication::members::NodeId;

/// The file in the data directory.
const FILE: &str = "members.json";

/// The nodes of the fleet, with the file that keeps their names. Used by the heartbeat thread.
#[derive(Debug)]
pub struct KnownNodes {
    path: PathBuf,
    /// The content of the file.
    stored: MemberRecord,
    members: KnownMembers,
    /// True if the last write failed.
    has_failed: bool,
}

impl KnownNodes {
    /// Reads the nodes that the node `me` knows from its data directory at `now`, since boot.
    ///
    /// # Errors
    /// If the file cannot be read. A malformed one is logged, and names no nodes.
    pub fn open(data_dir: &Path, me: NodeId, now: Duration) -> io::Result<KnownNodes> {
        let path = data_dir.join(FILE);
        let stored = match fs::read(&path) {
            Ok(bytes) => parsed(&bytes).unwrap_or_else(|| {
                tracing::error!(path = %path.display(), "the names of the nodes of the fleet cannot be read");
                MemberRecord::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => MemberRecord::default(),
            Err(error) => return Err(error),
        };
        let members = KnownMembers::new(me, stored.clone(), now);
        Ok(KnownNodes { path, stored, members, has_failed: false })
    }

    /// Takes the reply to a heartbeat, like [`KnownMembers::observe`]. Returns the names of all nodes, which are in the file
    /// by then; none while the file cannot be written.
    pub(super) fn take(
        &mut self,
        epoch: &str,
        listed: Vec<ListedMember>,
        times: (Duration, Duration),
        after: Duration,
    ) -> Vec<NodeId> {
        let before = self.members.awaited();
        self.members.observe(epoch, listed, times, after);
        self.report(&before);
        let record = self.members.record();
        if record != self.stored {
            if let Err(error) = write_whole(&self.path, text_of(&record).as_bytes()) {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "the names of the nodes of the fleet cannot be stored");
                }
                return Vec::new();
            }
            (self.stored, self.has_failed) = (record, false);
        }
        self.stored.nodes.iter().cloned().collect()
    }

    /// Returns the nodes of which Redis may lack links.
    pub(super) fn awaited(&self) -> BTreeSet<NodeId> {
        self.members.awaited()
    }

    /// Logs which nodes are awaited, if that has changed.
    fn report(&self, before: &BTreeSet<NodeId>) {
        let awaited = self.members.awaited();
        if awaited == *before {
            return;
        }
        let nodes = awaited.into_iter().collect::<Vec<_>>().join(", ");
        if nodes.is_empty() {
            tracing::info!("Redis has the links of all nodes again");
        } else {
            tracing::info!(
                nodes,
                "Redis has lost its data, and may lack links of these nodes; unknown codes get 503 until they have restored them"
            );
        }
    }
}

/// Returns the record in the content of a file; `None` if it is malformed.
fn parsed(bytes: &[u8]) -> Option<MemberRecord> {
    let content: Value = serde_json::from_slice(bytes).ok()?;
    let epoch = content["epoch"].as_str().map(str::to_owned);
    let name = |node: &Value| node.as_str().map(str::to_owned);
    let nodes: BTreeSet<NodeId> = content["nodes"].as_array()?.iter().map(name).collect::<Option<_>>()?;
    Some(MemberRecord { epoch, nodes })
}

fn text_of(record: &MemberRecord) -> String {
    json!({"epoch": record.epoch, "nodes": record.nodes}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn open(dir: &Path, seconds: u64) -> KnownNodes {
        KnownNodes::open(dir, "a".to_owned(), at(seconds)).unwrap()
    }

    /// Takes nodes, each with the second whose heartbeat it has passed, at some second.
    fn take(known: &mut KnownNodes, epoch: &str, nodes: &[(&str, Option<u64>)], seconds: u64) -> Vec<String> {
        let of = |(node, passed): &(&str, Option<u64>)| ListedMember {
            node: (*node).to_owned(),
            mark: seconds,
            passed: passed.map(at),
        };
        known.take(epoch, nodes.iter().map(of).collect(), (at(seconds), at(seconds)), AFTER)
    }

    #[test]
    fn nodes_from_before_a_restart_still_count() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(take(&mut open(dir.path(), 0), "e1", &[("a", None), ("b", None)], 1), ["a", "b"]);
        // Redis came back empty, and this node restarted.
        let mut known = open(dir.path(), 200);
        assert_eq!(take(&mut known, "e2", &[("a", None)], 202), ["a", "b"]);
        assert!(known.awaited().contains("b"));
        let mut known = open(dir.path(), 250);
        assert_eq!(take(&mut known, "e2", &[("a", None)], 251), ["a", "b"]);
        assert!(known.awaited().contains("b"), "another restart changes nothing");
        assert_eq!(take(&mut known, "e2", &[("a", None), ("b", None)], 252), ["a", "b"]);
        assert_eq!(take(&mut known, "e2", &[("a", None), ("b", Some(252))], 253), ["a", "b"]);
        assert!(known.awaited().is_empty());
        assert_eq!(take(&mut open(dir.path(), 300), "e2", &[("a", None)], 301), ["a"], "it has left the fleet");
    }

    #[test]
    fn malformed_file_names_no_nodes() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["[7", "[\"b\"]", r#"{"nodes":[7]}"#] {
            fs::write(dir.path().join(FILE), content).unwrap();
            assert_eq!(take(&mut open(dir.path(), 0), "e1", &[("a", None)], 1), ["a"]);
        }
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), r#"{"epoch":"e1","nodes":["a"]}"#);
    }

    #[test]
    fn names_count_once_they_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let mut known = open(&dir.path().join("missing"), 0);
        assert_eq!(take(&mut known, "e1", &[("a", None)], 1), Vec::<String>::new());
        fs::create_dir(dir.path().join("missing")).unwrap();
        assert_eq!(take(&mut known, "e1", &[("a", None)], 2), ["a"]);
    }
}
