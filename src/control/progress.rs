//! The progress line of an import or export at a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

/// Interval between two updates of the line.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// The progress line, which is drawn only at a terminal.
pub struct Progress {
    start: Instant,
    drawn: Instant,
    terminal: bool,
    total_bytes: Option<u64>,
}

impl Progress {
    /// Starts the clock. With `total_bytes` the line shows a percentage.
    pub fn new(terminal: bool, total_bytes: Option<u64>) -> Progress {
        let now = Instant::now();
        Progress { start: now, drawn: now, terminal, total_bytes: total_bytes.filter(|&total| total > 0) }
    }

    /// Draws the line, if it is due.
    pub fn tick(&mut self, out: &mut dyn Write, links: u64, bytes: u64) {
        if !self.terminal || self.drawn.elapsed() < DRAW_EVERY {
            return;
        }
        self.drawn = Instant::now();
        let rate = rate(links, self.start.elapsed());
        let share = self.total_bytes.map_or(String::new(), |total| format!(", {} %", bytes.min(total) * 100 / total));
        // If the terminal is gone, the work continues.
        let _ = write!(out, "\r\x1b[K{links} links, {rate}/s{share}");
        let _ = out.flush();
    }

    /// Clears the line, to make room for a report.
    pub fn clear(&self, out: &mut dyn Write) {
        if self.terminal {
            let _ = write!(out, "\r\x1b[K");
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Returns the links per second, rounded down.
pub fn rate(links: u64, time: Duration) -> u64 {
    (links as f64 / time.as_secs_f64().max(1e-9)) as u64
}
