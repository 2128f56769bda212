//! The level and the format of the log.

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl LogFormat {
    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        if self == LogFormat::Json { "json" } else { "text" }
    }
}

/// Reads a log format.
pub(crate) fn log_format(written: &Written) -> Result<LogFormat, InvalidValue> {
    let name = text(written)?.trim();
    let known =
        [LogFormat::Text, LogFormat::Json].into_iter().find(|format| format.as_str().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        InvalidValue::new(format!("{} is neither text nor json", quoted(name)), "write \"text\" or \"json\"")
    })
}

/// The log level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// Errors, and events that may need an operator.
    Warn,
    /// Warnings as well, and ordinary events: a few lines an hour.
    Info,
    /// Ordinary events as well, and their details.
    Debug,
    /// All messages.
    Trace,
}

impl LogLevel {
    const ALL: [LogLevel; 5] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    /// Returns the name in the settings, which `tracing-subscriber` accepts as a filter, too.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// Reads a log level.
pub(crate) fn log_level(written: &Written) -> Result<LogLevel, InvalidValue> {
    let name = text(written)?.trim();
    let known = LogLevel::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        InvalidValue::new(format!("{} is not a log level", quoted(name)), "write error, warn, info, debug or trace")
    })
}
