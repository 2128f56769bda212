//! What nodes that share one code space agree on, without I/O, clocks or threads.
//!
//! Redis (or a Redis Cluster) is the one thing that nodes share. It holds the present [`State`] of every code and, for
//! each [`Partition`] of the codes, a stream of changes in the order in which they were accepted. A node
//!
//! * asks Redis before it takes a change ([`rules`] says what Redis answers; the scripts in `store/redis` do the same),
//! * follows the streams and adopts what others did ([`follow`]),
//! * keeps a durable list of what Redis may not have, until it has seen it come back through the stream ([`outbox`]),
//! * takes runs of counter values that nobody else may have ([`lease`]), and watches who else is there ([`members`]).
//!
//! Redis may forget what it acknowledged: a failover loses the newest writes, a server comes back empty or from an old
//! dump. So nothing is believed to be there until it was seen in the stream, and a node whose place in a stream is gone
//! compares everything. Threads drive this in production (`control::fleet`), a simulator in tests.

pub mod follow;
pub mod lease;
pub mod members;
pub mod outbox;
pub mod rules;
pub mod state;

use std::fmt;
use std::str::FromStr;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use xxhash_rust::xxh3::xxh3_64;

pub use state::State;

/// Partitions of the codes. Each has its links and its stream in one slot of a Redis Cluster, so that both change
/// together; 64 of them spread over the masters, and are few enough to be read all at once. Never changes: it decides
/// under which key a link is found.
pub const PARTITIONS: u8 = 64;

/// A part of all codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Partition(pub u8);

impl Partition {
    /// The one that a code belongs to.
    pub fn of(code: &Code) -> Partition {
        Partition((xxh3_64(code.key(&mut [0; CODE_KEY_LEN_MAX])) % u64::from(PARTITIONS)) as u8)
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Partition> {
        (0..PARTITIONS).map(Partition)
    }

    /// Its place in a list of all.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The name of an entry of a stream, as Redis gives it: milliseconds and a number among those of the same millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct EntryId {
    /// Milliseconds since 1970, by the clock of the server.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
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

/// Where a change will come by in the streams: proof that Redis had it, and that others will see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Echo {
    /// Which stream.
    pub partition: Partition,
    /// Which entry.
    pub id: EntryId,
    /// A hash of what it says, as in [`follow::Position`]: after a loss another entry may get the same name.
    pub check: u64,
}
