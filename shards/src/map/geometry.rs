//! The size of pages and units.

use super::record::UNIT_BYTES;

/// The size of pages and their maximum number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// A page has two to the power of this many units of eight bytes; references have these bits for the unit.
    pub(super) unit_bits: u32,
    /// Maximum number of pages at once.
    pub(super) pages_max: u32,
}

impl Geometry {
    /// Pages of 512 KiB, 65,536 of them: 32 GiB, all that 32 bits can name in units of eight bytes. Giving a page back
    /// takes the kernel 50 to 100 microseconds, which argues for small ones. Linux grants a process 65,530 mappings,
    /// but counts neighbours as one. So tens of GiB may be full of gaps before it refuses, which argues for large ones.
    pub(super) const STANDARD: Geometry = Geometry { unit_bits: 16, pages_max: 1 << 16 };

    pub(super) const fn page_bytes(self) -> usize {
        UNIT_BYTES << self.unit_bits
    }

    pub(super) fn page_units(self) -> u32 {
        1 << self.unit_bits
    }
}

/// The first unit of a page is left out, so that no reference is zero.
pub(super) const FIRST_UNIT: u32 = 1;
