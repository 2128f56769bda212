//! The command line: `cli` is its grammar, as clap reads it, and `options` checks it, with `target` for URLs, `values`
//! for other values and `output` for files. `manual` writes the man pages.

pub(crate) mod cli;
pub(crate) mod manual;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod target;
pub(crate) mod values;
