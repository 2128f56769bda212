//! Tests of the log without its threads.

mod fleet;

use std::sync::mpsc::sync_channel;

use super::query::LinkVerdicts;
use super::upkeep::Upkeep;
use super::*;
use crate::bridge::visit_log::{
    LoggedPart, VisitDeletion, VisitFilter, VisitLogRequest, VisitLogSender, VisitPage, VisitQuery, VisitSelection,
    ring,
};
use crate::services::testing::TestNode;
use carom_model::visits::raw::RawVisit;
use carom_model::visits::record::LoggedKind;
use carom_shards::Code;

const DAY_MS: u64 = 24 * 3_600_000;

fn code(number: u64) -> Code {
    Code::parse(format!("c{number}").as_bytes()).unwrap()
}

/// Sends a visit of a link, or an orphan visit.
fn send(sender: &mut VisitLogSender, of: Option<Code>, at_ms: u64) {
    send_by(sender, of, at_ms, &format!("agent {at_ms}"));
}

/// Sends the visit of a user agent.
fn send_by(sender: &mut VisitLogSender, of: Option<Code>, at_ms: u64, agent: &str) {
    let kind = if of.is_some() { LoggedKind::Link } else { LoggedKind::InvalidShortUrl };
    let request = RequestPart { agent: agent.as_bytes(), host: b"a.example", ..RequestPart::default() };
    let (is_secure, forwards, is_bot, target) = (false, false, false, &b"https://example.org/"[..]);
    let visit = RawVisit { at_ms, kind, is_secure, forwards, is_bot, code: of, target };
    assert!(sender.send(&visit, &LoggedPart::Present(request)));
}

/// A log without threads.
fn log(node: &TestNode, dir: &Path, terms: VisitLogTerms) -> (Arc<VisitLogState>, VisitLogWriter, VisitLogSender) {
    log_in(node, dir, terms, LogSharing::Alone)
}

/// A log without threads, and its part in a fleet.
fn log_in(
    node: &TestNode,
    dir: &Path,
    terms: VisitLogTerms,
    mode: LogSharing,
) -> (Arc<VisitLogState>, VisitLogWriter, VisitLogSender) {
    let (sender, receiver) = ring(false);
    let stats = Arc::clone(&node.stats);
    let (state, seq) = read_back(dir, &stats, mode).unwrap();
    let intake = Mutex::new(LogIntake { receivers: vec![receiver], pending: Vec::new(), visits: 0 });
    let (state, links) = (Mutex::new(state), node.links.clone());
    let (wants_seal, drops_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    let (dir, geo, sharing) = (dir.to_owned(), GeoSlot::default(), Sharing::new(mode));
    let shared =
        Arc::new(VisitLogState { dir, terms, links, geo, stats, sharing, intake, state, wants_seal, drops_sent });
    let writer = VisitLogWriter::open(Arc::clone(&shared), seq).unwrap();
    (shared, writer, sender)
}

fn forever() -> VisitLogTerms {
    VisitLogTerms { addresses: VisitAddresses::None, keep: None, keep_bytes: u64::MAX, are_events: false }
}

/// A page of visits.
fn page(shared: &VisitLogState, selection: VisitSelection, (skip, take): (u64, usize)) -> VisitPage {
    let filter = VisitFilter { selection, start_ms: 0, end_ms: u64::MAX, without_bots: false, conditions: Vec::new() };
    let page = query::run(shared, &shared.contents(), &VisitQuery { filter, skip, take });
    assert!(page.complete);
    page
}

/// The instants of a page of visits, and their number.
fn asked(shared: &VisitLogState, selection: VisitSelection, bounds: (u64, usize)) -> (Vec<u64>, u64) {
    let page = page(shared, selection, bounds);
    let times = page.records.iter().map(|bytes| VisitRecord::take(&mut &bytes[..]).unwrap().at_ms);
    (times.collect(), page.total)
}

#[test]
fn visits_of_a_link_are_found_in_all_segments() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let (shared, mut writer, mut sender) = log(&node, dir.path(), forever());
    // 30,000 visits take several blocks of each segment.
    let begun_ms = unix_ms();
    for segment in 0..3_u64 {
        for number in 0..10_000 {
            let at_ms = begun_ms + segment * 10_000 + number;
            send(&mut sender, (number % 100 < 99).then(|| code(number % 100)), at_ms);
            if number % 1_000 == 0 {
                shared.drain();
                writer.write();
            }
        }
        shared.drain();
        shared.wants_seal.store(segment < 2, Ordering::Release);
        writer.write();
    }
    assert_eq!(locked(&shared.state).sealed.len(), 2);
    let of_link = |number| VisitSelection::Link { code: code(number), since_ms: 0 };
    for number in [0, 7, 98] {
        let (first, total) = asked(&shared, of_link(number), (0, 250));
        assert_eq!((first.len(), total), (250, 300));
        assert!(first.is_sorted_by(|one, next| one > next));
        let (rest, _) = asked(&shared, of_link(number), (250, 250));
        assert_eq!(rest.len(), 50);
        assert!(rest[0] < first[249]);
    }
    assert_eq!(asked(&shared, of_link(99), (0, 10)).1, 0);
    let orphans = |kind, host: Option<&str>| VisitSelection::Orphans { kind, host: host.map(Into::into) };
    assert_eq!(asked(&shared, orphans(None, None), (0, 10)).1, 300);
    assert_eq!(asked(&shared, orphans(Some(LoggedKind::BaseUrl), None), (0, 10)).1, 0);
    assert_eq!(asked(&shared, orphans(None, Some("other.example")), (0, 10)).1, 0);
    // A restart finds the same.
    drop(writer);
    let (again, _writer, _sender) = log(&node, dir.path(), forever());
    let all = (0, usize::MAX);
    assert_eq!(asked(&again, of_link(7), all), asked(&shared, of_link(7), all));
    // Links that do not exist have no visits in lists of several links.
    assert!(!LinkVerdicts::new(&node.links).has(&code(7), u64::MAX, true, |_| true));
    let scope = carom_model::access::Scope::ALL;
    assert_eq!(asked(&again, VisitSelection::Links { scope, tag: None }, (0, 10)).1, 0);
}

#[test]
fn pages_are_right_without_all_matches_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let (shared, mut writer, mut sender) = log(&node, dir.path(), forever());
    let begun_ms = unix_ms();
    for segment in 0..3_u64 {
        // All segments have the same span, and no visit the place in time of its record.
        for number in 0..9_000_u64 {
            send(&mut sender, Some(code(1)), begun_ms + (number * 7_919) % 9_000 * 3 + segment);
            if number % 1_000 == 0 {
                shared.drain();
            }
        }
        shared.drain();
        shared.wants_seal.store(segment < 2, Ordering::Release);
        writer.write();
    }
    let of_link = || VisitSelection::Link { code: code(1), since_ms: 0 };
    let (all, total) = asked(&shared, of_link(), (0, usize::MAX));
    assert_eq!((all.len(), total), (27_000, 27_000));
    assert!(all.is_sorted_by(|one, next| one > next));
    for skip in [0, 100, 20_000] {
        let page = all[skip as usize..][..50].to_vec();
        assert_eq!(asked(&shared, of_link(), (skip, 50)), (page, 27_000));
    }
    assert_eq!(asked(&shared, of_link(), (0, 0)), (vec![], 27_000));
}

#[test]
fn visits_of_one_millisecond_are_listed_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let (shared, mut writer, mut sender) = log(&node, dir.path(), forever());
    let at_ms = unix_ms();
    ["first", "second", "third"].iter().for_each(|agent| send_by(&mut sender, Some(code(1)), at_ms, agent));
    for is_sealed in [false, true] {
        shared.drain();
        shared.wants_seal.store(is_sealed, Ordering::Release);
        writer.write();
        let page = page(&shared, VisitSelection::Link { code: code(1), since_ms: 0 }, (0, 10));
        let agent_of = |bytes: &[u8]| VisitRecord::take(&mut &bytes[..]).unwrap().request.agent.to_vec();
        let agents: Vec<Vec<u8>> = page.records.iter().map(|bytes| agent_of(bytes)).collect();
        assert_eq!(agents, [&b"third"[..], b"second", b"first"], "sealed: {is_sealed}");
    }
}

#[test]
fn old_and_too_many_segments_are_removed_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let now_ms = unix_ms();
    let fill = |terms| {
        let (shared, mut writer, mut sender) = log(&node, dir.path(), terms);
        for age in (0..10).rev() {
            send(&mut sender, Some(code(1)), now_ms - age * DAY_MS);
            shared.drain();
            shared.wants_seal.store(true, Ordering::Release);
            writer.write();
        }
        shared
    };
    let shared = fill(forever());
    let upkeep = |terms| {
        let (shared, _writer, _sender) = log(&node, dir.path(), terms);
        Upkeep::new(Arc::clone(&shared), node.mailboxes.clone()).remove_old();
        let ages = |shared: &VisitLogState| -> Vec<u64> {
            locked(&shared.state).sealed.iter().map(|segment| (now_ms - segment.max_ms) / DAY_MS).collect()
        };
        ages(&shared)
    };
    // Compressed segments differ in size by some bytes.
    let newest_four: u64 = locked(&shared.state).sealed.iter().rev().take(4).map(|segment| segment.bytes).sum();
    assert_eq!(upkeep(forever()).len(), 10);
    let keep = Some(Duration::from_millis(6 * DAY_MS + DAY_MS / 2));
    assert_eq!(upkeep(VisitLogTerms { keep, ..forever() }), [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(upkeep(VisitLogTerms { keep_bytes: newest_four, ..forever() }), [3, 2, 1, 0]);
}

#[test]
fn requests_after_the_end_of_all_senders_end_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let (shared, _writer, _sender) = log(&node, dir.path(), forever());
    let (queue, requests) = sync_channel(1);
    let ticket = crate::bridge::Ticket::new(carom_shards::CoreId(0), 1);
    queue.send(VisitLogRequest::Delete(VisitDeletion::Orphans, ticket)).unwrap();
    drop(queue);
    Upkeep::new(shared, node.mailboxes.clone()).run(&requests);
    assert!(node.mail[0].try_recv().is_ok());
}
