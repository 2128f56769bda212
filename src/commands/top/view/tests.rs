//! Pictures at several sizes.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::super::columns::{Column, RowOrder};
use super::super::picture::Outage;
use super::super::state::ViewState;
use super::*;

const URL: &str = "http://127.0.0.1:8081/status";

/// Sizes of terminals, from a wide one down to a single cell.
const SIZES: [(u16, u16); 9] = [(200, 60), (120, 40), (80, 24), (79, 23), (60, 15), (40, 10), (20, 5), (10, 2), (1, 1)];

fn status(cores: usize, redirects: u64, alarms: &Value) -> Value {
    let core = |core: usize| {
        json!({
            "core": core, "cpu": 2 * core, "links": 1_500, "connections": 7 + core, "redirects": redirects * (core as u64 + 1),
            "misses": 0, "codes": {"remaining": 60}, "latencyMicros": {"stepsNanos": [[20_000, redirects]]},
        })
    };
    json!({
        "version": "9.9.9", "ready": true, "uptimeSeconds": 61, "links": 1_500,
        "residency": {"memoryBytes": 3 << 20, "memoryLimitBytes": null},
        "store": {"update": redirects, "writable": true, "queue": 2},
        "dataDir": {"freeBytes": 3_u64 << 30, "sizeBytes": 8_u64 << 30},
        "redis": {"configured": true, "connected": false}, "fleet": {"nodes": [1, 2, 3], "lagMillis": 5, "outbox": 1},
        "cores": (0..cores).map(core).collect::<Vec<_>>(), "alarms": alarms,
        "pulse": {"redirects": [(0..120).collect::<Vec<u64>>()], "misses": []},
    })
}

fn snapshot(cores: usize, alarms: &Value) -> Snapshot {
    let before = status(cores, 1_000, alarms);
    Snapshot::new(Some((&before, Duration::from_secs(1))), &status(cores, 3_000, alarms))
}

fn alarm(name: &str, text: &str) -> Value {
    json!({"name": name, "since": "2026-01-01T00:00:00Z", "cleared": null, "text": text})
}

fn render(size: (u16, u16), picture: &Picture<'_>) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, picture)).unwrap();
    terminal.backend().buffer().clone()
}

/// The rows of a picture, without spaces at their ends.
fn rows(size: (u16, u16), picture: &Picture<'_>) -> Vec<String> {
    let buffer = render(size, picture);
    let row = |cells: &[Cell]| -> String { cells.iter().map(Cell::symbol).collect() };
    buffer.content.chunks(usize::from(size.0)).map(|cells| row(cells).trim_end().to_owned()).collect()
}

fn picture<'a>(snapshot: Option<&'a Snapshot>, state: &'a ViewState) -> Picture<'a> {
    Picture { url: URL, snapshot, outage: None, state, look: PictureStyle::new(false) }
}

#[test]
fn usual_terminal_shows_every_part() {
    let (snapshot, state) = (snapshot(4, &json!([])), ViewState::default());
    let rows = rows((80, 24), &picture(Some(&snapshot), &state));
    let page = rows.join("\n");
    assert_eq!(rows[0], "carom 9.9.9   ready   up 1 min 1 s   http://127.0.0.1:8081/status");
    for part in [
        "links 1,500 in 3 MiB",
        "store accepting writes, 2 writes queued",
        "disk 3.0 of 8.0 GiB free",
        "Redis UNAVAILABLE",
        "fleet 3 nodes, lag 5 ms, 1 unsynced change",
        "alarms none",
        "requests/s 20,000",
        "p50 20 µs   p99 20 µs   p99.9 20 µs",
        "errors 0%",
        "link writes/s 2,000",
        "connections 34",
        "requests/s of the last 2 min, at most 119",
        "core▲  CPU  requests/s    p99  connections  links",
        "    3    6       8,000  20 µs           10  1,500",
    ] {
        assert!(page.contains(part), "{part}:\n{page}");
    }
    assert_eq!(rows[23], "q quit  s sort  r reverse  p pause  h help");
    assert!(page.contains('█'), "{page}");
}

#[test]
fn every_size_is_drawn_without_a_panic() {
    let text = "A long text about a disk that is nearly full. Free some space, or enlarge the volume. ".repeat(4);
    let many: Vec<Value> =
        ["disk_full", "redis_away", "conflict", "codes_used_up"].iter().map(|name| alarm(name, &text)).collect();
    let snapshots = [snapshot(0, &json!([])), snapshot(1, &json!(many)), snapshot(128, &json!(many))];
    let outage = Outage { what: &text, remedy: &text, age: Duration::from_secs(99) };
    for size in SIZES {
        for shows_help in [false, true] {
            let state = ViewState { shows_help, is_paused: true, first: 1_000, ..ViewState::default() };
            for snapshot in snapshots.iter().map(Some).chain([None]) {
                for outage in [None, Some(outage)] {
                    render(size, &Picture { outage, ..picture(snapshot, &state) });
                }
            }
        }
    }
}

#[test]
fn narrow_terminals_keep_lines_apart() {
    let (snapshot, state) =
        (snapshot(2, &json!([alarm("disk_full", "The disk is full. Free some space.")])), ViewState::default());
    for size in [(80, 24), (60, 24), (40, 24)] {
        let rows = rows(size, &picture(Some(&snapshot), &state));
        let begins = |start: &str| rows.iter().filter(|row| row.starts_with(start)).count();
        for start in ["carom 9.9.9", "critical disk_full", "  The disk is full.", "requests/s 6,000", "core▲", "q quit"]
        {
            assert_eq!(begins(start), 1, "{start}: {rows:#?}");
        }
    }
}

#[test]
fn alarms_show_the_most_severe_first() {
    let alarms: Vec<Value> =
        ["redis_away", "conflict", "disk_full"].iter().map(|name| alarm(name, "Do this.")).collect();
    let (snapshot, state) = (snapshot(1, &json!(alarms)), ViewState::default());
    let page = rows((100, 40), &picture(Some(&snapshot), &state)).join("\n");
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}:\n{page}"));
    assert!(at("alarms 1 critical, 2 warnings") < at("critical disk_full since 2026"), "{page}");
    assert!(at("critical disk_full") < at("warning conflict"));
    assert!(at("warning conflict") < at("warning redis_away"));
    let low = rows((100, 12), &picture(Some(&snapshot), &state)).join("\n");
    assert!(low.contains("critical disk_full"), "{low}");
    assert!(low.contains("2 more alarms; `carom status` shows all"), "{low}");
}

#[test]
fn many_cores_scroll() {
    let snapshot = snapshot(64, &json!([]));
    let mut state = ViewState { first: 9, ..ViewState::default() };
    let page = rows((80, 24), &picture(Some(&snapshot), &state)).join("\n");
    assert!(page.contains("cores 10 to "), "{page}");
    assert!(page.contains(" of 64  q quit"), "{page}");
    state.first = 63;
    state.sort = RowOrder { by: Column::Requests, is_reversed: false };
    let rows = rows((80, 24), &picture(Some(&snapshot), &state));
    assert!(rows[23].contains("to 64 of 64"), "{rows:#?}");
    // The core with the fewest requests is the last one.
    assert!(rows[22].trim_start().starts_with("0 "), "{rows:#?}");
}

#[test]
fn missing_data_is_said() {
    let state = ViewState { is_paused: true, ..ViewState::default() };
    let page = |picture: &Picture<'_>| rows((80, 24), picture).join("\n");
    let connecting = page(&picture(None, &state));
    assert!(connecting.contains("connecting …"), "{connecting}");
    assert!(connecting.contains(URL), "{connecting}");
    let outage =
        Outage { what: "the connection was refused", remedy: "check that the node runs", age: Duration::from_secs(61) };
    let lost = page(&Picture { outage: Some(outage), ..picture(None, &state) });
    for part in [
        "NO ANSWER",
        "No answer for 1 min 1 s",
        "the connection was refused",
        "What to do: check that the node runs",
        "PAUSED",
    ] {
        assert!(lost.contains(part), "{part}:\n{lost}");
    }
    let first = Snapshot::new(None, &status(1, 5, &json!([])));
    let first = page(&picture(Some(&first), &state));
    assert!(first.contains("requests/s –"), "{first}");
    assert!(first.contains("p99 –"), "{first}");
    assert!(first.contains("links 1,500"), "{first}");
    let empty = Snapshot::new(None, &json!({}));
    assert!(page(&picture(Some(&empty), &state)).contains("starting"));
}

#[test]
fn other_site_is_shown_where_there_is_one() {
    let state = ViewState::default();
    let page = |site: Value| {
        let mut status = status(1, 5, &json!([]));
        status["fleet"]["site"] = site;
        let snapshot = Snapshot::new(None, &status);
        rows((80, 24), &picture(Some(&snapshot), &state)).join("\n")
    };
    let site =
        |current: bool| page(json!({"name": "berlin", "other": "lisbon", "current": current, "lagMillis": 2_000}));
    assert!(site(true).contains("site lisbon current, lag 2,000 ms"), "{}", site(true));
    assert!(site(false).contains("site lisbon NO CONTACT for 2 s"), "{}", site(false));
    assert!(!page(Value::Null).contains("site "), "a fleet of one site");
}

#[test]
fn help_explains_keys_and_columns() {
    let state = ViewState { shows_help: true, ..ViewState::default() };
    let snapshot = snapshot(1, &json!([]));
    let page = rows((80, 40), &picture(Some(&snapshot), &state)).join("\n");
    for part in
        ["q, Esc, Ctrl-C    quit", "sort the cores by the next column", "requests answered with 503", "kernel bypass"]
    {
        assert!(page.contains(part), "{part}:\n{page}");
    }
}

#[test]
fn colours_are_a_choice() {
    let (snapshot, state) = (snapshot(1, &json!([alarm("disk_full", "Full.")])), ViewState::default());
    let has_colours = |look| {
        let buffer = render((80, 24), &Picture { look, ..picture(Some(&snapshot), &state) });
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colours(PictureStyle::new(true)));
    assert!(!has_colours(PictureStyle::new(false)));
}

#[test]
fn graph_fits_the_width() {
    assert_eq!(fitted(&[1, 5, 2, 3, 4], 3), [1, 5, 4]);
    assert_eq!(fitted(&[1, 2], 5), [1, 1, 2, 2]);
    assert_eq!(fitted(&[1, 2], 0), Vec::<u64>::new());
    assert_eq!(fitted(&[], 5), Vec::<u64>::new());
}
