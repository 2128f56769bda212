//! A link as the API, the store and the commands know it: everything that is kept of it, owned.

use carom_shards::{Code, Policy};

/// How a link came by its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The code was issued from a segment. It is never given to another link, also not after a delete.
    Issued,
    /// Somebody chose the slug. After a delete anybody may choose it again.
    Custom,
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
}
