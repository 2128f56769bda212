//! Tests of visits that come before the writer has stored their link. Redis does not answer in these tests, so
//! the store has the only visits to grant.

use std::num::NonZeroU32;
use std::path::Path;

use super::*;
use crate::services::testing::{TestNode, unreachable_redis};
use carom_model::link::record;
use carom_model::testing::{link, tombstone};
use carom_model::visits::left_grants::{self, LeftGrant};
use carom_shards::CoreId;

struct TestService {
    node: TestNode,
    queue: AllowanceQueue,
}

impl TestService {
    fn start(dir: &Path, is_fleet: bool) -> TestService {
        std::fs::create_dir_all(dir).unwrap();
        let node = TestNode::new(dir, 1);
        let counted = crate::services::visits::start(dir, &node.links, Vec::new(), &node.stats, None).unwrap();
        let setup = AllowanceSetup {
            links: node.links.clone(),
            mailboxes: node.mailboxes.clone(),
            stats: Arc::clone(&node.stats),
            visits: counted.visits,
            shared: is_fleet.then(without_answers),
        };
        let (queue, _) = start(setup).unwrap();
        TestService { node, queue }
    }

    fn visit(&self, token: u64) {
        self.visit_since(token, Instant::now());
    }

    /// Asks for a visitor who waits for longer than any stall of the machine.
    fn visit_patiently(&self, token: u64) {
        self.visit_since(token, Instant::now() + Duration::from_secs(3_600));
    }

    fn visit_since(&self, token: u64, since: Instant) {
        assert!(self.queue.ask(VisitRequest { code: limited().code, core: CoreId(0), token, since }));
    }

    fn answer(&self) -> Lookup<Arc<Link>> {
        let ToCore::LookupDone { found, is_allowance: true, .. } = self.node.next_mail() else { panic!("no answer") };
        found
    }

    /// Stores the link, with visits that another node does not need.
    fn store_link(&self, parked: u64) {
        let link = limited();
        // First, because the service reads it before the link.
        let mut batch = self.node.links.batch();
        batch.set_allowance(&link.code, &StoredAllowance { of: link.identity(), taken: parked, parked });
        self.node.links.commit(batch).unwrap();
        let (mut batch, mut text) = (self.node.links.batch(), Vec::new());
        record::encode_link(b"abc", &link, &mut text);
        batch.put(&link.code, &text);
        self.node.links.commit(batch).unwrap();
    }

    fn store_tombstone(&self, origin: Origin) {
        let (mut batch, mut text) = (self.node.links.batch(), Vec::new());
        record::encode_tombstone(b"abc", &carom_model::link::record::Tombstone { origin, ..tombstone() }, &mut text);
        batch.put(&limited().code, &text);
        self.node.links.commit(batch).unwrap();
    }
}

/// The connection to a server that refuses connections.
fn without_answers() -> SharedVisits {
    let redis = Redis::new(unreachable_redis()).unwrap();
    SharedVisits { redis, node: "n0".to_owned(), answer_time: RedisTimeout::Fixed(Duration::from_millis(50)) }
}

fn limited() -> Link {
    let mut link = link("abc", Origin::Custom);
    link.policy.max_visits = NonZeroU32::new(9);
    link
}

#[test]
fn visit_waits_until_the_link_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let service = TestService::start(dir.path(), true);
    // A node may have deleted the slug's earlier link and not have heard of the new one.
    for is_deleted in [false, true] {
        if is_deleted {
            service.store_tombstone(Origin::Custom);
            service.queue.changed(vec![(limited().code, true)]);
        }
        (0..3).for_each(|token| service.visit_patiently(token));
        assert!(service.node.mail[0].recv_timeout(Duration::from_millis(50)).is_err(), "nobody knows the link yet");
        service.store_link(2);
        let mut answers: Vec<_> = (0..3).map(|_| service.answer()).collect();
        answers.sort_by_key(|answer| matches!(answer, Lookup::Live(_)));
        // The third visit needs Redis.
        assert_eq!(answers[0], Lookup::NotResident);
        assert!(answers[1..].iter().all(|answer| *answer == Lookup::Live(Arc::new(limited()))), "{answers:?}");
    }
}

#[test]
fn visit_of_a_link_that_is_never_stored_gets_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let service = TestService::start(dir.path(), true);
    service.visit(1);
    assert_eq!(service.answer(), Lookup::Unconfirmed);
    // Nothing will be stored.
    service.node.stats.writes_refused.store(true, Ordering::Release);
    // A machine may stand still meanwhile. A visit that waits for the link always takes longer.
    let is_soon = (2..5).any(|token| {
        let begin = Instant::now();
        service.visit(token);
        assert_eq!(service.answer(), Lookup::Unconfirmed);
        begin.elapsed() < FETCH_TIME_MAX / 2
    });
    assert!(is_soon, "each visit waits");
}

#[test]
fn client_that_has_left_uses_up_no_visit() {
    let dir = tempfile::tempdir().unwrap();
    let service = TestService::start(dir.path(), true);
    service.store_link(1);
    service.visit_since(0, Instant::now().checked_sub(FETCH_TIME_MAX).unwrap());
    assert_eq!(service.answer(), Lookup::NotResident);
    service.visit_patiently(1);
    assert_eq!(service.answer(), Lookup::Live(Arc::new(limited())), "the one visit is left");
}

#[test]
fn visit_of_a_link_that_has_ended_is_missing_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let alone = TestService::start(&dir.path().join("alone"), false);
    alone.visit_patiently(1);
    assert_eq!(alone.answer(), Lookup::Missing);
    let fleet = TestService::start(&dir.path().join("fleet"), true);
    fleet.store_tombstone(Origin::Issued);
    fleet.visit_patiently(2);
    assert_eq!(fleet.answer(), Lookup::Missing, "an issued code gets no other link");
}

#[test]
fn totals_of_a_stopped_node_are_sent_before_it_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let service = TestService::start(dir.path(), true);
    let (link, fleet) = (limited(), &service.node.stats.fleet);
    let left = LeftGrant { code: link.code, of: link.identity(), taken: 7 };
    let grants = left_grants::encode(&[left]);
    fleet.grants.handover.found.lock().unwrap().insert("n1".to_owned(), (5, grants));
    fleet.connected.store(true, Ordering::Release);
    let (begin, taken) = (Instant::now(), || fleet.grants.handover.taken.lock().unwrap().clone());
    while fleet.errors.get() == 0 && taken().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the thread does not look at the totals");
        std::thread::yield_now();
    }
    assert!(taken().is_empty(), "Redis may lack the totals, and a node that joins later does not know them");
    let stored = service.node.links.allowance(&link.code).unwrap();
    assert_eq!(stored.map(|stored| stored.taken), Some(7));
}
