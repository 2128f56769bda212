//! The handover of granted visits ([`carom_model::visits::left_grants`]): this node leaves its totals to the others
//! when it stops, and takes over the totals that stopped nodes have left. It stores them and sends them to Redis: Redis
//! may have lost them, although it has the report of this node already.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::reports::SLICE;
use super::{Allowances, SharedVisits};
use carom_model::replication::Partition;
use carom_model::visits::allowance::StoredAllowance;
use carom_model::visits::left_grants::{self, LeftGrant, TakenOver};
use carom_store::links::StoreError;

/// Most links whose totals a node leaves: some 300 kB in Redis. The others wait for a node with more links.
const LEFT_MAX: usize = 10_000;

/// Time for which Redis keeps totals that were left: longer than the others usually wait for a silent node (`fleet.reclaim_seconds`).
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// Timeout of the request that leaves totals.
const LEAVE_TIME: Duration = Duration::from_millis(500);

/// Interval between two attempts to take over totals while a part of Redis is away. Visits wait meanwhile.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(5);

impl Allowances {
    /// Leaves the totals of this node to the others, once it stops. From then on, it gets no visits, so that no grant is
    /// missing in them.
    pub(super) fn leave_if_asked(&mut self) {
        if self.has_left || !self.setup.stats.fleet.grants.handover.is_asked.load(Ordering::Acquire) {
            return;
        }
        self.has_left = true;
        let is_left = !self.failed && self.is_alone() && self.leave().is_some();
        let handover = &self.setup.stats.fleet.grants.handover;
        handover.is_left.store(is_left, Ordering::Release);
        handover.is_answered.store(true, Ordering::Release);
    }

    /// Sends the totals to Redis. Returns `None` if that failed, or if there are too many.
    fn leave(&mut self) -> Option<()> {
        let page = self.setup.links.allowances_after(None, LEFT_MAX).ok().filter(|page| page.next.is_none())?;
        let left = |(code, stored): &(Code, StoredAllowance)| {
            let (of, taken) = (stored.of, stored.taken);
            LeftGrant { code: *code, of, taken }
        };
        let grants: Vec<LeftGrant> = page.rows.iter().map(left).collect();
        let SharedVisits { redis, node, .. } = self.setup.shared.as_mut()?;
        redis.leave_grants(node, &left_grants::encode(&grants), KEPT, LEAVE_TIME).ok()
    }

    /// Takes over the totals that a stopped node has left, and tells the heartbeat thread, which then no longer counts that node.
    /// No visit may wait for a grant.
    pub(super) fn take_over_left(&mut self) {
        let (stats, now) = (Arc::clone(&self.setup.stats), Instant::now());
        let handover = &stats.fleet.grants.handover;
        let may_send = stats.fleet.connected.load(Ordering::Acquire) && now >= self.reports.takes_over_at;
        if self.failed || stats.writes_refused.load(Ordering::Acquire) || !may_send {
            return;
        }
        let first = handover.found.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
        let Some((node, (number, grants))) = first else { return };
        let left = left_grants::decode(&grants);
        let is_stored = match left.as_ref().map_or(Ok(false), |left| self.store_left(left)) {
            Ok(is_stored) => is_stored,
            Err(error) => return self.fail(&error),
        };
        if is_stored && left.is_none_or(|left| !self.send_left(left)) {
            self.reports.takes_over_at = Instant::now() + TAKE_OVER_EVERY;
            handover.found.lock().unwrap_or_else(PoisonError::into_inner).insert(node, (number, grants));
            return;
        }
        if is_stored {
            tracing::info!(node, "took over the visits that were granted to a node that was stopped");
        } else {
            tracing::info!(node, "the visits that were granted to a node that was stopped cannot be taken over");
        }
        handover.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(node, (number, is_stored));
    }

    /// Sends totals to Redis. Returns false if a part of Redis did not answer.
    fn send_left(&mut self, mut left: Vec<LeftGrant>) -> bool {
        // A script takes the totals of one partition, and costs more than they do.
        left.sort_by_key(|grant| Partition::of(&grant.code));
        left.chunks(SLICE).all(|some| {
            let mut totals: BTreeMap<Partition, Vec<_>> = BTreeMap::new();
            for LeftGrant { code, of, taken } in some {
                totals.entry(Partition::of(code)).or_default().push((*code, of.claim, *taken));
            }
            self.send_totals(totals)
        })
    }

    /// Stores and syncs totals. Returns false if one cannot be read, or is about another link than the one here.
    fn store_left(&mut self, left: &[LeftGrant]) -> Result<bool, StoreError> {
        // What is in memory would replace the stored total.
        self.put_away_these(left.iter().map(|grant| &grant.code));
        let mut batch = self.setup.links.batch();
        for grant in left {
            let Ok(stored) = self.setup.links.allowance(&grant.code) else { return Ok(false) };
            match grant.merged(stored) {
                TakenOver::Unchanged => {}
                TakenOver::Changed(allowance) => batch.set_allowance(&grant.code, &allowance),
                TakenOver::OtherLink => return Ok(false),
            }
        }
        if !batch.is_empty() {
            self.setup.links.commit(batch)?;
        }
        // Also totals that the store had already, and has not synced.
        self.setup.links.sync().map(|()| true)
    }
}
