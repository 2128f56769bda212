//! The file of changed domain redirects: `domains.json` in the data directory.

use std::fs;
use std::io;
use std::path::Path;

use crate::services::whole_file::write_whole;
use carom_model::domains::redirects::{MalformedChanges, RedirectChanges};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "domains.json";

/// Reasons why the file cannot be used.
#[derive(Debug)]
pub enum DomainsFileError {
    /// Reading failed.
    Io(io::Error),
    /// The content is not valid.
    Malformed(MalformedChanges),
}

impl std::fmt::Display for DomainsFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DomainsFileError::Io(error) => write!(f, "{error}"),
            DomainsFileError::Malformed(what) => write!(f, "{what}"),
        }
    }
}

/// Reads the changes; none if the file does not exist.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn read(data_dir: &Path) -> Result<RedirectChanges, DomainsFileError> {
    match fs::read(data_dir.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RedirectChanges::default()),
        Err(error) => Err(DomainsFileError::Io(error)),
        Ok(text) => RedirectChanges::from_text(&text).map_err(DomainsFileError::Malformed),
    }
}

/// Writes the changes and syncs them. After a crash, the file is the old or the new one.
///
/// # Errors
/// If the file cannot be written.
pub fn write(data_dir: &Path, changes: &RedirectChanges) -> io::Result<()> {
    write_whole(&data_dir.join(FILE_NAME), changes.to_text().as_bytes())
}
