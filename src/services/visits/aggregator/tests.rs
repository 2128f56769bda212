//! Tests of the aggregator: its counts after crashes, deletes and full disks.

use super::compaction::ROWS_MANY;
use super::*;
use crate::services::testing::KEY;
use carom_model::visits::{RecordOutcome, Visit, VisitSender, ring};
use carom_store::links::RowPlace;
use std::sync::mpsc::{Sender, channel};

const HOUR_MS: u64 = 3_600_000;

struct Desk {
    aggregator: VisitAggregator,
    sender: VisitSender,
    ended: Sender<Vec<Ended>>,
}

/// Opens the aggregator of a directory, as a new process does.
fn open(dir: &Path) -> Desk {
    let (links, _) = Links::open(&dir.join("links"), KEY).unwrap();
    let (sender, receiver) = ring();
    let (ended, ends) = channel();
    let aggregator = VisitAggregator::open(&dir.join("visits"), links, vec![receiver], ends, Arc::default()).unwrap();
    Desk { aggregator, sender, ended }
}

fn code(text: &str) -> Code {
    Code::parse(text.as_bytes()).unwrap()
}

fn ended(text: &str) -> Ended {
    Ended { code: code(text), number: 7 }
}

impl Desk {
    fn go_on(&mut self) {
        self.aggregator.go_on(&Apps::default());
    }

    fn visit(&mut self, name: &str, times: usize) {
        let visitor = self.sender.visitor(b"curl/8", b"https://a.example/");
        (0..times).for_each(|_| {
            assert_eq!(self.sender.record(&Visit { code: Some(code(name)), visitor }), RecordOutcome::Whole);
        });
    }

    fn total(&self, name: &str) -> u64 {
        let history = self.aggregator.history(Subject::Link(code(name))).unwrap();
        assert_eq!(history.days.values().map(|counts| counts.total).sum::<u64>(), history.all.counts.total);
        assert_eq!(history.hours.values().map(|counts| counts.bots).sum::<u64>(), history.all.counts.total);
        let counts = self.aggregator.counts(Subject::Link(code(name))).unwrap();
        assert_eq!(counts, history.all.counts);
        counts.total
    }
}

impl Desk {
    /// Checks the referrers of each day; every visit here has the same referrer.
    fn referrers_are_those_of_their_days(&self) {
        let all = self.aggregator.history(Subject::All).unwrap();
        for (day, counts) in &all.days {
            let hosts = self.aggregator.referrers(*day..=*day).unwrap();
            assert_eq!(hosts.into_iter().collect::<Vec<_>>(), [(b"a.example"[..].into(), counts.total)], "{day}");
        }
        let hosts = self.aggregator.referrers(0..=u32::MAX).unwrap();
        assert_eq!(hosts.values().sum::<u64>(), all.all.counts.total);
    }
}

#[test]
fn each_visit_counts_once_whenever_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = 0;
    // The process is killed after so many steps: before, during and after folds.
    for steps in [0, 1, 2, 3, 0, 1, 4, 2, 9] {
        let mut desk = open(dir.path());
        assert_eq!((desk.total("abc"), desk.total("slug-of-many-letters")), (expected, expected), "{steps}");
        for step in 0..=steps {
            desk.visit("abc", 2);
            desk.visit("slug-of-many-letters", 2);
            // An hour ends each time, so that a fold is due.
            desk.aggregator.collect(490_000 * HOUR_MS + (expected + step) * HOUR_MS);
            desk.aggregator.write_log();
            desk.go_on();
            assert_eq!(desk.total("abc"), expected + 2 * (step + 1));
            desk.referrers_are_those_of_their_days();
        }
        expected += 2 * (steps + 1);
    }
    let mut desk = open(dir.path());
    assert_eq!(desk.aggregator.history(Subject::All).unwrap().all.counts.total, 2 * expected);
    assert!(desk.aggregator.history(Subject::All).unwrap().days.len() > 1);
    desk.referrers_are_those_of_their_days();
    // Before and after rows are merged.
    (0..20).for_each(|_| desk.go_on());
    desk.referrers_are_those_of_their_days();
}

#[test]
fn visits_of_a_link_that_has_ended_are_not_those_of_the_next() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let mut desk = open(dir.path());
        desk.visit("abc", 3);
        desk.aggregator.collect((490_000 + round) * HOUR_MS);
        desk.aggregator.write_log();
        // In each state of a fold.
        (0..round).for_each(|_| desk.go_on());
        desk.ended.send(vec![ended("abc")]).unwrap();
        desk.aggregator.collect((490_000 + round) * HOUR_MS);
        assert_eq!(desk.total("abc"), 0, "{round}");
        desk.visit("abc", 1);
        desk.aggregator.collect((490_001 + round) * HOUR_MS);
        desk.aggregator.write_log();
        (0..5).for_each(|_| desk.go_on());
        assert_eq!(desk.total("abc"), 1, "{round}");
        drop(desk);
        let mut desk = open(dir.path());
        assert_eq!(desk.total("abc"), 1, "{round}");
        desk.ended.send(vec![ended("abc")]).unwrap();
        desk.aggregator.collect((490_001 + round) * HOUR_MS);
        desk.aggregator.write_log();
    }
}

#[test]
fn that_a_link_has_ended_is_known_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let mut desk = open(dir.path());
        desk.visit("abc", 3);
        desk.aggregator.collect((490_000 + round) * HOUR_MS);
        desk.aggregator.write_log();
        // In each state of a fold.
        (0..round).for_each(|_| desk.go_on());
        // Only the commit that ended the link has happened.
        let mut batch = desk.aggregator.links.batch();
        batch.end_visits(&ended("abc"));
        desk.aggregator.links.commit(batch).unwrap();
        drop(desk);
        let mut desk = open(dir.path());
        assert_eq!(desk.total("abc"), 0, "{round}");
        desk.aggregator.write_log();
        desk.aggregator.take_unsynced().unwrap().sync().unwrap();
        assert!(desk.aggregator.links.visits_ended().unwrap().is_empty());
        desk.visit("abc", 1);
        desk.aggregator.collect((490_000 + round) * HOUR_MS);
        desk.aggregator.write_log();
        drop(desk);
        let mut desk = open(dir.path());
        assert_eq!(desk.total("abc"), 1, "{round}");
        desk.aggregator.forget(vec![ended("abc")]);
    }
}

#[test]
fn without_room_a_link_that_has_ended_is_forgotten_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    desk.visit("abc", 3);
    desk.aggregator.collect(490_000 * HOUR_MS);
    desk.aggregator.write_log();
    desk.aggregator.collect(490_001 * HOUR_MS);
    (0..3).for_each(|_| desk.go_on());
    assert_eq!(desk.aggregator.links.visits_of(b"abc").unwrap().len(), 1);
    desk.aggregator.stats.writes_refused.store(true, Ordering::Release);
    desk.ended.send(vec![ended("abc")]).unwrap();
    desk.aggregator.collect(490_001 * HOUR_MS);
    desk.aggregator.write_log();
    assert_eq!(desk.aggregator.links.visits_of(b"abc").unwrap().len(), 1);
    desk.aggregator.stats.writes_refused.store(false, Ordering::Release);
    desk.aggregator.write_log();
    assert_eq!(desk.aggregator.links.visits_of(b"abc").unwrap(), []);
    assert_eq!(desk.total("abc"), 0);
}

#[test]
fn counts_that_cannot_be_read_are_said_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    for hour in 0..40 {
        desk.visit("abc", 1);
        desk.aggregator.collect((490_000 + hour) * HOUR_MS);
        desk.aggregator.write_log();
        if hour == 5 {
            let mut batch = desk.aggregator.links.batch();
            batch.put_visits(b"abc", RowPlace { hour: 490_000, slot: 0, log: 1 }, b"\xff");
            desk.aggregator.links.commit(batch).unwrap();
        }
        (0..4).for_each(|_| desk.go_on());
    }
    assert!(desk.aggregator.links.visits_of(b"abc").unwrap().len() >= ROWS_MANY, "nothing was put together");
    assert!(matches!(desk.aggregator.history(Subject::Link(code("abc"))), Err(StoreError::Damaged(_))));
    assert!(matches!(desk.aggregator.counts(Subject::Link(code("abc"))), Err(StoreError::Damaged(_))));
}

#[test]
fn links_stand_in_the_order_of_their_visits() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    let ranking = |desk: &mut Desk| -> Vec<String> {
        desk.aggregator.now_ms += RANKED_FOR_MS;
        let codes = desk.aggregator.take_candidates().unwrap();
        let counts = codes.iter().map(|code| desk.aggregator.counts(Subject::Link(*code)).unwrap());
        let counted: Vec<_> = codes.iter().copied().zip(counts).collect();
        desk.aggregator.rank(counted.into_iter());
        assert!(desk.aggregator.take_candidates().is_none());
        desk.aggregator.most_visited(2, false).iter().map(Code::to_string).collect()
    };
    assert!(ranking(&mut desk).is_empty());
    for (name, times) in [("few", 1), ("most", 9), ("many", 5)] {
        desk.visit(name, times);
    }
    desk.aggregator.collect(490_000 * HOUR_MS);
    assert_eq!(ranking(&mut desk), ["most", "many"]);
    desk.aggregator.write_log();
    desk.aggregator.collect(490_001 * HOUR_MS);
    desk.aggregator.write_log();
    assert_eq!(ranking(&mut desk), ["most", "many"]);
    // Another process has only the stored counts, and needs a fold and a whole search.
    drop(desk);
    let mut desk = open(dir.path());
    desk.aggregator.collect(490_002 * HOUR_MS);
    (0..4).for_each(|_| desk.go_on());
    assert_eq!(ranking(&mut desk), ["most", "many"]);
    desk.visit("few", 20);
    desk.aggregator.collect(490_002 * HOUR_MS + 2 * RANKED_FOR_MS);
    assert_eq!(ranking(&mut desk), ["few", "most"]);
}

#[test]
fn many_rows_are_put_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    let rows = |desk: &Desk| desk.aggregator.links.visits_of(b"abc").unwrap().len();
    for hour in 0..100 {
        desk.visit("abc", 1);
        desk.aggregator.collect((490_000 + hour) * HOUR_MS);
        desk.aggregator.write_log();
        // A fold, and between folds a search.
        (0..4).for_each(|_| desk.go_on());
        assert_eq!(desk.total("abc"), hour + 1);
    }
    assert!(rows(&desk) < ROWS_MANY + 4, "{}", rows(&desk));
    drop(desk);
    assert_eq!(open(dir.path()).total("abc"), 100);
}

#[test]
fn earlier_visits_count_once_and_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    let (name, earlier) = (Subject::Link(code("abc")).name(), VisitCounts { total: 50, bots: 5 });
    let mut batch = desk.aggregator.links.batch();
    batch.put_earlier_visits(&name, earlier);
    desk.aggregator.links.commit(batch).unwrap();
    let total = |desk: &Desk| desk.aggregator.counts(Subject::Link(code("abc"))).unwrap().total;
    for hour in 0..100 {
        assert_eq!(total(&desk), 50 + hour);
        desk.visit("abc", 1);
        desk.aggregator.collect((490_000 + hour) * HOUR_MS);
        desk.aggregator.write_log();
        (0..4).for_each(|_| desk.go_on());
    }
    assert!(desk.aggregator.links.visits_of(&name).unwrap().len() < ROWS_MANY + 5, "nothing was merged");
    assert_eq!(desk.aggregator.links.earlier_visits(&name).unwrap(), Some(earlier));
    drop(desk);
    let mut desk = open(dir.path());
    assert_eq!((total(&desk), desk.aggregator.own_counts(code("abc")).unwrap().total), (150, 100));
    // The writer removes them, in the commit that ends the link.
    desk.aggregator.forget(vec![ended("abc")]);
    assert_eq!(total(&desk), 50);
}

#[test]
fn invented_referrers_take_no_more_memory_than_there_is_for_visits() {
    let dir = tempfile::tempdir().unwrap();
    let mut desk = open(dir.path());
    let mut told = 0;
    // No fold makes progress, as on a disk that hangs.
    for link in 0..6_500 {
        let code = code(&format!("a{link:06}"));
        for host in 0..120 {
            let visitor = desk.sender.visitor(b"curl/8", format!("https://{host}.{link}.example/").as_bytes());
            assert_ne!(desk.sender.record(&Visit { code: Some(code), visitor }), RecordOutcome::Nothing);
            told += 1;
        }
        if link % 20 == 0 {
            desk.aggregator.collect(490_000 * HOUR_MS);
        }
    }
    desk.aggregator.collect(490_000 * HOUR_MS);
    // One drain of the rings may come on top.
    assert!(desk.aggregator.weight() < VISITS_TALLIED_BYTES + (4 << 20), "{} bytes", desk.aggregator.weight());
    assert!(
        desk.aggregator.weight() > VISITS_TALLIED_BYTES / 2,
        "{} bytes: that was no test",
        desk.aggregator.weight()
    );
    assert!(desk.aggregator.stats.referrers_dropped.get() > 0, "what is not kept is counted");
    assert_eq!(
        desk.aggregator.counts(Subject::All).unwrap().total,
        told,
        "each visit counts, with its referrer or without"
    );
}
