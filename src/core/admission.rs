//! Connection limits: admission of new connections, and eviction of idle ones.
//!
//! Above 95 % of the limit, the connection that has been idle for longest is closed. If none is idle, new connections
//! are closed as they arrive, so that existing clients are not affected. When many of them arrive, accepting pauses
//! until the next tick, for at most 250 ms. [`super::limiter`] has the state.

use std::cmp::Reverse;

use super::driver::Tag;
use super::listen::Layers;
use super::work::Work;

/// Connections that are examined in search of an idle one.
const LOOKED_AT: usize = 256;

/// Idle connections that are evicted when no file descriptors are left: a few more than arrive before the next check.
pub(super) const EVICTED_FOR_FILES: usize = 16;

impl Work {
    /// Returns true if one more connection may open. Evicts an idle connection for it if needed.
    pub(super) fn has_room(&mut self) -> bool {
        debug_assert!(self.limiter.leaving <= self.conns.len(), "connections that leave are still there");
        let count = self.conns.len() - self.limiter.leaving;
        if count >= self.limiter.full_from {
            // Below the limit, connections that have only just come are kept.
            let idle_for = if count < self.limits.connections { 2 } else { 0 };
            self.evict(idle_for);
        }
        let has_room = self.conns.len() - self.limiter.leaving < self.limits.connections;
        if !has_room {
            self.stats.shed.add(1);
            self.limiter.shed += 1;
        }
        has_room
    }

    /// Registers a new connection, and counts it for its address if that is known.
    pub(super) fn register(&mut self, slot: u32, layers: Layers) {
        let Some(conn) = self.conns.get(slot) else { return };
        self.limiter.idle.push(Reverse((conn.wait.since, conn.tag.slot, conn.tag.generation)));
        if self.limiter.idle.len() > 2 * self.conns.len() + LOOKED_AT {
            let conns = &mut self.conns;
            self.limiter.idle.retain(|Reverse((_, slot, generation))| {
                conns.of(Tag { slot: *slot, generation: *generation }).is_some()
            });
        }
        if !layers.proxied {
            self.count_address(slot);
        }
    }

    /// Counts a connection for its address. Returns true if it may stay.
    pub(super) fn count_address(&mut self, slot: u32) -> bool {
        let most = self.limits.per_address;
        let Some(conn) = self.conns.get(slot).filter(|_| most > 0) else { return true };
        assert!(conn.counted.is_none(), "the connection would count twice, and be forgotten once");
        let Some(address) = conn.known_address() else { return true };
        let client_key = self.services.miss_limiter().client_key(address);
        // A proxy stands for many clients.
        if self.trust.proxies.has(address) || client_key.is_private() && !self.limits.counts_private {
            return true;
        }
        let count = self.limiter.of_address.entry(client_key.hash()).or_default();
        if *count >= most {
            self.stats.shed.add(1);
            self.break_off(slot);
            return false;
        }
        *count += 1;
        conn.counted = Some(client_key);
        true
    }

    /// Closes the connection that has been idle for longest, if that is at least `idle_for` ticks. Returns true if
    /// there was one.
    pub(super) fn evict(&mut self, idle_for: u32) -> bool {
        for _ in 0..LOOKED_AT {
            let Some(Reverse((since, slot, generation))) = self.limiter.idle.pop() else { return false };
            let Some(conn) = self.conns.of(Tag { slot, generation }) else { continue };
            let is_idle = !conn.is_busy() && conn.awaits_request();
            // Idle since a later tick than the heap knew, or not idle now.
            let idle_since = if is_idle { conn.wait.since } else { self.now.tick + 1 };
            if !is_idle || idle_since != since {
                if !conn.state.is_closed() {
                    self.limiter.idle.push(Reverse((idle_since, slot, generation)));
                }
                continue;
            }
            if self.now.tick.wrapping_sub(since) < idle_for {
                self.limiter.idle.push(Reverse((since, slot, generation)));
                return false;
            }
            self.limiter.leaving += 1;
            self.stats.evicted.add(1);
            self.close(slot, true);
            return true;
        }
        false
    }
}
