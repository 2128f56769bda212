//! Keyed hashes of flows: the flow table, initial sequence numbers and timestamps.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::headers::address::Flow;

/// Uses of the secret, so that no hash tells anything about another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum KeyUse {
    Table = 1,
    SequenceNumber,
    Timestamp,
    Cookie,
    CookieTime,
}

/// The keys of a stack, derived from its secret.
#[derive(Clone)]
pub(crate) struct StackKeys {
    keys: [(u64, u64); 5],
}

impl StackKeys {
    pub(crate) fn new(secret: &[u8; 16]) -> StackKeys {
        let uses = [KeyUse::Table, KeyUse::SequenceNumber, KeyUse::Timestamp, KeyUse::Cookie, KeyUse::CookieTime];
        let derive = |tag: u8| {
            let mut hasher = SipHasher13::new_with_key(secret);
            hasher.write(&[tag]);
            hasher.finish()
        };
        StackKeys { keys: uses.map(|key_use| (derive(key_use as u8), derive(key_use as u8 | 0x80))) }
    }

    /// Returns the hash of a flow and a number for one use.
    pub(crate) fn hash(&self, key_use: KeyUse, flow: &Flow, number: u32) -> u64 {
        let (low, high) = self.keys[key_use as usize - 1];
        let mut bytes = [0; 40];
        bytes[..36].copy_from_slice(&flow.bytes());
        bytes[36..].copy_from_slice(&number.to_be_bytes());
        SipHasher13::new_with_keys(low, high).hash(&bytes)
    }

    /// Returns the initial sequence number of a connection (RFC 6528, 3): a clock of 4 µs plus a keyed hash of the
    /// flow.
    pub(crate) fn initial_sequence_number(&self, flow: &Flow, now_us: u64) -> u32 {
        let clock = (now_us / 4) as u32;
        clock.wrapping_add(self.hash(KeyUse::SequenceNumber, flow, 0) as u32)
    }

    /// Returns the offset of the timestamps of a flow (RFC 7323, 5.4 and 7.1). The offset hides how long the machine
    /// has been up. The timestamps of a later connection of the flow continue those of an earlier one.
    pub(crate) fn timestamp_offset(&self, flow: &Flow) -> u32 {
        self.hash(KeyUse::Timestamp, flow, 0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_follow_clock_and_flow() {
        let keys = StackKeys::new(&[7; 16]);
        let flow = Flow { local_port: 80, remote_port: 1, ..Flow::default() };
        let first = keys.initial_sequence_number(&flow, 1_000_000);
        assert_eq!(keys.initial_sequence_number(&flow, 1_000_400), first.wrapping_add(100));
        let other = Flow { remote_port: 2, ..flow };
        assert_ne!(keys.initial_sequence_number(&other, 1_000_000), first);
        assert_ne!(StackKeys::new(&[8; 16]).initial_sequence_number(&flow, 1_000_000), first);
    }

    #[test]
    fn uses_have_hashes_of_their_own() {
        let keys = StackKeys::new(&[7; 16]);
        let flow = Flow::default();
        assert_ne!(keys.hash(KeyUse::Table, &flow, 0), keys.hash(KeyUse::SequenceNumber, &flow, 0));
        assert_ne!(keys.hash(KeyUse::Cookie, &flow, 0), keys.hash(KeyUse::Cookie, &flow, 1));
    }
}
