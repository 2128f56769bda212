//! Reasons why a piece of the exchange of visit counts was not finished.

use crate::services::replication::redis::RedisError;
use carom_store::links::StoreError;

/// The reason why a turn was not finished.
#[derive(Debug)]
pub(super) enum Unfinished {
    Redis(RedisError),
    Store(StoreError),
}

impl From<RedisError> for Unfinished {
    fn from(error: RedisError) -> Unfinished {
        Unfinished::Redis(error)
    }
}

impl From<StoreError> for Unfinished {
    fn from(error: StoreError) -> Unfinished {
        Unfinished::Store(error)
    }
}
