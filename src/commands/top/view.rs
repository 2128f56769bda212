//! The picture of a node, rendered from a [`Snapshot`] and the choices of a person. It fits any size of the terminal:
//! what is more important comes first, and the table of cores gets the room that is left.

mod facts;
mod help;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use self::facts::{flow, header, totals, wrapped};
use super::columns::{self, row, width_of};
use super::picture::{Picture, PictureStyle};
use super::snapshot::{ActiveAlarm, Snapshot};
use carom_telemetry::readable;

/// Rows from which on empty lines set the parts apart.
const ROOMY: u16 = 30;

/// Rows that the table gets before the graph gets any: its titles, and some cores.
const TABLE_ROWS_MIN: u16 = 5;

/// Most rows of the graph, without its title.
const GRAPH_ROWS: u16 = 4;

/// Most rows for the text of an alarm.
const ALARM_TEXT_ROWS: usize = 3;

/// Draws the picture into the whole frame.
pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture<'_>) {
    let mut rest = frame.area();
    let foot_rows = u16::from(rest.height > 2);
    let foot = Rect { y: rest.y + rest.height - foot_rows, height: foot_rows, ..rest };
    rest.height -= foot_rows;
    let gap = u16::from(rest.height >= ROOMY);
    let width = usize::from(rest.width);
    let mut position = String::new();
    put(frame, &mut rest, &header(picture, width));
    if picture.state.shows_help {
        take(&mut rest, gap);
        put(frame, &mut rest, &help::lines(picture.look, width));
    } else if let Some(snapshot) = picture.snapshot {
        if !snapshot.alarms.is_empty() {
            take(&mut rest, gap);
            let rows = usize::from(rest.height / 3);
            put(frame, &mut rest, &alarms(&snapshot.alarms, picture.look, width, rows));
        }
        take(&mut rest, gap);
        put(frame, &mut rest, &flow(totals(snapshot, picture.look), width));
        take(&mut rest, gap);
        graph(frame, &mut rest, snapshot, picture.look);
        take(&mut rest, gap);
        position = table(frame, rest, snapshot, picture);
    }
    frame.render_widget(footer(picture, &position), foot);
}

/// Takes rows from the top of the rest, as many as it has.
fn take(rest: &mut Rect, rows: u16) -> Rect {
    let height = rows.min(rest.height);
    let taken = Rect { height, ..*rest };
    *rest = Rect { y: rest.y + height, height: rest.height - height, ..*rest };
    taken
}

/// Draws lines at the top of the rest, as many as fit.
fn put(frame: &mut Frame<'_>, rest: &mut Rect, lines: &[Line<'_>]) {
    for line in lines {
        let row = take(rest, 1);
        frame.render_widget(line, row);
    }
}

/// Returns the active alarms within so many rows, each with its text: the problem, and what to do.
fn alarms(alarms: &[ActiveAlarm], look: PictureStyle, width: usize, rows: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (index, alarm) in alarms.iter().enumerate() {
        let name = Span::styled(format!("{} {}", alarm.severity.name(), alarm.name), look.of(alarm.severity));
        let since = Span::styled(format!(" since {}", alarm.since), look.label());
        let mut block = vec![Line::from(vec![name, since])];
        let text = wrapped(&alarm.text, width.saturating_sub(2), ALARM_TEXT_ROWS);
        block.extend(text.into_iter().map(|text| Line::from(format!("  {text}"))));
        // One row says how many are left out.
        let spare = usize::from(index + 1 < alarms.len());
        if lines.len() + block.len() + spare > rows && index > 0 {
            let left_out = readable::count((alarms.len() - index) as u64, "more alarm");
            lines.push(Line::styled(format!("{left_out}; `carom status` shows all"), look.label()));
            break;
        }
        lines.extend(block);
    }
    lines
}

/// Draws the requests of the last minutes, if the table keeps enough rows.
fn graph(frame: &mut Frame<'_>, rest: &mut Rect, snapshot: &Snapshot, look: PictureStyle) {
    let rows = rest.height.saturating_sub(TABLE_ROWS_MIN + 1).min(GRAPH_ROWS);
    if rows == 0 || rest.width == 0 || snapshot.history.is_empty() {
        return;
    }
    let peak = snapshot.history.iter().copied().max().unwrap_or(0);
    let length = readable::duration(snapshot.history.len() as u64);
    let title = format!("requests/s of the last {length}, at most {}", readable::grouped(peak));
    put(frame, rest, &[Line::styled(title, look.label())]);
    let area = take(rest, rows);
    let bars = fitted(&snapshot.history, usize::from(area.width));
    frame.render_widget(Sparkline::default().data(bars).max(peak.max(1)).style(look.graph()), area);
}

/// Fits a series into a width: several seconds become one bar, as high as the highest of them, or one second becomes
/// several bars.
fn fitted(series: &[u64], width: usize) -> Vec<u64> {
    if width == 0 || series.is_empty() {
        return Vec::new();
    }
    if series.len() > width {
        let seconds = series.len().div_ceil(width);
        // From the end, so that a bar keeps its seconds while others are added.
        let highest = series.rchunks(seconds).map(|chunk| chunk.iter().copied().max().unwrap_or(0));
        let mut bars: Vec<u64> = highest.collect();
        bars.reverse();
        return bars;
    }
    let times = width / series.len();
    series.iter().flat_map(|count| std::iter::repeat_n(*count, times)).collect()
}

/// Draws the table of cores. Returns which of them are shown, if not all are.
fn table(frame: &mut Frame<'_>, mut rest: Rect, snapshot: &Snapshot, picture: &Picture<'_>) -> String {
    let (cores, sort, look) = (&snapshot.cores, picture.state.sort, picture.look);
    let shown = columns::shown(cores, sort, usize::from(rest.width));
    let widths: Vec<usize> = shown.iter().map(|column| width_of(*column, cores, sort)).collect();
    let titles: Vec<String> = shown.iter().map(|column| sort.title(*column)).collect();
    put(frame, &mut rest, &[Line::styled(row(&titles, &widths), look.strong())]);
    let rows = usize::from(rest.height);
    let first = picture.state.first.min(cores.len().saturating_sub(rows));
    let lines: Vec<Line<'static>> = sort
        .sorted(cores)
        .into_iter()
        .skip(first)
        .take(rows)
        .map(|core| {
            let cells: Vec<String> = shown.iter().map(|column| column.cell(core)).collect();
            Line::from(row(&cells, &widths))
        })
        .collect();
    put(frame, &mut rest, &lines);
    if lines.is_empty() || lines.len() == cores.len() {
        return String::new();
    }
    format!("cores {} to {} of {}", first + 1, first + lines.len(), cores.len())
}

fn footer(picture: &Picture<'_>, position: &str) -> Line<'static> {
    let look = picture.look;
    let mut spans = Vec::new();
    if picture.state.is_paused {
        spans.push(Span::styled("PAUSED", look.warning()));
        spans.push(Span::raw("  "));
    }
    if !position.is_empty() {
        spans.push(Span::raw(format!("{position}  ")));
    }
    for (key, effect) in [("q", "quit"), ("s", "sort"), ("r", "reverse"), ("p", "pause"), ("h", "help")] {
        spans.push(Span::styled(key, look.strong()));
        spans.push(Span::styled(format!(" {effect}  "), look.label()));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests;
