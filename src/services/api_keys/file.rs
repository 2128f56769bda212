//! The file of all API keys, as hashes: `apps.json` in the data directory.
//!
//! The node and the command line both write it. A writer takes a lock, merges its keys into the current content, and
//! renames a new file over the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

use carom_model::access::registry::Registry;
use carom_model::formats::json_file::Malformed;
use carom_telemetry::clock::unix_ms;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "apps.json";

/// Name of the new file until the rename.
const FILE_NAME_NEW: &str = "apps.json.new";

/// Name of the lock file that a writer holds.
const LOCK_NAME: &str = "apps.lock";

/// Reasons why the file cannot be used.
#[derive(Debug)]
pub enum FileError {
    /// Reading or writing failed.
    Io(io::Error),
    /// The content is not valid.
    Malformed(Malformed),
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileError::Io(error) => write!(f, "{error}"),
            FileError::Malformed(what) => write!(f, "{what}"),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> FileError {
        FileError::Io(error)
    }
}

/// A stamp that tells one version of the file from another: inode, modification time (seconds, nanoseconds), length in
/// bytes.
pub type Stamp = (u64, i64, i64, u64);

/// Returns the stamp of the file as it is now, or `None` if it does not exist.
pub fn stamp(data_dir: &Path) -> Option<Stamp> {
    let meta = fs::metadata(data_dir.join(FILE_NAME)).ok()?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
}

/// Reads all keys of the file; none if it does not exist.
///
/// # Errors
/// If the file cannot be read or is malformed: then it is unknown which keys are valid.
pub fn read(data_dir: &Path) -> Result<Registry, FileError> {
    match fs::read(data_dir.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Registry::default()),
        text => Registry::from_text(&text?).map_err(FileError::Malformed),
    }
}

/// True if the file exists. Then all keys were known when it was written, even if it has none.
pub fn exists(data_dir: &Path) -> bool {
    data_dir.join(FILE_NAME).exists()
}

/// Changes the file, under its lock. `change` gets the keys in it, without those that ended long ago. The file is
/// written if the text differs afterwards, or if `must_exist` and it is missing. Also returns the stamp of the file.
/// After a crash, the file is the old or the new one.
///
/// # Errors
/// If the file cannot be read or written.
pub fn update<T>(
    data_dir: &Path,
    must_exist: bool,
    change: impl FnOnce(&mut Registry) -> T,
) -> Result<(T, Option<Stamp>), FileError> {
    let lock = open(&data_dir.join(LOCK_NAME))?;
    lock.lock()?;
    let mut registry = read(data_dir)?;
    let before = registry.to_text();
    registry.prune(unix_ms());
    let done = change(&mut registry);
    registry.prune(unix_ms());
    let text = registry.to_text();
    if text != before || must_exist && !exists(data_dir) {
        let (new, path) = (data_dir.join(FILE_NAME_NEW), data_dir.join(FILE_NAME));
        let _ = fs::remove_file(&new);
        let mut file = open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(data_dir)?.sync_all()?;
    }
    Ok((done, stamp(data_dir)))
}

/// Opens a file, and gives it to the owner of the data directory: the node must be able to read a key that root
/// created.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    let meta = fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
    let mine = file.metadata()?;
    if (mine.uid(), mine.gid()) != (meta.uid(), meta.gid()) && rustix::process::geteuid().is_root() {
        chown(path, Some(meta.uid()), Some(meta.gid()))?;
    }
    if mine.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::registry::Grant;
    use carom_model::access::{AppName, Role};

    fn add(registry: &mut Registry) {
        let app = AppName::parse("shop").unwrap();
        registry
            .add(Grant { app, name: None, role: Role::Read, expires_ms: None, creates: None, domains: None }, 1)
            .unwrap();
    }

    #[test]
    fn what_several_write_at_once_is_all_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        assert!(stamp(dir.path()).is_none());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..5).for_each(|_| _ = update(dir.path(), false, add).unwrap()));
            }
        });
        assert_eq!(read(dir.path()).unwrap().len(), 40);
        let before = stamp(dir.path());
        update(dir.path(), false, |_| ()).unwrap();
        assert_eq!(stamp(dir.path()), before, "nothing new is not written");
        update(dir.path(), false, add).unwrap();
        assert_ne!(stamp(dir.path()), before);
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_makes_no_sense_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert!(matches!(read(dir.path()), Err(FileError::Malformed(_))));
        assert!(matches!(update(dir.path(), false, add), Err(FileError::Malformed(_))));
        assert_eq!(fs::read(dir.path().join(FILE_NAME)).unwrap(), b"{");
    }
}
