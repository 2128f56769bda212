//! Snapshots of the store for nodes that join the fleet: the requests of the API to the thread that serves them, and
//! the description of a snapshot for the joining node.

use std::fmt;

use serde_json::{Value, json};

use carom_model::formats::dates;

/// The format of snapshots and of their descriptions. A joining node refuses any other.
const FORMAT: u64 = 1;

/// A snapshot that a joining node reads piece by piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinSnapshot {
    /// The random identity of the snapshot.
    pub id: u64,
    /// The name of the node that serves it.
    pub node: String,
    /// The fingerprint of the code secret of the fleet.
    pub fingerprint: String,
    /// The instant of the snapshot, in milliseconds since 1970 UTC.
    pub taken_ms: u64,
    /// The approximate number of links.
    pub links: u64,
    /// The approximate number of records of all kinds.
    pub records: u64,
    /// The bytes of the store on the disk of the node that serves it.
    pub bytes: u64,
}

impl JoinSnapshot {
    /// Returns the description for the joining node as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "format": FORMAT,
            "snapshot": format!("{:016x}", self.id),
            "node": self.node,
            "version": env!("CARGO_PKG_VERSION"),
            "keyFingerprint": self.fingerprint,
            "taken": dates::format(self.taken_ms),
            "links": self.links,
            "records": self.records,
            "bytes": self.bytes,
        })
    }

    /// Reads the description that a peer has sent. Unknown members are ignored.
    ///
    /// # Errors
    /// A description of what is wrong with the text.
    pub fn parse(body: &[u8]) -> Result<JoinSnapshot, String> {
        let about: Value = serde_json::from_slice(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
        match about["format"].as_u64() {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "the snapshot has the format {other}, but this version reads format {FORMAT}; upgrade the older of the two nodes"
                ));
            }
            None => return Err("the answer describes no snapshot".to_owned()),
        }
        let read = || {
            Some(JoinSnapshot {
                id: u64::from_str_radix(about["snapshot"].as_str()?, 16).ok()?,
                node: about["node"].as_str()?.to_owned(),
                fingerprint: about["keyFingerprint"].as_str()?.to_owned(),
                taken_ms: dates::parse(about["taken"].as_str()?).ok()?,
                links: about["links"].as_u64()?,
                records: about["records"].as_u64()?,
                bytes: about["bytes"].as_u64()?,
            })
        };
        read().ok_or_else(|| "the description of the snapshot lacks a field".to_owned())
    }
}

/// The reason why a node does not serve a snapshot or a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotRefusal {
    /// As many snapshots are open as a node serves at once.
    TooMany,
    /// The snapshot does not exist: it was not read for a while, or the node has restarted.
    Gone,
    /// The snapshot has no such piece, or the pieces before it have not been read.
    NoPiece,
    /// The store cannot be read.
    Failed(String),
}

/// The snapshots of a node. All methods block on the disk, and a piece also waits for its turn within the rate of
/// bytes. So only the thread of [`crate::bridge::SnapshotQueue`] calls them.
pub trait SnapshotProvider: fmt::Debug + Send + Sync {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// [`SnapshotRefusal::TooMany`], or [`SnapshotRefusal::Failed`] if the store cannot be read.
    fn begin(&self) -> Result<JoinSnapshot, SnapshotRefusal>;

    /// Describes an open snapshot, and keeps it open.
    ///
    /// # Errors
    /// [`SnapshotRefusal::Gone`] if the snapshot is not open.
    fn describe(&self, id: u64) -> Result<JoinSnapshot, SnapshotRefusal>;

    /// Returns a piece of an open snapshot, as [`carom_store::backup::pieces`] defines it. A piece can be read again.
    ///
    /// # Errors
    /// [`SnapshotRefusal`], except for [`SnapshotRefusal::TooMany`].
    fn piece(&self, id: u64, number: u32) -> Result<Vec<u8>, SnapshotRefusal>;

    /// Closes a snapshot. Returns false if there is no such snapshot.
    fn end(&self, id: u64) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        let about = json!({
            "format": 1, "snapshot": "00000000000000ff", "node": "n1", "keyFingerprint": "abc",
            "taken": "2026-11-27T00:00:00Z", "links": 3, "records": 9, "bytes": 1_000, "later": true,
        });
        let read = |about: &Value| JoinSnapshot::parse(about.to_string().as_bytes());
        let snapshot = read(&about).unwrap();
        assert_eq!((snapshot.id, &*snapshot.node, snapshot.records), (255, "n1", 9));
        assert_eq!(snapshot.taken_ms, dates::parse("2026-11-27T00:00:00Z").unwrap());
        for name in ["snapshot", "node", "keyFingerprint", "taken", "links", "records", "bytes", "format"] {
            let mut less = about.clone();
            less[name] = Value::Null;
            assert!(read(&less).is_err(), "{name}");
        }
        let mut later = about;
        later["format"] = json!(2);
        assert!(read(&later).unwrap_err().contains("upgrade the older"));
        assert!(JoinSnapshot::parse(b"<html>").is_err());
    }

    #[test]
    fn description_is_read_as_it_was_written() {
        let (node, fingerprint) = ("n1".to_owned(), "abc".to_owned());
        let about = JoinSnapshot { id: 255, node, fingerprint, taken_ms: 5_000, links: 1, records: 2, bytes: 3 };
        let shown = about.to_json();
        assert_eq!(shown["snapshot"], "00000000000000ff");
        assert_eq!((&shown["node"], &shown["records"]), (&json!("n1"), &json!(2)));
        assert_eq!(JoinSnapshot::parse(shown.to_string().as_bytes()), Ok(about));
    }
}
