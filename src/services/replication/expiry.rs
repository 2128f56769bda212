//! Asks Redis to remove expired links. Redis removes a link only if its state is equal to the one of this node: the
//! same version and the same fields. So Redis refuses a node that does not know a later expiry. If the state has
//! expired in Redis, it has not changed for long, and the state of the node counts.
//!
//! This module does nothing with an accepted removal. It comes back through the stream, to this node as to all others.
//! If Redis loses it before that, every node still has the link, and it is still due. So removals need no outbox, and
//! without Redis no link is removed.

mod recycling;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_shards::{Code, GeneratedCode};

use super::context::{FleetContext, note_error};
use crate::bridge::fleet_view::FleetView;
use crate::services::replication::redis::{Changed, CodeChange, Redis, RedisError};
use carom_model::events::{EventCause, LinkEvent};
use carom_model::link::{DueEvent, Link};
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;
use carom_telemetry::clock::unix_ms;

/// Timeout of a request. Only the expiry thread waits for it.
const REDIS_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of removing some due links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removed {
    /// The expiry thread has checked all due links of the request. The expired ones are removed, or will be.
    Done {
        /// True if some were left that may still be due.
        left: bool,
    },
    /// No link can be removed at present.
    NotNow,
}

/// The codes that this node is about to recycle.
#[derive(Debug, Default)]
enum Recycling {
    /// No codes.
    #[default]
    Idle,
    /// Codes whose tombstones were in the streams before the instant `since`, since boot.
    Removed { entries: Vec<DueEvent>, since: Duration },
    /// Codes that Redis had released to this node before the instant `since`, with their states. `gaps` is the number of
    /// positions in streams that this node had lost by then; `None` if Redis may have lost releases since. `passed` is the
    /// instant from which all nodes are known to have passed the releases.
    Released { codes: Vec<(Code, State)>, since: Duration, gaps: Option<u64>, passed: Option<Instant> },
}

/// The outcome of a step.
#[derive(Debug, Default)]
pub struct RecycledCodes {
    /// The codes that this node may use from now on.
    pub codes: Vec<GeneratedCode>,
    /// True if Redis did not answer for some codes, which are to be tried again.
    pub left: bool,
}

/// The connection of the expiry thread to Redis.
pub struct FleetExpiry {
    fleet: FleetContext,
    redis: Redis,
    recycling: Recycling,
    /// The time of the last message about nodes for which codes wait.
    logged: Instant,
}

impl FleetExpiry {
    /// Returns the knowledge about the fleet.
    pub fn view(&self) -> Arc<FleetView> {
        Arc::clone(&self.fleet.view)
    }

    /// Returns a connection that is opened on first use.
    ///
    /// # Errors
    /// If the operating system refuses something, or the certificates for Redis cannot be used.
    pub(super) fn new(fleet: &FleetContext) -> io::Result<FleetExpiry> {
        let (redis, recycling) = (fleet.redis()?, Recycling::default());
        Ok(FleetExpiry { redis, fleet: fleet.clone(), recycling, logged: Instant::now() })
    }

    /// Returns the time by which links are due: the earlier one of this machine and of Redis, in milliseconds since 1970 UTC.
    pub fn now_ms(&self) -> u64 {
        self.fleet.retention.earlier_now_ms()
    }

    /// Asks Redis to remove those of these links that still end when their entries say.
    pub fn expire(&mut self, ends: &[DueEvent], until_ms: u64) -> Removed {
        self.remove(ends, until_ms, Link::expiry, EventCause::Expiry)
    }

    /// Asks Redis to delete those of these links whose deletion is still scheduled as their entries say.
    pub fn discard(&mut self, deletions: &[DueEvent], until_ms: u64) -> Removed {
        self.remove(deletions, until_ms, Link::deletion, EventCause::Schedule)
    }

    fn remove(
        &mut self,
        ends: &[DueEvent],
        until_ms: u64,
        due_of: fn(&Link) -> Option<DueEvent>,
        cause: EventCause,
    ) -> Removed {
        // A node of the other site may have moved the expiry of a link.
        if self.fleet.may_change().is_err() || !self.fleet.view.hears_other_site() {
            return Removed::NotNow;
        }
        let now_ms = unix_ms();
        // A link that has not changed for long has expired in Redis. Or Redis has lost its state, perhaps a later one.
        let or_none = self.fleet.retention.may_have_expired()
            && self.fleet.view.trusts_redis()
            && self.fleet.stats.fleet.comparing.get() == 0;
        // A person has scheduled a deletion, so the code stays unused.
        let keep_ms = self.fleet.keep_expired_ms().filter(|_| cause == EventCause::Schedule);
        let due = ends.iter().filter(|due| due.at_ms <= until_ms);
        let changes: Vec<(Code, CodeChange)> = due
            .filter_map(|due| {
                let state = self.fleet.stored_state(&due.code)?;
                let State::Link(link) = &state else { return None };
                let (is_due, now_ms) = (due_of(link) == Some(*due), link.deletion_ms(now_ms, keep_ms));
                is_due.then_some((due.code, CodeChange::Expire { state, now_ms, or_none }))
            })
            .collect();
        let (mut left, mut error) = (changes.len() < ends.len(), None);
        let mut events = Vec::new();
        for (answer, (_, change)) in self.redis.change(&changes, REDIS_TIMEOUT).into_iter().zip(&changes) {
            match answer {
                Ok(Changed { verdict: Verdict::Accepted(_), .. }) => {
                    self.fleet.stats.expiry.expired.add(1);
                    // The stream brings the removal to all nodes; the one that Redis heard first has the event.
                    if let CodeChange::Expire { state: State::Link(link), .. } = change {
                        events.push(LinkEvent::removal(Arc::clone(link), now_ms, cause).encode());
                    }
                }
                // The link was changed or is gone; or Redis has yet to hear of it.
                Ok(_) => left = true,
                // A refusal of one code must not keep the others waiting. The alarm names it.
                Err(refused @ RedisError::Refused(_)) => {
                    note_error(&self.fleet.stats, &refused);
                    left = true;
                }
                Err(away) => error = Some(away),
            }
        }
        if let Err(error) = self.fleet.links.append_events(events) {
            tracing::error!(%error, "removals of links could not be added to the event log");
        }
        let Some(error) = error else { return Removed::Done { left } };
        note_error(&self.fleet.stats, &error);
        Removed::NotNow
    }
}
