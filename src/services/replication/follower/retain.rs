//! Keeps only recent states and stream entries in Redis: trims the streams, and lets states expire that were written
//! before states expired.
//!
//! All nodes do both, so that it does not matter which of them run. States expire by themselves, and a trimmed stream is
//! trimmed again at no cost.

use std::time::{Duration, Instant};

use super::progress::{ExpiryPass, Retaining};
use super::{Follower, POLL, REDIS_TIMEOUT, Stopped};
use crate::services::replication::redis::Scan;
use carom_model::replication::Partition;

/// Number of times that streams are trimmed within the retention.
const TRIMS: u32 = 16;

/// Longest time between two trims of the streams.
const TRIM_EVERY: Duration = Duration::from_secs(600);

/// Number of codes in one piece of a pass over all states.
const PIECE: usize = 512;

impl Follower {
    /// Does one piece of this work, if it is due. Never asks for another turn: this can wait for all other work.
    pub(super) fn retain(&mut self) -> Result<bool, Stopped> {
        let Some(kept) = self.fleet.retention.kept() else {
            self.retaining = Retaining::default();
            return Ok(false);
        };
        if self.retaining.trimmed.is_none_or(|at| at.elapsed() >= TRIM_EVERY.min(kept / TRIMS)) {
            // Also after a refusal, which the alarm names: the next try would be refused, too.
            self.retaining.trimmed = Some(Instant::now());
            let partitions: Vec<Partition> = Partition::all().collect();
            let answer = self.redis.trim(&partitions, kept, REDIS_TIMEOUT);
            self.skip_refused(answer)?;
        }
        if self.retaining.worked.is_none_or(|at| at.elapsed() >= POLL) {
            self.retaining.worked = Some(Instant::now());
            self.expire_earlier_states()?;
        }
        Ok(false)
    }

    /// Continues the pass over all states. After an error it starts over.
    fn expire_earlier_states(&mut self) -> Result<(), Stopped> {
        let scan = match std::mem::take(&mut self.retaining.pass) {
            // What Redis refuses once, it refuses again. The alarm names it.
            ExpiryPass::Begins => self.redis.scan(REDIS_TIMEOUT),
            ExpiryPass::Goes(scan) => Ok(scan),
            ExpiryPass::Ended => {
                self.retaining.pass = ExpiryPass::Ended;
                return Ok(());
            }
        };
        self.retaining.pass = match self.skip_refused(scan)? {
            Some(scan) => self.expire_some(scan)?,
            None => ExpiryPass::Ended,
        };
        Ok(())
    }

    /// Lets some states expire. Returns the rest of the pass.
    fn expire_some(&mut self, mut scan: Scan) -> Result<ExpiryPass, Stopped> {
        let codes = self.redis.scan_on(&mut scan, PIECE, REDIS_TIMEOUT);
        let Some(codes) = self.skip_refused(codes)?.flatten() else {
            if self.retaining.expired > 0 {
                tracing::info!(states = self.retaining.expired, "earlier states expire in Redis from now on");
            }
            return Ok(ExpiryPass::Ended);
        };
        let answer = self.redis.expire_states(&codes, REDIS_TIMEOUT);
        self.retaining.expired += self.skip_refused(answer)?.unwrap_or(0);
        Ok(ExpiryPass::Goes(scan))
    }
}
