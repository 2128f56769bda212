//! Limits of visit counts, and of links with `maxVisits`.

/// Memory for visit counts before they are written to the store, in bytes. Above it, links are still counted, in some
/// 64 bytes each, but referrers are not: a client can invent any number of those.
pub const VISITS_TALLIED_BYTES: usize = 64 * 1024 * 1024;

/// Referring hosts in memory for one link and hour; beyond it, the rarest are dropped. The store keeps fewer, so some
/// room is left for hosts that turn out to be rare.
pub const LINK_HOSTS_HELD: usize = 128;

/// Referring hosts in memory for all links together and one hour. More than for one link, since more hosts refer to
/// them.
pub const ALL_HOSTS_HELD: usize = 400;

/// Bytes of the visit log before visits are in the store: a start after a crash reads so many in a second.
pub const VISITS_LOG_BYTES: u64 = 128 * 1024 * 1024;

/// Redirects of limited links that may wait for a grant of visits. Further requests get 503.
pub const ALLOWANCE_QUEUE_LEN: usize = 16_384;

/// Redirects of limited links that are handled together: those of one link share a write.
pub const ALLOWANCE_BATCH: usize = 1_024;

/// Referring hosts that the API shows for a link or a period, those with the most visits.
pub const REFERRERS_SHOWN_MAX: usize = 100;

/// Bytes of visit counts of one node that wait for Redis. Beyond it, the oldest are dropped, and other nodes ask for a
/// snapshot once Redis is back.
pub const VISITS_UNSENT_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of visit counts that Redis keeps for each node: minutes at a high load, weeks at a low one. A node that was
/// away for longer asks for a snapshot.
pub const VISITS_STREAM_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of visit counts in one stream entry, unless a single batch is longer.
pub const VISITS_ENTRY_BYTES: usize = 1024 * 1024;

/// Bytes of one chunk of a snapshot of visit counts.
pub const VISITS_CHUNK_BYTES: usize = 256 * 1024;

/// Chunks of a snapshot that Redis holds at once.
pub const VISITS_CHUNKS_HELD: usize = 4;
