//! Lines for the user who waits for a measurement.

use std::io::Write;

/// Writes one line to standard error. Ignores a closed stream.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
