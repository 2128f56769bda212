//! Shortage of frames: the behaviour of a stack when clients hold most of its frames.
//!
//! A frame stays with the stack until its client acknowledges it. Clients that acknowledge nothing, or a few bytes at a
//! time, could keep all frames, and other clients would get no answer. So while frames are short, a connection may send
//! only if it holds few, and connections that have held a frame for long are reset.

use super::Stack;
use crate::connection::{Shared, TcpState};

/// Frames of a connection that may still send while frames are short: a redirect takes one, a page a few.
const FRAMES_SHORT_MAX: u32 = 4;

/// Age of an unacknowledged frame, in microseconds, from which on its connection is reset while frames are short. A
/// client that is there acknowledges within a round trip.
const HELD_LONG_US: u32 = 1_000_000;

/// Connections that one turn examines.
const EXAMINED_PER_TURN: usize = 1_024;

impl Shared {
    /// Returns true if a connection that holds `held` frames may send no further one, although it is below its own
    /// limit.
    #[cold]
    pub(crate) fn lacks_frames(&self, held: u32) -> bool {
        self.held.is_full() || held >= FRAMES_SHORT_MAX
    }
}

impl Stack {
    /// Ends connections that have held a frame for long, until frames are no longer short. Their driver hears of it
    /// from the timers of the next [`Stack::poll`].
    #[cold]
    pub(super) fn relieve(&mut self, now_us: u64) {
        let mut held = self.shared.held.len();
        for _ in 0..EXAMINED_PER_TURN.min(self.connections.len()) {
            if held <= self.shared.short_from {
                return;
            }
            self.examined = (self.examined + 1) % self.connections.len();
            let connection = &mut self.connections[self.examined];
            if connection.state == TcpState::Closed {
                continue;
            }
            let age_us = connection.oldest_held_us(&self.shared.held, now_us as u32);
            if age_us.is_some_and(|age_us| age_us >= HELD_LONG_US) && connection.expire((now_us / 1000) as u32) {
                held -= connection.held_len();
                self.rearm(self.examined as u32);
            }
        }
    }
}
