//! Files of the command line, for which `-` may stand in.

use std::ffi::OsString;
use std::path::PathBuf;

/// A file, or the standard stream that `-` stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOrStdio {
    /// Standard input or output.
    Standard,
    /// A file, by its path.
    File(PathBuf),
}

impl From<OsString> for FileOrStdio {
    fn from(name: OsString) -> FileOrStdio {
        if name == "-" { FileOrStdio::Standard } else { FileOrStdio::File(PathBuf::from(name)) }
    }
}
