//! The topology: one server with all keys, or the masters of a cluster by the slots of our few hash tags.
//!
//! `role` is a server's answer to the question whether it is a master; `sentinel` has the processes that name the master of
//! a service.

pub(crate) mod role;
pub(crate) mod sentinel;

use std::collections::VecDeque;
use std::time::Instant;

use redis::{Cmd, Value};

use self::role::ServerRole;
use self::sentinel::role_of_sentinel;
use super::address::ServerAddress;
use super::error::RedisError;
use super::reply::text;

/// The servers of all keys.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// A single server with all keys, or the master of a service.
    Single(ServerAddress),
    /// The masters of a cluster, each with the first and last slot of a range that it serves.
    Cluster { ranges: Vec<(u16, u16, ServerAddress)> },
}

impl Topology {
    pub(super) fn server_of(&self, slot: u16) -> Option<&ServerAddress> {
        match self {
            Topology::Single(address) => Some(address),
            Topology::Cluster { ranges } => {
                ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, master)| master)
            }
        }
    }

    pub(super) fn masters(&self) -> Vec<ServerAddress> {
        match self {
            Topology::Single(address) => vec![address.clone()],
            Topology::Cluster { ranges } => {
                let mut masters: Vec<ServerAddress> = ranges.iter().map(|(_, _, master)| master.clone()).collect();
                masters.sort();
                masters.dedup();
                masters
            }
        }
    }
}

/// The question by which a connected server reports its role again.
pub(super) enum RoleQuestion {
    /// For a server outside a cluster.
    Role,
    /// For a server of a cluster.
    Slots,
    /// For a sentinel: the master of this service.
    Master(String),
}

impl RoleQuestion {
    pub(super) fn to_command(&self) -> Cmd {
        match self {
            RoleQuestion::Role => redis::cmd("ROLE"),
            RoleQuestion::Slots => redis::cmd("CLUSTER").arg("SLOTS").to_owned(),
            RoleQuestion::Master(service) => sentinel::question(service),
        }
    }

    /// Interprets the answer.
    pub(super) fn role_of(&self, address: &ServerAddress, answer: &Value) -> Result<ServerRole, RedisError> {
        match self {
            RoleQuestion::Role => role_of_single_server(address, answer),
            RoleQuestion::Slots => role_in_cluster(address, answer),
            RoleQuestion::Master(service) => role_of_sentinel(address, service, answer),
        }
    }
}

/// Returns the role of a server, from its answers to `INFO cluster` and `ROLE`, and in a cluster to `CLUSTER SLOTS`.
pub(super) fn role_of(
    address: &ServerAddress,
    info: &Value,
    role: &Value,
    slots: impl FnOnce() -> Result<Value, RedisError>,
) -> Result<ServerRole, RedisError> {
    if text(answered(address, info)?).contains("cluster_enabled:1") {
        role_in_cluster(address, &slots()?)
    } else {
        role_of_single_server(address, role)
    }
}

/// Returns the role of a server outside a cluster, from its answer to `ROLE`.
fn role_of_single_server(address: &ServerAddress, role: &Value) -> Result<ServerRole, RedisError> {
    let role = answered(address, role)?;
    let is_replica = matches!(role, Value::Array(parts) if parts.first().is_some_and(|role| text(role) == "slave"));
    Ok(if is_replica { ServerRole::Replica } else { ServerRole::Alone })
}

/// Returns the slots of a cluster, from an answer to `CLUSTER SLOTS`.
fn role_in_cluster(address: &ServerAddress, slots: &Value) -> Result<ServerRole, RedisError> {
    Ok(ServerRole::Cluster(ranges(address, answered(address, slots)?)))
}

fn answered<'v>(address: &ServerAddress, value: &'v Value) -> Result<&'v Value, RedisError> {
    let Value::ServerError(error) = value else { return Ok(value) };
    let details = error.details().unwrap_or_default();
    Err(RedisError::Unavailable { what: format!("{address}: {} {details}", error.code()), was_sent: false })
}

/// A search for the topology. It asks one server after another, and accepts the first answer. A wrong one shows later,
/// when a server redirects a request.
pub(super) struct TopologySearch {
    /// Servers that were not asked yet, the next one first.
    pub(super) unasked: VecDeque<ServerAddress>,
    /// Servers that have not answered yet.
    pub(super) unanswered: Vec<ServerAddress>,
    /// The instant at which the next server is asked although earlier ones have not answered.
    pub(super) next_at: Instant,
    /// The last failure.
    pub(super) failure: RedisError,
    /// True if a request has expired during the search; then further ones fail at once.
    pub(super) is_slow: bool,
}

impl TopologySearch {
    /// Returns the instant of the next step of the search.
    pub(super) fn next_at(&self) -> Option<Instant> {
        (!self.unasked.is_empty()).then_some(self.next_at)
    }
}

/// Parses an answer to `CLUSTER SLOTS` into first and last slot, and master, of each range.
fn ranges(asked: &ServerAddress, slots: &Value) -> Vec<(u16, u16, ServerAddress)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
        let [host, Value::Int(port), ..] = &master[..] else { return None };
        let host =
            Some(text(host)).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.host.clone());
        Some((
            u16::try_from(*first).ok()?,
            u16::try_from(*last).ok()?,
            ServerAddress { host, port: u16::try_from(*port).ok()? },
        ))
    };
    ranges.iter().filter_map(range).collect()
}

/// Returns the slot of a hash tag: CRC-16 (XMODEM) of the text between the braces, as the Redis Cluster specification
/// defines it.
pub fn slot(tag: &str) -> u16 {
    let inner = tag.trim_start_matches('{').trim_end_matches('}');
    let crc = inner.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the example of the specification, and `CLUSTER KEYSLOT`.
        assert_eq!(slot("{123456789}"), 0x31c3);
        assert_eq!(slot("{carom}"), slot("carom"));
    }
}
