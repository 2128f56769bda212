//! The index entries of records that bypass the writer. These come from an import, from a store that an earlier version
//! made, or from links that were found in a broken journal.

use std::time::{Duration, Instant};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::progress::rate;
use crate::services::search;
use carom_limits::INDEX_BATCH;
use carom_model::link::record::{self, NewerRecord, RecordRef};
use carom_model::link::{DueEvent, UrlEntry};
use carom_store::links::catalog::IndexEntry;
use carom_store::links::{Batch, EndKind, Index, Links, StoreError, UrlUse, key_ranges};

/// Interval between two progress messages while an index is built.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// The index entries of some links.
#[derive(Debug, Default)]
pub struct IndexEntries {
    urls: Vec<UrlEntry>,
    ends: Vec<DueEvent>,
    lists: Vec<IndexEntry>,
    /// True if a record may be of a link that only a later version can decode.
    lacks_newer: bool,
}

impl IndexEntries {
    /// Adds the entries of a record, if it is a link.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let Ok(code) = Code::from_key(key) else { return };
        let link = match record::decode(key, value) {
            Ok(RecordRef::Link(link)) => link.to_link(code),
            Ok(RecordRef::Tombstone(_)) => return,
            Err(error) => {
                let may_be_link = || NewerRecord::of(value).is_none_or(|newer| newer.is_link != Some(false));
                self.lacks_newer |= error.is_newer() && may_be_link();
                return;
            }
        };
        self.urls.push(link.url_entry());
        self.ends.extend(link.expiry());
        self.lists.append(&mut search::listing(&link).entries());
    }

    /// Returns the number of links that were added.
    fn links(&self) -> usize {
        self.urls.len()
    }

    /// Adds the entries of one index to a batch.
    fn put(&self, index: Index, batch: &mut Batch) {
        match index {
            Index::Urls => self.urls.iter().for_each(|entry| batch.set_url(entry, entry.created_ms)),
            Index::Ends => self.ends.iter().for_each(|due| batch.set_due(EndKind::Link, due)),
            Index::Lists => self.lists.iter().for_each(|entry| batch.put_index_entry(entry)),
        }
    }

    /// Commits the entries of some indexes to the store.
    fn write(&self, links: &Links, indexes: &[Index]) -> Result<(), StoreError> {
        let mut batch = links.batch();
        indexes.iter().for_each(|index| self.put(*index, &mut batch));
        links.commit(batch)
    }

    /// Adds all entries to the store, durably and without the journal. Entries may exist already, if an import was cut
    /// off before it added the links. Runs on the calling thread; no other thread may write meanwhile.
    ///
    /// # Errors
    /// If the store fails. Then some entries may be missing from it.
    pub fn ingest(self, links: &Links) -> Result<(), StoreError> {
        let uses: Vec<UrlUse> = self.urls.into_iter().map(|entry| (entry, entry.created_ms)).collect();
        links.ingest_urls(uses)?;
        links.ingest_ends(&self.ends)?;
        links.ingest_catalog(self.lists)
    }
}

/// Returns the name of an index in messages.
fn name(index: Index) -> &'static str {
    match index {
        Index::Urls => "destinations",
        Index::Ends => "expiry dates",
        Index::Lists => "lists",
    }
}

/// Builds all indexes that a store lacks because an earlier version made it, in one scan. If it is cut off, the next
/// start builds them from the beginning. So does each start while only a later version can decode some of the links, which
/// would otherwise stay out of the indexes for ever. Runs on the calling thread; no other thread may write meanwhile.
///
/// # Errors
/// If the store fails.
pub fn ensure(links: &Links) -> Result<(), StoreError> {
    let mut missing = Vec::new();
    for index in Index::ALL {
        if !links.has_index(index)? {
            missing.push(index);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|index| name(*index)).collect::<Vec<_>>().join(" and of ");
    let (start, about) = (Instant::now(), links.approximate_len());
    tracing::info!("building the index of {names} for about {about} records; this happens once");
    if missing.contains(&Index::Urls) {
        // Those of another format have other keys, so new entries would not replace them.
        links.clear_urls()?;
    }
    let (mut logged, mut count, mut entries, mut written) = (start, 0, IndexEntries::default(), Ok(()));
    let mut lacks_newer = false;
    for part in key_ranges() {
        // Unreadable records are reported when the links are read back.
        links.scan(part, |key, value| {
            entries.add(key, value);
            if entries.links() >= INDEX_BATCH {
                count += entries.links() as u64;
                lacks_newer |= entries.lacks_newer;
                written = std::mem::take(&mut entries).write(links, &missing);
                if logged.elapsed() >= LOG_EVERY {
                    logged = Instant::now();
                    tracing::info!("indexed {names} of {count} of about {about} links");
                }
            }
            written.is_ok()
        })?;
        std::mem::replace(&mut written, Ok(()))?;
    }
    count += entries.links() as u64;
    entries.write(links, &missing)?;
    if lacks_newer || entries.lacks_newer {
        tracing::warn!(
            "the index of {names} lacks links that only a newer version of carom can decode: each start builds it again until this node is upgraded"
        );
    } else {
        let mut marks = links.batch();
        missing.iter().for_each(|index| marks.set_index(*index));
        links.commit(marks)?;
    }
    links.sync()?;
    let time = start.elapsed();
    let rate = rate(count, time);
    tracing::info!("built the index of {names} for {count} links in {:.1} s ({rate}/s)", time.as_secs_f64());
    Ok(())
}

/// Writes the entries of links that were found in a broken journal, because the rest of their commit may be lost. If only a
/// later version can decode one of them, the indexes count as incomplete, so that an upgraded node builds them again.
///
/// # Errors
/// If the store fails.
pub fn mend(links: &Links, codes: &[Code]) -> Result<(), StoreError> {
    let mut entries = IndexEntries::default();
    for code in codes {
        if let Some(stored) = links.get(code)? {
            entries.add(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored);
        }
    }
    entries.write(links, &Index::ALL)?;
    if entries.lacks_newer { links.mark_indexes_incomplete(&Index::ALL) } else { links.sync() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::{Origin, UrlKey};
    use carom_model::testing::link;
    use carom_store::links::catalog::IndexKind;

    /// Fills a store with some links that are in no index.
    fn without_entries(node: &TestNode) -> Vec<Code> {
        let names = ["a", "b", "gone"];
        let mut batch = node.links.batch();
        for (at, name) in names.iter().enumerate() {
            let mut link = link(name, Origin::Custom);
            link.policy.valid_until_ms = (at == 0).then_some(9);
            let mut record = Vec::new();
            match *name {
                "gone" => record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record),
                name => record::encode_link(name.as_bytes(), &link, &mut record),
            }
            batch.put(&link.code, &record);
        }
        node.links.commit(batch).unwrap();
        names.map(|name| Code::parse(name.as_bytes()).unwrap()).to_vec()
    }

    /// Returns the number of entries of each index; for that of destinations, only those of the link without an end.
    fn entries(links: &Links) -> [usize; 3] {
        let key = link("b", Origin::Custom).url_key();
        let dates = links.view().keys(IndexKind::Dates, b"", b"").count();
        [links.newest_urls(key, 9).unwrap().len(), links.due(EndKind::Link, None, 99, 9).unwrap().len(), dates]
    }

    #[test]
    fn what_is_missing_is_made_in_one_go_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        without_entries(&node);
        ensure(&node.links).unwrap();
        assert_eq!(entries(&node.links), [0; 3], "a new store needs none");
        for index in [Index::Ends, Index::Urls, Index::Lists] {
            node.links.forget_index(index).unwrap();
        }
        ensure(&node.links).unwrap();
        assert_eq!(entries(&node.links), [1, 1, 2]);
        assert!(Index::ALL.iter().all(|index| node.links.has_index(*index).unwrap()));
    }

    #[test]
    fn entries_of_another_format_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let codes = without_entries(&node);
        let stale = UrlEntry { key: UrlKey(1), created_ms: 1, code: codes[0] };
        let mut batch = node.links.batch();
        batch.set_url(&stale, 1);
        node.links.commit(batch).unwrap();
        node.links.mark_indexes_incomplete(&[Index::Urls]).unwrap();
        ensure(&node.links).unwrap();
        assert_eq!(node.links.newest_urls(stale.key, 9).unwrap(), []);
        assert_eq!(entries(&node.links)[0], 1);
    }

    #[test]
    fn links_of_a_broken_journal_get_all_their_entries() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        mend(&node.links, &without_entries(&node)).unwrap();
        assert_eq!(entries(&node.links), [1, 1, 2]);
    }

    #[test]
    fn newer_link_of_a_broken_journal_gets_its_entries_later() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let (newer, mut record) = (link("b", Origin::Custom), Vec::new());
        record::encode_link(b"b", &newer, &mut record);
        let put = |record: &[u8]| {
            let mut batch = node.links.batch();
            batch.put(&newer.code, record);
            node.links.commit(batch).unwrap();
        };
        let has_indexes = || Index::ALL.map(|index| node.links.has_index(index).unwrap());
        put(&carom_model::testing::newer_record(&newer));
        assert_eq!(has_indexes(), [true; 3]);
        mend(&node.links, &[newer.code]).unwrap();
        for _ in 0..2 {
            ensure(&node.links).unwrap();
            assert_eq!((entries(&node.links), has_indexes()), ([0; 3], [false; 3]), "an upgraded node would lack it");
        }
        // The upgraded node can decode the record.
        put(&record);
        ensure(&node.links).unwrap();
        assert_eq!((entries(&node.links), has_indexes()), ([1, 0, 1], [true; 3]));
    }
}
