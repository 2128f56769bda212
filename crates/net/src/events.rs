//! The reports of a stack to its driver.

/// A connection of a stack. An id that has ended never becomes valid again within 4 billion connections of its place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId {
    /// Place among the connections, below [`connections_max`](crate::StackConfig::connections_max): an index for the
    /// driver.
    pub index: u32,
    /// Number of the connection at this place.
    pub generation: u32,
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both sides have sent everything, and it was acknowledged.
    Finished,
    /// The peer has reset the connection.
    ResetByPeer,
    /// The peer did not answer, or had no window for too long.
    TimedOut,
}

/// The driver's side of a stack. The stack calls it from [`receive`](crate::Stack::receive) and
/// [`poll`](crate::Stack::poll), for connections that the driver has not closed or reset itself.
pub trait Events {
    /// Reports that a client has connected.
    fn opened(&mut self, id: ConnectionId);

    /// Passes bytes of the client, in order, borrowed from the received frame or the out-of-order buffer.
    fn received(&mut self, id: ConnectionId, bytes: &[u8]);

    /// Reports that the client has sent its last byte. The connection continues to send until it is shut down.
    fn peer_finished(&mut self, id: ConnectionId);

    /// Reports room for more bytes, after [`send`](crate::Stack::send) has taken less than it was given.
    fn writable(&mut self, id: ConnectionId);

    /// Reports the end of a connection. From now on, `id` is invalid.
    fn closed(&mut self, id: ConnectionId, reason: CloseReason);
}
