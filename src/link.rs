//! A link as the API, the store and the commands know it: everything that is kept of it, owned.

use carom_shards::{Code, Policy};

use crate::limits::TARGET_LEN_MAX;

/// How a link came by its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The code was issued from a segment. It is never given to another link, also not after a delete.
    Issued,
    /// Somebody chose the slug. After a delete anybody may choose it again.
    Custom,
}

/// Which of the states that a code has had this is. A node alone leaves it at zero; nodes that share a code space compare
/// it (see [`crate::fleet`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Version {
    /// Counts the changes of the code, over all links that it has had.
    pub rev: u32,
    /// A random number drawn when the link was made: the same for all states of one link.
    pub claim: u64,
}

/// A link with all its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// What stands behind the slash.
    pub code: Code,
    /// How it redirects.
    pub policy: Policy,
    /// Where it leads: the serialised form of the `url` crate, 1 to [`crate::limits::TARGET_LEN_MAX`] bytes.
    pub target: String,
    /// When it was made, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// How it came by its code.
    pub origin: Origin,
    /// Which state of the code this is.
    pub version: Version,
}

/// Whether a link may lead there: 1 to [`TARGET_LEN_MAX`] printable ASCII characters without a space, so that nothing in
/// it can end the `Location` header.
pub fn is_target(target: &[u8]) -> bool {
    // Without `all`, which stops early, the loop becomes vector instructions; targets are nearly always good.
    (1..=TARGET_LEN_MAX).contains(&target.len())
        && target.iter().fold(true, |good, byte| good & (0x21..=0x7e).contains(byte))
}
