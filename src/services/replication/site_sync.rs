//! Synchronisation with the other site of visits, API keys and redirects of domains, on the node that is the relay. The
//! states of codes come through the relay itself.
//!
//! It is a thread of its own, so that round trips for visits and keys delay no links. It does nothing unless the relay has
//! found the Redis of the other site to be the right one.
//!
//! * `stream_copies` copies the streams of many origins; `copies` decides which of them are asked for at once, and `refusals`
//!   keeps one that a site refuses from stopping the others;
//! * `visits` has the streams with batches of visit counts, and `snapshots` brings what a stream no longer has;
//! * `visit_log` has the streams with blocks of the visit log, and copies deletions of visits;
//! * `shared` merges API keys, redirects of domains and saved destination rules.

mod copies;
mod forwards;
mod refusals;
mod shared;
mod snapshots;
mod stream_copies;
mod visit_log;
mod visits;

use std::io;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::forwards::Forwards;
use self::stream_copies::StreamCopier;
use super::context::FleetContext;
use crate::services::exchanges::ExchangeReports;
use crate::services::replication::redis::{Redis, RedisError};
use crate::services::threads;
use crate::services::threads::priority::Priority;

/// Interval between two turns.
const EVERY: Duration = Duration::from_millis(100);

/// Interval between two turns of a node that is not the relay, or that gets no answer.
const EVERY_WHILE_IDLE: Duration = Duration::from_millis(500);

/// Timeout of the Redis of this site. No client waits for it.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the Redis of the other site.
const OTHER_TIME: Duration = Duration::from_secs(3);

/// The names in messages of what is merged as a whole, each with the last part of its key in Redis.
const MERGED: [(&str, &str); 3] =
    [("API keys", "apps"), ("domain redirects", "domains"), ("saved destination rules", "rules")];

/// Starts the thread; `None` if the fleet has one site.
pub(super) fn start(fleet: &FleetContext) -> io::Result<Option<JoinHandle<()>>> {
    let Some(site) = &fleet.settings.site else { return Ok(None) };
    let sync = SiteSync {
        own: fleet.redis()?,
        other: fleet.other_redis(site)?,
        fleet: fleet.clone(),
        visits: StreamCopier::new("visits"),
        forwards: Forwards::default(),
        log: StreamCopier::new("visit log"),
        deletions: None,
        shared: None,
        reports: MERGED.map(|(name, key)| ExchangeReports::new(name, key)),
    };
    threads::start(Priority::Long, "redis-site-sync", move || sync.run()).map(Some)
}

struct SiteSync {
    fleet: FleetContext,
    /// The Redis of this site.
    own: Redis,
    /// The Redis of the other site.
    other: Redis,
    /// The copies of visits.
    visits: StreamCopier,
    /// The requests for snapshots that were forwarded.
    forwards: Forwards,
    /// The copies of visit logs.
    log: StreamCopier,
    /// The revision of the other site's deletions of visits that this site has.
    deletions: Option<String>,
    /// The time of the last merge of keys, redirects of domains and rules.
    shared: Option<Instant>,
    /// The reports of merges that a site refuses, in the order of [`MERGED`].
    reports: [ExchangeReports; MERGED.len()],
}

impl SiteSync {
    fn run(mut self) {
        while !self.fleet.is_stopping() {
            let is_linked = self.fleet.stats.fleet.site.is_linked.load(Ordering::Acquire);
            let wait = if is_linked && self.fleet.has_same_code_secret() {
                match self.turn() {
                    Ok(()) => EVERY,
                    Err(error) => {
                        // An unreachable Redis has alarms of its own in the other threads.
                        tracing::debug!(%error, "nothing can be brought from the other site now");
                        EVERY_WHILE_IDLE
                    }
                }
            } else {
                (self.forwards, self.deletions) = (Forwards::default(), None);
                EVERY_WHILE_IDLE
            };
            std::thread::park_timeout(wait);
        }
    }

    /// Does all work that is due. A part that fails does not stop the others.
    fn turn(&mut self) -> Result<(), RedisError> {
        let done = [self.copy_visits(), self.bring_chunks(), self.copy_visit_log(), self.merge_shared()];
        done.into_iter().collect()
    }
}
