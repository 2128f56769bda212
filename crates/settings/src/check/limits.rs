//! The checks of the limits that an operator may set.

use std::time::Duration;

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::InvalidValue;
use crate::settings::Limits;
use crate::value::{self, Written, quantities};
use carom_limits::{APP_CREATES_MAX, CONNECTIONS_PER_ADDRESS, ConnectionLimits};

impl Checker<'_> {
    /// Returns the limits; `None` if one of them is invalid.
    pub(super) fn limits(&mut self) -> Option<Limits> {
        let connections = self.connection_limits();
        let most = u64::from(APP_CREATES_MAX);
        let creates = self.one(Key::LimitsCreatesPerSecond, |written| value::integer(written, 0, most));
        let misses = self.one(Key::LimitsMissesPerSecond, |written| value::integer(written, 0, most));
        Some(Limits {
            connections: connections?,
            creates_per_second: u32::try_from(creates?).ok()?,
            misses_per_second: u32::try_from(misses?).ok()?,
        })
    }

    /// Returns the limits on the connections of one core.
    fn connection_limits(&mut self) -> Option<ConnectionLimits> {
        let mut number =
            |key: Key, least: u64, most: u64| self.one(key, |written| value::integer(written, least, most));
        let connections = number(Key::LimitsConnections, 1, 4_000_000);
        let handshakes = number(Key::LimitsHandshakes, 1, 1_000_000);
        let requests = number(Key::LimitsRequestsPerConnection, 0, 1_000_000_000);
        let idle = number(Key::LimitsIdleSeconds, 1, 86_400);
        let head = number(Key::LimitsHeadSeconds, 1, 600);
        let body = number(Key::LimitsBodySeconds, 1, 3_600);
        let body_rate = number(Key::LimitsBodyRate, 1, 1_000_000);
        let per_address = self.one(Key::LimitsConnectionsPerAddress, per_address);
        let mut size =
            |key: Key, least: u64, most: u64| self.one(key, |written| quantities::size_within(written, least, most));
        let head_len = size(Key::LimitsHeadBytes, 4 << 10, 32 << 10);
        let body_len = size(Key::LimitsBodyBytes, 16 << 10, 64 << 20);
        let queued_len = size(Key::LimitsQueuedBytes, 64 << 10, 16 << 20);
        let per_address = per_address?;
        Some(ConnectionLimits {
            connections: usize::try_from(connections?).ok()?,
            per_address: per_address.map_or(Some(CONNECTIONS_PER_ADDRESS), |most| usize::try_from(most).ok())?,
            counts_private: per_address.is_some(),
            handshakes: usize::try_from(handshakes?).ok()?,
            requests: u32::try_from(requests?).ok()?,
            idle_time: Duration::from_secs(idle?),
            head_time: Duration::from_secs(head?),
            head_len: u32::try_from(head_len?).ok()?,
            body_time: Duration::from_secs(body?),
            body_len: u32::try_from(body_len?).ok()?,
            body_rate: u32::try_from(body_rate?).ok()?,
            queued_len: usize::try_from(queued_len?).ok()?,
        })
    }
}

/// Reads the connection limit of an address: `None` for the default, which carom chooses.
fn per_address(written: &Written) -> Result<Option<u64>, InvalidValue> {
    match written {
        Written::Text(text) | Written::Word(text) if text.trim() == "auto" => Ok(None),
        other => {
            let or_auto =
                |wrong: InvalidValue| InvalidValue { right: format!("{}, or \"auto\"", wrong.right), ..wrong };
            value::integer(other, 0, 4_000_000).map(Some).map_err(or_auto)
        }
    }
}
