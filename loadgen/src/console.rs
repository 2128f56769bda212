//! The progress of a run, on standard error: a live view on a terminal, else a line for each second.
//!
//! The `live` view shows the figures that threads publish in their `live_counters`.

mod live;
pub(crate) mod live_counters;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_telemetry::readable;

use crate::console::live::Live;
use crate::console::live_counters::LiveCounters;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::results::record::{Interval, Summary};
use crate::units;

/// Writes one line to standard error. Ignores a closed stream.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes results to standard output. A reader that closes the pipe early, as `head` does, is not an error.
///
/// # Errors
/// The reason why the results are lost.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::usage(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Display of the progress, on standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressOutput {
    quiet: bool,
    /// True on a terminal that can draw in place, unless the user wants lines.
    is_live: bool,
    /// Number of links to create, while links are created.
    making: Option<u64>,
}

impl ProgressOutput {
    /// Returns the display. Without `live`, or without a terminal, it prints lines.
    pub(crate) fn new(quiet: bool, live: bool) -> ProgressOutput {
        let draws_in_place = || std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let is_live = live && !quiet && io::stderr().is_terminal() && draws_in_place();
        ProgressOutput { quiet, is_live, making: None }
    }

    /// Returns the display for the time in which `count` links are created.
    pub(crate) fn while_creating(self, count: u64) -> ProgressOutput {
        ProgressOutput { making: Some(count), ..self }
    }

    /// Returns the display of a run.
    pub(crate) fn progress(self, plan: &Plan) -> RunProgress {
        let end = match (self.making, plan.requests) {
            (Some(count), _) => format!(", creating {}", readable::count(count, "link")),
            (None, Some(count)) => format!(", {}", readable::count(count, "request")),
            (None, None) => format!(" of {:.0}", plan.duration.as_secs_f64()),
        };
        let live = (self.is_live && self.making.is_none()).then(|| Live::new(plan));
        RunProgress { console: self, end, live }
    }
}

/// Display of the progress of one run.
#[derive(Debug)]
pub(crate) struct RunProgress {
    console: ProgressOutput,
    /// Text behind the number of the second: what the run lasts for.
    end: String,
    /// The live view; `None` for lines.
    live: Option<Live>,
}

impl RunProgress {
    /// Returns the figures that a thread publishes; `None` if nothing reads them.
    pub(crate) fn counters(&self, thread: usize) -> Option<Arc<LiveCounters>> {
        self.live.as_ref().map(|live| live.counters(thread))
    }

    /// Notes that the run starts at `origin`.
    pub(crate) fn begin(&mut self, origin: Instant) {
        if let Some(live) = &mut self.live {
            live.begin(origin);
        }
    }

    /// Draws the live view if it is time. Returns the time until the next picture; `None` without a live view.
    pub(crate) fn refresh(&mut self) -> Option<Duration> {
        self.live.as_mut().map(Live::refresh)
    }

    /// Shows a second of the run, without a live view.
    pub(crate) fn show_second(&self, interval: &Interval) {
        if self.console.quiet || self.live.is_some() {
            return;
        }
        let summary = Summary::of(&interval.latency);
        let text = format!(
            "{:>4} s{}: {:>9}/s   p50 {:>8}   p99 {:>8}   max {:>8}   errors {}",
            interval.second + 1,
            self.end,
            readable::grouped(interval.completed),
            units::show_micros(summary.quantiles[0]),
            units::show_micros(summary.quantiles[3]),
            units::show_micros(summary.max),
            interval.errors,
        );
        if self.console.is_live {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[2K{text}").and_then(|()| out.flush());
        } else {
            say(&text);
        }
    }

    /// Removes the live view, or the line that was drawn in place.
    pub(crate) fn end(&mut self) {
        match &mut self.live {
            Some(live) => live.clear(),
            None if self.console.is_live => _ = write!(io::stderr(), "\r\x1b[2K"),
            None => {}
        }
    }
}
