//! Connection limits: admission of new connections, and eviction of idle ones.
//!
//! Above 95 % of the limit, the connection that has been idle for longest is closed. If none is idle, new connections
//! are closed as they arrive, so that existing clients are not affected. When many of them arrive, accepting pauses
//! until the next tick, for at most 250 ms.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::connection::{CloseKind, Conn, ConnState, Conns};
use super::driver::Tag;
use carom_limits::ConnectionLimits;
use carom_model::access::miss_limiter::MissLimiter;
use carom_model::clients::forwarded::Trust;

/// Connections that are examined in search of an idle one.
const IDLE_CANDIDATES_MAX: usize = 256;

/// Connections closed on arrival before accepting pauses until the next tick.
const SHEDS_PER_TICK: u32 = 64;

/// Idle connections that are evicted when no file descriptors are left: a few more than arrive before the next check.
pub(super) const DESCRIPTOR_EVICTIONS: usize = 16;

/// The connections of a core, counted for their limits.
pub(super) struct Admission {
    limits: ConnectionLimits,
    /// Proxies, each of which connects for many clients.
    trust: Arc<Trust>,
    /// Number of connections from which on an idle one is evicted for each that comes.
    eviction_threshold: usize,
    /// One entry for each connection: a tick before which it was not idle, its slot, and its generation. The smallest tick
    /// comes first.
    idle: BinaryHeap<Reverse<(u32, u32, u32)>>,
    /// Connections of each address, if there is a limit for one.
    connections_by_address: HashMap<u64, usize>,
    /// Connections that were closed on arrival since the last tick.
    shed: u32,
    /// Connections that are evicted and not yet gone.
    evicting: usize,
}

impl Admission {
    pub(super) fn new(limits: ConnectionLimits, trust: Arc<Trust>) -> Admission {
        Admission {
            limits,
            trust,
            // At 20 connections the 20th is the first above 95 %.
            eviction_threshold: limits.connections * 19 / 20,
            idle: BinaryHeap::new(),
            connections_by_address: HashMap::new(),
            shed: 0,
            evicting: 0,
        }
    }

    /// Begins the next tick.
    pub(super) fn tick(&mut self) {
        self.shed = 0;
    }

    /// True if accepting should pause: too many connections were closed on arrival in this tick.
    pub(super) fn must_pause(&self) -> bool {
        self.shed >= SHEDS_PER_TICK
    }

    /// Returns how many ticks a connection must have been idle to be evicted for one more; `None` while there is enough
    /// room. `open` is the number of connections, as in [`Admission::admits`].
    pub(super) fn evicts_after(&self, open: usize) -> Option<u32> {
        debug_assert!(self.evicting <= open, "connections that leave are still there");
        let count = open - self.evicting;
        // Below the limit, connections that have only just come are kept.
        (count >= self.eviction_threshold).then_some(if count < self.limits.connections { 2 } else { 0 })
    }

    /// Returns true if one more connection may open.
    pub(super) fn admits(&mut self, open: usize) -> bool {
        let has_room = open - self.evicting < self.limits.connections;
        self.shed += u32::from(!has_room);
        has_room
    }

    /// Registers a new connection.
    pub(super) fn register(&mut self, slot: u32, conns: &mut Conns) {
        let Some(conn) = conns.get(slot) else { return };
        self.idle.push(Reverse((conn.wait.since, conn.tag.slot, conn.tag.generation)));
        if self.idle.len() > 2 * conns.len() + IDLE_CANDIDATES_MAX {
            self.idle.retain(|Reverse((_, slot, generation))| {
                conns.find(Tag { slot: *slot, generation: *generation }).is_some()
            });
        }
    }

    /// Counts a connection for its address, if that is known. Returns true if it may stay.
    pub(super) fn count_address(&mut self, conn: &mut Conn, miss_limiter: &MissLimiter) -> bool {
        let most = self.limits.per_address;
        if most == 0 {
            return true;
        }
        assert!(conn.counted_address.is_none(), "the connection would count twice, and be forgotten once");
        let Some(address) = conn.cached_address() else { return true };
        let client_key = miss_limiter.client_key(address);
        if self.trust.proxies.has(address) || client_key.is_private() && !self.limits.counts_private {
            return true;
        }
        let count = self.connections_by_address.entry(client_key.hash()).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        conn.counted_address = Some(client_key);
        true
    }

    /// Returns the slot of the connection that has been idle for longest, if that is at least `idle_for` ticks. The
    /// caller closes it as an evicted one.
    pub(super) fn take_idle(&mut self, conns: &mut Conns, tick: u32, idle_for: u32) -> Option<u32> {
        for _ in 0..IDLE_CANDIDATES_MAX {
            let Reverse((since, slot, generation)) = self.idle.pop()?;
            let Some(conn) = conns.find(Tag { slot, generation }) else { continue };
            let is_idle = !conn.is_busy() && conn.awaits_request();
            // Idle since a later tick than the heap knew, or not idle now.
            let idle_since = if is_idle { conn.wait.since } else { tick + 1 };
            if !is_idle || idle_since != since {
                if !conn.state.is_closed() {
                    self.idle.push(Reverse((idle_since, slot, generation)));
                }
                continue;
            }
            if tick.wrapping_sub(since) < idle_for {
                self.idle.push(Reverse((since, slot, generation)));
                return None;
            }
            self.evicting += 1;
            return Some(slot);
        }
        None
    }

    /// Forgets a connection that is gone.
    pub(super) fn forget(&mut self, conn: &Conn) {
        let is_evicted = matches!(conn.state, ConnState::Closed(CloseKind::Evicted));
        debug_assert!(!is_evicted || self.evicting > 0, "each evicted connection was counted");
        self.evicting -= usize::from(is_evicted);
        let Some(client_key) = conn.counted_address else { return };
        assert!(
            self.connections_by_address.contains_key(&client_key.hash()),
            "the connection does not count for its address"
        );
        if let Some(count) = self.connections_by_address.get_mut(&client_key.hash()) {
            debug_assert!(*count > 0, "an address without connections has no entry");
            *count -= 1;
            if *count == 0 {
                self.connections_by_address.remove(&client_key.hash());
            }
        }
    }
}
