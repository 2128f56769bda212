//! The log: lines on standard error, written where a thing is handled. Never on the way of a redirect.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::EnvFilter;

use crate::exit::Exit;

/// Whether the log is for programs.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Begins to log at this level and above (`error`, `warn`, `info`, `debug`, `trace`), for people or as one JSON object a line.
/// Libraries are held to warnings, so that what carom says is not lost among them; h2, which warns of each client that behaves badly,
/// to errors: anybody could fill a disk with that.
pub fn start(level: &str, is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
    let libraries = if matches!(level, "error" | "warn") { level } else { "warn" };
    let filter = EnvFilter::new(format!("{libraries},h2=error,carom={level}"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    if is_json {
        log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        log.with_ansi(io::stderr().is_terminal()).init();
    }
}

/// Says why the process ends.
pub fn tell_of_end(exit: &Exit) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::error!(exit_code = exit.reason.code(), remedy = exit.remedy(), "{}", exit.what);
    } else {
        // Nobody may be listening on standard error; the exit code still says it.
        let _ = writeln!(io::stderr(), "carom: {exit}");
    }
}
