//! Limits of a node in a fleet: its requests to Redis, and what it remembers.

use std::time::Duration;

use crate::connections::ANSWER_TIME_MAX;

/// Requests to Redis in one batch. A millisecond of a server's time.
pub const GATEWAY_BATCH: usize = 512;

/// Time for which a node of a fleet remembers the creates that it has sent to its writer: as long as a client waits for
/// one.
pub const MAKING_KEPT: Duration = ANSWER_TIME_MAX;

/// Time for which a request for an unknown code waits for Redis to report whether another node has created it.
pub const LOOK_UP_TIME: Duration = Duration::from_millis(20);

/// Maximum number of unknown codes that wait for a look-up in Redis. Further requests get 404 at once.
pub const LOOK_UP_QUEUE_LEN: usize = 1_024;

/// Unknown codes that are looked up in one batch.
pub const LOOK_UP_BATCH: usize = 256;
