//! The one function that decides which core owns a code.

use crate::code::CodeHash;

/// A core of this node, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CoreId(pub u16);

impl CoreId {
    /// Returns the core's index in a list of all cores.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl std::fmt::Display for CoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of cores that share the code space, 1 to 65,535.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreCount(u16);

impl CoreCount {
    /// Returns a count of cores; `None` for zero or more than 65,535.
    pub fn new(count: usize) -> Option<CoreCount> {
        u16::try_from(count).ok().filter(|&count| count > 0).map(CoreCount)
    }

    /// Returns the number of cores.
    #[inline]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// Returns every core, in order.
    pub fn cores(self) -> impl Iterator<Item = CoreId> {
        (0..self.0).map(CoreId)
    }
}

/// Returns the core that owns the code with this hash.
///
/// Takes the upper 32 bits (multiply and shift, Lemire 2019, "Fast random integer generation in an interval"). The map
/// takes the lower bits, so that the codes of one core still spread over all of its buckets.
#[inline]
pub fn owner(hash: CodeHash, cores: CoreCount) -> CoreId {
    let owner = CoreId((((hash.0 >> 32) * u64::from(cores.0)) >> 32) as u16);
    debug_assert!(owner.0 < cores.0, "the code has no owner");
    owner
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Code, CodeHasher};

    #[test]
    fn codes_spread_evenly_over_cores() {
        let hasher = CodeHasher::new(1);
        for count in [1usize, 2, 3, 7, 64] {
            let cores = CoreCount::new(count).unwrap();
            let mut owned = vec![0usize; count];
            for number in 0..64_000 {
                let code = Code::parse(format!("{number}").as_bytes()).unwrap();
                owned[owner(hasher.hash(&code), cores).index()] += 1;
            }
            let fair = 64_000 / count;
            for (core, &links) in owned.iter().enumerate() {
                assert!(links.abs_diff(fair) < fair / 5 + 1, "core {core} of {count} owns {links}, fair is {fair}");
            }
        }
    }
}
