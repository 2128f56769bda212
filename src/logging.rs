//! The log: lines on standard error, written where a thing is handled. Never on the way of a redirect.

use std::io::IsTerminal;

use tracing_subscriber::filter::EnvFilter;

/// Begins to log at this level and above (`error`, `warn`, `info`, `debug`, `trace`). Libraries are held to warnings, so
/// that what carom says is not lost among them; h2, which warns of each client that behaves badly, to errors: anybody could
/// fill a disk with that.
pub fn start(level: &str) {
    let libraries = if matches!(level, "error" | "warn") { level } else { "warn" };
    let filter = EnvFilter::new(format!("{libraries},h2=error,carom={level}"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
