//! The progress line of an import, an export, a restore or a join at a terminal.

use std::io::Write;
use std::time::{Duration, Instant};

/// Interval between two updates of the line.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// The progress line, which is drawn only at a terminal.
pub struct Progress {
    start: Instant,
    drawn: Instant,
    terminal: bool,
    total: Option<u64>,
}

impl Progress {
    /// Starts the clock. With a `total`, in bytes or records, the line shows a percentage.
    pub fn new(terminal: bool, total: Option<u64>) -> Progress {
        let now = Instant::now();
        Progress { start: now, drawn: now, terminal, total: total.filter(|&total| total > 0) }
    }

    /// Draws the line, if it is due. `bytes` is the part of the total that is done.
    pub fn tick(&mut self, out: &mut dyn Write, links: u64, bytes: u64) {
        self.draw(out, bytes, |time| format!("{links} links, {}/s", rate(links, time)));
    }

    /// Draws the line of a transfer, if it is due. `records` is the part of the total that is done.
    pub fn tick_transfer(&mut self, out: &mut dyn Write, links: u64, records: u64, bytes: u64) {
        self.draw(out, records, |_| format!("{links} links, {} MiB", bytes >> 20));
    }

    fn draw(&mut self, out: &mut dyn Write, done: u64, text: impl FnOnce(Duration) -> String) {
        if !self.terminal || self.drawn.elapsed() < DRAW_EVERY {
            return;
        }
        self.drawn = Instant::now();
        let time = self.start.elapsed();
        let share = self.total.map_or(String::new(), |total| share(time, done, total));
        // If the terminal is gone, the work continues.
        let _ = write!(out, "\r\x1b[K{}{share}", text(time));
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

/// Describes how much of the total is done, and how long the rest takes at this pace.
fn share(time: Duration, done: u64, total: u64) -> String {
    let done = done.min(total);
    let percent = done * 100 / total;
    if done == 0 {
        return format!(", {percent} %");
    }
    let left = (time.as_secs_f64() * (total - done) as f64 / done as f64) as u64;
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
