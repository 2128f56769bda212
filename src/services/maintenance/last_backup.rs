//! The time of the last complete backup of a data directory, in a file of this directory, so that it survives restarts.
//! `carom backup` writes the file, with or without a running node; a node reads it for its status and metrics.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use carom_model::formats::dates;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "last-backup";

/// Name of the file while it is written.
const FILE_NAME_NEW: &str = "last-backup.new";

/// Returns the time of the last complete backup, in milliseconds since 1970 UTC. `None` if none was ever made.
///
/// # Errors
/// If the file cannot be read, or has no time in it.
pub fn read(data_dir: &Path) -> io::Result<Option<u64>> {
    let text = match fs::read_to_string(data_dir.join(FILE_NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let taken_ms = dates::parse(text.trim_end()).map_err(|_| {
        let what = format!("{FILE_NAME} contains {text:?} instead of a time; the next backup writes it again");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    Ok(Some(taken_ms))
}

/// Records that a backup of the state at `taken_ms` is complete.
///
/// # Errors
/// If the file cannot be written.
pub fn write(data_dir: &Path, taken_ms: u64) -> io::Result<()> {
    let new = data_dir.join(FILE_NAME_NEW);
    // An interrupted command of another user may have left it.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(format!("{}\n", dates::format(taken_ms)).as_bytes())?;
    // Root may make the backup, and the user of the node reads the file. The directory itself is private.
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_data()?;
    fs::rename(new, data_dir.join(FILE_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        fs::write(dir.path().join(FILE_NAME_NEW), "left behind").unwrap();
        for taken_ms in [1_700_000_000_000, 1_800_000_000_000] {
            write(dir.path(), taken_ms).unwrap();
            assert_eq!(read(dir.path()).unwrap(), Some(taken_ms));
        }
        let mode = fs::metadata(dir.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }

    #[test]
    fn another_content_is_an_error_that_quotes_it() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["", "yesterday\n", "1700000000000\n"] {
            fs::write(dir.path().join(FILE_NAME), wrong).unwrap();
            let error = read(dir.path()).unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }
}
