//! The files of a backup: which command may write them, and whether they are those of the manifest.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::services::api_keys::file as apps_file;
use crate::services::destination_rules::file as rules_file;
use crate::services::domain_redirects::file as domains_file;
use crate::startup::code_secret;
use carom_settings::exit::{Exit, Reason};
use carom_store::backup::manifest::{FileSum, Manifest};
use carom_store::backup::{MANIFEST_FILE, STORE_FILE};

/// The files of a backup. A backup has no folders.
pub(super) const FILES: [&str; 6] = [
    STORE_FILE,
    MANIFEST_FILE,
    code_secret::FILE_NAME,
    apps_file::FILE_NAME,
    domains_file::FILE_NAME,
    rules_file::FILE_NAME,
];

/// A file of a backup that is not as the manifest says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BackupFault {
    /// The name of the file.
    pub(super) file: String,
    /// The difference.
    pub(super) what: String,
}

impl fmt::Display for BackupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

/// Creates the store file of a backup in an empty directory. Of several commands, one alone can create it, and only that
/// one may write or remove files there. The file stays locked while it is open, so that others see that it grows.
///
/// # Errors
/// [`Reason::Usage`] if another command has created the file, [`Reason::DataNotWritable`] if it cannot be created.
pub(super) fn claim(dir: &Path) -> Result<File, Exit> {
    let path = dir.join(STORE_FILE);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(file) => {
            // The lock only decides on messages. A file system without locks is no obstacle.
            let _ = file.try_lock();
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(in_use(dir)),
        Err(error) => Err(Exit::new(Reason::DataNotWritable, format!("{}: {error}", path.display()))),
    }
}

/// Returns the error for a directory that another command writes to.
pub(super) fn in_use(dir: &Path) -> Exit {
    Exit::new(Reason::Usage, format!("another `carom backup` is writing to {}", dir.display()))
        .with_remedy("wait for its end, or choose another directory")
}

/// True if another command is writing a backup to a directory.
pub(super) fn is_being_written(dir: &Path) -> bool {
    let store = File::open(dir.join(STORE_FILE));
    store.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Compares the files of a backup with its manifest: their lengths, and all checksums but that of the store. Its blocks
/// have their own, which only a look at every record compares.
///
/// # Errors
/// The first file that differs.
pub(super) fn check(dir: &Path, manifest: &Manifest) -> Result<(), BackupFault> {
    let fault = |file: &str, what: String| Err(BackupFault { file: file.to_owned(), what });
    if !manifest.files.contains_key(STORE_FILE) {
        return fault(MANIFEST_FILE, format!("does not list {STORE_FILE}"));
    }
    for (name, expected) in &manifest.files {
        if name == MANIFEST_FILE || !FILES.contains(&name.as_str()) {
            return fault(MANIFEST_FILE, format!("lists {name:?}, which is not a file of a backup"));
        }
        let path = dir.join(name);
        let found = if name == STORE_FILE {
            fs::metadata(&path).map(|meta| FileSum { bytes: meta.len(), sum: 0 })
        } else {
            fs::read(&path).map(|bytes| FileSum::of(&bytes))
        };
        match found {
            Ok(found) if found.bytes != expected.bytes => {
                return fault(name, format!("has {} bytes instead of {}", found.bytes, expected.bytes));
            }
            Ok(found) if found != *expected => {
                return fault(name, "is damaged: the checksum does not match".to_owned());
            }
            Ok(_) => {}
            Err(error) => return fault(name, error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use carom_store::backup::RecordCounts;

    #[test]
    fn one_command_writes_to_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_being_written(dir.path()));
        let store = claim(dir.path()).unwrap();
        assert!(is_being_written(dir.path()));
        let refused = claim(dir.path()).unwrap_err();
        assert!(refused.reason == Reason::Usage, "{refused}");
        assert!(refused.what.contains("another `carom backup`"), "{refused}");
        drop(store);
        assert!(!is_being_written(dir.path()));
        assert!(claim(&dir.path().join("none")).is_err_and(|exit| exit.reason == Reason::DataNotWritable));
    }

    #[test]
    fn files_are_compared_with_the_manifest() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STORE_FILE), "store").unwrap();
        fs::write(dir.path().join(code_secret::FILE_NAME), "secret").unwrap();
        let sums = [(STORE_FILE, FileSum { bytes: 5, sum: 0 }), (code_secret::FILE_NAME, FileSum::of(b"secret"))];
        let files: BTreeMap<String, FileSum> = sums.into_iter().map(|(name, sum)| (name.to_owned(), sum)).collect();
        let counts = RecordCounts::default();
        let manifest = Manifest { taken_ms: 1, fingerprint: "f".to_owned(), files, counts };
        let checked = || check(dir.path(), &manifest).map_err(|fault| fault.to_string());
        assert_eq!(checked(), Ok(()));
        fs::write(dir.path().join(code_secret::FILE_NAME), "secreT").unwrap();
        assert_eq!(checked(), Err(format!("{}: is damaged: the checksum does not match", code_secret::FILE_NAME)));
        fs::write(dir.path().join(STORE_FILE), "sto").unwrap();
        fs::write(dir.path().join(code_secret::FILE_NAME), "secret").unwrap();
        assert_eq!(checked(), Err(format!("{STORE_FILE}: has 3 bytes instead of 5")));
        fs::remove_file(dir.path().join(STORE_FILE)).unwrap();
        assert!(checked().is_err_and(|fault| fault.starts_with(STORE_FILE)));
        let mut other = manifest.clone();
        other.files.insert("../etc".to_owned(), FileSum { bytes: 1, sum: 0 });
        assert_eq!(check(dir.path(), &other).unwrap_err().file, MANIFEST_FILE);
        other.files.clear();
        assert_eq!(check(dir.path(), &other).unwrap_err().file, MANIFEST_FILE);
    }
}
