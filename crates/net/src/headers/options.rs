//! TCP options: maximum segment size, window scale, selective acknowledgements, timestamps.

use crate::counters::DropReason;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Largest shift of a window (RFC 7323, 2.3).
const WINDOW_SCALE_MAX: u8 = 14;
/// Most blocks that fit into the options.
pub(crate) const SACK_BLOCKS_MAX: usize = 4;
/// Length of the timestamps option with its padding.
pub(crate) const TIMESTAMPS_LEN: usize = 12;

/// The two values of a timestamps option (RFC 7323, 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Timestamps {
    pub(crate) value: u32,
    pub(crate) echo: u32,
}

/// The options of a received segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) is_sack_permitted: bool,
    pub(crate) timestamps: Option<Timestamps>,
    sack: [(u32, u32); SACK_BLOCKS_MAX],
    sack_len: u8,
}

impl SegmentOptions {
    /// Returns the blocks that the peer has, each from its first byte to the one after its last (RFC 2018, 3).
    pub(crate) fn sack(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sack_len)]
    }
}

/// Parses the options of a header. Unknown options are skipped (RFC 9293, 3.1); a length that does not fit is an error.
pub(crate) fn parse(bytes: &[u8]) -> Result<SegmentOptions, DropReason> {
    let mut options = SegmentOptions::default();
    // The usual options of an established connection.
    if let [NOP, NOP, TIMESTAMPS, 10, rest @ ..] = bytes
        && rest.len() == 8
    {
        options.timestamps = Some(Timestamps { value: word(rest), echo: word(&rest[4..]) });
        return Ok(options);
    }
    let mut rest = bytes;
    while let [kind, after @ ..] = rest {
        match *kind {
            END => break,
            NOP => rest = after,
            kind => {
                let len = usize::from(*after.first().ok_or(DropReason::TcpOptions)?);
                let body = rest.get(2..len).ok_or(DropReason::TcpOptions)?;
                read(&mut options, kind, body)?;
                rest = &rest[len..];
            }
        }
    }
    Ok(options)
}

fn read(options: &mut SegmentOptions, kind: u8, body: &[u8]) -> Result<(), DropReason> {
    match (kind, body.len()) {
        (MSS, 2) => options.mss = Some(u16::from_be_bytes([body[0], body[1]])),
        (WINDOW_SCALE, 1) => options.window_scale = Some(body[0].min(WINDOW_SCALE_MAX)),
        (SACK_PERMITTED, 0) => options.is_sack_permitted = true,
        (TIMESTAMPS, 8) => options.timestamps = Some(Timestamps { value: word(body), echo: word(&body[4..]) }),
        (SACK, 8 | 16 | 24 | 32) => {
            options.sack_len = (body.len() / 8) as u8;
            for (to, block) in options.sack.iter_mut().zip(body.chunks_exact(8)) {
                *to = (word(block), word(&block[4..]));
            }
        }
        (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(DropReason::TcpOptions),
        _ => {}
    }
    Ok(())
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The options of a segment to send, padded to whole words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OptionBytes {
    bytes: [u8; 40],
    len: u8,
}

impl OptionBytes {
    pub(crate) const NONE: OptionBytes = OptionBytes { bytes: [0; 40], len: 0 };

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// Adds timestamps, aligned as RFC 7323, A, recommends.
    pub(crate) fn timestamps(mut self, timestamps: Timestamps) -> OptionBytes {
        self.push(&[NOP, NOP, TIMESTAMPS, 10]);
        self.push(&timestamps.value.to_be_bytes());
        self.push(&timestamps.echo.to_be_bytes());
        self
    }

    /// Adds as many blocks as fit.
    pub(crate) fn sack(mut self, blocks: &[(u32, u32)]) -> OptionBytes {
        let room = (self.bytes.len() - usize::from(self.len)).saturating_sub(4) / 8;
        let blocks = &blocks[..blocks.len().min(room)];
        if !blocks.is_empty() {
            self.push(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                self.push(&start.to_be_bytes());
                self.push(&end.to_be_bytes());
            }
        }
        self
    }

    /// Returns the options of an answer to a SYN: those that the client offered (RFC 7323, 2.2 and 3.2; RFC 2018, 2).
    pub(crate) fn handshake(mss: u16, scale: Option<u8>, sack: bool, timestamps: Option<Timestamps>) -> OptionBytes {
        let mut options = OptionBytes::NONE;
        options.push(&[MSS, 4]);
        options.push(&mss.to_be_bytes());
        if let Some(scale) = scale {
            options.push(&[NOP, WINDOW_SCALE, 3, scale]);
        }
        if sack {
            options.push(&[NOP, NOP, SACK_PERMITTED, 2]);
        }
        match timestamps {
            Some(timestamps) => options.timestamps(timestamps),
            None => options,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_options_are_read_back() {
        let times = Timestamps { value: 7, echo: 8 };
        let bytes = OptionBytes::handshake(1460, Some(9), true, Some(times));
        let options = parse(bytes.bytes()).unwrap();
        assert_eq!((options.mss, options.window_scale), (Some(1460), Some(9)));
        assert!(options.is_sack_permitted);
        assert_eq!(options.timestamps, Some(times));
        let blocks = [(1, 2), (3, 4), (5, 6), (7, 8)];
        assert_eq!(parse(OptionBytes::NONE.sack(&blocks).bytes()).unwrap().sack(), blocks);
        let both = parse(OptionBytes::NONE.timestamps(times).sack(&blocks).bytes()).unwrap();
        assert_eq!((both.timestamps, both.sack()), (Some(times), &blocks[..3]));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        for wrong in [&[2][..], &[2, 0], &[2, 1], &[2, 4, 5], &[99, 9, 0], &[3, 4, 1, 1], &[8, 2], &[5, 6, 1, 1, 1, 1]]
        {
            assert_eq!(parse(wrong), Err(DropReason::TcpOptions), "{wrong:?}");
        }
    }

    #[test]
    fn unknown_options_are_skipped() {
        assert_eq!(parse(&[254, 4, 1, 1, 2, 4, 1, 0, 0, 9, 9]).unwrap().mss, Some(256));
    }

    #[test]
    fn window_scale_is_bounded() {
        assert_eq!(parse(&[3, 3, 200]).unwrap().window_scale, Some(14));
    }
}
