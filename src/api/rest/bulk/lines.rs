//! Splits a body that arrives in pieces into lines, in bounded memory.

use carom_limits::IMPORT_LINE_MAX;

/// Byte order mark that some editors put at the start of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line and its number, counted from 1.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::api) enum BodyLine<'l> {
    /// A complete line, without its line end and without surrounding blanks.
    Whole(u64, &'l [u8]),
    /// A line longer than [`IMPORT_LINE_MAX`] bytes. Its rest is skipped.
    TooLong(u64),
}

/// Buffer for the part of a body that is not processed yet.
#[derive(Default)]
pub(in crate::api) struct LineBuffer {
    bytes: Vec<u8>,
    /// Bytes at the start of the buffer that are processed.
    taken: usize,
    /// Bytes at the start of the buffer that are known to contain no unprocessed line end.
    searched: usize,
    /// Lines that are processed.
    number: u64,
    /// True while the rest of a too long line is skipped.
    skipping: bool,
    /// True once the body is complete.
    ended: bool,
}

impl LineBuffer {
    /// Appends the next piece of the body.
    pub(in crate::api) fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Marks the body as complete: the remaining bytes are the last line.
    pub(in crate::api) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns the number of the last line that [`LineBuffer::next`] returned.
    pub(in crate::api) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line that is not blank, if the buffer holds a complete one.
    pub(in crate::api) fn next(&mut self) -> Option<BodyLine<'_>> {
        loop {
            let (mut start, end) = match memchr::memchr(b'\n', &self.bytes[self.searched..]) {
                Some(at) => (self.taken, self.searched + at),
                None if self.ended && self.taken < self.bytes.len() => (self.taken, self.bytes.len()),
                None if self.bytes.len() - self.taken > IMPORT_LINE_MAX || self.skipping => {
                    (self.taken, self.searched) = (self.bytes.len(), self.bytes.len());
                    if std::mem::replace(&mut self.skipping, true) {
                        return None;
                    }
                    self.number += 1;
                    return Some(BodyLine::TooLong(self.number));
                }
                None => {
                    self.searched = self.bytes.len();
                    return None;
                }
            };
            self.taken = (end + 1).min(self.bytes.len());
            self.searched = self.taken;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            self.number += 1;
            if end - start > IMPORT_LINE_MAX {
                return Some(BodyLine::TooLong(self.number));
            }
            if self.number == 1 && self.bytes[start..end].starts_with(BYTE_ORDER_MARK) {
                start += BYTE_ORDER_MARK.len();
            }
            if !self.bytes[start..end].trim_ascii().is_empty() {
                return Some(BodyLine::Whole(self.number, self.bytes[start..end].trim_ascii()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns all lines of a body that arrives in these pieces; `None` marks a too long line.
    fn cut<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = LineBuffer::default();
        let mut found = Vec::new();
        let mut take = |lines: &mut LineBuffer| {
            while let Some(line) = lines.next() {
                found.push(match line {
                    BodyLine::Whole(number, line) => (number, Some(line.to_vec())),
                    BodyLine::TooLong(number) => (number, None),
                });
            }
        };
        for piece in pieces {
            lines.push(piece);
            take(&mut lines);
            assert!(lines.bytes.len() <= IMPORT_LINE_MAX + piece.len());
        }
        lines.end();
        take(&mut lines);
        found
    }

    fn whole(number: u64, line: &str) -> (u64, Option<Vec<u8>>) {
        (number, Some(line.into()))
    }

    #[test]
    fn blank_lines_count_and_ends_may_be_of_either_kind() {
        let body = b"\xef\xbb\xbf{}\r\n\n  \r\n\t{1} \n{2}";
        let expected = vec![whole(1, "{}"), whole(4, "{1}"), whole(5, "{2}")];
        assert_eq!(cut([&body[..]]), expected);
        assert_eq!(cut(body.chunks(1)), expected);
        assert_eq!(cut([]), []);
        assert_eq!(cut([&b"\n\n"[..]]), []);
        assert_eq!(cut([&b"\xef\xbb\xbf\n\xef\xbb\xbf"[..]]), vec![whole(2, "\u{feff}")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_skipped() {
        let longest = "x".repeat(IMPORT_LINE_MAX);
        let body = format!("a\n{longest}\n{longest}y\nb\n{longest}{longest}{longest}\n\nc\n{longest}y");
        let expected =
            vec![whole(1, "a"), whole(2, &longest), (3, None), whole(4, "b"), (5, None), whole(7, "c"), (8, None)];
        for len in [body.len(), IMPORT_LINE_MAX, 8_192, 100_003] {
            assert_eq!(cut(body.as_bytes().chunks(len)), expected, "{len}");
        }
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(body in "[ab\r\n ]{0,60}", cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &body.as_bytes()[cut[0]..cut[1]]);
            let lines = body.split('\n').map(str::trim_ascii).zip(1..).filter(|(line, _)| !line.is_empty());
            let expected: Vec<_> = lines.map(|(line, number)| whole(number, line)).collect();
            prop_assert_eq!(cut(pieces), expected);
        }
    }
}
