//! Limits of purges.

use std::time::Duration;

/// Links of one purge. Their deletion takes a second or two, for which the client waits. A client repeats its request for
/// more.
pub const PURGE_LINKS_MAX: usize = 1_000;

/// Purges of a node that have not ended. Each waits for the slowest node; beyond them, requests get 503.
pub const PURGES_OPEN_MAX: usize = 100;

/// Time for which nodes know a purge, so that a node that was away carries it out when it returns: as long as they know
/// deletions of visits.
pub const PURGES_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Purges that a node knows at once, ended or not: those of the last [`PURGES_KEPT`]. Beyond them, requests get 503; those of
/// other nodes are carried out nevertheless. Each takes some hundred bytes in a node and, in a fleet of eight nodes, nine fields
/// in Redis.
pub const PURGES_KNOWN_MAX: usize = 50_000;

/// Capacity of the queue to the thread of purges. Each request of a client sends one at a time.
pub const PURGE_QUEUE_LEN: usize = 64;

/// Searches of a shared home for links to purge that have not ended. A node works at one after another; beyond them, requests
/// get 503.
pub const SELECTIONS_OPEN_MAX: usize = 10;

/// Searches of a shared home whose progress a node knows, ended or not. Beyond them, it forgets the oldest ended one. Each
/// takes a file of some hundred bytes.
pub const SELECTIONS_KNOWN_MAX: usize = 1_000;

/// Purges that the searches of a node leave open. The others are for requests about single links, which would otherwise get
/// 503 until a search of many links has ended.
pub const SELECTED_OPEN_MAX: usize = PURGES_OPEN_MAX / 2;
