//! Lines for the user during a run, on standard error.

use std::io::{self, IsTerminal, Write};

use crate::record::{Interval, Summary};
use crate::units;

/// Writes one line to standard error. Ignores a closed stream.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Display of the progress, on standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    quiet: bool,
    is_terminal: bool,
    /// Number of links to create, while links are created.
    making: Option<u64>,
}

impl Console {
    /// Returns the display of a run.
    pub(crate) fn new(quiet: bool) -> Console {
        Console { quiet, is_terminal: io::stderr().is_terminal(), making: None }
    }

    /// Returns the display for the time in which `count` links are created.
    pub(crate) fn while_creating(self, count: u64) -> Console {
        Console { making: Some(count), ..self }
    }

    /// Shows a second of a run of `of` seconds.
    pub(crate) fn show_second(self, interval: &Interval, of: f64) {
        if self.quiet {
            return;
        }
        let summary = Summary::of(&interval.latency);
        let end = match self.making {
            Some(count) => format!(", creating {}", units::show_noun(count, "link")),
            None => format!(" of {of:.0}"),
        };
        let text = format!(
            "{:>4} s{end}: {:>9}/s   p50 {:>8}   p99 {:>8}   max {:>8}   errors {}",
            interval.second + 1,
            units::show_count(interval.completed),
            units::show_micros(summary.quantiles[0]),
            units::show_micros(summary.quantiles[3]),
            units::show_micros(summary.max),
            interval.errors,
        );
        if self.is_terminal {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[2K{text}").and_then(|()| out.flush());
        } else {
            say(&text);
        }
    }

    /// Clears the line of the progress.
    pub(crate) fn end_line(self) {
        if self.is_terminal && !self.quiet {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}
