//! The log: lines on standard error, written where a thing is handled. Never on the way of a redirect.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::EnvFilter;

use carom_settings::exit::{Exit, Reason};

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

/// Runs `work` so that a panic in it ends the process for that reason. For libraries that panic on files that cannot be
/// read. Only for the start: the hook is that of the whole process.
pub fn end_on_panic<T>(reason: Reason, work: impl FnOnce() -> T) -> T {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.to_string().replace('\n', " ");
        tell_of_end(&Exit::new(reason, format!("the store cannot be opened ({text})")));
        std::process::exit(i32::from(reason.code()));
    }));
    let done = work();
    std::panic::set_hook(before);
    done
}
