//! Leases of counter values from Redis, for the replenisher's thread.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carom_shards::{CodeLength, CounterValue, Run};

use super::context::FleetContext;
use crate::services::replication::redis::{LeaseRequest, Redis, RedisError};
use carom_model::replication::lease::{is_replicated, margin};
use carom_telemetry::alarms::Alarm;
use carom_telemetry::readable;

/// Timeout of a lease. Only the replenisher waits for it, and replicas have to confirm it.
const LEASE_TIME: Duration = Duration::from_secs(1);

/// The source of counter values for a node of a fleet.
pub struct FleetCounter {
    fleet: FleetContext,
    redis: Redis,
    /// True if this node was part of the fleet when it started. The counter of a fleet that it joins may be below the
    /// values of its own links. So its first lease of each length may raise the counter without an alarm.
    was_here: bool,
    /// The lengths of which this process has leased values.
    leased: HashSet<CodeLength>,
    made: Instant,
}

impl FleetCounter {
    /// Returns the source, without connecting.
    ///
    /// # Errors
    /// If the store cannot be read, or the certificates for Redis cannot be used.
    pub fn new(fleet: &FleetContext) -> io::Result<FleetCounter> {
        let was_here = fleet.links.has_joined_fleet().map_err(io::Error::other)?;
        Ok(FleetCounter {
            redis: fleet.redis()?,
            fleet: fleet.clone(),
            was_here,
            leased: HashSet::new(),
            made: Instant::now(),
        })
    }

    /// Leases `want` values of a length, all of them above `seen`. Blocks for a few seconds at most.
    ///
    /// # Errors
    /// A description of why no lease is possible now. Values may be lost then, which does no harm.
    pub fn lease(&mut self, length: CodeLength, want: u64, seen: u64) -> Result<Run, String> {
        self.wait_for_a_heartbeat()?;
        let stats = &self.fleet.stats;
        let wanted = LeaseRequest { length, want, seen, margin: margin(length) };
        let leased = self.redis.lease(wanted, &self.fleet.settings.node, LEASE_TIME);
        let (granted, confirmed, replicas) = leased.map_err(|error| error.to_string())?;
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
            self.release(Run { length, start: CounterValue(granted.start), len: want });
            return Err(format!("none of {replicas} Redis replicas confirmed a lease, so it was discarded"));
        }
        Ok(Run { length, start: CounterValue(granted.start), len: want })
    }

    /// Leases values without the guards against giving a value twice.
    ///
    /// # Errors
    /// A description of why no lease is possible now.
    #[cfg(feature = "faults")]
    pub fn lease_unguarded(&mut self, length: CodeLength, want: u64) -> Result<Run, String> {
        let start = self.redis.increment(length, want, &self.fleet.settings.node, LEASE_TIME);
        let start = start.map_err(|error| error.to_string())?;
        Ok(Run { length, start: CounterValue(start), len: want })
    }

    /// Waits for the answer to the first heartbeat, which is in flight when the node starts. Until Redis has it, other
    /// nodes may consider this node gone, if it was away for long. They would take over a new lease at once.
    fn wait_for_a_heartbeat(&self) -> Result<(), String> {
        while !self.fleet.lease().has_begun() {
            if self.made.elapsed() >= LEASE_TIME {
                return Err("Redis has not answered a heartbeat yet".to_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Returns how often other nodes may have taken over leases of this node.
    pub fn losses(&self) -> u32 {
        self.fleet.lease().losses()
    }

    /// Notes that no codes of an earlier process are left that may belong to another node.
    pub fn resumed(&self) {
        self.fleet.is_resumed.store(true, Ordering::Release);
    }

    /// Releases a lease whose values are used up. It does no harm if the message is lost: a node that takes over the
    /// lease finds all of its codes in use.
    pub fn release(&mut self, run: Run) {
        if let Err(error @ RedisError::Refused(_)) = self.redis.release(run.length, run.start.0, LEASE_TIME) {
            tracing::warn!(%error, "a lease could not be released");
        }
    }

    /// Returns for each code whether it has a state in Redis.
    ///
    /// # Errors
    /// If Redis does not answer for all of them.
    pub fn are_used(&mut self, codes: &[carom_shards::Code]) -> Result<Vec<bool>, String> {
        let mut used = Vec::with_capacity(codes.len());
        for some in codes.chunks(512) {
            for head in self.redis.heads(some, LEASE_TIME) {
                used.push(!head.map_err(|error| error.to_string())?.is_empty());
            }
        }
        Ok(used)
    }
}
