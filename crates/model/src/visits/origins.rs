//! The origins of visit counts in a fleet: which node counted which rows, and how far each node's batches were applied.
//!
//! Every node stores the counts of all nodes. Rows of one *origin* share a *slot*, a small number in their keys. A node
//! numbers its own batches from 1 without gaps, so one number per origin says which batches a store has.
//!
//! An origin stands for a data directory, whatever the name of its node. A directory that was restored from a backup is
//! a new origin: its next numbers are those of batches that other nodes already have.

use std::collections::BTreeMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use super::tally::{push_number, take_bytes, take_number};

/// The random identity of an origin; 0 for a node that has never been in a fleet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OriginId(pub u64);

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for OriginId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<OriginId, Self::Err> {
        u64::from_str_radix(text, 16).map(OriginId)
    }
}

/// The slot of an origin: part of the key of each of its rows.
pub type OriginSlot = u16;

/// Number of slots. Fleets that replace their directories, such as those of an autoscaler, reach some hundreds in years. Redis
/// returns a field for each origin once a second and node, which are 150 kB for all slots.
pub const ORIGIN_SLOTS: OriginSlot = 4_096;

/// Number of slots whose number has one byte in the stored form.
const NARROW_SLOTS: OriginSlot = 256;

/// A dropped slot that can be taken again although rows of its former origins may still be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReusableSlot {
    /// The number of the slot.
    pub slot: OriginSlot,
    /// The number of a folded log: no row of a former origin is of a later one.
    pub since: u32,
}

/// Slots that no new origin gets. Otherwise a full table would take no snapshot of a known origin, and no other identity of
/// the node itself.
const SPARE_SLOTS: usize = 1;

/// The bit in the stored form of a slot's use that says that the number `since` follows.
const REUSED: u8 = 0x80;

/// The bit that says that the higher byte of the slot follows. An earlier version refuses the table: it would take the rows of
/// such a slot for those of another one.
const WIDE: u8 = 0x40;

/// The bit that says that such a slot is that of the node's own counts.
const OWN: u8 = 0x20;

/// The use of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotUse {
    /// The rows count.
    Counted,
    /// A snapshot of the origin is being written. Its rows do not count yet.
    Building,
    /// The rows were replaced by a snapshot and are to be removed.
    Dropped,
}

/// An origin, as far as this store has its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VisitOrigin {
    /// The identity of the origin.
    pub id: OriginId,
    /// The name of its node.
    pub node: String,
    /// The number of its last batch whose rows are all stored.
    pub applied: u64,
    /// The number of a count log: rows in the slot that are not of later logs belong to former origins. 0 if there are
    /// no such rows.
    pub since: u32,
}

/// The slots of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginTable {
    own: OriginSlot,
    slots: BTreeMap<OriginSlot, (SlotUse, VisitOrigin)>,
    /// The slots of the origins whose rows count. A node looks up each origin in every turn.
    counted: BTreeMap<OriginId, OriginSlot>,
}

impl Default for OriginTable {
    /// Returns the table of a node without a fleet: one slot, its own.
    fn default() -> OriginTable {
        let alone = VisitOrigin { id: OriginId::default(), node: String::new(), applied: 0, since: 0 };
        OriginTable::of(0, BTreeMap::from([(0, (SlotUse::Counted, alone))]))
    }
}

impl OriginTable {
    /// Returns the table with these slots. Of two slots of one origin, the first one counts.
    fn of(own: OriginSlot, slots: BTreeMap<OriginSlot, (SlotUse, VisitOrigin)>) -> OriginTable {
        let counted = slots.iter().rev().filter(|(_, (used, _))| *used == SlotUse::Counted);
        let counted = counted.map(|(slot, (_, origin))| (origin.id, *slot)).collect();
        OriginTable { own, slots, counted }
    }

    /// Returns the slot of the node's own counts.
    pub fn own_slot(&self) -> OriginSlot {
        self.own
    }

    /// Returns the node itself as an origin.
    pub fn own(&self) -> &VisitOrigin {
        &self.slots[&self.own].1
    }

    /// True once the node has an identity, which it gets at its first start in a fleet.
    pub fn has_identity(&self) -> bool {
        self.own().id != OriginId::default()
    }

    /// Gives the node its first identity. `applied` is 1 if it has stored counts of its own already.
    pub fn identify(&mut self, id: OriginId, node: &str, applied: u64) {
        let (since, before) = (self.since(self.own), self.own().id);
        self.counted.remove(&before);
        self.counted.insert(id, self.own);
        self.slots.insert(self.own, (SlotUse::Counted, VisitOrigin { id, node: node.to_owned(), applied, since }));
    }

    /// Gives the node another identity. Its counts so far remain those of the previous one. Returns false if no slot is
    /// free or `reusable`. Then the table has no name for the node any more, so that the next process tries again.
    pub fn renew(&mut self, id: OriginId, node: &str, reusable: Option<ReusableSlot>) -> bool {
        let slot = self.take_slot(SlotUse::Counted, (id, node), reusable);
        match slot {
            Some(slot) => self.own = slot,
            None => {
                if let Some((_, own)) = self.slots.get_mut(&self.own) {
                    own.node.clear();
                }
            }
        }
        slot.is_some()
    }

    /// True if rows in this slot count.
    pub fn is_counted(&self, slot: OriginSlot) -> bool {
        matches!(self.slots.get(&slot), Some((SlotUse::Counted, _)))
    }

    /// Returns the number of the log after which the rows in this slot are those of its origin.
    pub fn since(&self, slot: OriginSlot) -> u32 {
        self.slots.get(&slot).map_or(0, |(_, origin)| origin.since)
    }

    /// True if all rows in this slot may be removed.
    pub fn is_disused(&self, slot: OriginSlot) -> bool {
        self.slots.get(&slot).is_none_or(|(used, _)| *used == SlotUse::Dropped)
    }

    /// Iterates over the origins whose rows count, with their slots.
    pub fn counted(&self) -> impl Iterator<Item = (OriginSlot, &VisitOrigin)> {
        let counted = self.slots.iter().filter(|(_, (used, _))| *used == SlotUse::Counted);
        counted.map(|(slot, (_, origin))| (*slot, origin))
    }

    /// Returns the slot of an origin whose rows count.
    pub fn slot_of(&self, id: OriginId) -> Option<OriginSlot> {
        self.counted.get(&id).copied()
    }

    /// Returns the number of the last batch of a slot whose rows are all stored.
    pub fn applied(&self, slot: OriginSlot) -> u64 {
        self.slots.get(&slot).map_or(0, |(_, origin)| origin.applied)
    }

    /// True if a slot is free or `reusable`. If it is for a new origin, it may not be the spare one.
    pub fn has_slot(&self, is_for_new_origin: bool, reusable: Option<ReusableSlot>) -> bool {
        let free = usize::from(ORIGIN_SLOTS) - self.slots.len() + usize::from(reusable.is_some());
        free > if is_for_new_origin { SPARE_SLOTS } else { 0 }
    }

    /// Adds an origin of which nothing is stored. Returns its slot; `None` if only the spare slot is free or `reusable`.
    pub fn adopt(&mut self, id: OriginId, node: &str, reusable: Option<ReusableSlot>) -> Option<OriginSlot> {
        assert!(self.slot_of(id).is_none(), "the counts of an origin would be in two slots");
        if self.has_slot(true, reusable) { self.take_slot(SlotUse::Counted, (id, node), reusable) } else { None }
    }

    /// Begins a snapshot of an origin. Returns its slot; `None` if no slot is free or `reusable`.
    pub fn build(&mut self, id: OriginId, node: &str, reusable: Option<ReusableSlot>) -> Option<OriginSlot> {
        self.take_slot(SlotUse::Building, (id, node), reusable)
    }

    fn take_slot(
        &mut self,
        used: SlotUse,
        (id, node): (OriginId, &str),
        reusable: Option<ReusableSlot>,
    ) -> Option<OriginSlot> {
        let gap = self.slots.keys().zip(0..).find_map(|(slot, first)| (*slot != first).then_some(first));
        let behind = OriginSlot::try_from(self.slots.len()).ok().filter(|slot| *slot < ORIGIN_SLOTS);
        let free: Option<OriginSlot> = gap.or(behind);
        let ReusableSlot { slot, since } = free.map(|slot| ReusableSlot { slot, since: 0 }).or(reusable)?;
        assert!(self.is_disused(slot), "rows that count would belong to another origin");
        if used == SlotUse::Counted {
            self.counted.insert(id, slot);
        }
        self.slots.insert(slot, (used, VisitOrigin { id, node: node.to_owned(), applied: 0, since }));
        Some(slot)
    }

    /// Ends a snapshot that has all batches up to a number: its rows count from now on, and those that it replaces do
    /// not. Returns the slot of the latter.
    pub fn finish(&mut self, slot: OriginSlot, applied: u64) -> Option<OriginSlot> {
        let id = self.slots[&slot].1.id;
        let replaced = self.slot_of(id);
        if let Some(replaced) = replaced {
            self.drop_slot(replaced);
        }
        if let Some((used, origin)) = self.slots.get_mut(&slot) {
            *used = SlotUse::Counted;
            origin.applied = applied;
            self.counted.insert(id, slot);
        }
        replaced
    }

    /// Marks the rows of a slot for removal.
    pub(super) fn drop_slot(&mut self, slot: OriginSlot) {
        assert_ne!(slot, self.own, "the node's own counts would be removed");
        if let Some((used, origin)) = self.slots.get_mut(&slot) {
            *used = SlotUse::Dropped;
            if self.counted.get(&origin.id) == Some(&slot) {
                self.counted.remove(&origin.id);
            }
        }
    }

    /// Iterates over the slots whose rows are to be removed.
    pub fn dropped(&self) -> impl Iterator<Item = OriginSlot> {
        self.slots.iter().filter(|(_, (used, _))| *used == SlotUse::Dropped).map(|(slot, _)| *slot)
    }

    /// Drops every unfinished snapshot, as a new process must.
    pub(super) fn drop_unfinished(&mut self) {
        let unfinished = self.slots.values_mut().filter(|(used, _)| *used == SlotUse::Building);
        unfinished.for_each(|(used, _)| *used = SlotUse::Dropped);
    }

    /// Frees a slot without rows.
    pub fn free(&mut self, slot: OriginSlot) {
        assert!(self.is_disused(slot), "rows that count would belong to another origin");
        self.slots.remove(&slot);
    }

    /// Records that all batches of a slot up to a number are stored.
    pub fn reach(&mut self, slot: OriginSlot, number: u64) {
        if let Some((_, origin)) = self.slots.get_mut(&slot) {
            origin.applied = origin.applied.max(number);
        }
    }

    /// Returns the stored form, with a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![(self.own % NARROW_SLOTS) as u8];
        for (slot, (used, origin)) in &self.slots {
            let used = match used {
                SlotUse::Counted => 0,
                SlotUse::Building => 1,
                SlotUse::Dropped => 2,
            };
            let (is_reused, high) = (origin.since > 0, slot / NARROW_SLOTS);
            let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
            let flags = flag(is_reused, REUSED) | flag(high > 0, WIDE) | flag(high > 0 && *slot == self.own, OWN);
            out.extend([(slot % NARROW_SLOTS) as u8, used | flags]);
            out.extend(origin.id.0.to_le_bytes());
            push_number(origin.applied, &mut out);
            if is_reused {
                push_number(origin.since.into(), &mut out);
            }
            if high > 0 {
                push_number(high.into(), &mut out);
            }
            push_number(origin.node.len() as u64, &mut out);
            out.extend(origin.node.as_bytes());
        }
        out.extend(xxh3_64(&out).to_le_bytes());
        out
    }

    /// Decodes the stored form; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<OriginTable> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        if xxh3_64(content) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (own, mut rest) = content.split_first()?;
        let (mut own, mut slots) = (OriginSlot::from(*own), BTreeMap::new());
        while let Some((&[low, flags], behind)) = rest.split_first_chunk() {
            let (id, behind) = behind.split_first_chunk()?;
            rest = behind;
            let [is_reused, is_wide, is_own] = [REUSED, WIDE, OWN].map(|bit| flags & bit != 0);
            let used = match flags & !(REUSED | WIDE | OWN) {
                0 => SlotUse::Counted,
                1 => SlotUse::Building,
                2 => SlotUse::Dropped,
                _ => return None,
            };
            let (id, applied) = (OriginId(u64::from_le_bytes(*id)), take_number(&mut rest)?);
            let since =
                if is_reused { u32::try_from(take_number(&mut rest)?).ok().filter(|since| *since > 0)? } else { 0 };
            let most = u64::from(ORIGIN_SLOTS / NARROW_SLOTS);
            let high = if is_wide { take_number(&mut rest).filter(|high| (1..most).contains(high))? } else { 0 };
            let slot = high as OriginSlot * NARROW_SLOTS + OriginSlot::from(low);
            if is_own {
                own = Some(slot).filter(|slot| is_wide && slot % NARROW_SLOTS == own)?;
            }
            let node = String::from_utf8(take_bytes(&mut rest)?.to_vec()).ok()?;
            slots.insert(slot, (used, VisitOrigin { id, node, applied, since }));
        }
        let table = OriginTable::of(own, slots);
        (rest.is_empty() && table.is_counted(own)).then_some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table_is_read_as_it_was_written() {
        let mut table = OriginTable::default();
        assert!(!table.has_identity());
        table.identify(OriginId(7), "a", 1);
        let b = table.adopt(OriginId(8), "b", None).unwrap();
        table.reach(b, 41);
        let building = table.build(OriginId(8), "b", None).unwrap();
        assert_eq!(OriginTable::decode(&table.encode()), Some(table.clone()));
        assert!(table.is_counted(b));
        assert!(!table.is_counted(building));
        assert!(!table.is_disused(building));
        let bytes = table.encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(OriginTable::decode(&damaged), None, "{at}");
        }
    }

    #[test]
    fn snapshot_replaces_the_slot() {
        let mut table = OriginTable::default();
        table.identify(OriginId(7), "a", 0);
        let before = table.adopt(OriginId(8), "b", None).unwrap();
        table.reach(before, 5);
        let slot = table.build(OriginId(8), "b", None).unwrap();
        assert_eq!((table.slot_of(OriginId(8)), table.finish(slot, 9)), (Some(before), Some(before)));
        assert_eq!((table.slot_of(OriginId(8)), table.applied(slot)), (Some(slot), 9));
        assert!(table.is_disused(before));
        assert!(table.dropped().eq([before]));
        table.free(before);
        // A snapshot that is given up leaves the counts so far.
        let given_up = table.build(OriginId(8), "b", None).unwrap();
        table.drop_slot(given_up);
        assert_eq!(table.slot_of(OriginId(8)), Some(slot));
        table.free(given_up);
        // Another data directory with this name: the counts so far stay, under their old identity.
        assert!(table.renew(OriginId(9), "a", None));
        assert_eq!((table.own().id, table.slot_of(OriginId(7))), (OriginId(9), Some(0)));
        table.drop_slot(slot);
        assert_eq!((table.slot_of(OriginId(8)), table.slot_of(OriginId(0))), (None, None), "neither counts any more");
        assert_eq!(OriginTable::decode(&table.encode()), Some(table));
    }

    #[test]
    fn slots_are_bounded() {
        let mut table = OriginTable::default();
        let all = u64::from(ORIGIN_SLOTS);
        let adopted = (1..=all + 9).filter(|id| table.adopt(OriginId(*id), "n", None).is_some()).count() as u64;
        assert_eq!((adopted, table.has_slot(true, None), table.has_slot(false, None)), (all - 2, false, true));
        // The last slot is for the node itself, or for a snapshot of a known origin.
        assert!(table.renew(OriginId(40_000), "a", None));
        assert!(!table.renew(OriginId(40_001), "a", None));
        assert!(!table.has_slot(false, None));
        let last = (ORIGIN_SLOTS - 1, OriginId(40_000), "");
        assert_eq!((table.own_slot(), table.own().id, &*table.own().node), last);
        assert_eq!(table.build(OriginId(1), "n", None), None);
        assert_eq!(OriginTable::decode(&table.encode()), Some(table));
    }

    #[test]
    fn earlier_versions_refuse_slots_of_two_bytes() {
        let mut table = OriginTable::default();
        while table.slots.len() < usize::from(NARROW_SLOTS) {
            table.adopt(OriginId(table.slots.len() as u64), "n", None).unwrap();
        }
        let entry_of_last = |table: &OriginTable| {
            let bytes = table.encode();
            bytes[bytes.len() - 8 - 13..bytes.len() - 8].to_vec()
        };
        // Slot, use, identity, number and name: an earlier version reads it.
        assert_eq!(entry_of_last(&table), [255, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 1, b'n']);
        let wide = table.adopt(OriginId(7_000), "n", None).unwrap();
        assert_eq!((wide, table.slots.len()), (NARROW_SLOTS, 257));
        let bytes = table.encode();
        let (lower, higher) = (&bytes[bytes.len() - 8 - 14..][..2], bytes[bytes.len() - 8 - 3]);
        assert_eq!((lower, higher), (&[0, WIDE][..], 1));
        assert!(table.renew(OriginId(8_000), "a", None));
        let read = OriginTable::decode(&table.encode()).unwrap();
        assert_eq!((read.own_slot(), read.own().id, &read), (257, OriginId(8_000), &table));
        assert_eq!((read.slot_of(OriginId(1)), read.slot_of(OriginId(7_000))), (Some(1), Some(256)));
    }

    #[test]
    fn reused_slot_says_since_when() {
        let mut table = OriginTable::default();
        let reusable = Some(ReusableSlot { slot: 7, since: 300 });
        let first = table.adopt(OriginId(1), "b", reusable).unwrap();
        assert_eq!((first, table.since(first)), (1, 0), "free slots come first");
        while table.adopt(OriginId(table.counted().count() as u64), "n", None).is_some() {}
        assert!(table.renew(OriginId(80_000), "a", None));
        table.drop_slot(7);
        assert_eq!(table.build(OriginId(90_000), "c", reusable), Some(7));
        assert_eq!((table.since(7), table.is_counted(7)), (300, false));
        assert_eq!(OriginTable::decode(&table.encode()), Some(table.clone()));
        table.finish(7, 4);
        assert_eq!((table.since(7), table.is_counted(7)), (300, true));
        table.drop_slot(7);
        table.free(7);
        assert_eq!(table.build(OriginId(90_001), "d", None).map(|slot| table.since(slot)), Some(0));
    }

    proptest! {
        #[test]
        fn decoding_is_total(bytes in any::<Vec<u8>>()) {
            prop_assert!(OriginTable::decode(&bytes).is_none_or(|table| table.encode() == bytes));
        }
    }
}
