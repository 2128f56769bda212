//! Rings of bytes between a core and a service thread. A frame begins with its length in two bytes, which it includes.
//!
//! The core never waits: a frame that does not fit is refused whole.

use carom_model::visits::raw::copy_parts;

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
        debug_assert!(is_frame_of_len(frame, frame.len()), "the receiver would lose its place");
        self.0.push_entire_slice(frame).is_ok()
    }

    /// Adds a frame that consists of these parts, the first of which has its length. Copies each part into the ring.
    /// Returns false if the ring has no room for the frame.
    #[inline]
    pub(super) fn push_parts(&mut self, parts: &[&[u8]]) -> bool {
        let len = parts.iter().map(|part| part.len()).sum();
        debug_assert!(
            parts.first().is_some_and(|front| is_frame_of_len(front, len)),
            "the receiver would lose its place"
        );
        let Ok(mut chunk) = self.0.write_chunk(len) else { return false };
        copy_parts(parts, chunk.as_mut_slices());
        chunk.commit_all();
        true
    }
}

/// True if a frame that begins with these bytes says that it has `len` bytes.
fn is_frame_of_len(front: &[u8], len: usize) -> bool {
    front.first_chunk::<FRAME_HEAD>().is_some_and(|named| usize::from(u16::from_le_bytes(*named)) == len)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_parts_is_whole_at_every_place() {
        // The length shares no factor with that of the ring, so the ring ends at each byte of some frame.
        let (mut sender, mut receiver) = byte_ring(64);
        let (head, frame) = ([11_u8, 0, 1], [11_u8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let mut buffer = [0; 16];
        for _ in 0..64 {
            assert!(sender.push_parts(&[&head, &[], &[2, 3, 4, 5], &[6], &[7, 8, 9]]));
            let mut count = 0;
            let len = receiver.drain(&mut buffer, |bytes| {
                assert_eq!(bytes, frame);
                count += 1;
            });
            assert_eq!((len, count), (frame.len(), 1));
        }
    }

    #[test]
    fn a_frame_of_parts_without_room_is_refused_whole() {
        let (mut sender, mut receiver) = byte_ring(10);
        assert!(sender.push_parts(&[&[6, 0], &[1, 2, 3, 4]]));
        assert!(!sender.push_parts(&[&[5, 0], &[1, 2, 3]]));
        assert!(sender.push_parts(&[&[4, 0], &[5, 6]]));
        let (mut buffer, mut found) = ([0; 8], Vec::new());
        receiver.drain(&mut buffer, |bytes| found.extend_from_slice(&bytes[FRAME_HEAD..]));
        assert_eq!(found, [1, 2, 3, 4, 5, 6]);
    }
}
