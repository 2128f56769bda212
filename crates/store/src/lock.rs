//! The lock of a data directory: one process at a time.
//!
//! The lock belongs to the open file and ends with the process, so that a killed process leaves nothing to clean up.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{error, fmt};

/// The name of the lock file.
const FILE_NAME: &str = "LOCK";

/// An exclusive lock of a data directory, held until dropped.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

/// The reason for which a data directory could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock. The operator must stop it first.
    InUse(PathBuf),
    /// The directory or its lock file cannot be created or opened.
    Io(PathBuf, io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::InUse(path) => {
                write!(f, "the data directory {} is in use by another process", path.display())
            }
            LockError::Io(path, error) => write!(f, "cannot use the data directory {}: {error}", path.display()),
        }
    }
}

impl error::Error for LockError {}

impl DataLock {
    /// Locks the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`LockError::InUse`] at once, without waiting, if another process holds the lock; [`LockError::Io`] otherwise.
    pub fn take(data_dir: &Path) -> Result<DataLock, LockError> {
        let failed = |error| LockError::Io(data_dir.to_owned(), error);
        std::fs::create_dir_all(data_dir).map_err(failed)?;
        let file =
            File::options().create(true).truncate(false).write(true).open(data_dir.join(FILE_NAME)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(DataLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse(data_dir.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Returns the device and inode of the lock file of a directory. While the machine runs, two processes that have locked a
/// directory with the same two numbers have locked the same file, one after the other.
///
/// # Errors
/// If the file cannot be read, such as before the first lock of the directory.
pub fn lock_file_id(data_dir: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(data_dir.join(FILE_NAME))?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_directory_has_another_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let (one, copy) = (dir.path().join("one"), dir.path().join("copy"));
        assert!(lock_file_id(&one).is_err());
        drop(DataLock::take(&one).unwrap());
        let id = lock_file_id(&one).unwrap();
        let _held = DataLock::take(&one).unwrap();
        assert_eq!(lock_file_id(&one).unwrap(), id);
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(one.join(FILE_NAME), copy.join(FILE_NAME)).unwrap();
        assert_ne!(lock_file_id(&copy).unwrap(), id);
    }

    #[test]
    fn a_second_one_is_told_and_a_later_one_may() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("new/data");
        let held = DataLock::take(&data).unwrap();
        let refused = DataLock::take(&data).unwrap_err();
        assert!(matches!(refused, LockError::InUse(_)));
        assert!(refused.to_string().contains("in use"));
        drop(held);
        DataLock::take(&data).unwrap();
    }
}
