//! Records that only a later version can decode, and the fields that this version reads of them.
//!
//! A record of any version is a version byte, a checksum, and fields with a tag, a length and a value. In every version,
//! the fields of this module keep their tags and forms. So a node knows of each record which state it is, and whether
//! another one follows it.

use super::form::HEAD_LEN;
use super::tag;
use crate::link::Version;

/// The readable part of a record that only a later version can decode.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NewerRecord {
    /// True for a link, false for a tombstone; `None` if the record does not say.
    pub is_link: Option<bool>,
    /// The version of the state.
    pub version: Version,
    /// The creation time of a link, in milliseconds since 1970 UTC.
    pub created_ms: Option<u64>,
}

impl NewerRecord {
    /// Reads an intact record. Returns `None` if its fields have another form than those of all versions.
    pub fn of(value: &[u8]) -> Option<NewerRecord> {
        let mut found = NewerRecord::default();
        let mut rest = value.get(HEAD_LEN..)?;
        while let Some((&[tag, low, high], behind)) = rest.split_first_chunk::<3>() {
            let (bytes, next) = behind.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
            match tag {
                tag::TARGET => found.is_link = Some(true),
                tag::DELETED_MS => found.is_link = Some(false),
                tag::CREATED_MS => found.created_ms = Some(u64::from_le_bytes(bytes.try_into().ok()?)),
                tag::REV => found.version.rev = u32::from_le_bytes(bytes.try_into().ok()?),
                tag::CLAIM => found.version.claim = u64::from_le_bytes(bytes.try_into().ok()?),
                tag::EDIT => found.version.edit = u32::from_le_bytes(bytes.try_into().ok()?),
                _ => {}
            }
            rest = next;
        }
        rest.is_empty().then_some(found)
    }
}

/// Turns a record of this version into one of a version that nobody has: intact, and not to be decoded.
#[cfg(any(test, feature = "testing"))]
pub fn make_newer(key: &[u8], value: &mut [u8]) {
    value[0] = u8::MAX;
    super::encode::seal(key, value);
}

#[cfg(test)]
mod tests {
    use super::super::{encode_link, encode_tombstone};
    use super::*;
    use crate::link::Origin;
    use crate::testing::{any_link, tombstone};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_state_of_any_link_is_read(link in any_link()) {
            let mut value = Vec::new();
            encode_link(link.code.to_string().as_bytes(), &link, &mut value);
            let (is_link, created_ms) = (Some(true), Some(link.created_ms));
            prop_assert_eq!(NewerRecord::of(&value), Some(NewerRecord { is_link, version: link.version, created_ms }));
        }

        #[test]
        fn reading_is_total(value in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = NewerRecord::of(&value);
        }
    }

    #[test]
    fn the_state_of_a_tombstone_is_read() {
        let mut value = Vec::new();
        let version = Version { rev: 3, claim: 9, edit: 0 };
        let gone = super::super::Tombstone { origin: Origin::Custom, version, ..tombstone() };
        encode_tombstone(b"abc", &gone, &mut value);
        let read = NewerRecord { is_link: Some(false), version, created_ms: None };
        assert_eq!(NewerRecord::of(&value), Some(read));
        value.push(1);
        assert_eq!(NewerRecord::of(&value), None);
    }
}
