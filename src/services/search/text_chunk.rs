//! Texts of some links in one piece: one pass over a few hundred kilobytes finds a term in thousands of links.
//!
//! Each entry is the key of a link, then its texts. A hit is only a candidate, because the term may be in the key, or
//! the link may have changed since.

use std::io;
use std::sync::Arc;

use memchr::memmem::Finder;

use super::texts::Texts;
use carom_model::link::Link;
use carom_model::query::LinkPosition;

/// The byte that ends each text. UTF-8 never contains it, so no term matches across two texts.
const END_OF_TEXT: u8 = 0xff;

/// Bytes of a start offset in the stored form.
const START_LEN: usize = size_of::<u32>();

/// The texts of some links, in any order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct TextPart {
    bytes: Vec<u8>,
    /// The offset of each entry.
    starts: Vec<u32>,
}

/// Returns the key of an entry made by [`entry_of`].
pub(super) fn key_of(entry: &[u8]) -> &[u8] {
    &entry[1..][..usize::from(entry[0])]
}

/// Returns the texts of an entry made by [`entry_of`], then an empty one.
pub(super) fn texts_of(entry: &[u8]) -> impl Iterator<Item = &[u8]> {
    entry[1 + key_of(entry).len()..].split(|byte| *byte == END_OF_TEXT)
}

/// Makes the entry of a link: the length of its key, the key, and its texts in lower case. `small` is a buffer for
/// lower-casing.
pub(super) fn entry_of(key: &[u8], texts: &Texts<'_>, small: &mut Vec<u8>) -> Vec<u8> {
    let len = u8::try_from(key.len()).expect("a time and a code are shorter");
    let mut entry = [&[len], key].concat();
    texts.any(small, |text, _| {
        entry.extend_from_slice(text);
        entry.push(END_OF_TEXT);
        false
    });
    entry
}

/// Returns the search entry of a link.
pub(super) fn entry_of_link(link: &Link) -> Vec<u8> {
    let place = LinkPosition::new(link.created_ms, link.code);
    entry_of(&place.to_bytes(), &Texts::of_link(link), &mut Vec::new())
}

impl TextPart {
    /// Returns one part with all entries of `parts`, in their order.
    pub(super) fn joined(parts: &[Arc<TextPart>]) -> TextPart {
        let mut joined = TextPart::default();
        parts.iter().flat_map(|part| part.entries()).for_each(|entry| joined.push(entry));
        joined
    }

    /// Adds an entry made by [`entry_of`].
    pub(super) fn push(&mut self, entry: &[u8]) {
        self.starts.push(u32::try_from(self.bytes.len()).expect("a section has some megabytes at most"));
        self.bytes.extend_from_slice(entry);
        debug_assert_eq!(self.entry(self.count() - 1), entry, "the entry is read as another");
    }

    /// Returns the size of the entries in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns an entry by its number, in the order in which they were pushed.
    pub(super) fn entry(&self, number: usize) -> &[u8] {
        let end = self.starts.get(number + 1).map_or(self.bytes.len(), |next| *next as usize);
        &self.bytes[self.starts[number] as usize..end]
    }

    /// Iterates over the entries, in the order in which they were pushed.
    pub(super) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).map(|end| *end as usize).chain([self.bytes.len()]);
        self.starts.iter().zip(ends).map(|(start, end)| &self.bytes[*start as usize..end])
    }

    /// Returns the stored form: the entries, then their offsets (32 bits each, little-endian).
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.len() + self.starts.len() * START_LEN);
        bytes.extend_from_slice(&self.bytes);
        self.starts.iter().for_each(|start| bytes.extend_from_slice(&start.to_le_bytes()));
        bytes
    }

    /// Fills the part from the stored form of [`TextPart::to_bytes`], which has `len` bytes and `count` entries. `read`
    /// fills a buffer with it.
    ///
    /// # Errors
    /// Any error of `read`.
    pub(super) fn fill(
        &mut self,
        len: usize,
        count: usize,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.starts.clear();
        self.bytes.resize(len, 0);
        read(&mut self.bytes)?;
        let starts = self.bytes.split_off(len - count * START_LEN);
        let start = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("chunks are of this length"));
        self.starts.extend(starts.chunks_exact(START_LEN).map(start));
        Ok(())
    }

    /// Iterates over the keys of the entries that contain `term`.
    pub(super) fn keys_with<'p>(&'p self, term: &'p Finder<'_>) -> impl Iterator<Item = &'p [u8]> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let at = from + term.find(self.bytes.get(from..)?)?;
            let entry = self.starts.partition_point(|start| *start as usize <= at) - 1;
            from = self.starts.get(entry + 1).map_or(self.bytes.len(), |next| *next as usize);
            Some(key_of(&self.bytes[self.starts[entry] as usize..]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::labels::Tags;
    use carom_model::link::{Link, Origin};
    use carom_model::testing::link;

    fn part() -> TextPart {
        let mut part = TextPart::default();
        for (key, title) in [("k1", "Erster"), ("k2", "Zweiter"), ("k3", "erst")] {
            let mut link: Link = link("MyCode", Origin::Custom);
            link.target = "https://Example.org/A".to_owned();
            link.labels.title = Some(title.to_owned());
            link.labels.tags = Tags::of(["some", "more"]).unwrap();
            part.push(&entry_of(key.as_bytes(), &Texts::of_link(&link), &mut Vec::new()));
        }
        part
    }

    fn found(part: &TextPart, term: &str) -> String {
        let finder = Finder::new(term);
        let keys: Vec<&str> = part.keys_with(&finder).map(|key| std::str::from_utf8(key).unwrap()).collect();
        keys.join(" ")
    }

    #[test]
    fn links_are_found_by_each_of_their_texts_and_once() {
        for part in [part(), {
            let mut again = part();
            let written = again.to_bytes();
            again
                .fill(written.len(), 3, |room| {
                    room.copy_from_slice(&written);
                    Ok(())
                })
                .unwrap();
            again
        }] {
            for (term, keys) in [
                ("erst", "k1 k3"),
                ("zweiter", "k2"),
                ("e", "k1 k2 k3"),
                ("example.org/a", "k1 k2 k3"),
                ("mycode", "k1 k2 k3"),
                ("more", "k1 k2 k3"),
                ("somemore", ""),
                ("erstx", ""),
                ("zweiterk", ""),
            ] {
                assert_eq!(found(&part, term), keys, "{term}");
            }
        }
        assert_eq!(found(&TextPart::default(), "e"), "");
    }
}
