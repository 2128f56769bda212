//! Small SVG plots, which the style sheet colours.

use std::fmt::Write;

use crate::api::page::escaped;

/// Width of a plot in its own units: one unit a second.
const WIDTH: usize = 120;
const HEIGHT: f64 = 40.0;

/// Renders the last numbers as a line with the area below it. The newest is at the right edge, `most` at the top;
/// `label` is the text alternative.
pub(super) fn sparkline(numbers: &[u64], most: u64, label: &str) -> String {
    let numbers = &numbers[numbers.len().saturating_sub(WIDTH)..];
    let begin = WIDTH - numbers.len();
    let height = |number: u64| HEIGHT - 1.0 - number as f64 / most.max(1) as f64 * (HEIGHT - 2.0);
    let mut line = String::new();
    for (at, number) in numbers.iter().enumerate() {
        let _ = write!(line, "{}{} {:.1}", if at == 0 { "M" } else { "L" }, begin + at, height(*number));
    }
    let mut svg = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        WIDTH - 1,
        escaped(label)
    );
    if !line.is_empty() {
        let _ = write!(
            svg,
            "<path class=\"area\" d=\"{line}L{} {HEIGHT}L{begin} {HEIGHT}Z\"/><path class=\"line\" d=\"{line}\"/>",
            WIDTH - 1
        );
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_at_the_right_and_the_most_at_the_top() {
        let svg = sparkline(&[0, 5, 10], 10, "a \"b\"");
        assert!(svg.contains("d=\"M117 39.0L118 20.0L119 1.0\""), "{svg}");
        assert!(svg.contains("aria-label=\"a &quot;b&quot;\""), "{svg}");
        assert!(!sparkline(&[], 0, "nothing").contains("path"));
        let many: Vec<u64> = (0..500).collect();
        assert!(sparkline(&many, 499, "many").contains("d=\"M0 10.1L1 "));
    }
}
