//! Limits of a node in a fleet: its requests to Redis, and what it remembers.

use std::time::Duration;

use crate::connections::ANSWER_TIME_MAX;

/// Requests to Redis in one batch. A millisecond of a server's time.
pub const GATEWAY_BATCH: usize = 512;

/// Time for which the reuse thread of a node remembers a create that it has sent to its writer, and that the store may
/// not have yet: as long as the client waits for the response.
pub const MAKING_KEPT: Duration = ANSWER_TIME_MAX;

/// Shortest time for which a request for an unknown code waits for Redis to report whether another node has created it,
/// unless `fleet.look_up_ms` sets another one. With a distant Redis, it waits for four round trips.
pub const LOOK_UP_TIME_MIN: Duration = Duration::from_millis(20);

/// Shortest timeout of a create, change or delete in Redis, unless `fleet.answer_ms` sets another one. With a distant
/// Redis, it is four round trips.
pub const CHANGE_TIME_MIN: Duration = Duration::from_millis(100);

/// Longest timeout of a request to Redis that a client waits for. Shorter than [`crate::FETCH_TIME_MAX`].
pub const REDIS_TIME_MAX: Duration = Duration::from_secs(1);

/// Time for which a node with a shared home of links goes on storing a state that Redis has, and reads the streams without
/// a gap. A failover that takes back less than this loses nothing: the node sends the state again.
pub const HOME_SETTLE_TIME: Duration = Duration::from_secs(10);

/// Bits of the filter of chosen slugs that look like generated codes, on a node with a shared home of links: 4 MiB. With
/// two million such slugs, one guess in 2,000 is asked for; with four million, one in 50.
pub const HOME_SLUG_BITS: usize = 1 << 25;

/// Time for which a request for a code in doubt waits until the other nodes have confirmed that Redis has all their
/// links. A node may have generated such a code, but Redis does not have it. Longer than the second until their next
/// heartbeats, and shorter than [`crate::FETCH_TIME_MAX`].
pub const DOUBT_TIME: Duration = Duration::from_millis(1_500);

/// Maximum number of requests for codes in doubt that wait on a node for the other nodes ([`DOUBT_TIME`]).
/// Further ones get 503 at once.
pub const DOUBTS_MAX: usize = 64;

/// Greatest age of the delivery that all other nodes have confirmed, at which a request for a code in doubt still waits
/// for them. They send one heartbeat a second, so it is at most three heartbeats old while all of them confirm. If it
/// is older, such requests get 503 at once.
pub const DELIVERED_KEPT: Duration = Duration::from_secs(4);

/// Time for which a node relies on the answer to its last heartbeat, which brings the highest counter value of the
/// fleet: three heartbeats. After that, the node answers 503 instead of 404 for codes that it does not have.
pub const MARK_KEPT: Duration = Duration::from_secs(3);

/// Time for which a node that has read all streams to their ends relies on having every slug that looks like a
/// generated code: two reads of quiet streams. Meanwhile, a core answers 404 for a generated code beyond all leases
/// without asking Redis.
pub const FOLLOWED_KEPT: Duration = Duration::from_millis(100);

/// Time for which the client of a create waits for its response after Redis has accepted a slug that looks like a
/// generated code. It is longer than any node relies on an earlier reading of the streams ([`FOLLOWED_KEPT`]).
pub const SLUG_HELD: Duration = Duration::from_millis(125);

/// Time after a lost or new connection, or a new master, in which Redis may lack changes that other nodes are about to
/// bring back: they notice a loss after at most five seconds.
pub const SETTLE_TIME: Duration = Duration::from_secs(6);

const _: () = assert!(SLUG_HELD.as_millis() * 4 >= FOLLOWED_KEPT.as_millis() * 5, "clocks run at different speeds");

/// Maximum number of unknown codes that wait for a look-up in Redis. Further requests get 503 at once.
pub const LOOK_UP_QUEUE_LEN: usize = 1_024;

/// Unknown codes that are looked up in one batch.
pub const LOOK_UP_BATCH: usize = 256;

/// Maximum number of codes of bulk requests that wait for a look-up in a shared home of links: 16 chunks. Further lines get
/// 503.
pub const BULK_LOOK_UP_QUEUE_LEN: usize = 4_096;

/// Codes of bulk requests that a node asks Redis for at once. A quarter of a millisecond of a server's time: a redirect of a
/// link that is not in memory waits behind them for no longer.
pub const BULK_LOOK_UPS_MAX: usize = 128;

/// Time for which a line of a bulk request waits until Redis is asked for its code. Together with the timeout of Redis, it
/// is shorter than [`ANSWER_TIME_MAX`], so the client gets the reason.
pub const BULK_LOOK_UP_WAIT: Duration = Duration::from_secs(5);

const _: () = assert!(
    BULK_LOOK_UP_WAIT.as_millis() + REDIS_TIME_MAX.as_millis() + DOUBT_TIME.as_millis() < ANSWER_TIME_MAX.as_millis(),
    "clients would hear of a late answer, and not of its reason"
);

/// Snapshots for joining nodes that a node serves at once. Each keeps what the store replaces meanwhile.
pub const SNAPSHOTS_MAX: usize = 2;

/// Requests of joining nodes that wait for the thread that reads snapshots: each node sends one at a time.
pub const SNAPSHOT_QUEUE_LEN: usize = 8;

/// Time without a request after which a node closes a snapshot. A joining node may be restarted meanwhile.
pub const SNAPSHOT_IDLE_MAX: Duration = Duration::from_secs(600);

/// Time without a request after which a snapshot is closed if another node wants to join and [`SNAPSHOTS_MAX`] are open.
pub const SNAPSHOT_IDLE_IF_WANTED: Duration = Duration::from_secs(60);

/// Least rate at which a node sends snapshots, in bytes per second. Clients wait [`ANSWER_TIME_MAX`] for a piece.
pub const SNAPSHOT_RATE_MIN: u64 = 1024 * 1024;

/// Time for which a joining node tries to reach its peer again before it gives up. A later attempt continues.
pub const JOIN_RETRY_TIME: Duration = Duration::from_secs(120);
