//! The facts of the picture, each a label with a value, and how they flow into lines.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::columns::UNKNOWN;
use super::super::picture::{Outage, Picture, PictureStyle};
use super::super::snapshot::{NodeState, Snapshot, Traffic};
use crate::commands::status::text::{count, grouped, span};
use crate::commands::terminal::plain;
use carom_telemetry::alarms::Severity;
use carom_telemetry::readable;

/// Columns between two facts in a line.
const GAP: usize = 3;

/// Most rows of an error.
const ERROR_ROWS: usize = 4;

/// A label with a value. It stays in one line.
pub(super) struct Fact {
    spans: Vec<Span<'static>>,
}

impl Fact {
    fn new(label: &'static str, value: impl Into<String>, label_style: Style, value_style: Style) -> Fact {
        let value = Span::styled(value.into(), value_style);
        if label.is_empty() {
            return Fact { spans: vec![value] };
        }
        Fact { spans: vec![Span::styled(label, label_style), Span::raw(" "), value] }
    }

    fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }
}

/// Arranges facts in lines of at most this width. A wider fact has a line of its own, which is cut.
pub(super) fn flow(facts: Vec<Fact>, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
    let mut used = 0;
    for fact in facts {
        let more = fact.width();
        match lines.last_mut() {
            Some(line) if used + GAP + more <= width => {
                line.push(Span::raw(" ".repeat(GAP)));
                line.extend(fact.spans);
                used += GAP + more;
            }
            _ => {
                lines.push(fact.spans);
                used = more;
            }
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// Breaks a text into at most so many lines of this width. The last one ends with an ellipsis if the text is longer.
pub(super) fn wrapped(text: &str, width: usize, rows: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let has_room = |line: &String| line.chars().count() + 1 + word.chars().count() <= width;
        if lines.last().is_some_and(has_room) {
            if let Some(line) = lines.last_mut() {
                line.push(' ');
                line.push_str(word);
            }
            continue;
        }
        if lines.len() == rows {
            if let Some(line) = lines.last_mut() {
                *line = line.chars().take(width.saturating_sub(2)).collect::<String>() + " …";
            }
            break;
        }
        lines.push(word.to_owned());
    }
    lines
}

/// Returns the lines that say which node this is and how it is.
pub(super) fn header(picture: &Picture<'_>, width: usize) -> Vec<Line<'static>> {
    let look = picture.look;
    let mut facts = Vec::new();
    match picture.snapshot {
        Some(snapshot) => {
            facts.push(Fact::new("carom", snapshot.version.clone(), look.strong(), look.strong()));
            facts.push(state(snapshot, picture.outage, look));
            facts.push(Fact::new("up", span(snapshot.uptime_seconds), look.label(), Style::new()));
        }
        None if picture.outage.is_none() => facts.push(Fact::new("", "connecting …", look.label(), look.strong())),
        None => facts.push(Fact::new("", "NO ANSWER", look.label(), look.bad())),
    }
    facts.push(Fact::new("", plain(picture.url), look.label(), Style::new()));
    let mut lines = flow(facts, width);
    if let Some(outage) = picture.outage {
        lines.extend(outage_lines(outage, look, width));
    }
    if let Some(snapshot) = picture.snapshot {
        lines.extend(flow(health(snapshot, look), width));
    }
    lines
}

fn state(snapshot: &Snapshot, outage: Option<Outage<'_>>, look: PictureStyle) -> Fact {
    let (text, style) = match (outage, snapshot.state) {
        (Some(_), _) => ("NO ANSWER", look.bad()),
        (None, NodeState::Ready) => ("ready", look.good()),
        (None, NodeState::Starting) => ("starting", look.warning()),
        (None, NodeState::Draining) => ("draining", look.warning()),
    };
    Fact::new("", text, look.label(), style)
}

fn outage_lines(outage: Outage<'_>, look: PictureStyle, width: usize) -> Vec<Line<'static>> {
    let age = readable::duration(outage.age.as_secs());
    let what = format!("No answer for {age}; next try within a second. {}", plain(outage.what));
    let what = wrapped(&what, width, ERROR_ROWS).into_iter().map(|line| Line::styled(line, look.warning()));
    let remedy = wrapped(&format!("What to do: {}", plain(outage.remedy)), width, ERROR_ROWS);
    what.chain(remedy.into_iter().map(Line::from)).collect()
}

/// Returns what is loaded, whether writes are accepted, and the state of the disk, of Redis and of the alarms.
fn health(snapshot: &Snapshot, look: PictureStyle) -> Vec<Fact> {
    let mut facts = vec![Fact::new("links", links(snapshot), look.label(), look.strong())];
    let queued = count(snapshot.write_queue, "write");
    facts.push(if snapshot.is_writable {
        Fact::new("store", format!("accepting writes, {queued} queued"), look.label(), Style::new())
    } else {
        Fact::new("store", format!("REFUSING WRITES, {queued} queued"), look.label(), look.bad())
    });
    if let Some((free, size)) = snapshot.disk {
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        let text = format!("{:.1} of {:.1} GiB free", gib(free), gib(size));
        facts.push(Fact::new("disk", text, look.label(), Style::new()));
    }
    if let Some(fleet) = &snapshot.fleet {
        let (text, style) = if fleet.is_connected { ("connected", look.good()) } else { ("UNAVAILABLE", look.bad()) };
        facts.push(Fact::new("Redis", text, look.label(), style));
        let text = format!(
            "{}, lag {} ms, {}",
            readable::count(fleet.nodes as u64, "node"),
            grouped(fleet.lag_ms),
            count(fleet.unsynced, "unsynced change"),
        );
        facts.push(Fact::new("fleet", text, look.label(), Style::new()));
        if let Some(site) = &fleet.site {
            let style = if site.is_current { look.good() } else { look.bad() };
            facts.push(Fact::new("site", format!("{} {}", site.other, site.contact), look.label(), style));
        }
    }
    if let Some(bypass) = &snapshot.bypass {
        facts.push(match &bypass.obstacle {
            None => Fact::new("bypass", bypass.interface.clone(), look.label(), look.good()),
            Some(_) => Fact::new("bypass", format!("NOT IN USE on {}", bypass.interface), look.label(), look.warning()),
        });
    }
    facts.push(alarms(snapshot, look));
    facts
}

fn links(snapshot: &Snapshot) -> String {
    let mib = |bytes: f64| grouped(bytes / f64::from(1 << 20));
    let limit = snapshot.memory_limit.map(|limit| format!(" of {}", mib(limit))).unwrap_or_default();
    format!("{} in {}{limit} MiB", grouped(snapshot.links), mib(snapshot.memory))
}

fn alarms(snapshot: &Snapshot, look: PictureStyle) -> Fact {
    let severities = [Severity::Critical, Severity::Warning, Severity::Notice];
    let counts = severities.map(|severity| (severity, snapshot.count_of(severity)));
    let active: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| match severity {
            Severity::Critical => format!("{count} critical"),
            of => readable::count(*count as u64, of.name()),
        })
        .collect();
    let worst = counts.iter().find(|(_, count)| *count > 0);
    match worst {
        None => Fact::new("alarms", "none", look.label(), look.good()),
        Some((severity, _)) => Fact::new("alarms", active.join(", "), look.label(), look.of(*severity)),
    }
}

/// Returns the numbers of the whole node.
pub(super) fn totals(snapshot: &Snapshot, look: PictureStyle) -> Vec<Fact> {
    let totals = &snapshot.totals;
    let number = |number: Option<f64>| number.map_or_else(|| UNKNOWN.to_owned(), grouped);
    let latency = |micros: Option<f64>| micros.map_or_else(|| UNKNOWN.to_owned(), readable::latency);
    let traffic = |of: fn(&Traffic) -> f64| totals.traffic.as_ref().map(of);
    let fact = |label, value: String| Fact::new(label, value, look.label(), look.strong());
    let has_errors = totals.traffic.is_some_and(|traffic| traffic.errors > 0.0);
    let errors = totals.traffic.map_or_else(|| UNKNOWN.to_owned(), error_share);
    vec![
        fact("requests/s", number(traffic(|traffic| traffic.requests))),
        fact("p50", latency(totals.latency.map(|latency| latency.p50))),
        fact("p99", latency(totals.latency.map(|latency| latency.p99))),
        fact("p99.9", latency(totals.latency.map(|latency| latency.p999))),
        Fact::new("errors", errors, look.label(), if has_errors { look.bad() } else { look.strong() }),
        fact("not found/s", number(traffic(|traffic| traffic.not_found))),
        fact("refused/s", number(traffic(|traffic| traffic.refused))),
        fact("link writes/s", number(totals.writes)),
        fact("API/s", number(totals.api)),
        fact("connections", grouped(totals.connections)),
    ]
}

/// Returns the share of requests that failed, in percent.
fn error_share(traffic: Traffic) -> String {
    let percent = 100.0 * traffic.errors / traffic.requests.max(f64::MIN_POSITIVE);
    if traffic.errors == 0.0 {
        "0%".to_owned()
    } else if percent < 0.01 {
        "<0.01%".to_owned()
    } else {
        format!("{percent:.2}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_flow_into_lines() {
        let fact = |value: &str| Fact::new("a", value, Style::new(), Style::new());
        let lines = |width| -> Vec<String> {
            flow(vec![fact("12"), fact("34"), fact("56")], width).iter().map(ToString::to_string).collect()
        };
        assert_eq!(lines(80), ["a 12   a 34   a 56"]);
        assert_eq!(lines(11), ["a 12   a 34", "a 56"]);
        assert_eq!(lines(0), ["a 12", "a 34", "a 56"]);
    }

    #[test]
    fn texts_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two three", 7, 1), ["one t …"]);
        assert_eq!(wrapped("one two", 1, 2), ["one", "two"]);
        assert_eq!(wrapped("", 7, 1), Vec::<String>::new());
        assert_eq!(wrapped("one", 7, 0), Vec::<String>::new());
    }

    #[test]
    fn error_shares_are_never_rounded_to_nothing() {
        let share = |errors, requests| error_share(Traffic { errors, requests, ..Traffic::default() });
        assert_eq!(share(0.0, 0.0), "0%");
        assert_eq!(share(1.0, 1_000_000.0), "<0.01%");
        assert_eq!(share(5.0, 1_000.0), "0.50%");
    }
}
