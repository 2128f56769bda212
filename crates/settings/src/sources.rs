//! The sources of settings: flags, environment and file, as written. `raw` puts the strongest source first, `file` parses
//! the file, and `suggest` finds the name that somebody may have meant.

pub(crate) mod file;
pub(crate) mod raw;
mod suggest;
