//! The folder of an unfinished join in the data directory of the new node: the pieces so far, and the store that is
//! filled from them.
//!
//! A join that was interrupted continues with these pieces. The store gets its place in the data directory by a rename,
//! which comes last: a data directory has all links of a snapshot, or no store.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Name of the folder in a data directory.
pub const JOIN_FOLDER: &str = "join.partial";

/// Name of the file that identifies the snapshot.
const SNAPSHOT_FILE: &str = "snapshot.json";

/// Name of the file with the pieces, one after the other.
const PIECES_FILE: &str = "pieces";

/// Name of the store, here and in the data directory.
const STORE: &str = "links";

/// Name of the folder with count logs, here and in the data directory.
const COUNT_LOGS: &str = "visits";

/// The folder of an unfinished join.
pub(super) struct KeptPieces {
    data_dir: PathBuf,
    folder: PathBuf,
}

impl KeptPieces {
    /// Returns the folder in a data directory, which need not exist.
    pub(super) fn of(data_dir: &Path) -> KeptPieces {
        KeptPieces { data_dir: data_dir.to_owned(), folder: data_dir.join(JOIN_FOLDER) }
    }

    /// Returns the snapshot of a peer that the pieces belong to; `None` without pieces, or if they are those of another
    /// peer.
    pub(super) fn snapshot_of(&self, peer: &str) -> Option<u64> {
        let text = fs::read(self.folder.join(SNAPSHOT_FILE)).ok()?;
        let kept: Value = serde_json::from_slice(&text).ok()?;
        let id = u64::from_str_radix(kept["snapshot"].as_str()?, 16).ok()?;
        (kept["peer"] == peer).then_some(id)
    }

    /// Begins with a snapshot, without any pieces.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(super) fn begin(&self, peer: &str, id: u64) -> io::Result<()> {
        self.remove()?;
        DirBuilder::new().mode(0o700).create(&self.folder)?;
        let text = json!({"peer": peer, "snapshot": format!("{id:016x}")}).to_string();
        fs::write(self.folder.join(SNAPSHOT_FILE), text)
    }

    /// Opens the file with the pieces, at its beginning.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn pieces(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(self.folder.join(PIECES_FILE))
    }

    /// Returns the path of the store that is filled.
    pub(super) fn store(&self) -> PathBuf {
        self.folder.join(STORE)
    }

    /// Returns the path of the folder, where a restore puts the count logs.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what an interrupted attempt has made of the pieces.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove_store(&self) -> io::Result<()> {
        // Count logs of the data directory are those of an attempt that ended just before it had a store.
        let made = [self.store(), self.folder.join(COUNT_LOGS), self.data_dir.join(COUNT_LOGS)];
        made.iter().try_for_each(|path| remove_folder(path))
    }

    /// Moves the complete store into the data directory, and removes the folder.
    ///
    /// # Errors
    /// If a name cannot be changed, or the disk fails.
    pub(super) fn install(&self) -> io::Result<()> {
        let logs = self.folder.join(COUNT_LOGS);
        if logs.is_dir() {
            fs::rename(&logs, self.data_dir.join(COUNT_LOGS))?;
            File::open(&self.data_dir)?.sync_all()?;
        }
        // The store comes last: a node finds either all or no links.
        fs::rename(self.store(), self.data_dir.join(STORE))?;
        File::open(&self.data_dir)?.sync_all()?;
        self.remove()
    }

    /// Removes the folder with everything in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_folder(&self.folder)
    }
}

/// Removes a folder with everything in it, if it exists.
fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn pieces_belong_to_one_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptPieces::of(dir.path());
        assert_eq!(kept.snapshot_of("http://a"), None);
        kept.begin("http://a", 255).unwrap();
        kept.pieces().unwrap().write_all(b"piece").unwrap();
        assert_eq!((kept.snapshot_of("http://a"), kept.snapshot_of("http://b")), (Some(255), None));
        let mut text = String::new();
        kept.pieces().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "piece");
        kept.begin("http://a", 256).unwrap();
        assert_eq!(kept.pieces().unwrap().metadata().unwrap().len(), 0);
        fs::write(kept.folder().join(SNAPSHOT_FILE), "cut o").unwrap();
        assert_eq!(kept.snapshot_of("http://a"), None);
    }

    #[test]
    fn store_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptPieces::of(dir.path());
        kept.begin("http://a", 1).unwrap();
        let make = |logs: &Path| {
            fs::create_dir_all(kept.store()).unwrap();
            fs::create_dir_all(logs).unwrap();
        };
        // As after a kill between the two renames.
        make(&dir.path().join(COUNT_LOGS));
        kept.remove_store().unwrap();
        assert!(!dir.path().join(COUNT_LOGS).exists());
        assert!(!kept.store().exists());
        make(&kept.folder().join(COUNT_LOGS));
        kept.install().unwrap();
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(dir.path().join(STORE).is_dir());
        assert!(dir.path().join(COUNT_LOGS).is_dir());
    }
}
