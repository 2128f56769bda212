//! The log: lines on standard error. The thread that handles an event writes its line, except redirects, which write
//! none.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::EnvFilter;

use carom_settings::exit::{Exit, Reason};

/// True for a JSON log.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Starts logging at a level and above (`error`, `warn`, `info`, `debug`, `trace`), as text or as one JSON object a
/// line. Libraries log warnings only, so that they do not drown the lines of carom. h2 logs errors only: it warns of
/// each misbehaving client, and clients could fill a disk with that.
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

/// Logs the reason for the end of the process.
pub fn log_exit(exit: &Exit) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::error!(exit_code = exit.reason.code(), remedy = exit.remedy(), "{}", exit.what);
    } else {
        // Standard error may be closed; the exit code remains.
        let _ = writeln!(io::stderr(), "carom: {exit}");
    }
}

/// Prints the reason for the end of a command, and what to do about it.
pub fn print_error(exit: &Exit) {
    let _ = writeln!(io::stderr(), "error: {}\nhint: {}", exit.what, exit.remedy());
}

/// Runs `work` such that a panic in it ends the process for that reason. It is for libraries that panic on unreadable
/// files. Only for the start: the panic hook is that of the whole process.
pub fn end_on_panic<T>(reason: Reason, work: impl FnOnce() -> T) -> T {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.to_string().replace('\n', " ");
        log_exit(&Exit::new(reason, format!("the store cannot be opened ({text})")));
        std::process::exit(i32::from(reason.code()));
    }));
    let done = work();
    std::panic::set_hook(before);
    done
}
