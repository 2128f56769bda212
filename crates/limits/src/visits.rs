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
