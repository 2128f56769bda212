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

/// Time for which a request for a code that may be leased waits until the other nodes have vouched that Redis has all their
/// links. Longer than the second until their next heartbeats, and shorter than [`crate::FETCH_TIME_MAX`].
pub const DOUBT_TIME: Duration = Duration::from_millis(1_500);

/// Maximum number of requests that wait for that. Further ones get 503 at once.
pub const DOUBTS_MAX: usize = 64;

/// Time for which the other nodes must have vouched before a request waits for them: with one heartbeat a second, the
/// last time is at most three heartbeats old.
pub const VOUCHED_KEPT: Duration = Duration::from_secs(4);

/// Time for which a node relies on the highest counter value that it has heard of: three heartbeats.
pub const MARK_KEPT: Duration = Duration::from_secs(3);

/// Time for which a node that has read all streams to their ends relies on having every slug that looks like a
/// generated code: two reads of quiet streams.
pub const FOLLOWED_KEPT: Duration = Duration::from_millis(100);

/// Time for which a node holds back the acknowledgement of a slug that looks like a generated code, once Redis has it:
/// longer than any node relies on an older reading of the streams.
pub const SLUG_HELD: Duration = Duration::from_millis(125);

/// Time after a lost connection or a new master in which Redis may lack changes that other nodes are about to bring
/// back: they notice a loss after at most five seconds.
pub const SETTLE_TIME: Duration = Duration::from_secs(6);

const _: () = assert!(SLUG_HELD.as_millis() * 4 >= FOLLOWED_KEPT.as_millis() * 5, "clocks run at different speeds");

/// Maximum number of unknown codes that wait for a look-up in Redis. Further requests get 503 at once.
pub const LOOK_UP_QUEUE_LEN: usize = 1_024;

/// Unknown codes that are looked up in one batch.
pub const LOOK_UP_BATCH: usize = 256;
