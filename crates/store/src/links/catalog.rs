//! The indexes for lists: links by creation time, and the links of each tag by creation time.
//!
//! The commit that changes a link also writes and removes its entries. The key of an entry has six bytes of
//! milliseconds since 1970 UTC and the code. In `tags`, the tag and a zero byte precede them; no tag contains a zero
//! byte. Links that crawlers may follow have a reserved tag, which clients cannot set, with or without the index key of
//! a domain. Links of an app, and of a domain other than the default one, have one entry for that owner and one for
//! each of their tags with it. The value of an entry has the properties that lists filter by ([`Marks`]), so that
//! filtering reads no record. An entry without a link is harmless: readers skip it.

use std::ops::Bound;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Keyspace, KeyspaceCreateOptions, Readable, Slice, Snapshot};

use super::handles::{Batch, Links, Value};
use super::keyspace_options::range_options;
use super::open_views::OpenView;
use crate::error::StoreError;
use carom_model::link::labels::in_joined;
use carom_model::query::{
    LinkPosition, PLACE_MS_LEN, app_index_key, domain_index_key, index_key_with_tag, is_of_owner, owner_and_tag,
};

/// Size of a memtable, in bytes. An entry takes a tenth of the space of a link.
const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;

/// Size of a data block, in bytes. A page of a list reads one or two, and counting reads many adjacent ones.
const BLOCK_BYTES: u32 = 16 * 1024;

/// The reserved tag of links that crawlers may follow. Tags contain no control characters.
pub const CRAWLABLE: &str = "\u{1}";

/// The byte after a tag.
const END_OF_TAG: u8 = 0;

pub(super) fn options() -> KeyspaceCreateOptions {
    range_options(MEMTABLE_BYTES, BLOCK_BYTES, CompressionPolicy::new([CompressionType::None, CompressionType::Lz4]))
}

/// An index for lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IndexKind {
    /// All links, by creation time.
    Dates,
    /// The links of each tag, by creation time.
    Tags,
}

/// The properties of a link that an entry contains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Marks {
    /// The expiry, in milliseconds since 1970 UTC.
    pub end_ms: Option<u64>,
    /// True if the link has a maximum number of visits.
    pub limited: bool,
}

impl Marks {
    /// Encodes the value of an entry: empty without any mark, else the limited flag, and the expiry or zeros.
    pub fn to_value(self) -> Vec<u8> {
        if self == Marks::default() {
            return Vec::new();
        }
        let end = self.end_ms.unwrap_or_default().to_be_bytes();
        [&[u8::from(self.limited)], &end[end.len() - PLACE_MS_LEN..]].concat()
    }

    fn from_value(value: &[u8]) -> Marks {
        let Some((limited, end)) = value.split_first() else { return Marks::default() };
        let end_ms = end.iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte));
        Marks { end_ms: Some(end_ms).filter(|ms| *ms > 0), limited: *limited != 0 }
    }
}

/// An entry of an index.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IndexEntry {
    /// The index that contains the entry.
    pub kind: IndexKind,
    /// The key in the index.
    pub key: Vec<u8>,
    /// The value of the entry.
    pub marks: Marks,
}

/// The properties of a link that determine its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listing<'a> {
    /// The creation time and the code.
    pub place: LinkPosition,
    /// The tags, as [`carom_model::link::labels::Tags::joined`] returns them.
    pub tags: &'a str,
    /// True if crawlers may follow the link.
    pub crawlable: bool,
    /// The name of the app.
    pub app: Option<&'a str>,
    /// The value of the entries.
    pub marks: Marks,
}

impl Listing<'_> {
    /// Returns the entries of the link.
    pub fn entries(&self) -> Vec<IndexEntry> {
        let (place, marks) = (self.place.to_bytes(), self.marks);
        let domain = self.place.code.domain().map(domain_index_key);
        // Crawlers request the links of one domain.
        let tags = in_joined(self.tags).chain(self.crawlable.then_some(CRAWLABLE).filter(|_| domain.is_none()));
        let crawlable = domain.as_ref().filter(|_| self.crawlable).map(|domain| index_key_with_tag(domain, CRAWLABLE));
        let of_tags = tags.map(|tag| IndexEntry { kind: IndexKind::Tags, key: tag_key(tag, &place), marks });
        let owners = self.app.map(app_index_key).into_iter().chain(domain);
        let of_owners = owners.flat_map(|owner| {
            let with_tags: Vec<String> = in_joined(self.tags).map(|tag| index_key_with_tag(&owner, tag)).collect();
            std::iter::once(owner).chain(with_tags)
        });
        let of_owners = of_owners.chain(crawlable);
        let of_owners = of_owners.map(|tag| IndexEntry { kind: IndexKind::Tags, key: tag_key(&tag, &place), marks });
        let of_date = IndexEntry { kind: IndexKind::Dates, key: place.clone(), marks };
        std::iter::once(of_date).chain(of_tags).chain(of_owners).collect()
    }
}

/// Returns the key of the first entry of a tag at or after `place`.
pub fn tag_key(tag: &str, place: &[u8]) -> Vec<u8> {
    [tag.as_bytes(), &[END_OF_TAG], place].concat()
}

/// Returns the tag of an entry; for an entry of an app or domain, the owner and the tag as [`index_key_with_tag`] joins
/// them.
pub fn index_key_of(key: &[u8]) -> Option<&str> {
    let end = memchr::memchr(END_OF_TAG, key)?;
    let index_key = std::str::from_utf8(&key[..end]).ok()?;
    let is_tag = |tag: &str| tag != CRAWLABLE;
    let has_tag = if is_of_owner(index_key) {
        owner_and_tag(index_key).is_some_and(|(_, tag)| is_tag(tag))
    } else {
        is_tag(index_key)
    };
    has_tag.then_some(index_key)
}

/// Returns the position of a link from the key of its entry, after `tag_len` bytes of tag and zero.
pub fn place_of(key: &[u8], tag_len: usize) -> Option<LinkPosition> {
    LinkPosition::from_bytes(key.get(tag_len..)?)
}

impl Batch {
    /// Adds an entry, or replaces its value.
    pub fn put_index_entry(&mut self, entry: &IndexEntry) {
        let keyspace = if entry.kind == IndexKind::Dates { &self.dates } else { &self.tags };
        self.inner.insert(keyspace, &entry.key[..], entry.marks.to_value());
    }

    /// Removes an entry.
    pub fn remove_index_entry(&mut self, entry: &IndexEntry) {
        let keyspace = if entry.kind == IndexKind::Dates { &self.dates } else { &self.tags };
        self.inner.remove(keyspace, Slice::from(&entry.key[..]));
    }
}

impl Links {
    fn keyspace_of(&self, kind: IndexKind) -> &Keyspace {
        if kind == IndexKind::Dates { &self.dates } else { &self.tags }
    }

    /// Adds many entries durably and without the journal, for an import before it adds the links. Some may exist
    /// already, if an import was interrupted between the two. No other thread may write meanwhile.
    ///
    /// # Errors
    /// [`StoreError`]; the store may lack some of the entries then.
    pub fn ingest_catalog(&self, mut entries: Vec<IndexEntry>) -> Result<(), StoreError> {
        entries.sort_unstable();
        entries.dedup_by(|a, b| (a.kind, &a.key) == (b.kind, &b.key));
        for of_kind in entries.chunk_by(|a, b| a.kind == b.kind) {
            let mut ingestion = self.keyspace_of(of_kind[0].kind).start_ingestion()?;
            for entry in of_kind {
                ingestion.write(&entry.key[..], entry.marks.to_value())?;
            }
            ingestion.finish()?;
        }
        Ok(())
    }

    /// Returns a snapshot of the store. Later commits do not change it.
    pub fn view(&self) -> View {
        let open = self.views.open(|| self.db.visible_seqno());
        View { snapshot: self.db.snapshot(), links: self.clone(), _open: open }
    }
}

/// A snapshot of the store. It keeps replaced data on disk, so hold it briefly.
pub struct View {
    snapshot: Snapshot,
    links: Links,
    /// Dropped after the snapshot, so that a purge does not overtake it.
    _open: OpenView,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("View")
    }
}

impl View {
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(super) fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the record of a code.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the block that would contain it cannot be read.
    pub fn get(&self, code: &Code) -> Result<Option<Value>, StoreError> {
        Ok(self.snapshot.get(&self.links.links, code.key(&mut [0; CODE_KEY_LEN_MAX]))?.map(Value))
    }

    /// Iterates over the keys of an index from `from`, and before `to` unless that is empty, from either end. Must not
    /// be used after an error.
    pub fn keys(
        &self,
        kind: IndexKind,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<Value, StoreError>> + use<> {
        let range = self.snapshot.range::<&[u8], _>(self.links.keyspace_of(kind), bounds(from, to));
        range.map(|guard| Ok(Value(guard.key()?)))
    }

    /// Iterates over the keys of an index that begin with a prefix and are longer.
    pub fn keys_with_prefix(
        &self,
        kind: IndexKind,
        prefix: &[u8],
    ) -> impl Iterator<Item = Result<Value, StoreError>> + use<> {
        let mut to = prefix.to_vec();
        // All prefixes end with a marker byte, which is never 255.
        *to.last_mut().expect("a prefix has bytes") += 1;
        self.keys(kind, prefix, &to)
    }

    /// Iterates over the entries of an index, like [`View::keys`].
    pub fn entries(
        &self,
        kind: IndexKind,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<(Value, Marks), StoreError>> + use<> {
        let range = self.snapshot.range::<&[u8], _>(self.links.keyspace_of(kind), bounds(from, to));
        range.map(|guard| {
            let (key, value) = guard.into_inner()?;
            Ok((Value(key), Marks::from_value(&value)))
        })
    }

    /// Iterates over keys and records in the order of the codes, from `from`, and before `to` unless that is empty,
    /// from either end. Must not be used after an error.
    pub fn records(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<(Value, Value), StoreError>> + use<> {
        let range = self.snapshot.range::<&[u8], _>(&self.links.links, bounds(from, to));
        range.map(|guard| {
            let (key, value) = guard.into_inner()?;
            Ok((Value(key), Value(value)))
        })
    }
}

fn bounds<'k>(from: &'k [u8], to: &'k [u8]) -> (Bound<&'k [u8]>, Bound<&'k [u8]>) {
    let to = match to {
        [] => Bound::Unbounded,
        // The library rejects a range that ends before it begins.
        to if to < from => Bound::Excluded(from),
        to => Bound::Excluded(to),
    };
    (Bound::Included(from), to)
}

const _: () = assert!(PLACE_MS_LEN == 6);

#[cfg(test)]
mod tests {
    use super::*;

    fn listing<'t>(code: &str, created_ms: u64, tags: &'t str) -> Listing<'t> {
        let place = LinkPosition::new(created_ms, Code::parse(code.as_bytes()).unwrap());
        Listing { place, tags, crawlable: false, app: None, marks: Marks::default() }
    }

    fn put(links: &Links, listings: &[Listing<'_>]) {
        let mut batch = links.batch();
        listings.iter().flat_map(Listing::entries).for_each(|entry| batch.put_index_entry(&entry));
        links.commit(batch).unwrap();
    }

    fn codes(found: impl Iterator<Item = Result<Value, StoreError>>, tag_len: usize) -> Vec<String> {
        found.map(|key| place_of(&key.unwrap(), tag_len).unwrap().code.to_string()).collect()
    }

    #[test]
    fn links_stand_by_their_age_and_by_their_tags() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        put(&links, &[listing("b", 2_000, "x"), listing("a", 300, "x\nxy"), listing("c", 2_000, "")]);
        let before = links.view();
        assert_eq!(codes(before.keys(IndexKind::Dates, b"", b""), 0), ["a", "b", "c"]);
        assert_eq!(codes(before.keys(IndexKind::Dates, b"", b"").rev(), 0), ["c", "b", "a"]);
        let of_tag = |view: &View, tag: &str| {
            let (from, to) = (tag_key(tag, b""), tag_key(tag, &[0xff; 7]));
            codes(view.keys(IndexKind::Tags, &from, &to), tag.len() + 1)
        };
        assert_eq!((of_tag(&before, "x"), of_tag(&before, "xy")), (vec!["a".into(), "b".into()], vec!["a".into()]));
        let mut batch = links.batch();
        let gone = listing("a", 300, "x\nxy");
        gone.entries().iter().for_each(|entry| batch.remove_index_entry(entry));
        let crawled = Listing { crawlable: true, ..listing("d", 1, "") };
        crawled.entries().iter().for_each(|entry| batch.put_index_entry(entry));
        links.commit(batch).unwrap();
        let after = links.view();
        assert_eq!((of_tag(&after, "x"), of_tag(&after, "xy").len()), (vec!["b".into()], 0));
        assert_eq!(of_tag(&after, CRAWLABLE), ["d"]);
        assert_eq!(of_tag(&before, "x").len(), 2, "a view stays as it is");
        assert!(codes(after.keys(IndexKind::Dates, b"x", b"a"), 0).is_empty(), "no end before the beginning");
    }

    #[test]
    fn what_entries_say_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        for end_ms in [None, Some(1), Some(carom_model::formats::dates::INSTANT_MS_MAX)] {
            for limited in [false, true] {
                let marks = Marks { end_ms, limited };
                put(&links, &[Listing { marks, ..listing("a", 1, "x") }]);
                for kind in [IndexKind::Dates, IndexKind::Tags] {
                    let said: Vec<Marks> = links.view().entries(kind, b"", b"").map(|entry| entry.unwrap().1).collect();
                    assert_eq!(said, [marks]);
                }
            }
        }
        for value in [&b"\x01"[..], b"abcdefghijkl", &[0xff; 40]] {
            Marks::from_value(value);
        }
    }

    #[test]
    fn entries_can_be_taken_in_again() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let some: Vec<IndexEntry> =
            [listing("z", 5, "b\na"), listing("B", 5, "a")].iter().flat_map(Listing::entries).collect();
        links.ingest_catalog(some.clone()).unwrap();
        links.ingest_catalog(some).unwrap();
        drop(links);
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let view = links.view();
        assert_eq!(codes(view.keys(IndexKind::Dates, b"", b""), 0), ["B", "z"]);
        assert_eq!(view.keys(IndexKind::Tags, b"", b"").count(), 3);
        assert_eq!(index_key_of(&view.keys(IndexKind::Tags, b"", b"").next().unwrap().unwrap()), Some("a"));
    }
}
