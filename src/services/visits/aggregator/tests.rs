//! Tests of the aggregator: its counts after crashes, deletes and full disks.

use super::compaction::ROWS_MANY;
use super::*;
use crate::services::testing::KEY;
use carom_model::visits::{RecordOutcome, Visit, VisitSender, ring};
use carom_store::links::RowPlace;
use std::sync::mpsc::{Sender, channel};

const HOUR_MS: u64 = 3_600_000;

struct TestAggregator {
    aggregator: VisitAggregator,
    sender: VisitSender,
    ended: Sender<Vec<Ended>>,
}

/// Opens the aggregator of a directory, as a new process does.
fn open(dir: &Path) -> TestAggregator {
    let (links, _) = Links::open(&dir.join("links"), KEY).unwrap();
    let (sender, receiver) = ring();
    let (ended, ends) = channel();
    let aggregator = VisitAggregator::open(&dir.join("visits"), links, vec![receiver], ends, Arc::default()).unwrap();
    TestAggregator { aggregator, sender, ended }
}

fn code(text: &str) -> Code {
    Code::parse(text.as_bytes()).unwrap()
}

fn ended(text: &str) -> Ended {
    Ended { code: code(text), number: 7 }
}

impl TestAggregator {
    fn run_step(&mut self) {
        self.aggregator.run_step(&Apps::default());
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
        let counts = self.aggregator.counts(&[Subject::Link(code(name))]).unwrap()[0];
        assert_eq!(counts, history.all.counts);
        counts.total
    }
}

impl TestAggregator {
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
        let mut tested = open(dir.path());
        assert_eq!((tested.total("abc"), tested.total("slug-of-many-letters")), (expected, expected), "{steps}");
        for step in 0..=steps {
            tested.visit("abc", 2);
            tested.visit("slug-of-many-letters", 2);
            // An hour ends each time, so that a fold is due.
            tested.aggregator.collect(490_000 * HOUR_MS + (expected + step) * HOUR_MS);
            tested.aggregator.write_log();
            tested.run_step();
            assert_eq!(tested.total("abc"), expected + 2 * (step + 1));
            tested.referrers_are_those_of_their_days();
        }
        expected += 2 * (steps + 1);
    }
    let mut tested = open(dir.path());
    assert_eq!(tested.aggregator.history(Subject::All).unwrap().all.counts.total, 2 * expected);
    assert!(tested.aggregator.history(Subject::All).unwrap().days.len() > 1);
    tested.referrers_are_those_of_their_days();
    // Before and after rows are merged.
    (0..20).for_each(|_| tested.run_step());
    tested.referrers_are_those_of_their_days();
}

#[test]
fn visits_of_a_link_that_has_ended_are_not_those_of_the_next() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let mut tested = open(dir.path());
        tested.visit("abc", 3);
        tested.aggregator.collect((490_000 + round) * HOUR_MS);
        tested.aggregator.write_log();
        // In each state of a fold.
        (0..round).for_each(|_| tested.run_step());
        tested.ended.send(vec![ended("abc")]).unwrap();
        tested.aggregator.collect((490_000 + round) * HOUR_MS);
        assert_eq!(tested.total("abc"), 0, "{round}");
        tested.visit("abc", 1);
        tested.aggregator.collect((490_001 + round) * HOUR_MS);
        tested.aggregator.write_log();
        (0..5).for_each(|_| tested.run_step());
        assert_eq!(tested.total("abc"), 1, "{round}");
        drop(tested);
        let mut tested = open(dir.path());
        assert_eq!(tested.total("abc"), 1, "{round}");
        tested.ended.send(vec![ended("abc")]).unwrap();
        tested.aggregator.collect((490_001 + round) * HOUR_MS);
        tested.aggregator.write_log();
    }
}

#[test]
fn that_a_link_has_ended_is_known_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let mut tested = open(dir.path());
        tested.visit("abc", 3);
        tested.aggregator.collect((490_000 + round) * HOUR_MS);
        tested.aggregator.write_log();
        // In each state of a fold.
        (0..round).for_each(|_| tested.run_step());
        // Only the commit that ended the link has happened.
        let mut batch = tested.aggregator.links.batch();
        batch.end_visits(&ended("abc"));
        tested.aggregator.links.commit(batch).unwrap();
        drop(tested);
        let mut tested = open(dir.path());
        assert_eq!(tested.total("abc"), 0, "{round}");
        tested.aggregator.write_log();
        tested.aggregator.take_unsynced().unwrap().sync().unwrap();
        assert!(tested.aggregator.links.visits_ended().unwrap().is_empty());
        tested.visit("abc", 1);
        tested.aggregator.collect((490_000 + round) * HOUR_MS);
        tested.aggregator.write_log();
        drop(tested);
        let mut tested = open(dir.path());
        assert_eq!(tested.total("abc"), 1, "{round}");
        tested.aggregator.forget(vec![ended("abc")]);
    }
}

#[test]
fn without_room_a_link_that_has_ended_is_forgotten_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    tested.visit("abc", 3);
    tested.aggregator.collect(490_000 * HOUR_MS);
    tested.aggregator.write_log();
    tested.aggregator.collect(490_001 * HOUR_MS);
    (0..3).for_each(|_| tested.run_step());
    assert_eq!(tested.aggregator.links.visits_of(b"abc").unwrap().len(), 1);
    tested.aggregator.stats.writes_refused.store(true, Ordering::Release);
    tested.ended.send(vec![ended("abc")]).unwrap();
    tested.aggregator.collect(490_001 * HOUR_MS);
    tested.aggregator.write_log();
    assert_eq!(tested.aggregator.links.visits_of(b"abc").unwrap().len(), 1);
    tested.aggregator.stats.writes_refused.store(false, Ordering::Release);
    tested.aggregator.write_log();
    assert_eq!(tested.aggregator.links.visits_of(b"abc").unwrap(), []);
    assert_eq!(tested.total("abc"), 0);
}

#[test]
fn counts_that_cannot_be_read_are_said_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    for hour in 0..40 {
        tested.visit("abc", 1);
        tested.aggregator.collect((490_000 + hour) * HOUR_MS);
        tested.aggregator.write_log();
        if hour == 5 {
            let mut batch = tested.aggregator.links.batch();
            batch.put_visits(b"abc", RowPlace { hour: 490_000, slot: 0, log: 1 }, b"\xff");
            tested.aggregator.links.commit(batch).unwrap();
        }
        (0..4).for_each(|_| tested.run_step());
    }
    assert!(tested.aggregator.links.visits_of(b"abc").unwrap().len() >= ROWS_MANY, "nothing was put together");
    assert!(matches!(tested.aggregator.history(Subject::Link(code("abc"))), Err(StoreError::Damaged(_))));
    assert!(matches!(tested.aggregator.counts(&[Subject::Link(code("abc"))]), Err(StoreError::Damaged(_))));
}

#[test]
fn links_stand_in_the_order_of_their_visits() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    let ranking = |tested: &mut TestAggregator| -> Vec<String> {
        tested.aggregator.now_ms += RANKED_FOR_MS;
        let codes = tested.aggregator.take_candidates().unwrap();
        let counts = codes.iter().map(|code| tested.aggregator.counts(&[Subject::Link(*code)]).unwrap()[0]);
        let counted: Vec<_> = codes.iter().copied().zip(counts).collect();
        tested.aggregator.rank(counted.into_iter());
        assert!(tested.aggregator.take_candidates().is_none());
        tested.aggregator.most_visited(2, false).iter().map(Code::to_string).collect()
    };
    assert!(ranking(&mut tested).is_empty());
    assert!(!tested.aggregator.ranks_all(), "no search has ended");
    for (name, times) in [("few", 1), ("most", 9), ("many", 5)] {
        tested.visit(name, times);
    }
    tested.aggregator.collect(490_000 * HOUR_MS);
    assert_eq!(ranking(&mut tested), ["most", "many"]);
    tested.aggregator.write_log();
    tested.aggregator.collect(490_001 * HOUR_MS);
    tested.aggregator.write_log();
    assert_eq!(ranking(&mut tested), ["most", "many"]);
    // Another process has only the stored counts, and needs a fold and a whole search.
    drop(tested);
    let mut tested = open(dir.path());
    tested.aggregator.collect(490_002 * HOUR_MS);
    (0..4).for_each(|_| tested.run_step());
    assert_eq!(ranking(&mut tested), ["most", "many"]);
    assert!(tested.aggregator.ranks_all());
    tested.visit("few", 20);
    tested.aggregator.collect(490_002 * HOUR_MS + 2 * RANKED_FOR_MS);
    assert_eq!(ranking(&mut tested), ["few", "most"]);
}

#[test]
fn many_rows_are_put_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    let rows = |tested: &TestAggregator| tested.aggregator.links.visits_of(b"abc").unwrap().len();
    for hour in 0..100 {
        tested.visit("abc", 1);
        tested.aggregator.collect((490_000 + hour) * HOUR_MS);
        tested.aggregator.write_log();
        // A fold, and between folds a search.
        (0..4).for_each(|_| tested.run_step());
        assert_eq!(tested.total("abc"), hour + 1);
    }
    assert!(rows(&tested) < ROWS_MANY + 4, "{}", rows(&tested));
    drop(tested);
    assert_eq!(open(dir.path()).total("abc"), 100);
}

#[test]
fn earlier_visits_count_once_and_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    let (name, earlier) = (Subject::Link(code("abc")).name(), VisitCounts { total: 50, bots: 5 });
    let mut batch = tested.aggregator.links.batch();
    batch.put_earlier_visits(&name, earlier);
    tested.aggregator.links.commit(batch).unwrap();
    let total = |tested: &TestAggregator| tested.aggregator.counts(&[Subject::Link(code("abc"))]).unwrap()[0].total;
    for hour in 0..100 {
        assert_eq!(total(&tested), 50 + hour);
        tested.visit("abc", 1);
        tested.aggregator.collect((490_000 + hour) * HOUR_MS);
        tested.aggregator.write_log();
        (0..4).for_each(|_| tested.run_step());
    }
    assert!(tested.aggregator.links.visits_of(&name).unwrap().len() < ROWS_MANY + 5, "nothing was merged");
    assert_eq!(tested.aggregator.links.earlier_visits(&name).unwrap(), Some(earlier));
    drop(tested);
    let mut tested = open(dir.path());
    assert_eq!((total(&tested), tested.aggregator.own_counts(code("abc")).unwrap().total), (150, 100));
    // The writer removes them, in the commit that ends the link.
    tested.aggregator.forget(vec![ended("abc")]);
    assert_eq!(total(&tested), 50);
}

#[test]
fn invented_referrers_take_no_more_memory_than_there_is_for_visits() {
    let dir = tempfile::tempdir().unwrap();
    let mut tested = open(dir.path());
    let mut told = 0;
    // No fold makes progress, as on a disk that hangs.
    for link in 0..6_500 {
        let code = code(&format!("a{link:06}"));
        for host in 0..120 {
            let visitor = tested.sender.visitor(b"curl/8", format!("https://{host}.{link}.example/").as_bytes());
            assert_ne!(tested.sender.record(&Visit { code: Some(code), visitor }), RecordOutcome::Nothing);
            told += 1;
        }
        if link % 20 == 0 {
            tested.aggregator.collect(490_000 * HOUR_MS);
        }
    }
    tested.aggregator.collect(490_000 * HOUR_MS);
    // One drain of the rings may come on top.
    assert!(tested.aggregator.weight() < VISITS_TALLIED_BYTES + (4 << 20), "{} bytes", tested.aggregator.weight());
    assert!(
        tested.aggregator.weight() > VISITS_TALLIED_BYTES / 2,
        "{} bytes: that was no test",
        tested.aggregator.weight()
    );
    assert!(tested.aggregator.stats.referrers_dropped.get() > 0, "what is not kept is counted");
    assert_eq!(
        tested.aggregator.counts(&[Subject::All]).unwrap()[0].total,
        told,
        "each visit counts, with its referrer or without"
    );
}
