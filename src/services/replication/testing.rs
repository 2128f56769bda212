//! A node of a fleet for unit tests of its threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::context::{FleetContext, FleetSetup};
use super::home::StateHome;
use super::retention::Retention;
use crate::bridge::fleet_view::FleetView;
use crate::services::testing::{TestNode, unreachable_redis};
use carom_model::replication::members::Lease;
use carom_model::replication::round_trips::RedisTimeout;
use carom_shards::{CodeSecret, CodeSpace};

/// Returns the context of a node that reuses links for an hour, and whose Redis refuses connections.
pub(super) fn context(dir: &Path) -> FleetContext {
    let node = TestNode::new(dir, 1);
    node.stats.fleet.same_code_secret.store(true, Ordering::Release);
    let settings = FleetSetup {
        redis: unreachable_redis(),
        node: "n0".to_owned(),
        admin_listen: ([127, 0, 0, 1], 8081).into(),
        lock_file: None,
        answer_time: RedisTimeout::Fixed(Duration::from_millis(50)),
        look_up_time: RedisTimeout::Fixed(Duration::from_millis(20)),
        accept_without_redis: true,
        reclaim_after: Duration::from_secs(600),
        dedupe: Some(Duration::from_secs(3_600)),
        retention: None,
        fingerprint: String::new(),
        agreed: BTreeMap::new(),
        site: None,
    };
    FleetContext {
        retention: Arc::new(Retention::new(settings.retention, &node.links).unwrap()),
        settings: Arc::new(settings),
        links: node.links.clone(),
        mailboxes: node.mailboxes.clone(),
        stats: Arc::clone(&node.stats),
        lease: Arc::new(Mutex::new(Lease::new(None, Duration::from_secs(600)))),
        view: Arc::new(FleetView::new(CodeSpace::new(&CodeSecret::from_bytes([7; 32])))),
        home: StateHome::Node,
        is_resumed: Arc::default(),
        stop: Arc::default(),
    }
}
