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
        let share = self.total_bytes.map_or(String::new(), |total| share(self.start.elapsed(), bytes, total));
        // If the terminal is gone, the work continues.
        let _ = write!(out, "\r\x1b[K{links} links, {rate}/s{share}");
        let _ = out.flush();
    }

    /// Draws the line of a transfer, if it is due. `records` is the part of the total that is done.
    pub fn tick_transfer(&mut self, out: &mut dyn Write, links: u64, records: u64, bytes: u64) {
        if !self.terminal || self.drawn.elapsed() < DRAW_EVERY {
            return;
        }
        self.drawn = Instant::now();
        let share = self.total_bytes.map_or(String::new(), |total| share(self.start.elapsed(), records, total));
        // If the terminal is gone, the work continues.
        let _ = write!(out, "\r\x1b[K{links} links, {} MiB{share}", bytes >> 20);
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

/// Describes how much of the input is read, and how long the rest takes at this pace.
fn share(time: Duration, bytes: u64, total: u64) -> String {
    let bytes = bytes.min(total);
    let percent = bytes * 100 / total;
    if bytes == 0 {
        return format!(", {percent} %");
    }
    let left = (time.as_secs_f64() * (total - bytes) as f64 / bytes as f64) as u64;
    match left {
        0..60 => format!(", {percent} %, {left} s left"),
        60..3_600 => format!(", {percent} %, {} min left", left / 60),
        _ => format!(", {percent} %, {} h {} min left", left / 3_600, left / 60 % 60),
    }
}

/// Returns the links per second, rounded down.
pub fn rate(links: u64, time: Duration) -> u64 {
    (links as f64 / time.as_secs_f64().max(1e-9)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_the_pace() {
        let after = |seconds, bytes| share(Duration::from_secs(seconds), bytes, 1_000);
        assert_eq!(after(5, 0), ", 0 %");
        assert_eq!(after(5, 250), ", 25 %, 15 s left");
        assert_eq!(after(100, 100), ", 10 %, 15 min left");
        assert_eq!(after(4_000, 500), ", 50 %, 1 h 6 min left");
        assert_eq!(after(9, 2_000), ", 100 %, 0 s left");
    }
}
