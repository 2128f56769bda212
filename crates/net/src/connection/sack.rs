//! The scoreboard of selective acknowledgements (RFC 2018, RFC 6675), as marks on held frames.

use crate::connection::held::{HeldFrames, HeldQueue, LOST, RETRANSMITTED, SACKED};
use crate::seq::{is_after, is_before};

/// Duplicate acknowledgements, or segments that arrived behind, that show a loss.
pub(crate) const DUPLICATES: u8 = 3;

/// Marks frames within the blocks as received. Returns the bytes that are new. Blocks outside `una..nxt` are ignored.
pub(crate) fn mark_received(
    held: &mut HeldFrames,
    queue: &HeldQueue,
    blocks: &[(u32, u32)],
    una: u32,
    nxt: u32,
) -> u32 {
    let is_valid =
        |(start, end): &&(u32, u32)| is_after(*start, una) && is_before(*start, *end) && !is_after(*end, nxt);
    if !blocks.iter().any(|block| is_valid(&block)) {
        return 0;
    }
    let mut new = 0;
    held.visit(queue, |record| {
        let is_within = |(start, end): &(u32, u32)| !is_before(record.seq, *start) && !is_after(record.end(), *end);
        if !record.has(SACKED) && blocks.iter().filter(is_valid).any(is_within) {
            record.marks = (record.marks | SACKED) & !LOST;
            new += record.len();
        }
        true
    });
    new
}

/// Marks frames as lost that have enough received ones behind them (RFC 6675, `IsLost`). Returns true if one is new.
pub(crate) fn mark_lost(held: &mut HeldFrames, queue: &HeldQueue, mss: u32) -> bool {
    let (mut bytes, mut frames) = (0, 0);
    held.visit(queue, |record| {
        if record.has(SACKED) {
            bytes += record.len();
            frames += 1;
        }
        true
    });
    let mut is_new = false;
    held.visit(queue, |record| {
        if record.has(SACKED) {
            bytes -= record.len();
            frames -= 1;
        } else if !record.has(LOST | RETRANSMITTED) {
            let is_lost = frames >= u32::from(DUPLICATES) || bytes > (u32::from(DUPLICATES) - 1) * mss;
            record.marks |= if is_lost { LOST } else { 0 };
            is_new |= is_lost;
        }
        // Nothing was received behind the rest.
        frames > 0
    });
    is_new
}

/// Marks the oldest frame as lost. Returns false if it was sent again already and `again` is not set.
pub(crate) fn mark_first_lost(held: &mut HeldFrames, queue: &HeldQueue, again: bool) -> bool {
    let mut is_new = false;
    held.visit(queue, |record| {
        if !record.has(SACKED | LOST) && (again || !record.has(RETRANSMITTED)) {
            record.marks |= LOST;
            is_new = true;
        }
        false
    });
    is_new
}

/// Marks all frames as lost after a timeout, those received as well: the peer may have dropped them (RFC 2018, 8).
pub(crate) fn mark_all_lost(held: &mut HeldFrames, queue: &HeldQueue) {
    held.visit(queue, |record| {
        record.marks = (record.marks & !SACKED) | LOST;
        true
    });
}

/// Returns the bytes that are in the network, by the scoreboard (RFC 6675, `SetPipe`).
pub(crate) fn pipe(held: &mut HeldFrames, queue: &HeldQueue) -> u32 {
    let mut bytes = 0;
    held.visit(queue, |record| {
        bytes += if record.has(SACKED | LOST) { 0 } else { record.len() };
        true
    });
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::held::HeldFrame;

    fn queue(held: &mut HeldFrames, frames: u32) -> HeldQueue {
        let mut queue = HeldQueue::EMPTY;
        (0..frames).for_each(|at| held.push(&mut queue, HeldFrame::new(at, at * 100, 100, false, 0)));
        queue
    }

    fn marked(held: &mut HeldFrames, queue: &HeldQueue, mark: u8) -> Vec<u32> {
        let mut found = Vec::new();
        held.visit(queue, |record| {
            found.extend(record.has(mark).then_some(record.frame));
            true
        });
        found
    }

    #[test]
    fn whole_frames_are_marked() {
        let mut held = HeldFrames::new(10);
        let queue = queue(&mut held, 6);
        assert_eq!(mark_received(&mut held, &queue, &[(150, 400), (500, 600)], 0, 600), 300);
        assert_eq!(marked(&mut held, &queue, SACKED), [2, 3, 5]);
        assert_eq!(mark_received(&mut held, &queue, &[(150, 400)], 0, 600), 0);
        assert_eq!(pipe(&mut held, &queue), 300);
    }

    #[test]
    fn invalid_blocks_are_ignored() {
        let mut held = HeldFrames::new(10);
        let queue = queue(&mut held, 6);
        for block in [(0, 100), (400, 300), (100, 700), (u32::MAX, 300)] {
            assert_eq!(mark_received(&mut held, &queue, &[block], 0, 600), 0, "{block:?}");
        }
    }

    #[test]
    fn losses_need_enough_behind_them() {
        let mut held = HeldFrames::new(10);
        let queue = queue(&mut held, 6);
        mark_received(&mut held, &queue, &[(200, 300)], 0, 600);
        assert!(!mark_lost(&mut held, &queue, 100));
        mark_received(&mut held, &queue, &[(400, 600)], 0, 600);
        assert!(mark_lost(&mut held, &queue, 100));
        assert_eq!(marked(&mut held, &queue, LOST), [0, 1], "only two frames are behind the fourth");
        assert!(!mark_lost(&mut held, &queue, 100));
        assert_eq!(pipe(&mut held, &queue), 100);
    }

    #[test]
    fn timeout_forgets_what_was_received() {
        let mut held = HeldFrames::new(10);
        let queue = queue(&mut held, 3);
        mark_received(&mut held, &queue, &[(100, 200)], 0, 300);
        mark_all_lost(&mut held, &queue);
        assert_eq!(marked(&mut held, &queue, LOST), [0, 1, 2]);
        assert_eq!(pipe(&mut held, &queue), 0);
    }
}
