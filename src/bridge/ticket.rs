//! [`Ticket`]: the address of a task that waits for an answer.

use std::fmt;
use std::marker::PhantomData;

use carom_shards::CoreId;

/// The address of a task that waits for an answer of type `A`: its core, and the number that the core gave to it. The
/// core of the admin listener counts as one more core.
pub struct Ticket<A> {
    /// The core whose mailbox gets the answer.
    pub core: CoreId,
    /// The core's own number for the waiting task.
    pub token: u64,
    answer: PhantomData<fn(A)>,
}

impl<A> Ticket<A> {
    /// Returns the ticket of a task on a core.
    pub const fn new(core: CoreId, token: u64) -> Ticket<A> {
        Ticket { core, token, answer: PhantomData }
    }
}

impl<A> Clone for Ticket<A> {
    fn clone(&self) -> Ticket<A> {
        *self
    }
}

impl<A> Copy for Ticket<A> {}

impl<A> PartialEq for Ticket<A> {
    fn eq(&self, other: &Ticket<A>) -> bool {
        (self.core, self.token) == (other.core, other.token)
    }
}

impl<A> Eq for Ticket<A> {}

impl<A> fmt::Debug for Ticket<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("core", &self.core).field("token", &self.token).finish()
    }
}
