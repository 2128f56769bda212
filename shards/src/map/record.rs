//! A record: one entry of the map as bytes.
//!
//! ```text
//! 0   u32  target bytes (12 bits), units of the code - 1 (6), status (3), flags: cache, until, damaged, dead,
//!          frequency (2; in a cache only), flags: since, forward query, archived, domain
//! 4   u32  how often it may be visited; zero for any number of times
//! 8   u32  cache seconds, when flagged
//!     u48  valid until, in milliseconds since 1970, when flagged
//!     u48  valid since, in milliseconds since 1970, when flagged
//!          the packed code, six bytes for its domain, when flagged, then the target
//! ```
//! Numbers are little-endian. Records begin at multiples of eight bytes, so the header and a generated code are mostly
//! within one cache line.

use std::num::NonZeroU32;

use crate::code::{CODE_LEN_MAX, Code, DOMAIN_ID_LEN, DomainId, packed_len};
use crate::link::{MapEntry, Policy, RedirectStatus};

/// The longest target, in bytes.
pub const DESTINATION_LEN_MAX: usize = 2048;

/// The last instant that a policy can name, in milliseconds since 1970.
pub const INSTANT_MS_MAX: u64 = (1 << 48) - 1;

/// Bytes of a unit: records begin and end at multiples of it.
pub(super) const UNIT_BYTES: usize = 8;

/// Units of the longest record.
pub(super) const UNITS_MAX: usize =
    (HEADER_BYTES + CACHE_BYTES + 2 * INSTANT_BYTES + CODE_LEN_MAX * 6 / 8 + DOMAIN_ID_LEN + DESTINATION_LEN_MAX)
        .div_ceil(UNIT_BYTES);

const HEADER_BYTES: usize = 8;
const CACHE_BYTES: usize = 4;
const INSTANT_BYTES: usize = 6;

const CODE_SHIFT: u32 = 12;
const STATUS_SHIFT: u32 = 18;
const HAS_CACHE: u32 = 1 << 21;
const HAS_UNTIL: u32 = 1 << 22;
const DAMAGED: u32 = 1 << 23;
const DEAD: u32 = 1 << 24;
const FREQUENCY_SHIFT: u32 = 25;
const HAS_SINCE: u32 = 1 << 27;
const FORWARD_QUERY: u32 = 1 << 28;
const ARCHIVED: u32 = 1 << 29;
const IN_DOMAIN: u32 = 1 << 30;

/// The bits of a header that describe the code.
const CODE_BITS: u32 = 0x3f << CODE_SHIFT | IN_DOMAIN;

/// The highest frequency that is counted.
pub(super) const FREQUENCY_MAX: u32 = 3;

/// A record in its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    header: u32,
    /// From the record's first byte to at least its last.
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the record that begins where `bytes` do.
    #[inline]
    pub(super) fn at(bytes: &'a [u8]) -> Record<'a> {
        let header = bytes.first_chunk().expect("a record has a header");
        Record { header: u32::from_le_bytes(*header), bytes }
    }

    #[inline]
    fn code_len(self) -> usize {
        (self.header >> CODE_SHIFT & 0x3f) as usize + 1
    }

    #[inline]
    fn target_len(self) -> usize {
        (self.header & 0xfff) as usize
    }

    /// Returns the offset of the packed code.
    #[inline]
    fn code_at(self) -> usize {
        code_at(self.header)
    }

    #[inline]
    fn packed(self) -> &'a [u8] {
        &self.bytes[self.code_at()..][..packed_len(self.code_len())]
    }

    /// True if it is the record of this code.
    #[inline]
    pub(super) fn is_of(self, code: &Code) -> bool {
        self.header & CODE_BITS == code_bits(code) && self.packed() == code.packed() && self.domain() == code.domain()
    }

    #[inline]
    fn domain(self) -> Option<DomainId> {
        if self.header & IN_DOMAIN == 0 {
            return None;
        }
        let bytes = self.bytes[self.code_at() + packed_len(self.code_len())..].first_chunk();
        DomainId::from_bytes(*bytes.expect("a record is whole"))
    }

    pub(super) fn code(self) -> Code {
        let code = Code::from_packed(self.code_len(), self.packed()).expect("the record was written from a code");
        code.within(self.domain())
    }

    /// True if its entry is [`MapEntry::Damaged`].
    #[inline]
    pub(super) fn is_damaged(self) -> bool {
        self.header & DAMAGED != 0
    }

    #[inline]
    pub(super) fn entry(self) -> MapEntry<'a> {
        if self.is_damaged() {
            return MapEntry::Damaged;
        }
        MapEntry::Link { policy: self.policy(), target: self.target() }
    }

    #[inline]
    fn policy(self) -> Policy {
        let mut at = HEADER_BYTES;
        let mut next = |flag: u32, len: usize| {
            (self.header & flag != 0).then(|| {
                let value = number(&self.bytes[at..], len);
                at += len;
                value
            })
        };
        Policy {
            cache_seconds: next(HAS_CACHE, CACHE_BYTES).map(|seconds| seconds as u32),
            valid_until_ms: next(HAS_UNTIL, INSTANT_BYTES),
            valid_since_ms: next(HAS_SINCE, INSTANT_BYTES),
            status: RedirectStatus::ALL[(self.header >> STATUS_SHIFT & 7) as usize],
            forward_query: self.header & FORWARD_QUERY != 0,
            archived: self.header & ARCHIVED != 0,
            max_visits: NonZeroU32::new(number(&self.bytes[4..], 4) as u32),
        }
    }

    #[inline]
    fn target(self) -> &'a [u8] {
        let at = self.code_at() + packed_len(self.code_len()) + domain_len(self.header);
        &self.bytes[at..][..self.target_len()]
    }

    /// Returns the units that it takes.
    #[inline]
    pub(super) fn units(self) -> u32 {
        units_of(self.header)
    }

    pub(super) fn is_dead(self) -> bool {
        self.header & DEAD != 0
    }

    /// Returns the length in bytes of the record at the start of `bytes`, or `None` if no whole record starts there.
    pub(super) fn len_at(bytes: &[u8]) -> Option<usize> {
        let header = u32::from_le_bytes(*bytes.first_chunk()?);
        let len = units_of(header) as usize * UNIT_BYTES;
        // The header of no record is zero: it has a target, or is damaged.
        (header != 0 && len <= bytes.len()).then_some(len)
    }

    /// Returns the code of the record, or `None` if the bytes are not a valid code.
    pub(super) fn checked_code(self) -> Option<Code> {
        let code = Code::from_packed(self.code_len(), self.packed())?;
        if self.header & IN_DOMAIN == 0 { Some(code) } else { self.domain().map(|id| code.within(Some(id))) }
    }

    /// True if [`write()`] could have written this record: for bytes from elsewhere.
    pub(super) fn is_sound(self) -> bool {
        let has_target = (1..=DESTINATION_LEN_MAX).contains(&self.target_len());
        let status = (self.header >> STATUS_SHIFT & 7) as usize;
        let is_free = self.header & (DEAD | FREQUENCY_MAX << FREQUENCY_SHIFT | 1 << 31) == 0;
        let is_entry =
            if self.is_damaged() { self.target_len() == 0 } else { has_target && status < RedirectStatus::ALL.len() };
        is_free && is_entry && self.checked_code().is_some()
    }

    /// Returns how often it was used lately, as far as a cache has counted.
    #[inline]
    pub(super) fn frequency(self) -> u32 {
        self.header >> FREQUENCY_SHIFT & FREQUENCY_MAX
    }

    /// Returns the units of the code and bytes of the target.
    pub(super) fn link_bytes(self) -> u64 {
        (self.code_len() + self.target_len()) as u64
    }
}

/// Returns the units that the record of an entry takes.
///
/// # Panics
/// If the target or the instant is out of bounds.
pub(super) fn units(code: &Code, entry: &MapEntry<'_>) -> u32 {
    units_of(header(code, entry))
}

/// Returns the units of the code and bytes of the target.
pub(super) fn link_bytes(code: &Code, entry: &MapEntry<'_>) -> u64 {
    let target_len = match entry {
        MapEntry::Link { target, .. } => target.len(),
        MapEntry::Damaged => 0,
    };
    (code.sextets() + target_len) as u64
}

/// Writes the record of an entry to the start of `bytes`, with a frequency of zero.
pub(super) fn write(bytes: &mut [u8], code: &Code, entry: &MapEntry<'_>) {
    let header = header(code, entry);
    bytes[..4].copy_from_slice(&header.to_le_bytes());
    let max_visits = match entry {
        MapEntry::Link { policy, .. } => policy.max_visits.map_or(0, NonZeroU32::get),
        MapEntry::Damaged => 0,
    };
    bytes[4..HEADER_BYTES].copy_from_slice(&max_visits.to_le_bytes());
    let (head, rest) = bytes.split_at_mut(code_at(header));
    let (packed, rest) = rest.split_at_mut(code.packed().len());
    packed.copy_from_slice(code.packed());
    let (domain, rest) = rest.split_at_mut(domain_len(header));
    if let Some(id) = code.domain() {
        domain.copy_from_slice(&id.to_bytes());
    }
    if let MapEntry::Link { policy, target } = entry {
        let mut at = HEADER_BYTES;
        if let Some(seconds) = policy.cache_seconds {
            head[at..][..CACHE_BYTES].copy_from_slice(&seconds.to_le_bytes());
            at += CACHE_BYTES;
        }
        for instant in [policy.valid_until_ms, policy.valid_since_ms].into_iter().flatten() {
            head[at..][..INSTANT_BYTES].copy_from_slice(&instant.to_le_bytes()[..INSTANT_BYTES]);
            at += INSTANT_BYTES;
        }
        rest[..target.len()].copy_from_slice(target);
    }
    debug_assert_eq!(Record::at(bytes).code(), *code, "the record is read as that of another code");
    debug_assert_eq!(Record::at(bytes).entry(), *entry, "the record is read as another entry");
}

/// Sets the frequency of the record at the start of `bytes`: a store of one byte.
#[inline]
pub(super) fn set_frequency(bytes: &mut [u8], frequency: u32) {
    const BYTE: usize = FREQUENCY_SHIFT as usize / 8;
    const SHIFT: u32 = FREQUENCY_SHIFT % 8;
    debug_assert!(frequency <= FREQUENCY_MAX);
    bytes[BYTE] = bytes[BYTE] & !((FREQUENCY_MAX as u8) << SHIFT) | (frequency as u8) << SHIFT;
}

/// Marks the record at the start of `bytes` as removed; its size stays readable.
pub(super) fn kill(bytes: &mut [u8]) {
    let header = Record::at(bytes).header | DEAD;
    bytes[..4].copy_from_slice(&header.to_le_bytes());
}

/// Returns the bits of a header that describe a code.
#[inline]
fn code_bits(code: &Code) -> u32 {
    (code.sextets() as u32 - 1) << CODE_SHIFT | if code.domain().is_some() { IN_DOMAIN } else { 0 }
}

/// Returns the first word of the record of an entry.
fn header(code: &Code, entry: &MapEntry<'_>) -> u32 {
    let code_bits = code_bits(code);
    match entry {
        MapEntry::Damaged => code_bits | DAMAGED,
        MapEntry::Link { policy, target } => {
            assert!((1..=DESTINATION_LEN_MAX).contains(&target.len()), "a target has 1 to {DESTINATION_LEN_MAX} bytes");
            let mut instants = [policy.valid_until_ms, policy.valid_since_ms].into_iter().flatten();
            assert!(instants.all(|instant| instant <= INSTANT_MS_MAX), "the instant is too late");
            let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
            let status = RedirectStatus::ALL.iter().position(|&status| status == policy.status);
            let status = status.expect("the list holds every status") as u32;
            target.len() as u32
                | code_bits
                | status << STATUS_SHIFT
                | flag(policy.cache_seconds.is_some(), HAS_CACHE)
                | flag(policy.valid_until_ms.is_some(), HAS_UNTIL)
                | flag(policy.valid_since_ms.is_some(), HAS_SINCE)
                | flag(policy.forward_query, FORWARD_QUERY)
                | flag(policy.archived, ARCHIVED)
        }
    }
}

#[inline]
fn code_at(header: u32) -> usize {
    let bytes = |flag: u32, len: usize| if header & flag != 0 { len } else { 0 };
    HEADER_BYTES + bytes(HAS_CACHE, CACHE_BYTES) + bytes(HAS_UNTIL, INSTANT_BYTES) + bytes(HAS_SINCE, INSTANT_BYTES)
}

/// Returns the bytes that the domain takes.
#[inline]
fn domain_len(header: u32) -> usize {
    if header & IN_DOMAIN != 0 { DOMAIN_ID_LEN } else { 0 }
}

#[inline]
fn units_of(header: u32) -> u32 {
    let code_len = (header >> CODE_SHIFT & 0x3f) as usize + 1;
    let bytes = code_at(header) + packed_len(code_len) + domain_len(header) + (header & 0xfff) as usize;
    bytes.div_ceil(UNIT_BYTES) as u32
}

/// Returns the little-endian number in the first `len` bytes, at most eight.
#[inline]
fn number(bytes: &[u8], len: usize) -> u64 {
    let mut padded = [0; 8];
    padded[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(padded)
}
