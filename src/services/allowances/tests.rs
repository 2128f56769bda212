//! Tests of visits that come before the writer has stored their link. Redis does not answer in these tests, so
//! the store has the only visits to grant.

use std::num::NonZeroU32;
use std::path::Path;

use super::*;
use crate::services::replication::redis::RedisSettings;
use crate::services::testing::TestNode;
use carom_model::link::record;
use carom_model::testing::{link, tombstone};
use carom_redis::{ClientSettings, ServerAddress};
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
            shared: is_fleet.then(unreachable_redis),
        };
        let (queue, _) = start(setup).unwrap();
        TestService { node, queue }
    }

    fn visit(&self, token: u64) {
        self.visit_since(token, Instant::now());
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
        let (mut batch, mut text) = (self.node.links.batch(), Vec::new());
        record::encode_link(b"abc", &link, &mut text);
        batch.put(&link.code, &text);
        batch.set_allowance(&link.code, &StoredAllowance { of: identity(&link), taken: parked, parked });
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
fn unreachable_redis() -> SharedVisits {
    let client = ClientSettings::plain(ServerAddress { host: "127.0.0.1".to_owned(), port: 1 });
    let redis = Redis::new(Arc::new(RedisSettings { client, prefix: "c".to_owned(), stream_len: 1_000 })).unwrap();
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
        (0..3).for_each(|token| service.visit(token));
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
    let begin = Instant::now();
    service.visit(2);
    assert_eq!(service.answer(), Lookup::Unconfirmed);
    assert!(begin.elapsed() < FETCH_TIME_MAX / 2);
}

#[test]
fn client_that_has_left_uses_up_no_visit() {
    let dir = tempfile::tempdir().unwrap();
    let service = TestService::start(dir.path(), true);
    service.store_link(1);
    service.visit_since(0, Instant::now().checked_sub(FETCH_TIME_MAX).unwrap());
    assert_eq!(service.answer(), Lookup::NotResident);
    service.visit(1);
    assert_eq!(service.answer(), Lookup::Live(Arc::new(limited())), "the one visit is left");
}

#[test]
fn visit_of_a_link_that_has_ended_is_missing_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let alone = TestService::start(&dir.path().join("alone"), false);
    alone.visit(1);
    assert_eq!(alone.answer(), Lookup::Missing);
    let fleet = TestService::start(&dir.path().join("fleet"), true);
    fleet.store_tombstone(Origin::Issued);
    fleet.visit(2);
    assert_eq!(fleet.answer(), Lookup::Missing, "an issued code gets no other link");
}
