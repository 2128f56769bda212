//! The code type: the path of a short URL, packed to six bits a character.
//!
//! Generated codes and custom slugs are one namespace, 1 to 64 characters of `0-9A-Za-z-_`. Each domain of a service
//! has a namespace of its own, so a code is its characters and a domain. Parsing is total and allocates nothing, so the
//! hot path may call it on any bytes. Whether a slug may be *issued* (reserved names) is asked of
//! [`Code::is_reserved`]; whether it exists is the map's business.
//!
//! A slug may also have several segments with slashes between them, at most 62 characters together. The alphabet fills
//! all six bits, so such a slug has a packed form of its own:
//!
//! ```text
//! docs/start    4 d o c s 5 s t a r t       each segment behind its length, six bits each
//! a/b           1 a 1 b 0                   where this fills whole groups of four, a zero follows
//! ```
//! Two to six bits of its last byte are left over. All of them are ones, and those of other codes are zeros. So maps,
//! queues and hashes treat both forms alike, and [`Code::parse`], which the fast path calls, knows one segment only.

mod alphabet;
mod reserved;

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::alphabet::ALPHABET;
use self::alphabet::{NO_SEXTET, SEXTETS, SLASH};

/// The longest code or custom slug, in characters.
pub const CODE_LEN_MAX: usize = 64;

/// The longest slug with slashes, in characters.
pub const PATH_SLUG_LEN_MAX: usize = 62;

/// Bytes that the longest code takes when packed: 64 characters of six bits.
const PACKED_LEN_MAX: usize = CODE_LEN_MAX * 6 / 8;

/// The longest key of a code ([`Code::key`]), in bytes.
pub const CODE_KEY_LEN_MAX: usize = CODE_LEN_MAX + 1 + DOMAIN_CHARS;

/// Bytes of a [`DomainId`].
pub const DOMAIN_ID_LEN: usize = 6;

/// Characters of a domain ID in a key: six bits each.
const DOMAIN_CHARS: usize = DOMAIN_ID_LEN * 8 / 6;

/// The separator between slug and domain in a key. No slug has it.
const DOMAIN_MARK: u8 = b'.';

/// The ID of a domain other than the default one, derived from its name: never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DomainId([u8; DOMAIN_ID_LEN]);

impl DomainId {
    /// Returns the ID of those bytes; `None` for zeros, which stand for the default domain.
    #[inline]
    pub fn from_bytes(bytes: [u8; DOMAIN_ID_LEN]) -> Option<DomainId> {
        (bytes != NO_DOMAIN).then_some(DomainId(bytes))
    }

    /// Returns the bytes of the ID.
    #[inline]
    pub fn to_bytes(self) -> [u8; DOMAIN_ID_LEN] {
        self.0
    }
}

const NO_DOMAIN: [u8; DOMAIN_ID_LEN] = [0; DOMAIN_ID_LEN];

/// A short code or custom slug: 1 to 64 characters, six bits each, of the default domain or of another. `Copy`, 55
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    /// Units of six bits, 1 to 64: the characters, or what the form of a slug with slashes has in their place.
    len: u8,
    /// The units from the most significant bit on. The bits behind the last one, up to the end of its byte, are zeros,
    /// or ones if the slug has slashes; all further bits are zeros.
    packed: [u8; PACKED_LEN_MAX],
    /// The domain ID; zeros for the default domain.
    domain: [u8; DOMAIN_ID_LEN],
}

/// The reason why some bytes are no code. It is the caller's error, so a retry does not help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeError {
    /// The text was empty.
    Empty,
    /// The text had more than [`CODE_LEN_MAX`] characters.
    TooLong {
        /// Number of characters.
        len: usize,
    },
    /// A byte that is not one of `0-9A-Za-z-_`.
    BadByte {
        /// Position of the byte, from 0.
        at: usize,
    },
    /// The text had slashes and more than [`PATH_SLUG_LEN_MAX`] characters.
    PathTooLong {
        /// Number of characters.
        len: usize,
    },
    /// Two slashes followed each other, or the text began or ended with one.
    EmptySegment {
        /// Position of the segment, from 0.
        at: usize,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodeError::Empty => write!(f, "is empty; 1 to {CODE_LEN_MAX} characters of A-Za-z0-9_- are allowed"),
            CodeError::TooLong { len } => write!(f, "has {len} characters; at most {CODE_LEN_MAX} are allowed"),
            CodeError::BadByte { at } => {
                write!(f, "has a character outside A-Za-z0-9_- at byte {at}")
            }
            CodeError::PathTooLong { len } => {
                write!(f, "has {len} characters; with slashes, at most {PATH_SLUG_LEN_MAX} are allowed")
            }
            CodeError::EmptySegment { at } => {
                write!(f, "has an empty segment at byte {at}; expected characters before and behind each slash")
            }
        }
    }
}

impl std::error::Error for CodeError {}

impl Code {
    /// The first of all codes in their order.
    pub const FIRST: Code = Code { len: 1, packed: [0; PACKED_LEN_MAX], domain: NO_DOMAIN };

    /// Parses a code of the default domain from its characters.
    ///
    /// # Errors
    /// [`CodeError`] for anything that is not 1 to 64 characters of `0-9A-Za-z-_`.
    #[inline]
    pub fn parse(text: &[u8]) -> Result<Code, CodeError> {
        if text.is_empty() {
            return Err(CodeError::Empty);
        }
        if text.len() > CODE_LEN_MAX {
            return Err(CodeError::TooLong { len: text.len() });
        }
        // The first character of the alphabet stands for zeros, as the bits behind the last character are.
        let mut chars = [ALPHABET[0]; CODE_LEN_MAX];
        chars[..text.len()].copy_from_slice(text);
        let mut packed = [0u8; PACKED_LEN_MAX];
        let groups = &chars.as_chunks::<4>().0[..text.len().div_ceil(4)];
        let mut seen = 0u8;
        // Four characters fill three bytes exactly, so each group of four is packed by itself.
        for (&[a, b, c, d], out) in groups.iter().zip(packed.as_chunks_mut::<3>().0) {
            let [a, b, c, d] = [SEXTETS[a as usize], SEXTETS[b as usize], SEXTETS[c as usize], SEXTETS[d as usize]];
            seen |= a | b | c | d;
            *out = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        }
        if seen & 0xc0 != 0 {
            let at = text.iter().position(|&byte| SEXTETS[byte as usize] == NO_SEXTET).unwrap_or(0);
            return Err(CodeError::BadByte { at });
        }
        let code = Code { len: text.len() as u8, packed, domain: NO_DOMAIN };
        debug_assert_eq!(
            Code::from_packed(code.sextets(), code.packed()),
            Some(code),
            "bits behind the last character"
        );
        Ok(code)
    }

    /// Parses a code of the default domain from a slug, which may have several segments.
    ///
    /// # Errors
    /// [`CodeError`] for anything that is neither a code nor segments of `0-9A-Za-z-_` with slashes between them, at
    /// most 62 characters.
    pub fn from_slug(text: &[u8]) -> Result<Code, CodeError> {
        if !text.contains(&SLASH) {
            return Code::parse(text);
        }
        if text.len() > PATH_SLUG_LEN_MAX {
            return Err(CodeError::PathTooLong { len: text.len() });
        }
        let mut sextets = [0u8; CODE_LEN_MAX];
        let (mut len, mut at) = (0, 0);
        for segment in text.split(|byte| *byte == SLASH) {
            if segment.is_empty() {
                return Err(CodeError::EmptySegment { at });
            }
            sextets[len] = segment.len() as u8;
            for (place, &byte) in segment.iter().enumerate() {
                let sextet = SEXTETS[byte as usize];
                if sextet == NO_SEXTET {
                    return Err(CodeError::BadByte { at: at + place });
                }
                sextets[len + 1 + place] = sextet;
            }
            len += 1 + segment.len();
            at += segment.len() + 1;
        }
        // Without bits that are left over, there would be no place for the ones.
        len += usize::from(len.is_multiple_of(4));
        let mut packed = [0u8; PACKED_LEN_MAX];
        for (group, out) in sextets.chunks_exact(4).zip(packed.chunks_exact_mut(3)) {
            let bits = group.iter().fold(0u32, |bits, &sextet| bits << 6 | u32::from(sextet));
            out.copy_from_slice(&bits.to_be_bytes()[1..]);
        }
        packed[packed_len(len) - 1] |= unused_bits(len);
        let code = Code { len: len as u8, packed, domain: NO_DOMAIN };
        debug_assert_eq!(
            Code::from_packed(code.sextets(), code.packed()),
            Some(code),
            "the form of a slug with slashes"
        );
        Ok(code)
    }

    /// Returns the code of these characters in a domain; `None` means the default one.
    #[inline]
    #[must_use]
    pub fn within(self, domain: Option<DomainId>) -> Code {
        Code { domain: domain.map_or(NO_DOMAIN, DomainId::to_bytes), ..self }
    }

    /// Returns the domain of the code; `None` means the default one.
    #[inline]
    pub fn domain(&self) -> Option<DomainId> {
        DomainId::from_bytes(self.domain)
    }

    /// Returns the number of characters, 1 to 64, with the slashes. The domain does not count.
    #[expect(clippy::len_without_is_empty, reason = "a code is never empty")]
    pub fn len(&self) -> usize {
        if self.has_slashes() { self.unpack(&mut [0; CODE_LEN_MAX]) } else { self.sextets() }
    }

    /// Returns the number of units of six bits in the packed form, 1 to 64. Without slashes, they are the characters.
    #[inline]
    pub fn sextets(&self) -> usize {
        usize::from(self.len)
    }

    /// True if the slug has several segments.
    #[inline]
    pub fn has_slashes(&self) -> bool {
        self.packed[packed_len(self.sextets()) - 1] & unused_bits(self.sextets()) != 0
    }

    /// Returns the packed form, `ceil(6 * sextets / 8)` bytes. Two codes are equal when these, their numbers of units
    /// and their domains are.
    #[inline]
    pub fn packed(&self) -> &[u8] {
        &self.packed[..packed_len(self.sextets())]
    }

    /// Returns the code of the default domain of `sextets` units whose packed form is `packed`. `None` if the two do
    /// not fit each other, or bits behind the last unit are set though it is no slug with slashes.
    pub fn from_packed(sextets: usize, packed: &[u8]) -> Option<Code> {
        if !(1..=CODE_LEN_MAX).contains(&sextets) || packed.len() != packed_len(sextets) {
            return None;
        }
        let unused = unused_bits(sextets);
        match packed[packed.len() - 1] & unused {
            0 => {}
            ones if ones == unused && is_path(sextets, packed) => {}
            _ => return None,
        }
        let mut code = Code { len: sextets as u8, packed: [0; PACKED_LEN_MAX], domain: NO_DOMAIN };
        code.packed[..packed.len()].copy_from_slice(packed);
        Some(code)
    }

    /// Returns the same code with its letters in lower case; `None` if it has no letter in upper case.
    pub fn in_lower_case(&self) -> Option<Code> {
        let mut buffer = [0; CODE_LEN_MAX];
        let len = self.unpack(&mut buffer);
        let text = &mut buffer[..len];
        if !text.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        text.make_ascii_lowercase();
        Code::from_slug(text).ok().map(|code| code.within(self.domain()))
    }

    /// Returns the characters for display.
    pub fn as_slug(&self) -> Slug {
        Slug(*self)
    }

    /// Writes the characters into `buffer` and returns the written part. Codes of several domains may have the same
    /// characters: see [`Code::key`].
    pub fn slug<'b>(&self, buffer: &'b mut [u8; CODE_LEN_MAX]) -> &'b [u8] {
        let end = self.unpack(buffer);
        &buffer[..end]
    }

    /// Writes the characters to the front of `out`, which has room for the longest slug, and returns their number.
    /// The bytes behind them are overwritten.
    fn unpack(&self, out: &mut [u8]) -> usize {
        if !self.has_slashes() {
            let len = self.sextets();
            unpack(&self.packed[..3 * len.div_ceil(4)], out);
            return len;
        }
        let (mut at, mut end) = (0, 0);
        while at < self.sextets() {
            let len = usize::from(sextet(&self.packed, at));
            // The zero that follows whole groups of four.
            if len == 0 {
                break;
            }
            if end > 0 {
                out[end] = SLASH;
                end += 1;
            }
            for place in at + 1..=at + len {
                out[end] = ALPHABET[usize::from(sextet(&self.packed, place))];
                end += 1;
            }
            at += 1 + len;
        }
        end
    }

    /// Writes the unique key of the code into `buffer`, and returns the written part. It has the characters of the
    /// code. For a domain other than the default one, a dot and the domain ID follow. Stores keep links under it.
    pub fn key<'b>(&self, buffer: &'b mut [u8; CODE_KEY_LEN_MAX]) -> &'b [u8] {
        let mut end = self.unpack(buffer);
        if self.domain != NO_DOMAIN {
            let (mark, chars) = buffer[end..].split_first_mut().expect("there is room behind the longest code");
            *mark = DOMAIN_MARK;
            unpack(&self.domain, &mut chars[..DOMAIN_CHARS]);
            end += 1 + DOMAIN_CHARS;
        }
        &buffer[..end]
    }

    /// Parses a key that [`Code::key`] wrote.
    ///
    /// # Errors
    /// [`CodeError`] for anything else.
    pub fn from_key(key: &[u8]) -> Result<Code, CodeError> {
        let Some(at) = key.len().checked_sub(1 + DOMAIN_CHARS).filter(|&at| key[at] == DOMAIN_MARK) else {
            return Code::from_slug(key);
        };
        let (slug, domain) = (Code::from_slug(&key[..at])?, Code::parse(&key[at + 1..]));
        let bytes = domain.ok().and_then(|code| code.packed.first_chunk().copied());
        let domain = bytes.and_then(DomainId::from_bytes).ok_or(CodeError::BadByte { at: at + 1 })?;
        let code = slug.within(Some(domain));
        debug_assert_eq!(code.key(&mut [0; CODE_KEY_LEN_MAX]), key, "a code would have two keys");
        Ok(code)
    }

    /// True if the service reserves this name, in any case of its letters, so that no link may have it. Of a slug with
    /// slashes, it reserves first and last segments.
    ///
    /// Asked of every code of a segment: its first character and length rule out nearly all codes by one look into a
    /// table, before anything is unpacked.
    pub fn is_reserved(&self) -> bool {
        if self.has_slashes() {
            return reserved::is_reserved_path(self.slug(&mut [0; CODE_LEN_MAX]));
        }
        reserved::may_be_reserved(self.packed[0] >> 2, self.len())
            && reserved::is_reserved(self.slug(&mut [0; CODE_LEN_MAX]))
    }
}

/// Returns the unit at that place.
fn sextet(packed: &[u8], at: usize) -> u8 {
    let bit = 6 * at;
    let next = packed.get(bit / 8 + 1).copied().unwrap_or_default();
    let front = u16::from_be_bytes([packed[bit / 8], next]);
    (front >> (10 - bit % 8)) as u8 & 0x3f
}

/// True if units have the form of a slug with slashes: lengths with as many characters behind them, at least twice.
fn is_path(sextets: usize, packed: &[u8]) -> bool {
    let (mut at, mut segments) = (0, 0);
    while at < sextets {
        match usize::from(sextet(packed, at)) {
            0 => return segments > 1 && at + 1 == sextets && at.is_multiple_of(4),
            len => at += 1 + len,
        }
        segments += 1;
    }
    segments > 1 && at == sextets
}

/// Writes as many characters as there is room for.
fn unpack(packed: &[u8], out: &mut [u8]) {
    for (out, packed) in out.chunks_exact_mut(4).zip(packed.chunks_exact(3)) {
        let bits = u32::from_be_bytes([0, packed[0], packed[1], packed[2]]);
        for (place, out) in out.iter_mut().enumerate() {
            *out = ALPHABET[(bits >> (18 - 6 * place)) as usize & 0x3f];
        }
    }
}

/// Returns the bytes that `len` characters take when packed.
#[inline]
pub(crate) const fn packed_len(len: usize) -> usize {
    (len * 6).div_ceil(8)
}

/// Returns the bits of the last byte of `sextets` units that belong to none of them.
#[inline]
const fn unused_bits(sextets: usize) -> u8 {
    ((1u16 << (packed_len(sextets) * 8 - sextets * 6)) - 1) as u8
}

/// The slug alone, as in a URL.
#[derive(Clone, Copy, Debug)]
pub struct Slug(Code);

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; CODE_LEN_MAX];
        f.write_str(std::str::from_utf8(self.0.slug(&mut buffer)).expect("the alphabet is ASCII"))
    }
}

/// Formats the key: see [`Code::key`], and [`Code::as_slug`] for the text to show to people.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        f.write_str(std::str::from_utf8(self.key(&mut buffer)).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({self})")
    }
}

/// The lowest bit of each of ten digits.
const LOWEST_OF_DIGITS: u64 = 0o0101_0101_0101_0101_0101;

/// A code made by the permutation: 2 to 10 characters of the first 62 of the alphabet. It takes eight bytes, so that
/// queues and the id table hold it as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GeneratedCode(u64);

impl GeneratedCode {
    /// Characters of the longest generated code: ten sextets and the length fit 64 bits.
    pub const LEN_MAX: usize = 10;

    /// Returns the code of the given digits, each below 62, first character first.
    ///
    /// # Panics
    /// If there are more than ten digits or one is not below 62: a contradiction inside the permutation.
    pub fn from_digits(digits: &[u8]) -> GeneratedCode {
        assert!((1..=Self::LEN_MAX).contains(&digits.len()) && digits.iter().all(|&d| d < 62));
        let sextets = digits.iter().fold(0u64, |bits, &digit| bits << 6 | u64::from(digit));
        GeneratedCode((digits.len() as u64) << 60 | sextets)
    }

    /// Returns the number that stands for it in a row of the id table.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the code that a number stands for; `None` if no code has that number.
    pub fn from_bits(bits: u64) -> Option<GeneratedCode> {
        let len = (bits >> 60) as usize;
        if !(1..=Self::LEN_MAX).contains(&len) || (bits << 4) >> 4 >> (6 * len) != 0 {
            return None;
        }
        // A digit of 62 or 63 has ones in its upper five bits. Each of the shifts moves one of them to the lowest.
        let all_ones = bits >> 1 & bits >> 2 & bits >> 3 & bits >> 4 & bits >> 5;
        (all_ones & LOWEST_OF_DIGITS == 0).then_some(GeneratedCode(bits))
    }

    /// Returns a code in its generated form. `None` for one that no permutation gives, and for one of another domain
    /// than the default one, which the number cannot hold.
    pub fn from_code(code: &Code) -> Option<GeneratedCode> {
        if code.sextets() > Self::LEN_MAX || code.domain != NO_DOMAIN {
            return None;
        }
        let packed = code.packed.first_chunk::<8>().map_or(0, |front| u64::from_be_bytes(*front));
        // The bits behind the characters come to the top. The ones of a slug with slashes make the length one that no
        // generated code has.
        let packed = packed.rotate_left(6 * u32::from(code.len));
        let generated = GeneratedCode::from_bits((code.sextets() as u64) << 60 | packed);
        debug_assert!(generated.is_none_or(|generated| generated.to_code() == *code), "the number is of another code");
        generated
    }

    /// Returns the number of characters, 1 to 10.
    #[expect(clippy::len_without_is_empty, reason = "a code is never empty")]
    #[inline]
    pub fn len(self) -> usize {
        (self.0 >> 60) as usize
    }

    /// Returns the digits, each below 62, first character first.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        (0..self.len()).rev().map(move |place| (self.0 >> (6 * place)) as u8 & 0x3f)
    }

    /// Returns the code in the form that everything but queues and the id table uses.
    #[inline]
    pub fn to_code(self) -> Code {
        // A digit is the six-bit value of its character, so only the place of the bits changes: they move to the front.
        let bits = (self.0 << 4) << (60 - 6 * self.len());
        let mut code = Code { len: self.len() as u8, packed: [0; PACKED_LEN_MAX], domain: NO_DOMAIN };
        code.packed[..8].copy_from_slice(&bits.to_be_bytes());
        code
    }
}

/// The 64-bit hash of a code under one process's seed. The owner takes its upper half, the map its lower bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CodeHash(pub u64);

/// A hasher of codes: XXH3 under a seed that each process draws at random, so that no client can choose slugs that
/// crowd one bucket of a map.
#[derive(Clone, Copy, Debug)]
pub struct CodeHasher {
    seed: u64,
}

impl CodeHasher {
    /// Returns a hasher with the given seed; all cores of a process must share it.
    pub fn new(seed: u64) -> CodeHasher {
        CodeHasher { seed }
    }

    /// Returns the seed that it was made with.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// Returns the hash of a code.
    #[inline]
    pub fn hash(&self, code: &Code) -> CodeHash {
        // The length is part of the identity: "000" and "0000" pack to the same bytes. So is the domain.
        let [a, b, c, d, e, f] = code.domain;
        let apart = u64::from_le_bytes([code.len, a, b, c, d, e, f, 0]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        CodeHash(xxh3_64_with_seed(code.packed(), self.seed ^ apart))
    }
}

#[cfg(test)]
mod tests;
