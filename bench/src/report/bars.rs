//! Horizontal bars as SVG, readable on white and on black.

use std::fmt::Write as _;

/// Sizes, in the plot's own units.
const WIDTH: f64 = 760.0;
const ROW: f64 = 30.0;
const TOP: f64 = 40.0;
const LABELS: f64 = 230.0;
const VALUES: f64 = 70.0;

/// A bar of the plot.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// Label beside the bar.
    pub(super) name: String,
    /// Parts of the bar, from left to right.
    pub(super) parts: Vec<f64>,
    /// True if the bar is carom's.
    pub(super) is_ours: bool,
}

/// Renders bars as a plot.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, title, bars);
    out
}

fn write(out: &mut String, title: &str, bars: &[Bar]) -> std::fmt::Result {
    let height = TOP + ROW * bars.len() as f64 + 8.0;
    let longest = bars.iter().map(|bar| bar.parts.iter().sum::<f64>()).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LABELS - VALUES) / longest;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">"
    )?;
    // Greys and colours of middle lightness are readable on both backgrounds.
    writeln!(
        out,
        "<title>{}</title>\n<style>text {{ fill: #7a828b }} .ours {{ fill: #1487b0 }} .other {{ fill: #8d949c }} .part {{ opacity: .6 }}</style>",
        escaped(title)
    )?;
    writeln!(out, "<text x=\"0\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}</text>", escaped(title))?;
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LABELS - 10.0,
            y + 17.0,
            escaped(&bar.name)
        )?;
        let mut x = LABELS;
        for (part, value) in bar.parts.iter().enumerate() {
            let class = if bar.is_ours { "ours" } else { "other" };
            let part = if part > 0 { " part" } else { "" };
            writeln!(
                out,
                "<rect class=\"{class}{part}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\"/>",
                y + 4.0,
                value * scale,
                ROW - 10.0
            )?;
            x += value * scale;
        }
        let total: f64 = bar.parts.iter().sum();
        let digits = if total < 100.0 { 2 } else { 0 };
        writeln!(out, "<text x=\"{:.1}\" y=\"{}\">{total:.digits$}</text>", x + 6.0, y + 17.0)?;
    }
    writeln!(out, "</svg>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
