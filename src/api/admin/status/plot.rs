//! Small SVG plots, which the style sheet colours.

use std::fmt::Write;

use serde::Serialize;

/// Number of values in a plot: one for each second.
const NUMBERS: usize = 120;

/// The right edge of a plot, and its height, in its own units.
const WIDTH: usize = NUMBERS - 1;
const HEIGHT: u32 = 40;

/// A line through the last numbers.
#[derive(Debug, Serialize)]
pub(super) struct Sparkline {
    width: usize,
    height: u32,
    /// Distance of the first point from the left edge.
    begin: usize,
    /// The line as SVG writes it; empty where there are no numbers.
    path: String,
}

/// The last numbers as a line: the newest at the right edge, zero at the bottom, `most` just below the top.
pub(super) fn sparkline(numbers: &[u64], most: u64) -> Sparkline {
    let numbers = &numbers[numbers.len().saturating_sub(NUMBERS)..];
    let begin = NUMBERS - numbers.len();
    let height = |number: u64| f64::from(HEIGHT) - number as f64 / most.max(1) as f64 * f64::from(HEIGHT - 1);
    let mut path = String::new();
    for (at, number) in numbers.iter().enumerate() {
        let _ = write!(path, "{}{} {:.1}", if at == 0 { "M" } else { "L" }, begin + at, height(*number));
    }
    Sparkline { width: WIDTH, height: HEIGHT, begin, path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_is_right_most_is_top_and_zero_is_bottom() {
        assert_eq!(sparkline(&[0, 5, 10], 10).path, "M117 40.0L118 20.5L119 1.0");
        assert_eq!(sparkline(&[0, 0], 0).path, "M118 40.0L119 40.0", "zero is the bottom");
        assert!(sparkline(&[], 0).path.is_empty());
        let many: Vec<u64> = (0..500).collect();
        assert!(sparkline(&many, 499).path.starts_with("M0 10.3L1 "));
    }
}
