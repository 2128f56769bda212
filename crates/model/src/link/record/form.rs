//! The form of records: their versions and checksum, and the tombstone.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::unknown::UnknownFields;
use crate::link::{Origin, Version};

/// The version of a record that every program can read.
pub const VERSION: u8 = 1;

/// The version of a record with a field that no reader may skip: an older program that did not know it would redirect
/// where this one refuses.
pub const VERSION_STRICT: u8 = 2;

/// The version of a record with redirect rules: a program of format 1 would send every visitor to one destination. The
/// version is the first byte, so it tells whether a link has rules.
pub const VERSION_RULES: u8 = 3;

/// Length of version and checksum, in bytes.
pub const HEAD_LEN: usize = 9;

/// Seed that separates the hash of the key from a hash of the same bytes in the value.
const KEY_SEED: u64 = 0x6b65_795f_6f66_5f72;

/// The rest of a deleted link. An issued code stays taken, unless the code of an expired link is recycled. A chosen
/// slug is free again, and the tombstone keeps the order of its states.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The time of the deletion, in milliseconds since 1970 UTC.
    pub deleted_ms: u64,
    /// The origin of the link's code.
    pub origin: Origin,
    /// The version of this state of the code.
    pub version: Version,
    /// Fields of a later version.
    pub unknown: UnknownFields,
}

/// Returns the checksum of a record.
pub(super) fn checksum(key: &[u8], version: u8, fields: &[u8]) -> u64 {
    xxh3_64(fields) ^ xxh3_64_with_seed(key, KEY_SEED ^ u64::from(version))
}
