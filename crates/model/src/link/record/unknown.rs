//! Fields of a record that this version does not know, because a later version wrote them.
//!
//! A link or tombstone keeps them, so that each rewrite of its record passes them on. Records have one order of fields
//! in every version: first the fields of format 1, as `encode` writes them, then all later fields by their tag. So a
//! program that does not know a field writes the same bytes as one that does, and records can be compared by their
//! checksums.

use std::fmt;
use std::sync::Arc;

use super::tag;

/// Unknown fields, as a record has them: tag, length and value of each, in the order of the tags.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UnknownFields(Option<Arc<FieldBytes>>);

/// The bytes of unknown fields, behind a thin pointer: nearly all links have none.
#[derive(PartialEq, Eq)]
struct FieldBytes(Box<[u8]>);

impl UnknownFields {
    /// Returns the fields as a record has them. The slice is empty for a link without unknown fields.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |fields| &fields.0)
    }

    /// True for a link without unknown fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for UnknownFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnknownFields({})", self.as_bytes().escape_ascii())
    }
}

/// The part of a record from its first unknown field on. Known fields may follow that field.
#[derive(Clone, Copy, Default)]
pub struct UnknownRef<'a>(pub(super) &'a [u8]);

impl UnknownRef<'_> {
    /// Returns the unknown fields, owned. Allocates only if there are any.
    pub(super) fn to_fields(self) -> UnknownFields {
        let mut fields: Vec<(u8, &[u8])> = Vec::new();
        let mut rest = self.0;
        while let Some((&[tag, low, high], _)) = rest.split_first_chunk::<3>() {
            let Some((field, behind)) = rest.split_at_checked(3 + usize::from(u16::from_le_bytes([low, high]))) else {
                break;
            };
            if is_unknown(tag) {
                fields.push((tag, field));
            }
            rest = behind;
        }
        fields.sort_by_key(|(tag, _)| *tag);
        let bytes: Vec<u8> = fields.into_iter().flat_map(|(_, field)| field.iter().copied()).collect();
        UnknownFields((!bytes.is_empty()).then(|| Arc::new(FieldBytes(bytes.into()))))
    }
}

impl PartialEq for UnknownRef<'_> {
    fn eq(&self, other: &UnknownRef<'_>) -> bool {
        self.0 == other.0 || self.to_fields() == other.to_fields()
    }
}

impl Eq for UnknownRef<'_> {}

impl fmt::Debug for UnknownRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_fields().fmt(f)
    }
}

/// True for the tag of a field that a later version has introduced.
pub(super) fn is_unknown(tag: u8) -> bool {
    !(tag::TARGET..=tag::EARLIER_VISITS).contains(&tag)
}

#[cfg(any(test, feature = "testing", feature = "next-format"))]
impl UnknownFields {
    /// Returns a field with this tag and value.
    ///
    /// # Panics
    /// If this version knows the tag.
    pub fn of(tag: u8, value: &[u8]) -> UnknownFields {
        assert!(is_unknown(tag), "the field is known");
        let len = u16::try_from(value.len()).expect("a short value").to_le_bytes();
        UnknownRef(&[&[tag, len[0], len[1]], value].concat()).to_fields()
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode::RecordEncoder;
    use super::super::{RecordRef, VERSION, decode, encode_link, encode_tombstone};
    use super::*;
    use crate::testing;

    #[test]
    fn unknown_fields_are_kept_in_the_order_of_their_tags() {
        let mut value = Vec::new();
        let mut writer = RecordEncoder::begin(&mut value, VERSION);
        writer.field(201, b"b");
        writer.field(tag::DELETED_MS, &77u64.to_le_bytes());
        writer.field(200, b"aa");
        writer.finish(b"abc");
        let Ok(RecordRef::Tombstone(gone)) = decode(b"abc", &value) else { panic!("no tombstone") };
        assert_eq!(gone.unknown.as_bytes(), b"\xc8\x02\0aa\xc9\x01\0b");
        let mut again = Vec::new();
        encode_tombstone(b"abc", &gone, &mut again);
        assert_eq!(decode(b"abc", &again), Ok(RecordRef::Tombstone(gone)));
    }

    #[test]
    fn a_record_of_a_later_version_is_written_as_it_was() {
        // As a later version encodes it: its fields come after all fields of format 1.
        let mut link = testing::link("abc", crate::link::Origin::Custom);
        link.labels.title = Some("a title".to_owned());
        let mut value = Vec::new();
        encode_link(b"abc", &link, &mut value);
        value.extend_from_slice(b"\x1a\x01\0x\xc8\0\0");
        super::super::encode::seal(b"abc", &mut value);
        let Ok(RecordRef::Link(read)) = decode(b"abc", &value) else { panic!("no link") };
        let kept = read.to_link(link.code);
        assert_eq!(kept.labels.unknown.as_bytes(), b"\x1a\x01\0x\xc8\0\0");
        assert!(read.is_same(&kept));
        assert!(!read.is_same(&link));
        let mut again = Vec::new();
        encode_link(b"abc", &kept, &mut again);
        assert_eq!(again, value);
    }
}
