//! The role of a server.

use crate::address::ServerAddress;

/// The role of a server, as it reports itself.
pub(crate) enum ServerRole {
    /// A standalone master.
    Alone,
    /// A replica of another server.
    Replica,
    /// A server of a cluster: first and last slot, and master, of each range.
    Cluster(Vec<(u16, u16, ServerAddress)>),
    /// A sentinel, which names this master.
    Named(ServerAddress),
}
