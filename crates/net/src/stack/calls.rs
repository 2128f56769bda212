//! Calls of a driver for one connection. An id of a connection that has ended is no error: nothing happens.

use std::net::SocketAddr;

use super::Stack;
use crate::connection::{ConnectionContext, TcpConnection, TcpState, fact};
use crate::events::ConnectionId;
use crate::next_hop::NextHops;
use crate::pool::FramePool;

impl Stack {
    fn get(&self, id: ConnectionId) -> Option<&TcpConnection> {
        let connection = self.connections.get(id.index as usize)?;
        (connection.generation == id.generation && connection.is_attended()).then_some(connection)
    }

    /// Runs `act` on a connection that is open, and arms its timer. Returns none for one that has ended.
    fn with<P: FramePool, T>(
        &mut self,
        now_us: u64,
        id: ConnectionId,
        pool: &mut P,
        act: impl FnOnce(&mut TcpConnection, &mut ConnectionContext<'_, P>) -> T,
    ) -> Option<T> {
        self.get(id)?;
        let connection = &mut self.connections[id.index as usize];
        let result = act(connection, &mut ConnectionContext { now_us, pool, shared: &mut self.shared });
        self.rearm(id.index);
        Some(result)
    }

    /// Sends bytes, as far as the windows and the frames allow. Returns how many were taken; after fewer than all,
    /// [`Events::writable`](crate::Events::writable) tells when to send the rest.
    pub fn send<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, bytes: &[u8], pool: &mut P) -> usize {
        self.with(
            now_us,
            id,
            pool,
            |connection, context| {
                if connection.can_send() { connection.send(context, bytes, false) } else { 0 }
            },
        )
        .unwrap_or(0)
    }

    /// Sends bytes like [`Stack::send`], and the FIN with the last of them, if all were taken.
    pub fn send_last<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, bytes: &[u8], pool: &mut P) -> usize {
        self.with(
            now_us,
            id,
            pool,
            |connection, context| {
                if connection.can_send() { connection.send(context, bytes, true) } else { 0 }
            },
        )
        .unwrap_or(0)
    }

    /// Ends our direction with a FIN. The connection continues to receive.
    pub fn shutdown<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, pool: &mut P) {
        self.with(now_us, id, pool, |connection, context| {
            if connection.can_send() {
                connection.send_fin(context);
            }
        });
    }

    /// Ends both directions: what was sent arrives, and data that arrives from now on resets the connection. The id is
    /// invalid afterwards, and no event follows.
    pub fn close<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, pool: &mut P) {
        self.with(now_us, id, pool, |connection, context| {
            connection.set(fact::BLOCKED, false);
            if connection.can_send() {
                connection.send_fin(context);
            }
            connection.set(fact::ORPHAN, true);
            connection.arm(context, false);
        });
    }

    /// Resets a connection. The id is invalid afterwards, and no event follows.
    pub fn reset<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, pool: &mut P) {
        let is_open = self.with(now_us, id, pool, |connection, context| connection.send_reset(context)).is_some();
        if is_open {
            self.end(now_us, id.index, pool);
        }
    }

    /// Announces no further window: the driver gets at most what was announced already.
    pub fn pause(&mut self, id: ConnectionId) {
        if self.get(id).is_some() {
            self.connections[id.index as usize].set(fact::PAUSED, true);
        }
    }

    /// Announces the whole window again.
    pub fn resume<P: FramePool>(&mut self, now_us: u64, id: ConnectionId, pool: &mut P) {
        self.with(now_us, id, pool, |connection, _| {
            if connection.has(fact::PAUSED) {
                connection.set(fact::PAUSED, false);
                connection.set(
                    fact::ACK_NOW,
                    matches!(connection.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2),
                );
            }
        });
    }

    /// Returns true while a connection is open for its driver.
    pub fn is_open(&self, id: ConnectionId) -> bool {
        self.get(id).is_some()
    }

    /// Returns our address and port.
    pub fn local_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.get(id).map(|connection| connection.flow.local_addr())
    }

    /// Returns the address and port of the client; behind a balancer, those of the inner packet.
    pub fn remote_addr(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.get(id).map(|connection| connection.flow.remote_addr())
    }

    /// Returns how many bytes the client has acknowledged since the start; wraps at 4 GiB.
    pub fn acknowledged(&self, id: ConnectionId) -> Option<u32> {
        self.get(id).map(TcpConnection::acknowledged)
    }

    /// Returns how many bytes are sent and not acknowledged; a FIN counts as one.
    pub fn in_flight(&self, id: ConnectionId) -> Option<u32> {
        self.get(id).map(TcpConnection::in_flight)
    }

    /// Looks up the next hop of every connection again, after routes or neighbours have changed. A connection that was
    /// opened without one keeps its way back, and takes the MTU. Takes time with the number of connections.
    pub fn refresh_next_hops<H: NextHops>(&mut self, hops: &mut H) {
        for connection in self.connections.iter_mut().filter(|connection| connection.state != TcpState::Closed) {
            if let Some(hop) = hops.next_hop(connection.flow.local.ip(), connection.flow.remote.ip()) {
                connection.set_hop(hop);
            }
        }
        for handshake in self.half_open.handshakes_mut() {
            match hops.next_hop(handshake.flow.local.ip(), handshake.flow.remote.ip()) {
                Some(hop) if handshake.reflects => handshake.hop.mtu = handshake.hop.mtu.min(hop.mtu),
                Some(hop) => handshake.hop = hop,
                None => {}
            }
        }
    }
}
