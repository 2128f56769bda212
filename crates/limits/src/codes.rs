//! Limits of short codes: their reserves, segments and reuse.

use std::time::Duration;

/// Characters of a private code: 95 random bits, too many to be guessed.
pub const PRIVATE_CODE_LEN: usize = 16;

/// Fresh codes that a core holds ready. At 10,000 creates a second on one core, the replenisher has more than a second
/// to respond.
pub const CODES_QUEUE_LEN: usize = 16_384;

/// Codes that a core lends to the admin listener at once, and the minimum that it keeps. They serve links created by
/// hand, and an import needs one message for each 64 lines.
pub const CODES_LENT: usize = 64;

/// Pause before the admin listener asks the cores for codes again, after one had none to lend: about the time that a
/// new segment takes.
pub const CODE_LOAN_PAUSE: Duration = Duration::from_millis(5);

/// Number of fresh codes below which the replenisher prepares the next segment.
pub const CODES_LOW: usize = 2_000;

/// Time for which a create waits for a fresh code before the client gets 503.
pub const CODE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Codes of expired links that form a segment: as many as in the smallest other segment.
pub const RECYCLE_LEN: usize = 10_000;

/// Codes of expired links that are released in one commit. Each commit is synced, so smaller ones would cost more.
pub const RECYCLE_BATCH: usize = 512;

/// Number of unused recycled codes above which no more codes are released: they take memory, and are lost with the id
/// table.
pub const RECYCLE_WHILE_BELOW: u64 = 100_000;

/// Minimum number of codes that a core of a fleet has in reserve: that many links can be created while Redis is
/// unavailable.
pub const FLEET_RESERVE: usize = 100_000;
