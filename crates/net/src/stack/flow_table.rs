//! Finds the place of a flow: an open-addressing table of fixed size.
//!
//! It never grows and never moves more than one run of slots, so no frame pays for the work of others. The hash has a
//! key, so a client cannot choose flows that collide.

/// Mark of an empty slot.
const EMPTY: u64 = u64::MAX;

/// A table from hashes to places. The upper half of a slot has bits of the hash, the lower half the place.
pub(crate) struct FlowTable {
    slots: Vec<u64>,
    mask: usize,
    len: usize,
}

impl FlowTable {
    /// Returns a table for `flows_max` flows, at most half full.
    pub(crate) fn new(flows_max: usize) -> FlowTable {
        let len = (flows_max * 2).next_power_of_two().max(16);
        FlowTable { slots: vec![EMPTY; len], mask: len - 1, len: 0 }
    }

    fn slot(hash: u64, place: u32) -> u64 {
        hash & 0xffff_ffff_0000_0000 | u64::from(place)
    }

    /// Returns the place with this hash for which `is_it` holds.
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = (hash >> 32) as usize & self.mask;
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return None;
            }
            if slot >> 32 == hash >> 32 && is_it(slot as u32) {
                return Some(slot as u32);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a flow that is not in the table.
    pub(crate) fn insert(&mut self, hash: u64, place: u32) {
        assert!(self.len * 2 < self.slots.len(), "the table is made for all flows");
        assert_ne!(place, u32::MAX, "a place is an index");
        let mut at = (hash >> 32) as usize & self.mask;
        while self.slots[at] != EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = FlowTable::slot(hash, place);
        self.len += 1;
    }

    /// Removes a flow, and closes the gap (Knuth, algorithm R).
    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        let wanted = FlowTable::slot(hash, place);
        let mut at = (hash >> 32) as usize & self.mask;
        while self.slots[at] != wanted {
            assert_ne!(self.slots[at], EMPTY, "the flow is in the table");
            at = (at + 1) & self.mask;
        }
        let mut gap = at;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot == EMPTY {
                break;
            }
            let home = (slot >> 32) as usize & self.mask;
            // A slot moves into the gap unless its home lies between the gap and itself.
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(gap) & self.mask {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = EMPTY;
        self.len -= 1;
    }

    /// Exchanges the place of a flow.
    pub(crate) fn replace(&mut self, hash: u64, place: u32, by: u32) {
        self.remove(hash, place);
        self.insert(hash, by);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_agrees_with_a_list() {
        let mut table = FlowTable::new(64);
        let mut list: Vec<(u64, u32)> = Vec::new();
        let mut random = 1_u64;
        for place in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few homes, so that runs are long.
            let hash = (random >> 60 & 7) << 32 | (random & 0xff00_0000_0000_0000);
            if list.len() < 64 && random & 1 == 0 || list.is_empty() {
                table.insert(hash, place);
                list.push((hash, place));
            } else {
                let (hash, place) = list.swap_remove(random as usize % list.len());
                table.remove(hash, place);
            }
            for (hash, place) in &list {
                assert_eq!(table.find(*hash, |found| found == *place), Some(*place));
            }
            assert_eq!(table.len(), list.len());
        }
    }
}
