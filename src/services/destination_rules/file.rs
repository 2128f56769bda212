//! The file of saved destination rules: `destination-rules.json` in the data directory.

use std::io;
use std::path::Path;

use crate::services::whole_file::{WholeFileError, read_whole, write_whole};
use carom_model::destination::rules::SavedRules;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "destination-rules.json";

/// Reads the last save; the default, which has no hosts, if the file does not exist.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn read(data_dir: &Path) -> Result<SavedRules, WholeFileError> {
    read_whole(&data_dir.join(FILE_NAME), SavedRules::from_text)
}

/// Writes a save and syncs it. After a crash, the file is the old or the new one.
///
/// # Errors
/// If the file cannot be written.
pub fn write(data_dir: &Path, saved: &SavedRules) -> io::Result<()> {
    write_whole(&data_dir.join(FILE_NAME), saved.to_text().as_bytes())
}
