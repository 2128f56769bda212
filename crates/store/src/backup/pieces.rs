//! The stream of a store in numbered pieces, so that an interrupted transfer continues where it stopped.
//!
//! The payloads of all pieces, one after the other, are the stream of [`super::frames`]. A piece begins with a head of 48
//! bytes: a mark, a flag for the last piece, the number of the piece, the identity of the snapshot, and the length of the
//! payload. The last field of the head is a checksum over all of that, the payload, and the checksum of the piece before.
//! So the checksum of a piece covers the whole stream up to its end, and a piece of another snapshot never fits.

use std::fmt;
use std::io::{self, Read};

use xxhash_rust::xxh3::Xxh3;

/// Length of the head of a piece, in bytes. A writer leaves room for it.
pub const PIECE_HEAD_LEN: usize = 48;

/// Approximate length of a piece, in bytes: a tenth of a second of reading and sending.
pub const PIECE_LEN: usize = 4 * 1024 * 1024;

/// Longest piece that is accepted, in bytes. A single long record may exceed the usual length, but never this one.
pub const PIECE_LEN_MAX: usize = 128 * 1024 * 1024;

/// The first bytes of a piece.
const MARK: [u8; 4] = *b"PIEC";

/// Length of the part of the head that the checksum covers.
const FIELDS_LEN: usize = 32;

/// A defect of a piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PieceError(String);

impl fmt::Display for PieceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PieceError {}

/// The pieces of a snapshot up to some number, by their checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceChain {
    snapshot: u64,
    next: u32,
    sum: u128,
    is_complete: bool,
}

impl PieceChain {
    /// Returns the chain of a snapshot before its first piece.
    pub fn begin(snapshot: u64) -> PieceChain {
        PieceChain { snapshot, next: 0, sum: 0, is_complete: false }
    }

    /// Returns the number of the next piece.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// True once the chain has the last piece.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Makes the next piece of a payload that stands behind [`PIECE_HEAD_LEN`] bytes for the head, which this fills.
    ///
    /// # Panics
    /// If there is no room for the head, or the chain has its last piece.
    pub fn seal(&mut self, piece: &mut [u8], is_last: bool) {
        assert!(!self.is_complete, "no piece comes after the last one");
        let (head, payload) = piece.split_at_mut(PIECE_HEAD_LEN);
        head[..4].copy_from_slice(&MARK);
        head[4..8].copy_from_slice(&[u8::from(is_last), 0, 0, 0]);
        head[8..12].copy_from_slice(&self.next.to_le_bytes());
        head[12..16].copy_from_slice(&[0; 4]);
        head[16..24].copy_from_slice(&self.snapshot.to_le_bytes());
        head[24..FIELDS_LEN].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        let sum = self.sum_of(&head[..FIELDS_LEN], payload);
        head[FIELDS_LEN..].copy_from_slice(&sum.to_le_bytes());
        self.advance(sum, is_last);
    }

    /// Checks the next piece and returns its payload. The chain stays as it is if the piece is damaged.
    ///
    /// # Errors
    /// [`PieceError`] if this is not the next piece of this snapshot, byte for byte.
    pub fn open<'p>(&mut self, piece: &'p [u8]) -> Result<&'p [u8], PieceError> {
        let number = self.next;
        let wrong = |what: &str| PieceError(format!("piece {number} {what}"));
        if self.is_complete {
            return Err(wrong("comes after the last piece"));
        }
        let (head, payload) = piece.split_at_checked(PIECE_HEAD_LEN).ok_or_else(|| wrong("is truncated"))?;
        if head[..4] != MARK || payload_len(head) != Some(payload.len()) {
            return Err(wrong("is truncated, or not a piece of a snapshot"));
        }
        let sum = self.sum_of(&head[..FIELDS_LEN], payload);
        if sum.to_le_bytes() != head[FIELDS_LEN..] {
            return Err(wrong("is damaged: its checksum does not match"));
        }
        if head[8..12] != self.next.to_le_bytes() || head[16..24] != self.snapshot.to_le_bytes() {
            return Err(wrong("has the number of another piece, or belongs to another snapshot"));
        }
        self.advance(sum, head[4] == 1);
        Ok(payload)
    }

    fn sum_of(&self, fields: &[u8], payload: &[u8]) -> u128 {
        let mut sum = Xxh3::new();
        sum.update(&self.sum.to_le_bytes());
        sum.update(fields);
        sum.update(payload);
        sum.digest128()
    }

    fn advance(&mut self, sum: u128, is_last: bool) {
        (self.sum, self.is_complete) = (sum, is_last);
        self.next += 1;
    }
}

/// Returns the length of the payload that a head announces; `None` if no piece is that long.
fn payload_len(head: &[u8]) -> Option<usize> {
    let len = head.get(24..FIELDS_LEN)?.try_into().ok().map(u64::from_le_bytes)?;
    usize::try_from(len).ok().filter(|len| *len <= PIECE_LEN_MAX - PIECE_HEAD_LEN)
}

/// Reads the bytes of a piece from a file of pieces; `None` at the end, or if the rest is too short for a piece. The
/// caller checks the piece with [`PieceChain::open`].
///
/// # Errors
/// The error of the file.
pub fn read_piece(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut piece = vec![0; PIECE_HEAD_LEN];
    let read = match file.read_exact(&mut piece) {
        Ok(()) => match payload_len(&piece) {
            Some(len) => {
                piece.resize(PIECE_HEAD_LEN + len, 0);
                file.read_exact(&mut piece[PIECE_HEAD_LEN..])
            }
            None => return Ok(None),
        },
        Err(error) => Err(error),
    };
    match read {
        Ok(()) => Ok(Some(piece)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the pieces of a snapshot with these payloads.
    fn pieces(snapshot: u64, payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut chain = PieceChain::begin(snapshot);
        let seal = |(at, payload): (usize, &Vec<u8>)| {
            let mut piece = [&[0; PIECE_HEAD_LEN][..], payload].concat();
            chain.seal(&mut piece, at + 1 == payloads.len());
            piece
        };
        payloads.iter().enumerate().map(seal).collect()
    }

    fn payloads() -> Vec<Vec<u8>> {
        vec![b"first".to_vec(), vec![7; 1_000], Vec::new(), b"last".to_vec()]
    }

    /// Opens pieces in their order, as far as they are good.
    fn opened(snapshot: u64, pieces: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
        let mut chain = PieceChain::begin(snapshot);
        let payloads = pieces.iter().map_while(|piece| chain.open(piece).ok().map(<[u8]>::to_vec)).collect();
        (payloads, chain.is_complete())
    }

    #[test]
    fn pieces_are_read_as_they_were_written() {
        let sealed = pieces(9, &payloads());
        assert_eq!(opened(9, &sealed), (payloads(), true));
        // A reader without the last piece knows that it lacks something.
        assert_eq!(opened(9, &sealed[..3]), (payloads()[..3].to_vec(), false));
        let file = [sealed.concat(), b"cut off".to_vec()].concat();
        let mut rest = &file[..];
        let mut read = Vec::new();
        while let Some(piece) = read_piece(&mut rest).unwrap() {
            read.push(piece);
        }
        assert_eq!(read, sealed);
    }

    #[test]
    fn no_piece_can_be_changed() {
        let sealed = pieces(9, &payloads());
        for (number, piece) in sealed.iter().enumerate() {
            for at in 0..piece.len() {
                let mut changed = sealed.clone();
                changed[number][at] ^= 1 << (at % 8);
                let (read, is_complete) = opened(9, &changed);
                assert_eq!(read, payloads()[..number], "byte {at} of piece {number}");
                assert!(!is_complete);
            }
            for len in 0..piece.len() {
                let mut changed = sealed.clone();
                changed[number].truncate(len);
                assert_eq!(opened(9, &changed).0.len(), number);
            }
        }
    }

    #[test]
    fn pieces_of_other_places_do_not_fit() {
        let (sealed, others) = (pieces(9, &payloads()), pieces(10, &payloads()));
        let mut chain = PieceChain::begin(9);
        assert!(chain.open(&others[0]).is_err());
        assert!(chain.open(&sealed[1]).is_err());
        assert!(chain.open(&sealed[0]).is_ok());
        assert!(chain.open(&sealed[0]).is_err(), "a piece comes once");
        assert_eq!(chain.next(), 1);
        // With another first piece, the second one has another checksum.
        let mut other = payloads();
        other[0] = b"other".to_vec();
        assert!(chain.open(&pieces(9, &other)[1]).is_err());
        assert!(chain.open(&sealed[1]).is_ok());
    }

    #[test]
    fn chain_ends_with_its_last_piece() {
        let sealed = pieces(9, &[b"all".to_vec()]);
        let mut chain = PieceChain::begin(9);
        chain.open(&sealed[0]).unwrap();
        assert!(chain.is_complete());
        assert!(chain.open(&sealed[0]).unwrap_err().to_string().contains("after the last"));
    }

    proptest! {
        #[test]
        fn reading_is_total(bytes in any::<Vec<u8>>()) {
            let mut chain = PieceChain::begin(1);
            let is_piece = chain.open(&bytes).is_ok();
            prop_assert!(!is_piece || chain.next() == 1);
            let mut rest = &bytes[..];
            while read_piece(&mut rest).unwrap().is_some() {}
        }
    }
}
