//! Ranges of codes whose records cannot be read.

use std::fmt;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

/// A range of codes whose records a scan could not read, because a block of a file is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedRange {
    /// The last readable code before the range, or the start of the scanned partition.
    pub after: String,
    /// The first readable code after the range; `None` if it extends to the end of the scanned partition.
    pub before: Option<String>,
}

impl DamagedRange {
    /// True if the record of this code may be in the range.
    pub fn may_hold(&self, code: &Code) -> bool {
        let mut ascii = [0; CODE_KEY_LEN_MAX];
        let (key, after) = (code.key(&mut ascii), self.after.as_bytes());
        let ends_behind = match &self.before {
            Some(before) => key < before.as_bytes(),
            None => key.first() == after.first(),
        };
        key >= after && ends_behind
    }
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.before {
            Some(before) => write!(f, "codes after {} and before {before}", self.after),
            None => write!(f, "codes after {} with the same first character", self.after),
        }
    }
}
