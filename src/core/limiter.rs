//! The connections of a core, counted for their limits. [`super::admission`] has the rules.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::connection::{Conn, ConnState};
use carom_limits::ConnectionLimits;

/// Connections closed on arrival before accepting pauses until the next tick.
const SHEDS_PER_TICK: u32 = 64;

/// The connections of a core, as far as their number matters.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    /// Number of connections from which on an idle one is evicted for each that comes.
    pub(super) full_from: usize,
    /// Each connection once, with a tick before which it was not idle; the smallest first.
    pub(super) idle: BinaryHeap<Reverse<(u32, u32, u32)>>,
    /// Connections of each address, if there is a limit for one.
    pub(super) of_address: HashMap<u64, usize>,
    /// Connections that were closed on arrival since the last tick.
    pub(super) shed: u32,
    /// Connections that are evicted and not yet gone.
    pub(super) leaving: usize,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: &ConnectionLimits) -> ConnectionLimiter {
        // At 20 connections the 20th is the first above 95 %.
        ConnectionLimiter { full_from: limits.connections * 19 / 20, ..ConnectionLimiter::default() }
    }

    /// Begins the next tick.
    pub(super) fn tick(&mut self) {
        self.shed = 0;
    }

    /// True if accepting should pause: too many connections were closed on arrival in this tick.
    pub(super) fn must_pause(&self) -> bool {
        self.shed >= SHEDS_PER_TICK
    }

    /// Forgets a connection that is gone.
    pub(super) fn forget(&mut self, conn: &Conn) {
        let is_evicted = matches!(conn.state, ConnState::Closed { is_evicted: true, .. });
        debug_assert!(!is_evicted || self.leaving > 0, "each evicted connection was counted");
        self.leaving -= usize::from(is_evicted);
        let Some(client_key) = conn.counted else { return };
        assert!(self.of_address.contains_key(&client_key.hash()), "the connection does not count for its address");
        if let Some(count) = self.of_address.get_mut(&client_key.hash()) {
            debug_assert!(*count > 0, "an address without connections has no entry");
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(&client_key.hash());
            }
        }
    }
}
