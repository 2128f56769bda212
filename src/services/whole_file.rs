//! Files that are read and durably replaced as a whole.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Reasons why a file of the data directory cannot be used.
#[derive(Debug)]
pub enum WholeFileError {
    /// Reading failed.
    Io(io::Error),
    /// The content is not valid.
    Malformed(String),
}

impl fmt::Display for WholeFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WholeFileError::Io(error) => write!(f, "{error}"),
            WholeFileError::Malformed(what) => write!(f, "{what}"),
        }
    }
}

/// Reads a file with `parse`; returns the default if the file does not exist.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(super) fn read_whole<T: Default, E: fmt::Display>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, WholeFileError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(WholeFileError::Io(error)),
        Ok(text) => parse(&text).map_err(|error| WholeFileError::Malformed(error.to_string())),
    }
}

/// Writes a file that only the user of the process can read, durably. After a crash, it has the old or the new content,
/// and a file with the suffix `.new` may be left. Blocks the calling thread for two syncs.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn missing_file_is_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let parse = |text: &[u8]| if text == b"7" { Ok(7) } else { Err("not a seven") };
        assert_eq!(read_whole(&path, parse).unwrap(), 0);
        write_whole(&path, b"7").unwrap();
        assert_eq!(read_whole(&path, parse).unwrap(), 7);
        write_whole(&path, b"8").unwrap();
        let refused = read_whole(&path, parse).unwrap_err();
        assert!(matches!(&refused, WholeFileError::Malformed(what) if what == "not a seven"), "{refused}");
        assert!(matches!(read_whole(dir.path(), parse), Err(WholeFileError::Io(_))));
    }

    #[test]
    fn content_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(dir.path().join("state.json.new"), "left by a crash, and longer").unwrap();
        for content in ["first", "2nd"] {
            write_whole(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::remove_file(&path).unwrap();
        write_whole(&path, b"third").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
