//! The line that tells a person at a terminal how far an import or export is.

use std::io::Write;
use std::time::{Duration, Instant};

/// How often the line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Draws the line, where there is a terminal.
pub struct Progress {
    start: Instant,
    drawn: Instant,
    terminal: bool,
    total_bytes: Option<u64>,
}

impl Progress {
    /// Begins to measure; the bytes that there are in all give a share.
    pub fn new(terminal: bool, total_bytes: Option<u64>) -> Progress {
        let now = Instant::now();
        Progress { start: now, drawn: now, terminal, total_bytes: total_bytes.filter(|&total| total > 0) }
    }

    /// Draws the line if it is time.
    pub fn tick(&mut self, out: &mut dyn Write, links: u64, bytes: u64) {
        if !self.terminal || self.drawn.elapsed() < DRAW_EVERY {
            return;
        }
        self.drawn = Instant::now();
        let rate = rate(links, self.start.elapsed());
        let share = self.total_bytes.map_or(String::new(), |total| format!(", {}%", bytes.min(total) * 100 / total));
        // A terminal that went away is no reason to stop.
        let _ = write!(out, "\r\x1b[K{links} links, {rate}/s{share}");
        let _ = out.flush();
    }

    /// Takes the line away, so that a report can stand there.
    pub fn clear(&self, out: &mut dyn Write) {
        if self.terminal {
            let _ = write!(out, "\r\x1b[K");
        }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Links a second, rounded down.
pub fn rate(links: u64, time: Duration) -> u64 {
    (links as f64 / time.as_secs_f64().max(1e-9)) as u64
}
