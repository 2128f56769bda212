//! Frames to send: what the stack needs of the memory that it shares with the NIC.

use std::collections::VecDeque;

/// Bytes of each frame of a pool.
pub const FRAME_LEN: usize = 4096;

/// Frames of [`FRAME_LEN`] bytes that a driver can send.
///
/// A frame has up to two owners: the stack from [`FramePool::take`] to [`FramePool::release`], and the NIC from
/// [`FramePool::send`] to the completion. It is free again once it has neither. The stack changes a frame only while
/// the NIC does not have it, and sends a frame several times if it must. So a frame is the retransmission buffer of its
/// bytes.
pub trait FramePool {
    /// Takes a free frame.
    fn take(&mut self) -> Option<u32>;

    /// Returns the bytes of a frame that the stack owns and the NIC does not have.
    fn bytes(&mut self, frame: u32) -> &mut [u8];

    /// Hands `len` bytes from `start` of a frame to the NIC; the stack continues to own it. Returns false if the
    /// transmit ring is full: then the frame is not queued.
    fn send(&mut self, frame: u32, start: usize, len: usize) -> bool;

    /// Returns true from a successful [`FramePool::send`] to the completion.
    fn is_queued(&self, frame: u32) -> bool;

    /// Ends the ownership of the stack.
    fn release(&mut self, frame: u32);
}

const HELD: u8 = 1;
const QUEUED: u8 = 2;

/// A pool in memory, for tests, fuzzing and benchmarks. It panics if the stack breaks the rules of [`FramePool`].
pub struct MemoryPool {
    bytes: Vec<u8>,
    states: Vec<u8>,
    free: Vec<u32>,
    queue: VecDeque<(u32, usize, usize)>,
}

impl MemoryPool {
    /// Returns a pool of `frames` frames.
    pub fn new(frames: u32) -> MemoryPool {
        MemoryPool {
            bytes: vec![0; frames as usize * FRAME_LEN],
            states: vec![0; frames as usize],
            free: (0..frames).rev().collect(),
            queue: VecDeque::with_capacity(frames as usize),
        }
    }

    /// Returns the number of frames that the stack or the queue has.
    pub fn in_use(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// Takes the next frame off the queue, as a NIC does: until [`MemoryPool::complete`] the frame stays queued.
    pub fn next_queued(&mut self) -> Option<(u32, &[u8])> {
        let (frame, start, len) = self.queue.pop_front()?;
        let at = frame as usize * FRAME_LEN + start;
        Some((frame, &self.bytes[at..at + len]))
    }

    /// Completes a frame that [`MemoryPool::next_queued`] has returned.
    pub fn complete(&mut self, frame: u32) {
        assert_ne!(self.states[frame as usize] & QUEUED, 0, "frame {frame} is not with the NIC");
        self.states[frame as usize] &= !QUEUED;
        self.reclaim(frame);
    }

    /// Passes all queued frames to `wire`, and completes them.
    pub fn transmit(&mut self, mut wire: impl FnMut(&[u8])) {
        while let Some((frame, bytes)) = self.next_queued() {
            wire(bytes);
            self.complete(frame);
        }
    }

    fn reclaim(&mut self, frame: u32) {
        if self.states[frame as usize] == 0 {
            self.free.push(frame);
        }
    }
}

impl FramePool for MemoryPool {
    fn take(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        assert_eq!(self.states[frame as usize], 0, "frame {frame} was free");
        self.states[frame as usize] = HELD;
        Some(frame)
    }

    fn bytes(&mut self, frame: u32) -> &mut [u8] {
        assert_eq!(self.states[frame as usize], HELD, "frame {frame} is borrowed by the stack alone");
        let at = frame as usize * FRAME_LEN;
        &mut self.bytes[at..at + FRAME_LEN]
    }

    fn send(&mut self, frame: u32, start: usize, len: usize) -> bool {
        assert_eq!(self.states[frame as usize], HELD, "frame {frame} is queued once");
        assert!(start + len <= FRAME_LEN, "{start} and {len} bytes");
        self.states[frame as usize] |= QUEUED;
        self.queue.push_back((frame, start, len));
        true
    }

    fn is_queued(&self, frame: u32) -> bool {
        self.states[frame as usize] & QUEUED != 0
    }

    fn release(&mut self, frame: u32) {
        assert_ne!(self.states[frame as usize] & HELD, 0, "frame {frame} is released once");
        self.states[frame as usize] &= !HELD;
        self.reclaim(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_free_after_both_owners() {
        let mut pool = MemoryPool::new(1);
        let frame = pool.take().unwrap();
        assert_eq!(pool.take(), None);
        assert!(pool.send(frame, 0, 10));
        pool.release(frame);
        assert_eq!((pool.in_use(), pool.take()), (1, None));
        pool.transmit(|bytes| assert_eq!(bytes.len(), 10));
        assert_eq!(pool.in_use(), 0);
    }
}
