//! The results of putting an entry into a map.

use std::fmt;

/// The result of [`LinkMap::put`](super::LinkMap::put).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The code was new.
    Inserted,
    /// The code had an entry, which is gone now.
    Replaced,
}

/// The error for an entry without room: the map holds 32 GiB of records, or the kernel gives no more memory. The map is
/// unchanged and continues to answer. Trying again helps after links were removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapFull;

impl fmt::Display for MapFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link map of this core is full, or the kernel refuses more memory")
    }
}

impl std::error::Error for MapFull {}
