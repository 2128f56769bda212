//! Recycles the codes of expired links in a fleet.
//!
//! A node that adopts the tombstone of an expired link notes its code. After `links.recycle_after`, the node takes these
//! steps with up to a segment of noted codes:
//!
//! 1. It waits until every node of the fleet has passed the tombstones in the streams.
//! 2. It *releases* each code: it offers Redis the tombstone of a slug that is free, as the next state. The releases of two
//!    nodes differ by a random number, and Redis accepts the first. So the release is also the lease of the code.
//! 3. The release reaches all nodes through the streams. The node waits until each of them has passed it, and some
//!    seconds more, for streams of visits and for what cores remember. After a loss of Redis, it waits again.
//! 4. It uses the codes whose state in its own store is the release. So a release that Redis has lost counts for nothing.
//!
//! A silent node counts until others take over its leases. A node of an older version says nothing about its places, so
//! codes wait until it is upgraded. A crash between the second and the last step loses the codes for good. The next link of
//! a code continues its revisions, so each node prefers it to every earlier state.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use carom_shards::{Code, GeneratedCode};

use super::{FleetExpiry, REDIS_TIMEOUT, RecycledCodes, Recycling};
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::context::note_error;
use crate::services::replication::redis::{Changed, CodeChange, RedisError};
use carom_limits::RECYCLE_BATCH;
use carom_model::link::DueEvent;
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;

/// Time after which no node has anything else of the former links. Nodes read the streams of visits once a second, and
/// remember for half a second that a code is gone.
const LEFT_FOR: Duration = Duration::from_secs(5);

/// Interval between two messages about the nodes for which codes wait.
const LOG_EVERY: Duration = Duration::from_secs(60);

impl FleetExpiry {
    /// True if this node is about to recycle codes.
    pub fn is_recycling(&self) -> bool {
        !matches!(self.recycling, Recycling::Idle)
    }

    /// Begins to recycle the codes of these entries, which this node has read from its store.
    pub fn begin_recycling(&mut self, entries: Vec<DueEvent>) {
        assert!(!self.is_recycling(), "codes that were released to this node would be lost");
        if !entries.is_empty() {
            let since = self.await_nodes();
            self.recycling = Recycling::Removed { entries, since };
        }
    }

    /// Takes the next step if it is due. Runs on the expiry thread, and blocks while Redis answers.
    pub fn continue_recycling(&mut self) -> RecycledCodes {
        match std::mem::take(&mut self.recycling) {
            Recycling::Removed { entries, since } if self.may_release() && self.have_all_passed(since) => {
                return self.release(&entries);
            }
            // Redis may have lost releases. Nodes bring back those that they have read.
            Recycling::Released { codes, since, .. } if !self.is_redis_whole() => {
                self.recycling = Recycling::Released { codes, since, gaps: None, passed: None };
            }
            Recycling::Released { codes, gaps, .. } if gaps != Some(self.gaps()) => self.await_releases(codes),
            Recycling::Released { codes, since, gaps, passed: None } if self.have_all_passed(since) => {
                self.recycling = Recycling::Released { codes, since, gaps, passed: Some(Instant::now()) };
            }
            Recycling::Released { codes, passed: Some(passed), .. } if passed.elapsed() >= LEFT_FOR => {
                return self.confirm(&codes);
            }
            waiting => {
                self.recycling = waiting;
                self.log_wait();
            }
        }
        RecycledCodes::default()
    }

    /// Returns the present instant since boot, and lets the heartbeat thread name the nodes that have not passed it.
    fn await_nodes(&mut self) -> Duration {
        let since = since_boot();
        self.fleet.view.await_passing(Some(since));
        self.logged = Instant::now();
        since
    }

    fn have_all_passed(&self, since: Duration) -> bool {
        #[cfg(feature = "faults")]
        if crate::services::faults::Faults::from_env().recycle_at_once {
            return self.fleet.view.has_followed(since);
        }
        self.fleet.view.have_all_passed(since)
    }

    /// Waits until all nodes have passed the releases of these codes.
    fn await_releases(&mut self, codes: Vec<(Code, State)>) {
        let (since, gaps) = (self.await_nodes(), Some(self.gaps()));
        self.recycling = Recycling::Released { codes, since, gaps, passed: None };
    }

    /// Returns the number of positions in streams that this node has lost.
    fn gaps(&self) -> u64 {
        self.fleet.stats.fleet.gaps.get()
    }

    /// True if Redis has lost nothing lately that a node may be about to bring back.
    fn is_redis_whole(&self) -> bool {
        self.fleet.view.trusts_redis() && self.fleet.stats.fleet.comparing.get() == 0
    }

    /// True if this node may change states in Redis, and Redis has lost none.
    fn may_release(&self) -> bool {
        self.is_redis_whole() && self.fleet.may_change().is_ok()
    }

    /// Releases the codes whose tombstones have not changed. Those that Redis accepts belong to this node.
    fn release(&mut self, entries: &[DueEvent]) -> RecycledCodes {
        self.fleet.view.await_passing(None);
        let unsynced: HashSet<Code> = match self.fleet.links.outbox() {
            Ok(deliveries) => deliveries.into_iter().map(|delivery| delivery.code).collect(),
            Err(error) => {
                self.fleet.stats.store_errors.add_shared(1);
                tracing::error!(%error, "the outbox could not be read, so no codes are recycled");
                return RecycledCodes { codes: Vec::new(), left: true };
            }
        };
        let (mut codes, mut left, mut is_away) = (Vec::new(), false, false);
        for some in entries.chunks(RECYCLE_BATCH) {
            if is_away {
                break;
            }
            let synced = some.iter().filter(|entry| !unsynced.contains(&entry.code));
            let changes: Vec<(Code, CodeChange)> =
                synced.filter_map(|entry| Some((entry.code, CodeChange::Offer(self.released(entry)?)))).collect();
            for (answer, (code, _)) in self.redis.change(&changes, REDIS_TIMEOUT).into_iter().zip(&changes) {
                match answer {
                    Ok(Changed { verdict: Verdict::Accepted(state), .. }) => codes.push((*code, state)),
                    // Another node was faster, or the code has another link.
                    Ok(_) => {}
                    Err(error) => {
                        note_error(&self.fleet.stats, &error);
                        // A refusal of one code must not keep the others waiting.
                        is_away |= !matches!(error, RedisError::Refused(_));
                        left = true;
                    }
                }
            }
        }
        if !codes.is_empty() {
            self.await_releases(codes);
        }
        RecycledCodes { codes: Vec::new(), left }
    }

    /// Returns the release of the code of an entry; `None` if something has happened to the code since.
    fn released(&self, entry: &DueEvent) -> Option<State> {
        let state = self.fleet.stored_state(&entry.code)?;
        let is_same = matches!(&state, State::Gone(gone) if gone.deleted_ms == entry.at_ms);
        // Zero stands for links from before the fleet.
        if is_same { state.released(getrandom::u64().ok()?.max(1)) } else { None }
    }

    /// Returns those of the released codes that are still as they were released, on this node as in Redis.
    fn confirm(&self, codes: &[(Code, State)]) -> RecycledCodes {
        self.fleet.view.await_passing(None);
        let own = codes.iter().filter(|(code, state)| self.fleet.stored_state(code).as_ref() == Some(state));
        let codes = own.filter_map(|(code, _)| GeneratedCode::from_code(&code.within(None))).collect();
        RecycledCodes { codes, left: false }
    }

    /// Logs once in a while for which nodes codes wait.
    fn log_wait(&mut self) {
        if self.logged.elapsed() < LOG_EVERY {
            return;
        }
        self.logged = Instant::now();
        let nodes = &self.fleet.stats.expiry.recycling_waits_for;
        let nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
        tracing::info!(nodes, "codes of expired links stay unused until these nodes have read the streams");
    }
}
