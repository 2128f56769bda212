//! The mark at the end of a block in a fleet: the node that has logged its visits, and the number of the block. A block
//! and its mark reach the disk together, so each block is taken once.

use carom_model::formats::dates::INSTANT_MS_MAX;
use carom_model::visits::origins::OriginId;
use carom_model::visits::record::VisitRecord;
use carom_model::visits::shared_log::LogSpan;

/// The first bytes of a mark. A record begins with its length, which is never 0, so a reader of records stops here.
const HEAD: [u8; 3] = [0, 0, 1];

/// Bytes of a mark.
const LEN: usize = HEAD.len() + 16;

/// The origin and number of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockMark {
    pub(super) origin: OriginId,
    pub(super) number: u64,
}

/// The records of a block, and what they tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockContent {
    /// The mark, if the block has one behind its records.
    pub(super) mark: Option<BlockMark>,
    /// The number of visits.
    pub(super) visits: u64,
    /// The span of the visits; `None` without visits.
    pub(super) span: Option<LogSpan>,
    /// True if every byte belongs to a record or to the mark, and every visit has a date that can be shown.
    pub(super) is_sound: bool,
}

impl BlockMark {
    /// Appends the mark to the records of a block.
    pub(super) fn push(self, raw: &mut Vec<u8>) {
        raw.extend_from_slice(&HEAD);
        raw.extend_from_slice(&self.origin.0.to_le_bytes());
        raw.extend_from_slice(&self.number.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<BlockMark> {
        let rest = bytes.strip_prefix(&HEAD).filter(|_| bytes.len() == LEN)?;
        let (origin, number) = (rest.first_chunk()?, rest.last_chunk()?);
        Some(BlockMark { origin: OriginId(u64::from_le_bytes(*origin)), number: u64::from_le_bytes(*number) })
    }
}

impl BlockContent {
    /// Reads the records of a block.
    pub(super) fn of(raw: &[u8]) -> BlockContent {
        let (mut rest, mut visits, mut span, mut is_sound) = (raw, 0, None::<LogSpan>, true);
        while let Some(visit) = VisitRecord::take(&mut rest) {
            visits += 1;
            is_sound &= visit.at_ms <= INSTANT_MS_MAX;
            let instant = LogSpan { from_ms: visit.at_ms, to_ms: visit.at_ms };
            span = Some(span.map_or(instant, |span| span.with(instant)));
        }
        let mark = BlockMark::read(rest);
        is_sound &= mark.is_some() || rest.is_empty();
        BlockContent { mark, visits, span, is_sound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::visits::record::{LoggedKind, RequestPart};

    fn records(times: &[u64]) -> Vec<u8> {
        let mut raw = Vec::new();
        for at_ms in times {
            let request = RequestPart { agent: b"agent", ..RequestPart::default() };
            let (is_secure, forwards, is_bot, kind) = (false, false, false, LoggedKind::BaseUrl);
            let (location, code, target) = (None, None, &b"https://example.org/"[..]);
            VisitRecord { at_ms: *at_ms, kind, is_secure, forwards, is_bot, request, location, code, target }
                .encode(&mut raw);
        }
        raw
    }

    #[test]
    fn marks_are_read_behind_all_records() {
        let mark = BlockMark { origin: OriginId(7), number: u64::MAX };
        for times in [&[0_u64; 0][..], &[5], &[9, 4, 6]] {
            let mut raw = records(times);
            let span = times.iter().min().map(|from| LogSpan { from_ms: *from, to_ms: *times.iter().max().unwrap() });
            let visits = times.len() as u64;
            assert_eq!(BlockContent::of(&raw), BlockContent { mark: None, visits, span, is_sound: true });
            mark.push(&mut raw);
            assert_eq!(BlockContent::of(&raw), BlockContent { mark: Some(mark), visits, span, is_sound: true });
            raw.push(0);
            assert!(!BlockContent::of(&raw).is_sound, "a byte too many");
        }
        assert!(!BlockContent::of(&records(&[u64::MAX])).is_sound);
    }
}
