//! Learns the chosen slugs that look like generated codes beyond all leases, if Redis is the shared home of the links.
//!
//! The node does not have these slugs, so guesses could not be answered without them. A scan reads the names of all codes
//! once, in pieces beside the streams. Slugs that are created meanwhile come through the streams. After a position in a
//! stream was lost, the scan begins again.
//!
//! In a cluster, the scan reads one master after the other. Keys that move to a master that it has passed would be missed.
//! So a scan counts only if no slot has moved meanwhile.

use std::time::{Duration, Instant};

use carom_shards::Code;

use super::progress::SlugScan;
use super::{Follower, REDIS_TIMEOUT, Stopped};
use carom_model::replication::PARTITIONS;

/// Number of codes in one piece.
const PIECE: usize = 512;

/// Pause after slots have moved, before the next scan.
const PAUSE: Duration = Duration::from_secs(1);

impl Follower {
    /// Notes a code that a stream shows, or that Redis may lack.
    pub(super) fn note_slug(&self, code: &Code) {
        let view = &self.fleet.view;
        if let Some(slugs) = view.slugs()
            && view.is_never_leased(code) != Some(false)
        {
            slugs.add(code);
        }
    }

    /// Begins again: a slug may have come that no stream shows any more.
    pub(super) fn forget_slugs(&mut self) {
        self.slug_scan = None;
        if let Some(slugs) = self.fleet.view.slugs() {
            slugs.set_whole(false);
        }
    }

    /// Does one piece of the scan. Returns true if more is left.
    pub(super) fn learn_slugs(&mut self) -> Result<bool, Stopped> {
        let view = &self.fleet.view;
        let Some(slugs) = view.slugs() else { return Ok(false) };
        // Without a position in each stream, slugs could come unnoticed. Redis may lack those that are still to be delivered.
        if slugs.is_whole() || self.positions.len() < usize::from(PARTITIONS) || !self.queue.is_empty() {
            return Ok(false);
        }
        if self.slots_moved.is_some_and(|at| at.elapsed() < PAUSE) {
            return Ok(false);
        }
        // After an error the scan starts over: a cluster may have moved codes that it had not seen.
        let mut scan = match self.slug_scan.take() {
            Some(scan) => scan,
            None => {
                let slots = self.redis.slot_layout(REDIS_TIMEOUT)?;
                SlugScan { codes: self.redis.scan(REDIS_TIMEOUT)?, slots }
            }
        };
        if scan.slots.is_moving() {
            self.slots_moved = Some(Instant::now());
            return Ok(false);
        }
        let Some(codes) = self.redis.scan_on(&mut scan.codes, PIECE, REDIS_TIMEOUT)? else {
            if !scan.slots.is_still(&self.redis.slot_layout(REDIS_TIMEOUT)?) {
                tracing::info!("slots of the Redis Cluster have moved; the scan for chosen slugs begins again");
                self.slots_moved = Some(Instant::now());
                return Ok(false);
            }
            slugs.set_whole(true);
            tracing::info!(
                slugs = slugs.added(),
                "the chosen slugs of the fleet are known; guesses need no request to Redis"
            );
            return Ok(false);
        };
        for code in &codes {
            match view.is_never_leased(code) {
                Some(true) => slugs.add(code),
                Some(false) => {}
                // Before the first heartbeat, every generated code would count as a slug.
                None => return Ok(false),
            }
        }
        self.slug_scan = Some(scan);
        Ok(true)
    }
}
