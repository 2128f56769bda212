//! The reason for which a request failed.

use std::fmt;
use std::io;

use super::address::ServerAddress;

/// The reason for which a request failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RedisError {
    /// The server could not be reached or did not answer in time. A retry succeeds once it is back.
    Unavailable {
        /// A description of what happened.
        what: String,
        /// True if the request was sent, so that the server may have carried it out, or still may.
        was_sent: bool,
    },
    /// The server refused: wrong password, out of memory, or a key of another type. An operator must act.
    Refused(String),
}

impl RedisError {
    pub(super) fn unavailable(address: &ServerAddress, error: &io::Error, was_sent: bool) -> RedisError {
        RedisError::Unavailable { what: format!("{address}: {error}"), was_sent }
    }

    /// True if the request may have been carried out in spite of the failure.
    pub fn may_be_done(&self) -> bool {
        matches!(self, RedisError::Unavailable { was_sent: true, .. })
    }
}

impl fmt::Display for RedisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisError::Unavailable { what, .. } | RedisError::Refused(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for RedisError {}
