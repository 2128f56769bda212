//! The end of a chunked body (RFC 9112, section 7.1), parsed strictly. The bytes go to hyper unchanged, and must mean
//! the same to both.

use super::rejection::Rejection;
use carom_limits::HEAD_LEN_MAX;

/// Most digits of a chunk's size that are accepted: 16^8 bytes exceed every limit on bodies.
const SIZE_DIGITS_MAX: u8 = 8;

/// The state between two bytes of a chunked body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunked {
    part: ChunkPart,
    /// Bytes of data so far.
    data: u64,
    /// Bytes of sizes, extensions and trailers so far. They are bounded too.
    overhead: u64,
    /// True if any amount of data is accepted.
    endless: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChunkPart {
    Size {
        value: u64,
        digits: u8,
    },
    Extension {
        value: u64,
    },
    SizeLf {
        value: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// At the start of a line of the trailer section.
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
}

impl Default for Chunked {
    fn default() -> Self {
        Chunked { part: ChunkPart::Size { value: 0, digits: 0 }, data: 0, overhead: 0, endless: false }
    }
}

impl Chunked {
    /// Returns the state at the start of a body of unlimited length.
    pub fn endless() -> Chunked {
        Chunked { endless: true, ..Chunked::default() }
    }

    /// Returns the bytes of framing that are accepted for the data so far. Chunks of one byte need five for each.
    fn overhead_max(&self, data_max: u64) -> u64 {
        let base = HEAD_LEN_MAX as u64 + data_max;
        if self.endless { base.saturating_add(self.data.saturating_mul(8)) } else { base }
    }

    /// Continues with `bytes`, and accepts at most `data_max` bytes of data. Returns how many of the bytes belong to
    /// the body, and true if the body ends with them.
    ///
    /// # Errors
    /// [`Rejection`] if the framing is malformed, or the body or its framing is too long.
    pub fn advance(&mut self, bytes: &[u8], data_max: u64) -> Result<(usize, bool), Rejection> {
        let mut at = 0;
        while at < bytes.len() {
            if let ChunkPart::Data { left } = self.part {
                let taken = left.min((bytes.len() - at) as u64);
                at += taken as usize;
                self.part = if taken == left { ChunkPart::DataCr } else { ChunkPart::Data { left: left - taken } };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.overhead += 1;
            if self.overhead > self.overhead_max(data_max) {
                return if at == 1 { Err(Rejection::BodyTooLarge) } else { Ok((at - 1, false)) };
            }
            if self.part == ChunkPart::EndLf && byte == b'\n' {
                return Ok((at, true));
            }
            match self.after(byte, data_max) {
                Ok(part) => self.part = part,
                Err(rejection) if at == 1 => return Err(rejection),
                // The valid bytes before it are passed first, as if they had come alone. Then this byte is refused
                // again.
                Err(_) => return Ok((at - 1, false)),
            }
        }
        Ok((at, false))
    }

    fn after(&mut self, byte: u8, data_max: u64) -> Result<ChunkPart, Rejection> {
        let part = match (self.part, byte) {
            (ChunkPart::Size { value, digits }, _) if byte.is_ascii_hexdigit() && digits < SIZE_DIGITS_MAX => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                ChunkPart::Size { value: value << 4 | digit, digits: digits + 1 }
            }
            (ChunkPart::Size { value, digits: 1.. }, b'\r') => ChunkPart::SizeLf { value },
            (ChunkPart::Size { value, digits: 1.. }, b';') => ChunkPart::Extension { value },
            (ChunkPart::Extension { value }, b'\r') => ChunkPart::SizeLf { value },
            (ChunkPart::Extension { .. }, b' '..=b'~' | b'\t') => self.part,
            (ChunkPart::SizeLf { value: 0 }, b'\n') => ChunkPart::TrailerStart,
            (ChunkPart::SizeLf { value }, b'\n') => {
                self.data = self.data.saturating_add(value);
                if self.data > data_max && !self.endless {
                    return Err(Rejection::BodyTooLarge);
                }
                ChunkPart::Data { left: value }
            }
            (ChunkPart::DataCr, b'\r') => ChunkPart::DataLf,
            (ChunkPart::DataLf, b'\n') => ChunkPart::Size { value: 0, digits: 0 },
            (ChunkPart::TrailerStart, b'\r') => ChunkPart::EndLf,
            (ChunkPart::TrailerStart, b'!'..=b'~') => ChunkPart::Trailer,
            (ChunkPart::Trailer, b'\r') => ChunkPart::TrailerLf,
            (ChunkPart::Trailer, b' '..=b'~' | b'\t' | 0x80..) => ChunkPart::Trailer,
            (ChunkPart::TrailerLf, b'\n') => ChunkPart::TrailerStart,
            _ => return Err(Rejection::BadRequest),
        };
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 20;

    #[test]
    fn whole_bodies_end_where_they_end() {
        let long = format!("aB\r\n{}\r\n0\r\n\r\n", "x".repeat(0xab));
        for body in ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n00\r\nX: y\r\n\r\n", &long] {
            let stream = format!("{body}GET / HTTP/1.1");
            let whole = Chunked::default().advance(stream.as_bytes(), MAX);
            assert_eq!(whole, Ok((body.len(), true)), "{body:?}");
            // Feeding one byte at a time gives the same result.
            let mut chunked = Chunked::default();
            for (at, byte) in body.bytes().enumerate() {
                assert_eq!(chunked.advance(&[byte], MAX), Ok((1, at + 1 == body.len())), "{body:?} at {at}");
            }
        }
    }

    /// Returns the rejection of a body, if it is rejected.
    fn refused(mut body: &[u8]) -> Option<Rejection> {
        let mut chunked = Chunked::default();
        while !body.is_empty() {
            match chunked.advance(body, MAX) {
                Ok((_, true)) => return None,
                Ok((taken, false)) => body = &body[taken..],
                Err(rejection) => return Some(rejection),
            }
        }
        None
    }

    #[test]
    fn inexact_framing_is_refused() {
        for body in [
            "\r\n",
            "g\r\n",
            " 5\r\nhello",
            "5 \r\nhello",
            "+5\r\nhello",
            "0x5\r\nhello",
            "5\nhello",
            "5\r\nhelloX",
            "5\r\nhello\n",
            "5\r\r\n",
            "0\r\n X: y\r\n",
            "0\r\n\n",
            "123456789\r\n",
            "5;\x01\r\n",
            "5;a\n",
            "0\r\nX: y\n\r\n",
        ] {
            assert_eq!(refused(body.as_bytes()), Some(Rejection::BadRequest), "{body:?}");
        }
        assert_eq!(refused(b"100001\r\n"), Some(Rejection::BodyTooLarge));
        assert_eq!(refused(b"ffffffff\r\n"), Some(Rejection::BodyTooLarge));
    }
}
