//! The form in which dates and small JSON files are written and read.

pub mod dates;
pub mod json_file;
pub(crate) mod later_members;
