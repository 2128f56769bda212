//! Limits of events and of the sinks that deliver them.

use std::time::Duration;

/// Events in one answer of the API.
pub const EVENTS_PER_PAGE_MAX: u64 = 1_000;

/// Events in one answer of the API if the client names no number.
pub const EVENTS_PER_PAGE: u64 = 100;

/// Bytes of stored events that one page reads, unless a single event is longer. A page of descriptions is a few times
/// as long, and each reader holds one page.
pub const EVENTS_PAGE_BYTES: usize = 1024 * 1024;

/// Requests for events that may wait. Further requests get 503.
pub const EVENTS_QUEUE_LEN: usize = 64;

/// Visits that one commit of events holds. The writer waits for such a commit: some milliseconds.
pub const EVENT_VISITS_PER_COMMIT: usize = 2_048;

/// Events that a reader examines one by one behind a block of the store that it cannot read.
pub const EVENTS_PROBED: u64 = 1_000;

/// Events in one request to a webhook, or in one batch of another sink.
pub const SINK_BATCH_MAX: usize = 100;

/// Time for one request of a sink, from the look-up of the name to the last byte of the answer.
pub const SINK_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of an answer to a sink that are read. Nothing depends on them.
pub const SINK_ANSWER_BYTES: u64 = 64 * 1024;

/// Pause of a sink after its first failure. It doubles with each further one.
pub const SINK_PAUSE_MIN: Duration = Duration::from_millis(500);

/// Longest pause of a sink after failures.
pub const SINK_PAUSE_MAX: Duration = Duration::from_secs(300);

/// Failures in a row after which a sink raises its alarm.
pub const SINK_FAILURES_BEFORE_ALARM: u32 = 3;

/// Times that a sink sends an event that its receiver refuses for good. The event then becomes a dead letter.
pub const SINK_REFUSALS_MAX: u32 = 3;

/// Dead letters that are kept for each sink; beyond it, the oldest are removed.
pub const DEAD_LETTERS_MAX: usize = 1_000;
