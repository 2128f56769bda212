//! Texts and tables from the JSON of a status, for `carom status` and `carom top`.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

pub(super) use crate::commands::terminal::plain;
use carom_telemetry::readable;

/// Character cells between two columns of a table.
const GAP: &str = "  ";

/// Writes a table and an empty line. All rows have the same number of columns. Columns that do not fit the width follow in
/// a further table, with the first column again. Without a width, all are in one.
pub(super) fn write_table(page: &mut String, rows: &[Vec<String>], width: Option<usize>) {
    let longest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(longest).collect();
    let Some(first) = widths.first() else { return };
    let mut begin = 1;
    loop {
        let (mut end, mut len) = (begin, *first);
        // At least one column, so that this ends.
        while end < widths.len() && (end == begin || width.is_none_or(|most| len + GAP.len() + widths[end] <= most)) {
            len += GAP.len() + widths[end];
            end += 1;
        }
        for row in rows {
            let columns = std::iter::once(0).chain(begin..end);
            let cells: Vec<String> = columns.map(|column| format!("{:>1$}", row[column], widths[column])).collect();
            let _ = writeln!(page, "{}", cells.join(GAP));
        }
        page.push('\n');
        if end >= widths.len() {
            return;
        }
        begin = end;
    }
}

/// Returns the sentences about an alarm: what has happened, the cause, and what to do. A node of an older version has one text.
pub(in crate::commands) fn alarm_texts(alarm: &Value) -> Vec<String> {
    let message = alarm["message"].as_str().or(alarm["text"].as_str());
    [message, alarm["cause"].as_str(), alarm["remedy"].as_str()].into_iter().flatten().map(plain).collect()
}

pub(in crate::commands) fn cores(status: &Value) -> &[Value] {
    status["cores"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(in crate::commands) fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Returns the increase per second; 0 if the node restarted in between.
pub(in crate::commands) fn rate(before: f64, now: f64, time: Duration) -> f64 {
    ((now - before) / time.as_secs_f64().max(1e-3)).max(0.0)
}

/// Formats a number without decimals.
pub(in crate::commands) fn grouped(number: f64) -> String {
    readable::grouped(number.round().max(0.0) as u64)
}

/// A number without decimals, with its noun.
pub(in crate::commands) fn count(number: f64, one: &str) -> String {
    readable::count(number.round().max(0.0) as u64, one)
}

/// Describes the contact of a site to the other one, of a fleet with two. `site` is `fleet.site` of a status.
pub(in crate::commands) fn contact(site: &Value) -> String {
    if site["mayLack"] == true {
        return "MAY LACK LINKS".to_owned();
    }
    match (site["current"] == true, site["lagMillis"].as_f64()) {
        (true, Some(lag)) => format!("current, lag {} ms", grouped(lag)),
        (true, None) => "current".to_owned(),
        (false, Some(lag)) => format!("NO CONTACT for {}", span(lag / 1_000.0)),
        (false, None) => "NO CONTACT since the start".to_owned(),
    }
}

/// Formats a time in its two largest units.
pub(in crate::commands) fn span(seconds: f64) -> String {
    readable::duration(seconds.max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tables_continue_below() {
        let rows = [["core", "links", "µs"], ["0", "1,234", "5"]].map(|row| row.map(str::to_owned).to_vec());
        let table = |width: Option<usize>| {
            let mut page = String::new();
            write_table(&mut page, &rows, width);
            page
        };
        assert_eq!(table(None), "core  links  µs\n   0  1,234   5\n\n");
        assert_eq!(table(Some(15)), table(None));
        let parts = "core  links\n   0  1,234\n\ncore  µs\n   0   5\n\n";
        assert_eq!((table(Some(14)), table(Some(1))), (parts.to_owned(), parts.to_owned()));
        let mut page = String::new();
        write_table(&mut page, &[], None);
        assert_eq!(page, "");
    }
}
