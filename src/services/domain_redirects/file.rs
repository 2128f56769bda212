//! The file of changed domain redirects: `domains.json` in the data directory.

use std::io;
use std::path::Path;

use crate::services::whole_file::{WholeFileError, read_whole, write_whole};
use carom_model::domains::redirects::RedirectChanges;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "domains.json";

/// Reads the changes; none if the file does not exist.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn read(data_dir: &Path) -> Result<RedirectChanges, WholeFileError> {
    read_whole(&data_dir.join(FILE_NAME), RedirectChanges::from_text)
}

/// Writes the changes and syncs them. After a crash, the file is the old or the new one.
///
/// # Errors
/// If the file cannot be written.
pub fn write(data_dir: &Path, changes: &RedirectChanges) -> io::Result<()> {
    write_whole(&data_dir.join(FILE_NAME), changes.to_text().as_bytes())
}
