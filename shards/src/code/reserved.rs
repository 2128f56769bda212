//! Names that the service answers itself, so that no link may have them.

use super::alphabet::{SEXTETS, SLASH};

/// First path segments that the service answers itself, or may answer in future: no link may have them.
///
/// A generated code can be one of these as well (`status` has six characters, `metrics` seven), so segments leave them
/// out too.
const RESERVED: &[&str] = &[
    "admin",
    "api",
    "assets",
    "health",
    "healthz",
    "livez",
    "metrics",
    "readyz",
    "rest",
    "shorten",
    "shorturl_status",
    "static",
    "status",
    "v3",
    "v4",
];

/// Lengths of the reserved names, a bit for each, by the sextet of a first character.
const LENGTHS: [u16; 64] = lengths();

const fn lengths() -> [u16; 64] {
    let mut lengths = [0; 64];
    let mut at = 0;
    while at < RESERVED.len() {
        let name = RESERVED[at].as_bytes();
        assert!(name.len() < u16::BITS as usize, "a longer name needs more bits");
        lengths[SEXTETS[name[0].to_ascii_lowercase() as usize] as usize] |= 1 << name.len();
        lengths[SEXTETS[name[0].to_ascii_uppercase() as usize] as usize] |= 1 << name.len();
        at += 1;
    }
    lengths
}

/// The first segment of pages about links. As a slug it is free, but no slug with slashes may begin with it.
const PAGES_SEGMENT: &[u8] = b"-";

/// Last path segments that name a part of the link before them: no slug with slashes may end with them.
const RESERVED_LAST: &[&str] = &["qr-code", "track"];

/// True if a reserved name of `len` characters begins with the character of that sextet, in any case.
#[inline]
pub(super) fn may_be_reserved(first: u8, len: usize) -> bool {
    len < u16::BITS as usize && LENGTHS[usize::from(first)] >> len & 1 != 0
}

/// True if a slug without slashes is a reserved name, in any case of its letters.
pub(super) fn is_reserved(slug: &[u8]) -> bool {
    is_one_of(slug, RESERVED)
}

/// True if a slug with slashes would be the path of something else.
pub(super) fn is_reserved_path(slug: &[u8]) -> bool {
    let first = slug.split(|byte| *byte == SLASH).next().unwrap_or_default();
    let last = slug.rsplit(|byte| *byte == SLASH).next().unwrap_or_default();
    first == PAGES_SEGMENT || is_one_of(first, RESERVED) || is_one_of(last, RESERVED_LAST)
}

fn is_one_of(segment: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| segment.eq_ignore_ascii_case(name.as_bytes()))
}
