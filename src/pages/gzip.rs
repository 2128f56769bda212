//! Gzip for style sheets and scripts, which browsers load often, and for the bodies of responses.
//!
//! The packed length of a text would reveal parts of its secrets to someone who can add text to it and watch the
//! connection. `crate::api` decides which responses may be packed.

use std::io::Write;

use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};

/// Returns a text packed with gzip. It takes some milliseconds for 100 KB.
pub fn pack(text: &str) -> Vec<u8> {
    pack_at(text.as_bytes(), Compression::default())
}

/// Returns a body packed with gzip at the fastest level. It takes about a millisecond for 100 KB.
pub fn pack_fast(body: &[u8]) -> Vec<u8> {
    pack_at(body, Compression::fast())
}

fn pack_at(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), level);
    packed.write_all(bytes).expect("memory takes every byte");
    packed.finish().expect("memory takes every byte")
}

/// First bytes of a gzip stream (RFC 1952, section 2.3): deflate, without a name and a time.
pub const STREAM_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Most bytes of a stored block of deflate (RFC 1951, section 3.2.4).
const STORED_LEN_MAX: usize = 0xffff;

/// A piece of a gzip stream. No piece refers to an earlier one, so each can be packed on its own.
#[derive(Debug)]
pub struct PackedPiece {
    /// Blocks of deflate, none of which is the last of the stream. They end at a byte.
    pub bytes: Vec<u8>,
    sum: Crc,
}

impl PackedPiece {
    /// Packs a piece at the fastest level. It takes about a millisecond for 100 KB.
    pub fn of(piece: &[u8]) -> PackedPiece {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(piece).expect("memory takes every byte");
        packed.flush().expect("memory takes every byte");
        // The encoder would end the stream when it is dropped.
        PackedPiece { bytes: std::mem::take(packed.get_mut()), sum: sum_of(piece) }
    }

    /// Wraps a piece as it is, in the time of a copy and a checksum.
    pub fn stored(piece: &[u8]) -> PackedPiece {
        let mut bytes = Vec::with_capacity(piece.len() + 5 * piece.len().div_ceil(STORED_LEN_MAX));
        for block in piece.chunks(STORED_LEN_MAX) {
            let len = block.len() as u16;
            bytes.push(0);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&(!len).to_le_bytes());
            bytes.extend_from_slice(block);
        }
        PackedPiece { bytes, sum: sum_of(piece) }
    }
}

fn sum_of(piece: &[u8]) -> Crc {
    let mut sum = Crc::new();
    sum.update(piece);
    sum
}

/// The end of a gzip stream: an empty last block, the checksum and the length of all pieces.
#[derive(Debug, Default)]
pub struct StreamEnd(Crc);

impl StreamEnd {
    /// Counts the next piece of the stream.
    pub fn add(&mut self, piece: &PackedPiece) {
        self.0.combine(&piece.sum);
    }

    /// Returns the last bytes of the stream.
    pub fn to_bytes(&self) -> [u8; 10] {
        let mut end = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        end[2..6].copy_from_slice(&self.0.sum().to_le_bytes());
        end[6..].copy_from_slice(&self.0.amount().to_le_bytes());
        end
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut unpacked = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut unpacked).unwrap();
        unpacked
    }

    #[test]
    fn packed_texts_are_smaller_and_whole() {
        let text = "a { color: red; }\n".repeat(100);
        for packed in [pack(&text), pack_fast(text.as_bytes())] {
            assert_eq!(unpacked(&packed), text.as_bytes());
            assert!(packed.len() < text.len() / 4, "{} bytes", packed.len());
        }
    }

    /// Returns the stream of pieces, each of them packed or stored.
    fn stream(pieces: &[(Vec<u8>, bool)]) -> Vec<u8> {
        let (mut bytes, mut end) = (STREAM_HEAD.to_vec(), StreamEnd::default());
        for (piece, is_packed) in pieces {
            let piece = if *is_packed { PackedPiece::of(piece) } else { PackedPiece::stored(piece) };
            end.add(&piece);
            bytes.extend(piece.bytes);
        }
        bytes.extend(end.to_bytes());
        bytes
    }

    #[test]
    fn long_pieces_are_whole() {
        let text = "a line of JSON\n".repeat(20_000).into_bytes();
        let packed = stream(&[(text.clone(), true), (text.clone(), false), (text.clone(), true)]);
        assert!(unpacked(&packed) == text.repeat(3), "another text");
        assert!(packed.len() < text.len() * 2, "{} bytes", packed.len());
        assert!(unpacked(&stream(&[])).is_empty());
    }

    proptest! {
        #[test]
        fn streams_are_their_pieces(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 0..6),
        ) {
            let whole: Vec<u8> = pieces.iter().flat_map(|(piece, _)| piece.clone()).collect();
            prop_assert_eq!(unpacked(&stream(&pieces)), whole);
        }
    }
}
