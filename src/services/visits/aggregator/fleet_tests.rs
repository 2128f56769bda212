//! Tests of counts that nodes exchange: two aggregators, with kills at any point.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::super::groups::Apps;
use super::fleet::Application;
use super::*;
use crate::services::testing::KEY;
use carom_limits::SNAPSHOT_NAMES_NOTED;
use carom_model::visits::batches::VisitBatch;
use carom_model::visits::count_exchange::CountsLack;
use carom_model::visits::origins::{ORIGIN_SLOTS, OriginId};
use carom_model::visits::tally::TallyRow;
use carom_model::visits::{RecordOutcome, Visit, VisitSender, ring};
use carom_store::links::{RowPlace, VisitRowPage};

const HOUR_MS: u64 = 3_600_000;

struct Node {
    id: OriginId,
    aggregator: VisitAggregator,
    sender: VisitSender,
    ended: Sender<Vec<Ended>>,
}

fn open(dir: &Path, id: u64) -> Node {
    let (links, _) = Links::open(&dir.join(format!("links-{id}")), KEY).unwrap();
    let (sender, receiver) = ring();
    let (ended, ends) = channel();
    let mut aggregator =
        VisitAggregator::open(&dir.join(format!("visits-{id}")), links, vec![receiver], ends, Arc::default()).unwrap();
    aggregator.identify(OriginId(id), &format!("n{id}")).unwrap();
    Node { id: OriginId(id), aggregator, sender, ended }
}

fn code(text: &str) -> Code {
    Code::parse(text.as_bytes()).unwrap()
}

impl Node {
    /// Counts visits in an hour, and returns the synced batches.
    fn visit(&mut self, name: &str, times: usize, hour: u64) -> Vec<VisitBatch> {
        let visitor = self.sender.visitor(b"curl/8", b"https://a.example/");
        (0..times).for_each(|_| {
            assert_eq!(self.sender.record(&Visit { code: Some(code(name)), visitor }), RecordOutcome::Whole);
        });
        self.aggregator.collect(hour * HOUR_MS);
        self.sync()
    }

    /// Ends a link, as the writer does.
    fn end(&mut self, name: &str, number: u64) {
        self.ended.send(vec![Ended { code: code(name), number }]).unwrap();
        self.aggregator.collect(490_000 * HOUR_MS);
    }

    fn sync(&mut self) -> Vec<VisitBatch> {
        self.aggregator.write_log();
        if let Some(unsynced) = self.aggregator.take_unsynced() {
            let synced = unsynced.sync();
            self.aggregator.synced(synced);
        }
        self.aggregator.take_ready()
    }

    fn take(&mut self, of: &Node, batches: &[VisitBatch]) -> Vec<Application> {
        let node = format!("n{}", of.id.0);
        batches.iter().map(|batch| self.aggregator.apply((of.id, &node), batch).unwrap()).collect()
    }

    fn total(&self, name: &str) -> u64 {
        let history = self.aggregator.history(Subject::Link(code(name))).unwrap();
        let counts = self.aggregator.counts(&[Subject::Link(code(name))]).unwrap()[0];
        assert_eq!(history.days.values().map(|counts| counts.total).sum::<u64>(), counts.total);
        assert_eq!((history.all.counts, history.all.counts.bots), (counts, counts.total));
        counts.total
    }

    /// Folds all tallies, and searches for nothing.
    fn fold(&mut self, hour: u64) {
        self.aggregator.collect(hour * HOUR_MS);
        self.aggregator.begin_fold().unwrap();
        while !self.aggregator.folds.is_empty() {
            self.aggregator.run_step(&Apps::default());
        }
    }

    /// Folds and searches, as long as there is something to do.
    fn settle(&mut self) {
        self.aggregator.now_ms += HOUR_MS;
        (0..20).for_each(|_| self.aggregator.run_step(&Apps::default()));
    }
}

#[test]
fn batch_counts_once_whenever_it_comes_and_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut sent, mut hour): (Vec<VisitBatch>, u64) = (Vec::new(), 490_000);
    for steps in [0, 1, 2, 3, 0, 1, 4, 2, 9] {
        let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
        for step in 0..=steps {
            hour += 1;
            // The first time also what the last process may not have sent.
            let ready = a.visit("abc", 3, hour);
            sent.extend(
                ready
                    .into_iter()
                    .filter(|batch| sent.last().is_none_or(|last| batch.number > last.number))
                    .collect::<Vec<_>>(),
            );
            // All batches arrive again each time, and one arrives too early.
            let early = VisitBatch { number: sent.len() as u64 + 2, ..sent[0].clone() };
            assert_eq!(b.take(&a, &[early]), [Application::Gap]);
            assert!(b.take(&a, &sent).iter().all(|applied| *applied == Application::Done));
            b.aggregator.collect((hour + step % 2) * HOUR_MS);
            b.aggregator.run_step(&Apps::default());
            let expected = 3 * sent.len() as u64;
            assert_eq!((a.total("abc"), b.total("abc")), (expected, expected), "{steps} {step}");
            assert_eq!(b.aggregator.own_counts(code("abc")).unwrap().total, 0);
            assert_eq!(a.aggregator.own_counts(code("abc")).unwrap().total, expected);
        }
    }
    let mut b = open(dir.path(), 2);
    b.settle();
    assert_eq!(b.total("abc"), 3 * sent.len() as u64);
    let hosts = b.aggregator.referrers(0..=u32::MAX).unwrap();
    assert_eq!(hosts.values().sum::<u64>(), 3 * sent.len() as u64);
}

#[test]
fn unsent_batches_are_sent_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut sent = open(dir.path(), 1).visit("abc", 3, 490_000);
    let mut a = open(dir.path(), 1);
    assert_eq!(a.aggregator.take_ready(), sent);
    sent.extend(a.visit("abc", 1, 490_000));
    assert_eq!(sent.iter().map(|batch| batch.number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn full_disk_holds_counts_back_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
    let first = a.visit("abc", 3, 490_000);
    assert_eq!(a.aggregator.unlogged_ms(), 0);
    [&a, &b].into_iter().for_each(|node| node.aggregator.stats.writes_refused.store(true, Ordering::Release));
    // The node that receives.
    assert_eq!(b.take(&a, &first), [Application::Later(CountsLack::Unstored)]);
    // The node that sends.
    assert_eq!(a.visit("abc", 2, 490_000), []);
    assert_eq!((a.total("abc"), a.aggregator.unlogged_ms()), (5, 1));
    a.aggregator.collect(490_000 * HOUR_MS + 700);
    assert_eq!(a.aggregator.unlogged_ms(), 700);
    [&a, &b].into_iter().for_each(|node| node.aggregator.stats.writes_refused.store(false, Ordering::Release));
    let second = a.sync();
    assert_eq!(a.aggregator.unlogged_ms(), 0);
    assert_eq!(b.take(&a, &[first, second].concat()), [Application::Done; 2]);
    assert_eq!(b.total("abc"), 5);
}

#[test]
fn end_of_a_link_reaches_the_counts_of_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    for is_folded in [false, true] {
        let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
        let (of_a, of_b) = (a.visit("abc", 3, 490_000), b.visit("abc", 5, 490_000));
        b.take(&a, &of_a);
        a.take(&b, &of_b);
        if is_folded {
            b.settle();
        }
        assert_eq!((a.total("abc"), b.total("abc")), (8, 8));
        // The link ends on both, and the next one with its slug is visited. A batch of B that is late has visits of the
        // former link, until B says that it has ended.
        let late = b.visit("abc", 2, 490_000);
        a.end("abc", 1);
        b.end("abc", 1);
        let (of_a, of_b) = (a.visit("abc", 1, 490_000), b.visit("other", 1, 490_000));
        b.take(&a, &of_a);
        a.take(&b, &late);
        assert_eq!((a.total("abc"), b.total("abc")), (3, 1), "{is_folded}");
        a.take(&b, &of_b);
        assert_eq!(a.aggregator.own_counts(code("abc")).unwrap().total, b.total("abc"), "{is_folded}");
        assert_eq!(a.total("abc"), b.total("abc"), "{is_folded}");
        a.end("abc", 2);
        b.end("abc", 2);
        let of_a = a.visit("other", 1, 490_000);
        b.take(&a, &of_a);
        b.visit("other", 1, 490_000);
        assert_eq!((a.total("abc"), b.total("abc")), (0, 0), "{is_folded}");
    }
}

#[test]
fn counts_from_before_the_fleet_are_the_first_batch() {
    let dir = tempfile::tempdir().unwrap();
    for is_folded in [false, true] {
        let id = 1 + u64::from(is_folded);
        let (links, _) = Links::open(&dir.path().join(format!("links-{id}")), KEY).unwrap();
        let (mut sender, receiver) = ring();
        let visits = dir.path().join(format!("visits-{id}"));
        let mut alone = VisitAggregator::open(&visits, links, vec![receiver], channel().1, Arc::default()).unwrap();
        let visitor = sender.visitor(b"curl/8", b"");
        assert_eq!(sender.record(&Visit { code: Some(code("abc")), visitor }), RecordOutcome::Whole);
        alone.collect(490_000 * HOUR_MS);
        alone.write_log();
        if is_folded {
            alone.collect(490_001 * HOUR_MS);
            (0..4).for_each(|_| alone.run_step(&Apps::default()));
        }
        drop(alone);
        let mut node = open(dir.path(), id);
        assert_eq!((node.aggregator.own_origin(), node.total("abc")), ((OriginId(id), 1), 1), "{is_folded}");
        assert_eq!(node.visit("abc", 1, 490_002)[0].number, 2);
        drop(node);
        let mut node = open(dir.path(), id);
        node.settle();
        assert_eq!(node.aggregator.origin_view(OriginId(id), 0).unwrap().applied, 2, "{is_folded}");
        assert_eq!(node.total("abc"), 2);
    }
}

#[test]
fn snapshot_replaces_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
    let first = a.visit("abc", 3, 490_000);
    b.take(&a, &first);
    b.visit("abc", 1, 490_000);
    let lost = a.visit("abc", 4, 490_000);
    let next = a.visit("abc", 1, 490_001);
    assert_eq!(b.take(&a, &next), [Application::Gap]);
    let mut history = VisitHistory::default();
    history.add(490_000, &TallyRow::from(VisitCounts { total: 7, bots: 7 }));
    let mut value = Vec::new();
    history.encode(&mut value);
    for is_killed in [true, false] {
        let slot = b.aggregator.begin_snapshot((a.id, "n1")).unwrap().unwrap();
        assert!(b.aggregator.put_snapshot(slot, &[(b"abc".to_vec(), value.clone())]).unwrap());
        assert_eq!(b.total("abc"), 4, "it does not count before its end");
        if is_killed {
            drop(b);
            b = open(dir.path(), 2);
            assert_eq!(b.total("abc"), 4);
        } else {
            b.aggregator.end_snapshot(slot, lost[0].number).unwrap();
        }
    }
    assert_eq!(b.total("abc"), 8);
    assert_eq!(b.take(&a, &[first, lost].concat()), [Application::Done; 2]);
    assert_eq!(b.take(&a, &next), [Application::Done]);
    assert_eq!(b.total("abc"), 9);
    drop(b);
    let mut b = open(dir.path(), 2);
    assert_eq!(b.total("abc"), 9);
    // The rows that were replaced go, and their slots can be used again.
    (0..6).for_each(|_| b.settle());
    assert_eq!(b.aggregator.links.visits_of(b"abc").unwrap().len(), 3);
    assert_eq!(b.aggregator.fleet.table().dropped().count(), 0);
    assert_eq!(b.total("abc"), 9);
}

#[test]
fn counts_that_are_given_up_free_their_slot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
    let batches = a.visit("abc", 3, 490_000);
    b.take(&a, &batches);
    b.visit("abc", 1, 490_000);
    b.fold(490_001);
    assert_eq!(b.total("abc"), 4);
    assert!(!b.aggregator.give_up_origin(b.id).unwrap(), "a node keeps its own counts");
    assert!(b.aggregator.give_up_origin(a.id).unwrap());
    assert!(!b.aggregator.give_up_origin(a.id).unwrap(), "no counts are left");
    assert_eq!(b.total("abc"), 1);
    drop(b);
    let mut b = open(dir.path(), 2);
    assert_eq!(b.total("abc"), 1);
    b.visit("abc", 1, 490_002);
    b.fold(490_003);
    (0..6).for_each(|_| b.settle());
    assert_eq!((b.total("abc"), b.aggregator.fleet.table().dropped().count()), (2, 0));
}

/// A node with the counts of another one from a snapshot that has replaced its first counts, and the slot of the latter.
fn with_replaced_slot(dir: &Path) -> (Node, OriginSlot) {
    let (mut a, mut b) = (open(dir, 1), open(dir, 2));
    let first = a.visit("abc", 3, 490_000);
    b.take(&a, &first);
    b.fold(490_001);
    let slot = b.aggregator.begin_snapshot((a.id, "n1")).unwrap().unwrap();
    assert!(b.aggregator.put_snapshot(slot, &[(b"abc".to_vec(), history_of(7))]).unwrap());
    b.aggregator.end_snapshot(slot, 9).unwrap();
    // The log that may have pieces of the replaced slot is folded, too.
    b.visit("abc", 1, 490_002);
    b.fold(490_003);
    let dropped: Vec<OriginSlot> = b.aggregator.fleet.table().dropped().collect();
    assert_eq!((dropped.len(), b.total("abc")), (1, 8));
    (b, dropped[0])
}

/// The stored form of so many visits in one hour.
fn history_of(total: u64) -> Vec<u8> {
    let (mut history, mut value) = (VisitHistory::default(), Vec::new());
    history.add(490_000, &TallyRow::from(VisitCounts { total, bots: total }));
    history.encode(&mut value);
    value
}

/// Runs a search that meets a damaged block first, and goes on behind it.
fn search_past_damage(node: &mut Node) {
    node.aggregator.begin_step();
    let behind = Some(Bound::Unbounded);
    let damaged = VisitRowPage { rows: Vec::new(), damage: Some("a block".to_owned()), next: behind };
    node.aggregator.compact_page(damaged).unwrap();
    node.settle();
}

#[test]
fn search_past_damage_frees_no_slot_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut b, dropped) = with_replaced_slot(dir.path());
    let is_dropped = |b: &Node| b.aggregator.fleet.table().dropped().any(|slot| slot == dropped);
    let rows_of = |b: &Node| {
        let rows = b.aggregator.links.visits_of(b"abc").unwrap();
        rows.iter().filter(|row| row.place.slot == dropped).count()
    };
    search_past_damage(&mut b);
    assert_eq!(rows_of(&b), 0, "rows behind the damage are removed");
    assert!(is_dropped(&b), "rows in the damaged block would count for the next origin");
    assert!(b.aggregator.stats.store_damaged.get() > 0);
    assert_eq!(b.total("abc"), 8);
    // The next search reads everything.
    b.settle();
    assert!(!is_dropped(&b));
    assert_eq!(b.total("abc"), 8);
}

#[test]
fn search_that_ends_in_damage_frees_no_slot() {
    let dir = tempfile::tempdir().unwrap();
    let (mut b, dropped) = with_replaced_slot(dir.path());
    b.aggregator.begin_step();
    let damaged = VisitRowPage { rows: Vec::new(), damage: Some("a block".to_owned()), next: None };
    b.aggregator.compact_page(damaged).unwrap();
    assert!(b.aggregator.fleet.table().dropped().eq([dropped]));
    assert_eq!(b.aggregator.links.visits_of(b"abc").unwrap().len(), 3, "nothing was read, so nothing is removed");
}

#[test]
fn damage_does_not_use_up_the_slots() {
    let dir = tempfile::tempdir().unwrap();
    let (mut b, dropped) = with_replaced_slot(dir.path());
    let mut c = open(dir.path(), 3);
    let id = |b: &Node| OriginId(1_000 + b.aggregator.fleet.table().counted().count() as u64);
    while b.aggregator.fleet.slot_for(id(&b), "n").is_some() {}
    assert!(b.aggregator.renew(OriginId(90_000), "n2").unwrap());
    assert_eq!(b.aggregator.begin_snapshot((c.id, "n3")).unwrap(), None);
    search_past_damage(&mut b);
    assert!(b.aggregator.fleet.table().dropped().eq([dropped]), "no search has read all rows");
    let slot = b.aggregator.begin_snapshot((c.id, "n3")).unwrap();
    assert_eq!(slot, Some(dropped), "the next snapshot gets it nevertheless");
    assert!(b.aggregator.put_snapshot(dropped, &[(b"abc".to_vec(), history_of(5))]).unwrap());
    b.aggregator.end_snapshot(dropped, 0).unwrap();
    assert_eq!(b.total("abc"), 13);
    // The disk returns the damaged block, with rows of the former origin of the slot.
    let (mut row, mut batch) = (Vec::new(), b.aggregator.links.batch());
    TallyRow::from(VisitCounts { total: 100, bots: 100 }).encode(&mut row);
    batch.put_visits(b"abc", RowPlace { hour: 490_000, slot: dropped, log: 1 }, &row);
    batch.put_visits(b"abc", RowPlace::merged(dropped, 0), &history_of(100));
    b.aggregator.links.commit(batch).unwrap();
    assert_eq!(b.total("abc"), 13, "they do not count for the next origin");
    // Batches of that origin do, before and after a fold and a restart.
    let batches = c.visit("abc", 2, 490_004);
    assert_eq!(b.take(&c, &batches), [Application::Done]);
    assert_eq!(b.total("abc"), 15);
    b.fold(490_005);
    assert_eq!(b.total("abc"), 15);
    drop(b);
    let mut b = open(dir.path(), 2);
    assert_eq!(b.total("abc"), 15);
    // The next search removes what is left of the former origin.
    b.settle();
    let rows = b.aggregator.links.visits_of(b"abc").unwrap();
    let of_slot = rows.iter().filter(|row| row.place.slot == dropped);
    let mut places: Vec<(bool, bool)> = of_slot.map(|row| (row.place.is_merged(), row.place.log > 1)).collect();
    places.sort_unstable();
    assert_eq!(places, [(false, true), (true, true)]);
    assert_eq!(b.total("abc"), 15);
}

#[test]
fn slots_of_two_bytes_count_from_log_and_store() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
    (1_000..1_300).for_each(|id| _ = b.aggregator.fleet.slot_for(OriginId(id), "n"));
    let batches = a.visit("abc", 3, 490_000);
    assert_eq!(b.take(&a, &batches), [Application::Done]);
    assert!(b.aggregator.fleet.table().slot_of(a.id).is_some_and(|slot| slot > 255));
    drop(b);
    let mut b = open(dir.path(), 2);
    assert_eq!(b.total("abc"), 3, "the log has them");
    b.fold(490_001);
    assert_eq!(b.total("abc"), 3);
    drop(b);
    let mut b = open(dir.path(), 2);
    assert_eq!((b.total("abc"), b.take(&a, &batches)), (3, vec![Application::Done]));
    assert_eq!(b.total("abc"), 3, "they are known");
}

#[test]
fn counts_without_a_slot_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (mut a, mut b) = (open(dir.path(), 1), open(dir.path(), 2));
    let taken = (1_000..).take_while(|id| b.aggregator.fleet.slot_for(OriginId(*id), "n").is_some()).count();
    assert_eq!(taken, usize::from(ORIGIN_SLOTS) - 2);
    let batches = a.visit("abc", 1, 490_000);
    assert_eq!(b.take(&a, &batches), [Application::Later(CountsLack::NoSlot)]);
    assert!(!b.aggregator.has_slot_for(a.id));
    assert!(b.aggregator.has_slot_for(OriginId(1_000)));
    // The last slot is for another identity of the node itself. A third one finds no slot.
    assert!(b.aggregator.renew(OriginId(3), "n2").unwrap());
    assert!(!b.aggregator.renew(OriginId(4), "n2").unwrap());
    assert_eq!(b.aggregator.own_origin().0, OriginId(3));
    drop(b);
    let mut b = open(dir.path(), 2);
    assert!(!b.aggregator.identify(OriginId(5), "n2").unwrap(), "the next process must not use the former identity");
}

#[test]
fn given_up_snapshot_frees_its_slot_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut b = open(dir.path(), 2);
    for is_small in [true, false] {
        let slot = b.aggregator.begin_snapshot((OriginId(1), "n1")).unwrap().unwrap();
        let names = if is_small { 3 } else { SNAPSHOT_NAMES_NOTED + 1 };
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            (0..names).map(|number| (format!("c{number:05}").into_bytes(), history_of(1))).collect();
        assert!(b.aggregator.put_snapshot(slot, &rows).unwrap());
        b.aggregator.give_up_snapshot(slot).unwrap();
        assert_eq!(b.aggregator.fleet.table().dropped().count(), usize::from(!is_small));
        assert_eq!(b.aggregator.links.visits_of(b"c00002").unwrap().is_empty(), is_small, "a row would count later");
    }
}

#[test]
fn another_directory_is_another_origin() {
    let dir = tempfile::tempdir().unwrap();
    let mut a = open(dir.path(), 1);
    let first = a.visit("abc", 3, 490_000);
    assert!(a.aggregator.renew(OriginId(7), "n1").unwrap());
    let mut renewed = Node { id: OriginId(7), ..a };
    let second = renewed.visit("abc", 2, 490_000);
    assert_eq!((first[0].number, second[0].number, renewed.total("abc")), (1, 1, 5));
    // What the former identity has published since the backup comes back as from another node.
    std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
    let former = Node { id: OriginId(1), ..open(&dir.path().join("elsewhere"), 9) };
    let later = VisitBatch { number: 2, ..first[0].clone() };
    assert_eq!(renewed.take(&former, &[first[0].clone(), later]), [Application::Done; 2]);
    assert_eq!(renewed.total("abc"), 8);
    drop(renewed);
    let (links, _) = Links::open(&dir.path().join("links-1"), KEY).unwrap();
    let visits = dir.path().join("visits-1");
    let mut again = VisitAggregator::open(&visits, links, Vec::new(), channel().1, Arc::default()).unwrap();
    again.identify(OriginId(11), "n1").unwrap();
    assert_eq!(again.own_origin(), (OriginId(7), 1));
    assert_eq!(again.counts(&[Subject::Link(code("abc"))]).unwrap()[0].total, 8);
}
