//! Data that came out of order, in blocks of a shared pool: bounded for each connection and over all of them.

use crate::seq::{distance, is_after};

/// Bytes of a block: a segment of the usual size fits into one.
pub(crate) const BLOCK_LEN: usize = 1536;
/// End of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Block {
    seq: u32,
    next: u32,
    len: u16,
}

impl Block {
    fn end(&self) -> u32 {
        self.seq.wrapping_add(u32::from(self.len))
    }
}

/// The blocks of one connection, in order and without overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfOrder {
    head: u32,
    len: u16,
    /// Sequence number of the data that came last: the first block of a selective acknowledgement has it.
    latest: u32,
}

impl OutOfOrder {
    pub(crate) const EMPTY: OutOfOrder = OutOfOrder { head: NONE, len: 0, latest: 0 };

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The blocks of all connections.
pub(crate) struct Reassembly {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    free: u32,
    used: usize,
    max: usize,
}

impl Reassembly {
    pub(crate) fn new(max: usize) -> Reassembly {
        Reassembly {
            bytes: Vec::with_capacity(max * BLOCK_LEN),
            blocks: Vec::with_capacity(max),
            free: NONE,
            used: 0,
            max,
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Keeps data, as far as it is new and there is room: at most `blocks_max` blocks for this connection. Returns
    /// false if some of it was dropped.
    pub(crate) fn insert(&mut self, list: &mut OutOfOrder, seq: u32, data: &[u8], blocks_max: u16) -> bool {
        list.latest = seq;
        let (mut seq, mut data) = (seq, data);
        let (mut before, mut at) = (NONE, list.head);
        while !data.is_empty() {
            // The first block that ends behind the start of the data.
            while at != NONE && !is_after(self.blocks[at as usize].end(), seq) {
                (before, at) = (at, self.blocks[at as usize].next);
            }
            let room = if at == NONE { data.len() } else { distance(seq, self.blocks[at as usize].seq) as usize };
            let taken = if room == 0 {
                // The data is there already; what came first stays (RFC 9293, 3.10.7.4).
                distance(seq, self.blocks[at as usize].end()) as usize
            } else {
                let piece = &data[..room.min(data.len())];
                match self.store(list, before, seq, piece, blocks_max) {
                    0 => return false,
                    taken => taken,
                }
            };
            let taken = taken.min(data.len());
            seq = seq.wrapping_add(taken as u32);
            data = &data[taken..];
            at = if before == NONE { list.head } else { before };
        }
        true
    }

    /// Stores the beginning of `piece` behind the block `before` or in it. Returns the number of bytes.
    fn store(&mut self, list: &mut OutOfOrder, before: u32, seq: u32, piece: &[u8], blocks_max: u16) -> usize {
        if let Some(block) = self.blocks.get_mut(before as usize)
            && block.end() == seq
            && usize::from(block.len) < BLOCK_LEN
        {
            let start = before as usize * BLOCK_LEN + usize::from(block.len);
            let taken = piece.len().min(BLOCK_LEN - usize::from(block.len));
            self.bytes[start..start + taken].copy_from_slice(&piece[..taken]);
            block.len += taken as u16;
            return taken;
        }
        if list.len >= blocks_max || self.used == self.max {
            return 0;
        }
        let taken = piece.len().min(BLOCK_LEN);
        let next = if before == NONE { list.head } else { self.blocks[before as usize].next };
        let at = self.take(Block { seq, next, len: taken as u16 });
        let start = at as usize * BLOCK_LEN;
        self.bytes[start..start + taken].copy_from_slice(&piece[..taken]);
        match before {
            NONE => list.head = at,
            before => self.blocks[before as usize].next = at,
        }
        list.len += 1;
        taken
    }

    fn take(&mut self, block: Block) -> u32 {
        self.used += 1;
        assert!(self.used <= self.max, "{} blocks", self.used);
        match self.free {
            NONE => {
                self.blocks.push(block);
                self.bytes.resize(self.blocks.len() * BLOCK_LEN, 0);
                self.blocks.len() as u32 - 1
            }
            free => {
                self.free = self.blocks[free as usize].next;
                self.blocks[free as usize] = block;
                free
            }
        }
    }

    /// Removes the first block if it begins at or before `next_seq`, and passes on what it has from there. Returns the
    /// number of bytes, or none if there is a gap.
    pub(crate) fn pop(&mut self, list: &mut OutOfOrder, next_seq: u32, deliver: impl FnOnce(&[u8])) -> Option<u32> {
        let at = list.head;
        let block = *self.blocks.get(at as usize)?;
        if is_after(block.seq, next_seq) {
            return None;
        }
        list.head = block.next;
        list.len -= 1;
        let old = distance(block.seq, next_seq).min(u32::from(block.len));
        let start = at as usize * BLOCK_LEN;
        let new = &self.bytes[start + old as usize..start + usize::from(block.len)];
        if !new.is_empty() {
            deliver(new);
        }
        self.blocks[at as usize].next = self.free;
        self.free = at;
        self.used -= 1;
        Some(u32::from(block.len) - old)
    }

    /// Drops all blocks of a connection.
    pub(crate) fn clear(&mut self, list: &mut OutOfOrder) {
        while let Some(block) = self.blocks.get(list.head as usize).copied() {
            self.blocks[list.head as usize].next = self.free;
            self.free = list.head;
            self.used -= 1;
            list.head = block.next;
        }
        *list = OutOfOrder::EMPTY;
    }

    /// Writes the ranges of a selective acknowledgement, the one with the latest data first (RFC 2018, 4). Returns
    /// their number.
    pub(crate) fn ranges(&self, list: &OutOfOrder, to: &mut [(u32, u32); 4]) -> usize {
        let mut found = 0;
        let mut at = list.head;
        while let Some(first) = self.blocks.get(at as usize) {
            let mut range = (first.seq, first.end());
            at = first.next;
            while let Some(next) = self.blocks.get(at as usize).filter(|next| next.seq == range.1) {
                range.1 = next.end();
                at = next.next;
            }
            let has_latest = !is_after(range.0, list.latest) && is_after(range.1, list.latest);
            if has_latest {
                // Those before it move up by one place.
                to.copy_within(..found.min(3), 1);
                to[0] = range;
                found = (found + 1).min(4);
            } else if found < 4 {
                to[found] = range;
                found += 1;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(pool: &mut Reassembly, list: &mut OutOfOrder, mut next: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(len) = pool.pop(list, next, |piece| bytes.extend_from_slice(piece)) {
            next = next.wrapping_add(len);
        }
        bytes
    }

    #[test]
    fn any_order_of_pieces_gives_the_whole() {
        let whole: Vec<u8> = (0..20_000_u32).map(|byte| (byte * 7 % 251) as u8).collect();
        let mut random = 5_u64;
        for start in [1000, u32::MAX - 5000] {
            let mut pool = Reassembly::new(512);
            let mut list = OutOfOrder::EMPTY;
            for _ in 0..2000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = (random >> 33) as usize % whole.len();
                let to = (from + 1 + (random >> 50) as usize % 3000).min(whole.len());
                pool.insert(&mut list, start.wrapping_add(from as u32), &whole[from..to], 512);
            }
            pool.insert(&mut list, start, &whole[..3000], 512);
            pool.insert(&mut list, start.wrapping_add(17_000), &whole[17_000..], 512);
            assert!(popped(&mut pool, &mut list, start) == whole);
            assert!(list.is_empty());
            assert!(pool.used() == 0);
        }
    }

    #[test]
    fn both_bounds_hold() {
        let mut pool = Reassembly::new(3);
        let (mut a, mut b) = (OutOfOrder::EMPTY, OutOfOrder::EMPTY);
        assert!(pool.insert(&mut a, 10, b"x", 2));
        assert!(pool.insert(&mut a, 20, b"x", 2));
        assert!(!pool.insert(&mut a, 30, b"x", 2));
        assert!(pool.insert(&mut a, 21, b"yz", 2), "there is room in the block");
        assert!(pool.insert(&mut b, 10, b"x", 2));
        assert!(!pool.insert(&mut b, 20, b"x", 2));
        pool.clear(&mut a);
        assert!(pool.insert(&mut b, 20, b"x", 2));
        pool.clear(&mut b);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn ranges_begin_with_the_latest() {
        let mut pool = Reassembly::new(64);
        let mut list = OutOfOrder::EMPTY;
        let mut ranges = [(0, 0); 4];
        assert_eq!(pool.ranges(&list, &mut ranges), 0);
        for seq in [10, 30, 50, 70, 90] {
            pool.insert(&mut list, seq, b"1234567890", 64);
        }
        assert_eq!(pool.ranges(&list, &mut ranges), 4);
        assert_eq!(ranges, [(90, 100), (10, 20), (30, 40), (50, 60)]);
        pool.insert(&mut list, 20, b"1234567890", 64);
        pool.ranges(&list, &mut ranges);
        assert_eq!(ranges[..3], [(10, 40), (50, 60), (70, 80)]);
    }

    #[test]
    fn first_bytes_stay() {
        let mut pool = Reassembly::new(64);
        let mut list = OutOfOrder::EMPTY;
        pool.insert(&mut list, 12, b"cd", 9);
        pool.insert(&mut list, 10, b"ABCDEF", 9);
        assert_eq!(popped(&mut pool, &mut list, 10), b"ABcdEF");
        pool.insert(&mut list, 10, b"ABCDEF", 9);
        assert_eq!(popped(&mut pool, &mut list, 13), b"DEF");
    }
}
