//! Line plots as SVG. Colours come from the page's style sheet, so that they follow light and dark.

use std::fmt::Write as _;

/// Width of a plot, in its own units.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;

/// Margins for the labels of the axes.
const LEFT: f64 = 94.0;
const RIGHT: f64 = 52.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;

/// Maximum number of labels along an axis.
const LABELS_MAX: usize = 9;

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Name of the line in the legend.
    pub(super) name: &'static str,
    /// Class of the line in the style sheet.
    pub(super) class: &'static str,
    /// Points of the line, from left to right.
    pub(super) points: Vec<(f64, f64)>,
}

/// A labelled mark on an axis.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A line plot with two axes.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// Text alternative of the plot.
    pub(super) title: &'static str,
    /// Name of the horizontal axis.
    pub(super) x_name: &'static str,
    /// Marks at the bottom, from left to right; the first and the last are the ends of the axis.
    pub(super) x_marks: Vec<Mark>,
    /// Marks at the left, from the bottom to the top; the first and the last are the ends of the axis.
    pub(super) y_marks: Vec<Mark>,
    /// Lines of the plot.
    pub(super) lines: Vec<Curve>,
}

impl Plot {
    /// Returns the SVG element and its legend.
    pub(super) fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let ends = |marks: &[Mark]| match (marks.first(), marks.last()) {
            (Some(first), Some(last)) if last.at > first.at => (first.at, last.at),
            _ => (0.0, 1.0),
        };
        let ((x0, x1), (y0, y1)) = (ends(&self.x_marks), ends(&self.y_marks));
        let x = |value: f64| LEFT + (value.clamp(x0, x1) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - (value.clamp(y0, y1) - y0) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
        writeln!(out, "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", self.title)?;
        for mark in &self.y_marks {
            let at = y(mark.at);
            writeln!(out, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>", WIDTH - RIGHT)?;
            writeln!(out, "<text class=\"y\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", LEFT - 8.0, at + 4.0, mark.label)?;
        }
        for mark in &self.x_marks {
            let at = x(mark.at);
            writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP}V{:.1}\"/>", HEIGHT - BOTTOM)?;
            writeln!(out, "<text class=\"x\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>", HEIGHT - BOTTOM + 17.0, mark.label)?;
        }
        writeln!(
            out,
            "<text class=\"x\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            self.x_name
        )?;
        for line in &self.lines {
            let points: Vec<String> =
                line.points.iter().map(|&(px, py)| format!("{:.1},{:.1}", x(px), y(py))).collect();
            writeln!(out, "<polyline class=\"{}\" points=\"{}\"/>", line.class, points.join(" "))?;
        }
        writeln!(out, "</svg><figcaption>")?;
        for line in &self.lines {
            writeln!(out, "<span class=\"{}\">{}</span>", line.class, line.name)?;
        }
        writeln!(out, "</figcaption></figure>")
    }
}

/// Returns marks at round numbers from 0 to above `max`.
pub(super) fn linear_marks(max: f64, label: impl Fn(f64) -> String) -> Vec<Mark> {
    let max = if max > 0.0 { max } else { 1.0 };
    let rough = max / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    let count = (max / step).ceil() as usize;
    (0..=count).map(|at| at as f64 * step).map(|at| Mark { at, label: label(at) }).collect()
}

/// Returns marks at powers of ten around `min` and `max`, at their logarithms.
pub(super) fn log_marks(min: f64, max: f64, label: impl Fn(f64) -> String) -> Vec<Mark> {
    let (low, high) = (min.max(1e-3).log10().floor() as i32, max.max(1e-3).log10().ceil() as i32);
    (low..=high.max(low + 1)).map(|power| Mark { at: f64::from(power), label: label(10f64.powi(power)) }).collect()
}

/// Returns marks for seconds from 0 to `last`.
pub(super) fn second_marks(last: u64) -> Vec<Mark> {
    let step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600]
        .into_iter()
        .find(|step| (last / step) < LABELS_MAX as u64)
        .unwrap_or(7_200);
    let mut marks: Vec<Mark> =
        (0..=last / step).map(|at| Mark { at: (at * step) as f64, label: (at * step).to_string() }).collect();
    if !last.is_multiple_of(step) {
        // The axis ends here, without a label that might overlap the previous one.
        marks.push(Mark { at: last as f64, label: String::new() });
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_enclose_the_values() {
        for max in [0.0, 0.003, 1.0, 9.9, 40_123.0, 1e9] {
            let marks = linear_marks(max, |value| value.to_string());
            assert!(marks.len() >= 2, "{max}: {marks:?}");
            assert!(marks.len() <= LABELS_MAX, "{max}: {marks:?}");
            assert!(marks[marks.len() - 1].at >= max, "{max}: {marks:?}");
        }
        let marks = log_marks(80.0, 12_000.0, |value| value.to_string());
        assert_eq!((marks[0].at, marks[marks.len() - 1].at), (1.0, 5.0));
        for last in [1, 7, 60, 3_599] {
            let marks = second_marks(last);
            assert!(marks.len() <= LABELS_MAX + 1, "{last}: {marks:?}");
            assert!(marks[marks.len() - 1].at == last as f64, "{last}: {marks:?}");
        }
    }
}
