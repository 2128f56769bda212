//! Tests of whole imports into a store.

use super::*;
use crate::services::readers::export::export;
use crate::services::testing::KEY;
use carom_model::destination::long_url::Authority;
use carom_model::domains::{Domains, UnknownHost};
use carom_model::link::record::Tombstone;
use carom_model::link::{Origin, Version};
use carom_model::replication::State;
use carom_model::replication::rules::{self, Verdict};
use carom_model::testing::tombstone;
use carom_shards::{CodeSecret, CodeSpace};
use std::path::Path;

fn setup(dir: &Path) -> ImportSetup {
    ImportSetup {
        of_fleet: false,
        links: Links::open(&dir.join("links"), KEY).unwrap().0,
        data_dir: dir.to_owned(),
        space: CodeSpace::new(&CodeSecret::from_bytes([1; 32])),
        length: CodeLength::DEFAULT,
        dry_run: false,
        moving: None,
        own: vec![Authority::of("http://127.0.0.1:8080").unwrap()],
        domains: Domains::new("https://s.test", &[], false, UnknownHost::NotFound),
        threads: 2,
        total_bytes: None,
        terminal: false,
    }
}

fn run(setup: &ImportSetup, mut input: &[u8]) -> (ImportSummary, String) {
    let mut messages = Vec::new();
    let summary = import(setup, &mut input, &mut messages, None).unwrap();
    (summary, String::from_utf8(messages).unwrap())
}

fn counts(summary: &ImportSummary) -> (u64, u64, u64) {
    (summary.taken, summary.unchanged, summary.refused)
}

/// Returns enough lines for several chunks.
fn many(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for number in 0..count {
        writeln!(
            out,
            r#"{{"shortCode":"c{number:07}","longUrl":"https://example.org/{number}/{}","dateCreated":"2026-01-02T03:04:05+00:00"}}"#,
            "x".repeat(number % 200)
        )
        .unwrap();
    }
    out
}

#[test]
fn an_import_can_be_repeated_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let first = setup(&dir.path().join("a"));
    let input = many(20_000);
    assert_eq!(counts(&run(&first, &input).0), (20_000, 0, 0));
    drop(first);
    let first = setup(&dir.path().join("a"));
    assert_eq!(counts(&run(&first, &input).0), (0, 20_000, 0));
    let (mut exported, mut messages) = (Vec::new(), Vec::new());
    let summary = export(&first.links, 2, &mut exported, &mut messages, false).unwrap();
    assert!(summary.is_complete());
    assert_eq!(summary.links, 20_000);
    // An empty store takes the whole export, and exporting it again gives the same bytes.
    let second = setup(&dir.path().join("b"));
    assert_eq!(counts(&run(&second, &exported).0), (20_000, 0, 0));
    let mut again = Vec::new();
    export(&second.links, 3, &mut again, &mut messages, false).unwrap();
    assert!(again == exported);
}

#[test]
fn bad_lines_are_named_and_the_rest_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path());
    let input = b"\xef\xbb\xbf{\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/1\"}\r\n\n\
        not json\n\
        {\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/2\"}\n\
        {\"shortCode\":\"abc\",\"longUrl\":\"https://example.org/1\"}\n\
        {\"longUrl\":\"http://127.0.0.1:8080/abc\"}\n\
        {\"longUrl\":\"https://example.org/3\"}";
    let (summary, messages) = run(&setup, input);
    assert_eq!(counts(&summary), (2, 1, 3));
    for start in ["line 3: not a JSON object", "line 4: shortCode belongs to another", "line 6: longUrl points to this"]
    {
        assert!(messages.contains(start), "{messages}");
    }
    assert!(!summary.is_complete());
    assert!(messages.contains("imported 2 links, 1 unchanged, 3 rejected"), "{messages}");
}

#[test]
fn a_dry_run_decides_alike_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(dir.path());
    setup.dry_run = true;
    let mut input = many(20_000);
    input.extend(many(20_000));
    input.extend(b"{\"shortCode\":\"c0000001\",\"longUrl\":\"https://example.org/other\"}\n");
    input.extend(b"{\"longUrl\":\"https://example.org/3\"}\n");
    for sorted_bytes in [1, IMPORT_SORTED_BYTES] {
        let mut messages = Vec::new();
        let summary = import_by(sorted_bytes, &setup, &mut &input[..], &mut messages, None).unwrap();
        assert_eq!(counts(&summary), (20_001, 20_000, 1));
        let messages = String::from_utf8(messages).unwrap();
        assert!(messages.contains("dry run: would import 20,001 links"), "{messages}");
    }
    assert!(setup.links.get(&Code::parse(b"c0000001").unwrap()).unwrap().is_none());
    assert_eq!(setup.links.high_water(7).unwrap(), 0);
    setup.dry_run = false;
    assert_eq!(counts(&run(&setup, &input).0), (20_001, 20_000, 1));
}

#[test]
fn failed_merge_is_a_note() {
    let mut messages = Vec::new();
    note_unmerged(&StoreError::Failed("no space left".to_owned()), &mut messages);
    let messages = String::from_utf8(messages).unwrap();
    assert!(messages.contains("no space left"), "{messages}");
    assert!(messages.contains("all links are stored"), "{messages}");
}

#[test]
fn visits_come_along_once() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path());
    let line = |code: &str, total: u64| {
        format!(
            "{{\"shortCode\":\"{code}\",\"longUrl\":\"https://example.org/\",\"dateCreated\":\"2026-01-02T03:04:05Z\",\
             \"visitsSummary\":{{\"total\":{total},\"bots\":1}}}}\n"
        )
    };
    let input = line("a", 5) + &line("b", 0) + &line("c", 7);
    let (summary, messages) = run(&setup, input.as_bytes());
    assert_eq!((counts(&summary), summary.visits), ((3, 0, 0), 12));
    assert!(messages.contains("imported 3 links with 12 visits"), "{messages}");
    let (again, _) = run(&setup, input.as_bytes());
    assert_eq!((counts(&again), again.visits), ((0, 3, 0), 0));
    let rows = setup.links.visits_of(&carom_model::visits::tally::Subject::All.name()).unwrap();
    let history = carom_model::visits::history::VisitHistory::decode(&rows[0].value).unwrap();
    assert_eq!(history.all.counts, VisitCounts { total: 12, bots: 2 });
}

#[test]
fn free_slugs_of_a_fleet_are_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(dir.path());
    setup.of_fleet = true;
    let code = |number: usize| Code::parse(format!("c{number:07}").as_bytes()).unwrap();
    let gone = |number: usize| {
        // The deleted links came from another import.
        let version = Version { rev: 1, ..Version::default() };
        let mut record = Vec::new();
        State::Gone(Tombstone { origin: Origin::Custom, version, ..tombstone() }).to_record(&code(number), &mut record);
        record
    };
    let count = 30_000;
    let records: Vec<_> = (0..count).map(|number| (CodeSortKey::new(&code(number)), gone(number))).collect();
    setup.links.ingest(records.iter().map(|(key, record)| (key.bytes(), &record[..]))).unwrap();
    // With every chunk a generation, codes are looked up again.
    let summary = import_by(1, &setup, &mut &many(count)[..], &mut Vec::new(), None).unwrap();
    assert_eq!(counts(&summary), (count as u64, 0, 0));
    for number in [0, count - 1] {
        let tombstone = State::from_value(code(number), &gone(number)).unwrap();
        let stored = setup.links.get(&code(number)).unwrap().unwrap();
        let state = State::from_value(code(number), &stored).unwrap();
        assert_eq!(
            rules::offer(Some(&tombstone), &state),
            Verdict::Accepted(state),
            "{number}: Redis keeps the tombstone"
        );
    }
}

#[test]
fn reports_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let (summary, messages) = run(&setup(dir.path()), "x\n".repeat(1_500).as_bytes());
    assert_eq!(summary.refused, 1_500);
    assert_eq!(messages.lines().count(), IMPORT_REPORTS_MAX as usize + 2);
}

#[test]
fn lines_without_a_code_get_issued_ones_above_the_mark() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path());
    let input = "{\"longUrl\":\"https://example.org/\"}\n".repeat(30_000);
    assert_eq!(counts(&run(&setup, input.as_bytes()).0), (30_000, 0, 0));
    let mark = setup.links.high_water(7).unwrap();
    assert!(mark >= 30_000);
    assert_eq!(counts(&run(&setup, input.as_bytes()).0), (30_000, 0, 0));
    assert!(setup.links.high_water(7).unwrap() >= mark + 30_000);
    let mut exported = Vec::new();
    export(&setup.links, 1, &mut exported, &mut Vec::new(), false).unwrap();
    let issued = memchr::memmem::find_iter(&exported, b"\"origin\":\"issued\"").count();
    assert_eq!(issued, 60_000);
}

#[test]
fn a_line_that_is_too_long_is_left_out_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = many(10);
    input.extend(std::iter::repeat_n(b'x', 3 * IMPORT_CHUNK_BYTES));
    input.push(b'\n');
    input.extend(b"bad\n");
    input.extend(b"{\"shortCode\":\"last\",\"longUrl\":\"https://example.org/\"}\n");
    let (summary, messages) = run(&setup(dir.path()), &input);
    assert_eq!(counts(&summary), (11, 0, 2));
    assert!(messages.contains("line 11: is longer"), "{messages}");
    assert!(messages.contains("line 12: not a JSON object"), "{messages}");
}

#[test]
fn the_same_code_in_chunks_far_apart_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = many(30_000);
    let again = many(30_000);
    input.extend(&again);
    input.extend(b"{\"shortCode\":\"c0000001\",\"longUrl\":\"https://example.org/other\"}\n");
    assert_eq!(counts(&run(&setup(&dir.path().join("a")), &input).0), (30_000, 30_000, 1));
    // With every chunk a generation, a code may be stored after its look-up.
    let setup = setup(&dir.path().join("b"));
    let summary = import_by(1, &setup, &mut &input[..], &mut Vec::new(), None).unwrap();
    assert_eq!(counts(&summary), (30_000, 30_000, 1));
}

#[test]
fn neighbours_with_one_code_are_noticed_across_generations() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path());
    let mut input = Vec::new();
    // Two chunks of lines for a few codes, alternating, so that look-ups run ahead of the decisions.
    for number in 0..60_000 {
        let line =
            format!("{{\"shortCode\":\"c{}\",\"longUrl\":\"https://example.org/{}\"}}\n", number % 7, number % 7);
        input.extend_from_slice(line.as_bytes());
    }
    let summary = import_by(1, &setup, &mut &input[..], &mut Vec::new(), None).unwrap();
    assert_eq!(counts(&summary), (7, 59_993, 0));
}
