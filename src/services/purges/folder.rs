//! The folders of the data directory with the purges and the selections: one file for each, with its ID as the name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use serde_json::Value;

use crate::services::whole_file::write_whole;
use carom_model::purge::PurgeId;

/// A folder with one file for each purge, or for each selection.
#[derive(Debug)]
pub(super) struct PurgeFolder(PathBuf);

impl PurgeFolder {
    /// Reads the files of a folder with `parse`, and creates the folder if it does not exist. Removes what a crash has left
    /// of files. A file that `parse` does not understand is skipped, and `malformed` is logged.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be read, or the remains of a file cannot be removed.
    pub(super) fn open<T>(
        dir: PathBuf,
        parse: impl Fn(&[u8]) -> Option<T>,
        malformed: &str,
    ) -> io::Result<(PurgeFolder, BTreeMap<PurgeId, T>)> {
        fs::create_dir_all(&dir)?;
        // A purge is acknowledged once its file is durable, and so the folder must be.
        dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
        let (folder, mut all) = (PurgeFolder(dir), BTreeMap::new());
        for entry in fs::read_dir(&folder.0)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "new") {
                // Half a file of a selection may have a destination.
                fs::remove_file(&path)?;
                continue;
            }
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let Some(id) = stem.and_then(PurgeId::parse).filter(|id| path == folder.path_of(*id)) else { continue };
            match parse(&fs::read(&path)?) {
                Some(read) => {
                    all.insert(id, read);
                }
                None => tracing::error!(path = %path.display(), "{malformed}"),
            }
        }
        Ok((folder, all))
    }

    /// Writes the file of a purge or a selection, durably.
    ///
    /// # Errors
    /// If it cannot be written. The former file stays. If the purge or selection is new, no file stays, unless it cannot be
    /// removed either.
    pub(super) fn write(&self, id: PurgeId, content: &Value, is_new: bool) -> io::Result<()> {
        let written = write_whole(&self.path_of(id), content.to_string().as_bytes());
        if written.is_err() && is_new {
            // The file exists if only the sync of the folder has failed. The next start would then carry out what was refused.
            let _ = self.remove(id);
        }
        written
    }

    /// Removes the file of a purge or a selection, if it exists.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(&self, id: PurgeId) -> io::Result<()> {
        match fs::remove_file(self.path_of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the path of the file of a purge or a selection.
    pub(super) fn path_of(&self, id: PurgeId) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}
