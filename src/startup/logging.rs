//! The log: lines on standard error. The thread that handles an event writes its line, except redirects, which write
//! none. The choices of `-q`, `-v` and `--color` are kept here, for the output of commands as well.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tracing_subscriber::filter::EnvFilter;

use carom_settings::exit::{Exit, Reason};

/// True for a JSON log.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The choice of `-q` and `-v`, as its number.
static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// The choice of `--color`: [`COLOURS_AUTO`], or whether output has colours.
static COLOURS: AtomicU8 = AtomicU8::new(COLOURS_AUTO);

/// Colours at a terminal, unless the environment says otherwise.
const COLOURS_AUTO: u8 = 2;

/// The amount that a command writes to standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Verbosity {
    /// Warnings and errors.
    Quiet,
    /// Notes, and the log at the level of the settings.
    Normal,
    /// Details as well, and the log at least at level `debug`.
    Verbose,
}

/// Sets how much the process writes to standard error.
pub fn set_verbosity(verbosity: Verbosity) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
}

/// True if standard error gets as much as with this verbosity.
pub(crate) fn writes(verbosity: Verbosity) -> bool {
    VERBOSITY.load(Ordering::Relaxed) >= verbosity as u8
}

/// Sets whether output has colours, for the whole process. `None` means at a terminal, unless `NO_COLOR` is set.
pub fn set_colours(choice: Option<bool>) {
    COLOURS.store(choice.map_or(COLOURS_AUTO, u8::from), Ordering::Relaxed);
}

/// True if a stream gets colours: as [`set_colours`] says, and by default a terminal without `NO_COLOR`.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    let choice = COLOURS.load(Ordering::Relaxed);
    if choice != COLOURS_AUTO {
        return choice == u8::from(true);
    }
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Returns the level of the log, given that of the settings.
fn level_of(settings: &str) -> &str {
    match settings {
        "trace" | "debug" | "info" if !writes(Verbosity::Normal) => "warn",
        "error" | "warn" | "info" if writes(Verbosity::Verbose) => "debug",
        level => level,
    }
}

/// Starts logging at a level and above (`error`, `warn`, `info`, `debug`, `trace`), unless [`set_verbosity`] has chosen
/// another one, as text or as one JSON object a line. Libraries log warnings only, so that they do not drown the lines of carom. h2 logs errors only: it warns of
/// each misbehaving client, and clients could fill a disk with that.
pub fn start(level: &str, is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
    let level = level_of(level);
    let libraries = if matches!(level, "error" | "warn") { level } else { "warn" };
    let filter = EnvFilter::new(format!("{libraries},h2=error,carom={level}"));
    // A terminal or pipe that is gone must not end the process: the report of a line that cannot be written would go to
    // standard error as well, and panic.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    let log = log.log_internal_errors(false);
    if is_json {
        log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        log.with_ansi(has_colours(&io::stderr())).init();
    }
}

/// Reports the reason for the end of the process, and what to do about it: in the log if it is JSON, or else as text.
pub fn log_exit(exit: &Exit) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::error!(exit_code = exit.reason.code(), remedy = exit.remedy(), "{}", exit.what);
    } else {
        // Standard error may be closed; the exit code remains.
        let _ = writeln!(io::stderr(), "{exit}");
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_choice() {
        set_colours(Some(true));
        assert!(has_colours(&io::stdout()));
        assert!(has_colours(&io::stderr()));
        set_colours(Some(false));
        assert!(!has_colours(&io::stdout()));
        assert!(!has_colours(&io::stderr()));
        set_colours(None);
        let file = tempfile::tempfile().unwrap();
        assert!(!has_colours(&file));
    }

    #[test]
    fn verbosity_overrides_the_level_of_the_settings() {
        let levels = ["error", "warn", "info", "debug", "trace"];
        let chosen = |verbosity| {
            set_verbosity(verbosity);
            levels.map(level_of)
        };
        assert_eq!(chosen(Verbosity::Quiet), ["error", "warn", "warn", "warn", "warn"]);
        assert_eq!(chosen(Verbosity::Verbose), ["debug", "debug", "debug", "debug", "trace"]);
        assert_eq!(chosen(Verbosity::Normal), levels);
    }
}
