//! Plans of connections: how much each side sends, when, and who ends first. Both sides know the plan, so each checks
//! every byte that it gets.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// Returns a number below `bound`.
pub(crate) fn below(random: &mut Pcg64Mcg, bound: u32) -> u32 {
    ((u64::from(random.next_u32()) * u64::from(bound)) >> 32) as u32
}

/// Returns true `per_mille` times in a thousand.
pub(crate) fn chance(random: &mut Pcg64Mcg, per_mille: u32) -> bool {
    below(random, 1000) < per_mille
}

/// The moment at which the server begins to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begins {
    Opening,
    FirstByte,
    LastByte,
}

/// The plan of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) upload: u32,
    pub(crate) download: u32,
    pub(crate) begins: Begins,
    /// The client sends its FIN as soon as it has sent everything; else once it has got everything.
    pub(crate) half_closes: bool,
    /// The server sends its FIN with its last byte; else after the client's.
    pub(crate) server_ends_first: bool,
    /// Most bytes that the server sends at once.
    pub(crate) piece: u32,
    pub(crate) server_pauses: bool,
    /// Bytes after which a side resets the connection.
    pub(crate) client_resets_after: Option<u32>,
    pub(crate) server_resets_after: Option<u32>,
    pub(crate) has_timestamps: bool,
}

fn size(random: &mut Pcg64Mcg) -> u32 {
    match below(random, 100) {
        0..10 => 0,
        10..75 => below(random, 600),
        75..97 => below(random, 6_000),
        _ => below(random, 60_000),
    }
}

impl Plan {
    pub(crate) fn new(number: u64, random: &mut Pcg64Mcg) -> Plan {
        let (upload, download) = (size(random), size(random));
        let begins = match below(random, 3) {
            0 => Begins::Opening,
            1 if upload > 0 => Begins::FirstByte,
            2 if upload > 0 => Begins::LastByte,
            _ => Begins::Opening,
        };
        let client_resets_after = chance(random, 20).then(|| below(random, download + 1));
        let server_resets_after = chance(random, 20).then(|| below(random, upload + 1));
        Plan {
            number,
            upload,
            download,
            begins,
            half_closes: chance(random, 300),
            server_ends_first: chance(random, 500),
            piece: 1 + below(random, 8_000),
            server_pauses: chance(random, 50),
            client_resets_after,
            server_resets_after,
            has_timestamps: chance(random, 600),
        }
    }

    pub(crate) fn has_reset(&self) -> bool {
        self.client_resets_after.is_some() || self.server_resets_after.is_some()
    }

    fn byte(&self, direction: u64, at: u32) -> u8 {
        let mixed = (self.number * 2 + direction).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(at);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as u8
    }

    /// Writes bytes of the upload from a place on.
    pub(crate) fn write_upload(&self, at: u32, to: &mut [u8]) {
        to.iter_mut().zip(at..).for_each(|(byte, at)| *byte = self.byte(0, at));
    }

    /// Writes bytes of the download from a place on.
    pub(crate) fn write_download(&self, at: u32, to: &mut [u8]) {
        to.iter_mut().zip(at..).for_each(|(byte, at)| *byte = self.byte(1, at));
    }

    pub(crate) fn is_upload(&self, at: u32, bytes: &[u8]) -> bool {
        at as usize + bytes.len() <= self.upload as usize
            && bytes.iter().zip(at..).all(|(byte, at)| *byte == self.byte(0, at))
    }

    pub(crate) fn is_download(&self, at: u32, bytes: &[u8]) -> bool {
        at as usize + bytes.len() <= self.download as usize
            && bytes.iter().zip(at..).all(|(byte, at)| *byte == self.byte(1, at))
    }
}
