//! Frames that wait for their acknowledgement: the retransmission queue of each connection, in one slab.

/// End of a list.
const NONE: u32 = u32::MAX;

/// The frame has the FIN after its bytes.
pub(crate) const FIN: u8 = 1;
/// The peer has the bytes, by a selective acknowledgement.
pub(crate) const SACKED: u8 = 2;
/// The bytes count as lost, and are to be sent again.
pub(crate) const LOST: u8 = 4;
/// The frame was sent again, so it gives no sample of the round trip (Karn).
pub(crate) const RETRANSMITTED: u8 = 8;

/// A frame that was sent, and its place in the sequence space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldFrame {
    pub(crate) frame: u32,
    pub(crate) seq: u32,
    /// Time of the last transmission, in microseconds that wrap.
    pub(crate) sent_us: u32,
    next: u32,
    pub(crate) payload_len: u16,
    pub(crate) marks: u8,
}

impl HeldFrame {
    pub(crate) fn new(frame: u32, seq: u32, payload_len: u16, fin: bool, now_us: u32) -> HeldFrame {
        HeldFrame { frame, seq, sent_us: now_us, next: NONE, payload_len, marks: if fin { FIN } else { 0 } }
    }

    pub(crate) fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// Returns the sequence numbers that the frame takes.
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.payload_len) + u32::from(self.has(FIN))
    }

    pub(crate) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len())
    }
}

/// The frames of one connection, from the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldQueue {
    head: u32,
    tail: u32,
    len: u32,
}

impl HeldQueue {
    pub(crate) const EMPTY: HeldQueue = HeldQueue { head: NONE, tail: NONE, len: 0 };

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// All held frames of a stack, at most as many as were agreed.
pub(crate) struct HeldFrames {
    records: Vec<HeldFrame>,
    free: u32,
    len: u32,
    max: u32,
}

impl HeldFrames {
    pub(crate) fn new(max: u32) -> HeldFrames {
        HeldFrames { records: Vec::with_capacity(max as usize), free: NONE, len: 0, max }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len == self.max
    }

    /// Appends a frame to a queue; there must be room.
    pub(crate) fn push(&mut self, queue: &mut HeldQueue, record: HeldFrame) {
        assert!(!self.is_full(), "the caller looks for room first");
        let at = match self.free {
            NONE => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
            free => {
                self.free = self.records[free as usize].next;
                self.records[free as usize] = record;
                free
            }
        };
        match queue.tail {
            NONE => queue.head = at,
            tail => {
                debug_assert_eq!(self.records[tail as usize].end(), record.seq, "frames follow each other");
                self.records[tail as usize].next = at;
            }
        }
        queue.tail = at;
        queue.len += 1;
        self.len += 1;
    }

    /// Returns the oldest frame of a queue.
    pub(crate) fn first(&self, queue: &HeldQueue) -> Option<&HeldFrame> {
        self.records.get(queue.head as usize)
    }

    /// Removes and returns the oldest frame of a queue.
    pub(crate) fn pop(&mut self, queue: &mut HeldQueue) -> Option<HeldFrame> {
        let at = queue.head;
        let record = *self.records.get(at as usize)?;
        queue.head = record.next;
        queue.len -= 1;
        if queue.head == NONE {
            assert_eq!(queue.len, 0, "the last frame has no successor");
            queue.tail = NONE;
        }
        self.records[at as usize].next = self.free;
        self.free = at;
        self.len -= 1;
        Some(record)
    }

    /// Calls `visit` for each frame of a queue from the oldest, until it returns false.
    pub(crate) fn visit(&mut self, queue: &HeldQueue, mut visit: impl FnMut(&mut HeldFrame) -> bool) {
        let mut at = queue.head;
        while let Some(record) = self.records.get_mut(at as usize) {
            at = record.next;
            if !visit(record) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_the_slab() {
        let mut held = HeldFrames::new(3);
        let (mut a, mut b) = (HeldQueue::EMPTY, HeldQueue::EMPTY);
        held.push(&mut a, HeldFrame::new(1, 100, 10, false, 0));
        held.push(&mut b, HeldFrame::new(2, 500, 10, false, 0));
        held.push(&mut a, HeldFrame::new(3, 110, 5, true, 0));
        assert!(held.is_full());
        assert_eq!(held.pop(&mut a).unwrap().frame, 1);
        held.push(&mut b, HeldFrame::new(4, 510, 1, false, 0));
        assert_eq!(held.pop(&mut a).unwrap().end(), 116);
        assert!(a.is_empty());
        assert!(held.pop(&mut a).is_none());
        let mut frames = Vec::new();
        held.visit(&b, |record| {
            frames.push(record.frame);
            true
        });
        assert_eq!(frames, [2, 4]);
    }
}
