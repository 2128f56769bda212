//! The rules that nodes with a common code space agree on, without I/O, clocks or threads.
//!
//! Redis (or a Redis Cluster) is the only state that nodes share. It holds the present [`State`] of every code and, for
//! each [`Partition`] of the codes, a stream of changes in the order in which they were accepted. A node
//!
//! * asks Redis before it accepts a change ([`rules`] defines the answers of Redis; the scripts in `services/replication/redis`
//!   implement them),
//! * follows the streams and adopts the changes of other nodes ([`follow`]),
//! * keeps a durable list of the changes that Redis may not have, until it has seen them in the stream ([`outbox`]),
//! * leases runs of counter values that no other node gets ([`lease`]), and watches the other nodes ([`members`], [`silence`]),
//! * writes the newest format that all live nodes read ([`formats`]),
//! * answers 404 for a code only if no other node can have it ([`absence`], [`confirmations`], [`known_members`]),
//! * gives the code of an expired link to another link once every node has passed its removal ([`passing`]),
//! * refuses changes while it may lack states that Redis no longer has ([`retention`]),
//! * waits for Redis for as long as its round trips suggest ([`round_trips`]),
//! * gives way if another process has its name ([`twins`]).
//!
//! Two sites, each with a Redis of its own, exchange states through a relay ([`sites`]).
//!
//! Redis may forget writes that it acknowledged: a failover loses the newest ones, and a server may come back empty or
//! from an old dump. So a node relies on a change only once it has seen it in the stream. A node whose position in a
//! stream is lost compares everything. Threads drive these rules in production (`services::replication`), a simulator in
//! tests.

pub mod absence;
pub mod confirmations;
pub mod follow;
pub mod formats;
pub mod known_members;
pub mod lease;
pub mod members;
pub mod outbox;
pub mod passing;
pub mod retention;
pub mod round_trips;
pub mod rules;
pub mod silence;
pub mod sites;
pub mod state;
pub mod twins;

use std::fmt;
use std::str::FromStr;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::xxh3_64;

pub use state::State;

/// Number of partitions of the codes. Each has its links and its stream in one slot of a Redis Cluster, so that both
/// change together. 64 of them spread over the masters, and are few enough to be read all at once. The number never
/// changes: it decides the key of a link in Redis.
pub const PARTITIONS: u8 = 64;

/// A part of all codes, from 0 to [`PARTITIONS`] - 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Partition(pub u8);

impl Partition {
    /// Returns the partition of a code.
    pub fn of(code: &Code) -> Partition {
        Partition((xxh3_64(code.key(&mut [0; CODE_KEY_LEN_MAX])) % u64::from(PARTITIONS)) as u8)
    }

    /// Returns all partitions, in order.
    pub fn all() -> impl Iterator<Item = Partition> {
        (0..PARTITIONS).map(Partition)
    }

    /// Returns the partition's index in a list of all.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The ID of an entry of a stream, as Redis assigns it: milliseconds, and a number within the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct EntryId {
    /// Milliseconds since 1970, by the clock of the server.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl EntryId {
    /// Returns the last ID before this one; 0-0, which no entry has, for itself.
    pub fn before(self) -> EntryId {
        match self {
            EntryId { ms, seq: 1.. } => EntryId { ms, seq: self.seq - 1 },
            EntryId { ms: 1.., seq: 0 } => EntryId { ms: self.ms - 1, seq: u64::MAX },
            EntryId { ms: 0, seq: 0 } => self,
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl FromStr for EntryId {
    type Err = ();

    fn from_str(text: &str) -> Result<EntryId, ()> {
        let (ms, seq) = text.split_once('-').ok_or(())?;
        Ok(EntryId { ms: ms.parse().map_err(|_| ())?, seq: seq.parse().map_err(|_| ())? })
    }
}

/// The entry of a stream in which a change appears: proof that Redis had the change, and that other nodes will see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Echo {
    /// The partition of the stream.
    pub partition: Partition,
    /// The ID of the entry.
    pub id: EntryId,
    /// A hash of the entry's content, as in [`follow::StreamPosition`]. After a loss another entry may get the same ID.
    pub check: u64,
}
