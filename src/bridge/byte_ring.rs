//! Rings of bytes between a core and a service thread. A frame begins with its length in two bytes, which it includes.
//!
//! The core never waits: a frame that does not fit is refused whole.

/// Bytes of the length of a frame.
pub(super) const FRAME_HEAD: usize = 2;

/// A core's end of a ring.
pub(super) struct FrameSender(rtrb::Producer<u8>);

/// A service thread's end of a ring.
pub(super) struct FrameReceiver(rtrb::Consumer<u8>);

/// Creates a ring of `len` bytes.
pub(super) fn byte_ring(len: usize) -> (FrameSender, FrameReceiver) {
    let (sender, receiver) = rtrb::RingBuffer::new(len);
    (FrameSender(sender), FrameReceiver(receiver))
}

impl FrameSender {
    /// Adds a frame. Returns false if the ring has no room for it.
    #[inline]
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        debug_assert!(
            frame.first_chunk::<FRAME_HEAD>().is_some_and(|len| usize::from(u16::from_le_bytes(*len)) == frame.len()),
            "the receiver would lose its place"
        );
        self.0.push_entire_slice(frame).is_ok()
    }
}

impl FrameReceiver {
    /// Passes the frames of the ring to `take`, and returns their bytes. Frames that arrive meanwhile wait for the next
    /// call. `buffer` holds the longest frame.
    pub(super) fn drain(&mut self, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> usize {
        let found = self.0.slots();
        let mut left = found;
        while left > 0 {
            // The sender pushes whole frames.
            let (head, rest) = buffer.split_at_mut(FRAME_HEAD);
            let is_there = self.0.pop_entire_slice(head).is_ok();
            let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            if !is_there || !(FRAME_HEAD..=FRAME_HEAD + rest.len()).contains(&len) {
                break;
            }
            if self.0.pop_entire_slice(&mut rest[..len - FRAME_HEAD]).is_err() {
                break;
            }
            take(&buffer[..len]);
            left = left.saturating_sub(len);
        }
        found
    }
}
