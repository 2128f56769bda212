//! Counter values from Redis, for the replenisher.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carom_shards::{CodeLength, Counter, Run};

use super::Shared;
use crate::alarms::Alarm;
use crate::fleet::lease::{is_replicated, margin};
use crate::readable;
use crate::store::redis::{Redis, Trouble};

/// How long a lease may take: nobody waits for it but the replenisher, and replicas have to confirm it.
const LEASE_TIME: Duration = Duration::from_secs(1);

/// Where a node of a fleet gets counter values from.
pub struct FleetCounter {
    shared: Shared,
    redis: Redis,
    /// Whether this node was part of the fleet when it started. A counter below what a newcomer brings along is no
    /// surprise, until it has leased values of that length once.
    was_here: bool,
    leased: HashSet<CodeLength>,
    made: Instant,
}

impl FleetCounter {
    /// Makes ready.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(shared: &Shared) -> io::Result<FleetCounter> {
        let was_here = shared.links.is_of_fleet().map_err(io::Error::other)?;
        Ok(FleetCounter {
            redis: shared.redis()?,
            shared: shared.clone(),
            was_here,
            leased: HashSet::new(),
            made: Instant::now(),
        })
    }

    /// Leases `want` values of a length, all of them above what this node has seen.
    ///
    /// # Errors
    /// Why there are none now; values may be lost then, which costs nothing.
    pub fn lease(&mut self, length: CodeLength, want: u64, seen: u64) -> Result<Run, String> {
        self.wait_for_a_heartbeat()?;
        let stats = &self.shared.stats;
        let about = (seen, margin(length));
        let leased = self.redis.lease(length, want, about, &self.shared.settings.node, LEASE_TIME);
        let (granted, confirmed, replicas) = leased.map_err(|trouble| trouble.to_string())?;
        let is_known = !self.leased.insert(length) || self.was_here;
        if granted.mended > 0 && is_known {
            stats.fleet.regressions.add_shared(1);
            let text = format!(
                "the code counter in Redis was {} behind, and carom raised it; check whether Redis lost data or was restored from an old copy",
                readable::count(granted.mended, "value")
            );
            stats.alarms.happened(Alarm::CounterRegressed, text);
        }
        if granted.moved {
            tracing::info!(
                first = granted.start,
                "the code counter is now on another Redis server; values that it may lack are skipped"
            );
        }
        if !is_replicated(confirmed, replicas) {
            self.release(Run { length, start: Counter(granted.start), len: want });
            return Err(format!("none of {replicas} Redis replicas confirmed a lease, so it was discarded"));
        }
        Ok(Run { length, start: Counter(granted.start), len: want })
    }

    /// The same without anything that keeps values from being given twice.
    ///
    /// # Errors
    /// Why there are none now.
    #[cfg(feature = "faults")]
    pub fn lease_unguarded(&mut self, length: CodeLength, want: u64) -> Result<Run, String> {
        let start = self.redis.increment(length, want, &self.shared.settings.node, LEASE_TIME);
        let start = start.map_err(|trouble| trouble.to_string())?;
        Ok(Run { length, start: Counter(start), len: want })
    }

    /// What is leased before the first heartbeat would be taken at once by a node that has watched the silence of an
    /// earlier process for long enough. That heartbeat is on its way when the node starts.
    fn wait_for_a_heartbeat(&self) -> Result<(), String> {
        while !self.shared.lease().has_begun() {
            if self.made.elapsed() >= LEASE_TIME {
                return Err("Redis has not answered a heartbeat yet".to_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// How often others may have taken what this node had leased before.
    pub fn losses(&self) -> u32 {
        self.shared.lease().losses()
    }

    /// No code is left of an earlier process that may be another node's.
    pub fn resumed(&self) {
        self.shared.is_resumed.store(true, Ordering::Release);
    }

    /// Gives a lease back whose values are used up. That it may not arrive costs nothing: whoever takes it over finds all
    /// of its codes taken.
    pub fn release(&mut self, run: Run) {
        if let Err(trouble @ Trouble::Refused(_)) = self.redis.release(run.length, run.start.0, LEASE_TIME) {
            tracing::warn!(%trouble, "a lease could not be released");
        }
    }

    /// Which of these codes have a state in Redis.
    ///
    /// # Errors
    /// When that cannot be asked for all of them.
    pub fn are_used(&mut self, codes: &[carom_shards::Code]) -> Result<Vec<bool>, String> {
        let mut used = Vec::with_capacity(codes.len());
        for some in codes.chunks(512) {
            for head in self.redis.heads(some, LEASE_TIME) {
                used.push(!head.map_err(|trouble| trouble.to_string())?.is_empty());
            }
        }
        Ok(used)
    }
}
