//! The catalog: the indexes of links in the store, with their counts and search sections in memory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use carom_shards::Code;

use super::counted::{CountedIndex, just_behind};
use super::forgetting::Forgetting;
use super::ngram_filters::NgramFilters;
use super::shared_filters::SharedFilters;
use super::sorted_lists::SortedLists;
use super::tags::TagCounts;
use super::text_chunk::entry_of_link;
use super::text_file::{Extent, TextFile};
use super::{domains, section_file};
use carom_model::access::{AppName, Scope};
use carom_model::domains::{DomainName, LinkedDomains};
use carom_model::link::Link;
use carom_model::link::record::NewerRecord;
use carom_model::query::LinkPosition;
use carom_store::links::catalog::{CRAWLABLE, IndexEntry, IndexKind, Listing, Marks, View};
use carom_store::links::{Batch, Links, StoreError};

/// A link that a commit creates, replaces or deletes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexedChange {
    /// The link before the commit; `None` if it is created.
    pub before: Option<Arc<Link>>,
    /// The link after the commit; `None` if it is deleted.
    pub after: Option<Arc<Link>>,
    /// The code, if its record before the commit could not be decoded. The indexes may have entries of its link.
    pub over: Option<Code>,
}

impl IndexedChange {
    /// Compares a link before and after a commit. Returns `None` if its index entries and its searchable texts stay as
    /// they are.
    pub fn of(before: Option<&Arc<Link>>, after: Option<&Arc<Link>>) -> Option<IndexedChange> {
        fn found_by(link: &Arc<Link>) -> (Listing<'_>, &str, Option<&str>) {
            (listing(link), &link.target, link.labels.title.as_deref())
        }
        let is_same = before.map(found_by) == after.map(found_by);
        (!is_same).then(|| IndexedChange { before: before.cloned(), after: after.cloned(), over: None })
    }

    /// Returns the change of a code whose record before the commit could not be decoded.
    pub fn over(code: Code, after: Option<&Arc<Link>>) -> IndexedChange {
        IndexedChange { before: None, after: after.cloned(), over: Some(code) }
    }

    /// Returns the index entries to remove, those to add, and those whose value changes. `before` has the entries of before the
    /// commit.
    fn entries(&self, before: &[IndexEntry]) -> [Vec<IndexEntry>; 3] {
        let after = entries_of(self.after.as_ref());
        let is_place_in = |entry: &IndexEntry, of: &[IndexEntry]| {
            of.iter().any(|other| (other.kind, &other.key) == (entry.kind, &entry.key))
        };
        let gone = before.iter().filter(|entry| !is_place_in(entry, &after)).cloned().collect();
        let (stay, new): (Vec<IndexEntry>, Vec<IndexEntry>) =
            after.into_iter().partition(|entry| is_place_in(entry, before));
        [gone, new, stay.into_iter().filter(|entry| !before.contains(entry)).collect()]
    }
}

fn entries_of(link: Option<&Arc<Link>>) -> Vec<IndexEntry> {
    link.map_or_else(Vec::new, |link| listing(link).entries())
}

/// Returns the entry that an index has at the place of another one; `None` if it has none, or cannot be read.
fn entry_at(view: &View, place: IndexEntry) -> Option<IndexEntry> {
    let (key, marks) = view.entries(place.kind, &place.key, &[]).next()?.ok()?;
    (key[..] == place.key[..]).then_some(IndexEntry { marks, ..place })
}

/// Returns the entries by which lists find a link.
pub fn listing(link: &Link) -> Listing<'_> {
    Listing {
        place: LinkPosition::new(link.created_ms, link.code),
        tags: link.labels.tags.joined(),
        // Crawlers may not learn of private links.
        crawlable: link.labels.crawlable && !link.is_private(),
        app: link.labels.app.as_ref().map(AppName::as_str),
        marks: Marks { end_ms: link.policy.valid_until_ms, limited: link.policy.max_visits.is_some() },
    }
}

/// The counts of the indexes.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) dates: CountedIndex,
    pub(super) tags: CountedIndex,
    pub(super) of_tags: TagCounts,
    /// True if a group that had too many tags is due for a recount.
    pub(super) is_recount_due: bool,
}

impl Tallies {
    pub(super) fn of(&mut self, kind: IndexKind) -> &mut CountedIndex {
        if kind == IndexKind::Dates { &mut self.dates } else { &mut self.tags }
    }

    /// Counts an entry that was added to an index or removed from it. Returns the entry if its run is too long now.
    pub(super) fn change(&mut self, kind: IndexKind, key: Vec<u8>, added: bool) -> Option<(IndexKind, Vec<u8>)> {
        let (key, is_long) = self.of(kind).change(key, added)?;
        if kind == IndexKind::Tags {
            self.is_recount_due |= self.of_tags.change(&key, added);
        }
        is_long.then_some((kind, key))
    }
}

/// The indexes of an open store, with their counts and search signatures. Shared by the writer, the listers and the
/// background threads.
#[derive(Debug)]
pub struct Catalog {
    pub(super) links: Links,
    pub(super) counts: Mutex<Tallies>,
    /// The search signatures. Lock order: after `counts`.
    pub(super) filters: SharedFilters,
    /// Wakes the thread that counts.
    pub(super) uncounted: Condvar,
    /// The file of searchable texts; `None` if searches are off or the file cannot be created.
    pub(super) texts: Option<Arc<TextFile>>,
    /// True since texts or sections could not be written.
    pub(super) is_unwritten: AtomicBool,
    /// Number of changes since the sections were last written, plus other work that the next start would have to
    /// repeat.
    pub(super) unsaved: AtomicU64,
    /// Number of times that a link has become crawlable or has ceased to be so.
    pub(super) crawlable_changes: AtomicU64,
    /// The domains that have got links since the start.
    pub(super) linked: Arc<LinkedDomains>,
    /// Requests to forget links for good, and how many of them the files of the search index have followed.
    pub(super) forgetting: Forgetting,
    /// True if sections lack the texts of a link that only a later version can decode.
    pub(super) lacks_newer: AtomicBool,
    /// The lists that are sorted in the background.
    pub(super) sorted_lists: SortedLists,
    /// True once the background threads should end.
    pub(super) stopping: AtomicBool,
}

impl Catalog {
    /// Returns the catalog of a store, with nothing counted or signed yet. The n-gram filters take at most
    /// `search_memory` bytes; the texts of their links go to a file in `dir`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(links: Links, search_memory: u64, dir: &Path) -> Result<Catalog, StoreError> {
        let texts = (search_memory > 0).then(|| TextFile::open(dir)).transpose().unwrap_or_else(|error| {
            tracing::info!(%error, "cannot create a temporary file for link texts; searches take longer");
            None
        });
        if texts.is_none() {
            // A purge would leave these files as they are.
            let removed = section_file::remove(dir);
            removed.unwrap_or_else(|error| tracing::warn!(%error, "an unused file of the search index is left"));
            TextFile::remove(dir);
        }
        let last = links.view().keys(IndexKind::Dates, &[], &[]).next_back().transpose()?;
        let end = last.map_or(Vec::new(), |last| just_behind(&last));
        let sorted_lists = SortedLists::new(dir, links.clone());
        Ok(Catalog {
            links,
            counts: Mutex::default(),
            filters: SharedFilters::new(NgramFilters::new(&end, search_memory)),
            uncounted: Condvar::new(),
            texts: texts.map(Arc::new),
            is_unwritten: AtomicBool::new(false),
            unsaved: AtomicU64::new(0),
            crawlable_changes: AtomicU64::new(0),
            linked: Arc::default(),
            forgetting: Forgetting::default(),
            lacks_newer: AtomicBool::new(false),
            sorted_lists,
            stopping: AtomicBool::new(false),
        })
    }

    /// Commits a batch together with the index entries of the links that it changes. Called by the writer's thread.
    ///
    /// # Errors
    /// Any error of [`Links::commit`].
    pub fn commit(&self, mut batch: Batch, relisted: &[IndexedChange]) -> Result<(), StoreError> {
        let mut changes = Vec::with_capacity(relisted.len());
        for one in relisted {
            let [gone, new, changed] = one.entries(&self.entries_before(one));
            gone.iter().for_each(|entry| batch.remove_index_entry(entry));
            new.iter().chain(&changed).for_each(|entry| batch.put_index_entry(entry));
            changes.extend(gone.into_iter().map(|entry| (entry, false)));
            changes.extend(new.into_iter().map(|entry| (entry, true)));
        }
        if relisted.is_empty() {
            return self.links.commit(batch);
        }
        let signs = self.filters.is_on();
        let after = relisted.iter().filter_map(|one| one.after.as_deref());
        let searched: Vec<Vec<u8>> = after.filter(|_| signs).map(entry_of_link).collect();
        let crawlable = |(entry, _): &&(IndexEntry, bool)| is_crawlable(entry);
        let crawlable_changes = changes.iter().filter(crawlable).count() as u64;
        let mut counts = self.lock();
        self.links.commit(batch)?;
        self.crawlable_changes.fetch_add(crawlable_changes, Ordering::AcqRel);
        self.sign(searched);
        self.note_domains(relisted);
        let mut long = Vec::new();
        for (entry, added) in changes {
            long.extend(counts.change(entry.kind, entry.key, added));
        }
        if counts.is_recount_due {
            self.uncounted.notify_one();
        }
        // Runs are split only after the commit, when store and counts agree again.
        for (kind, key) in long {
            // If the index cannot be read, the run stays long until its next entry.
            if let Err(error) = counts.of(kind).shorten(&self.links.view(), kind, &key) {
                tracing::warn!(%error, "cannot read an index of links");
            }
        }
        Ok(())
    }

    /// Returns the entries that the indexes have of a code before a commit. Of a record that could not be decoded, these are the
    /// entry of its creation time and those that the link after the commit has, too; other entries of tags are unknown.
    fn entries_before(&self, change: &IndexedChange) -> Vec<IndexEntry> {
        let Some(code) = change.over else { return entries_of(change.before.as_ref()) };
        let view = self.links.view();
        let created_ms = view.get(&code).ok().flatten().and_then(|value| NewerRecord::of(&value)?.created_ms);
        let of_date = created_ms.map(|created_ms| {
            let key = LinkPosition::new(created_ms, code).to_bytes();
            IndexEntry { kind: IndexKind::Dates, key, marks: Marks::default() }
        });
        let mut places = entries_of(change.after.as_ref());
        places.extend(of_date);
        places.sort_unstable();
        places.dedup_by(|one, other| (one.kind, &one.key) == (other.kind, &other.key));
        places.into_iter().filter_map(|place| entry_at(&view, place)).collect()
    }

    /// Lets searches find the domains of new links by their names.
    fn note_domains(&self, relisted: &[IndexedChange]) {
        let new = relisted.iter().filter(|one| one.before.is_none()).filter_map(|one| one.after.as_deref());
        for link in new {
            if let (Some(id), Some(name)) = (link.code.domain(), &link.labels.domain) {
                self.linked.note(id, name.as_str());
            }
        }
    }

    /// Returns the domains that have got links since the start. Commits add to them.
    pub fn linked_domains(&self) -> Arc<LinkedDomains> {
        Arc::clone(&self.linked)
    }

    /// Adds the new texts of links to the search sections.
    fn sign(&self, entries: Vec<Vec<u8>>) {
        self.unsaved.fetch_add(entries.len() as u64, Ordering::Relaxed);
        self.filters.push(entries);
    }

    /// Schedules a recount of tags that a client asked for, if there may be few enough of them again.
    pub(super) fn ask_again_for_tags(&self, scope: &Scope) {
        let mut counts = self.lock();
        if counts.of_tags.ask_again(scope) {
            counts.is_recount_due = true;
            self.uncounted.notify_one();
        }
    }

    /// Waits for the signatures. The writer must not call it: background threads hold the lock.
    pub(super) fn signatures(&self) -> MutexGuard<'_, NgramFilters> {
        self.filters.lock()
    }

    /// Schedules a new signature for a section whose texts cannot be read.
    pub(super) fn forget_texts(&self, key: &[u8], texts: &Arc<Extent>) {
        self.signatures().forget_texts(key, texts);
        self.filters.wake_signer();
    }

    /// Returns a view of the store and the result of `ask` on the counts, both as of one moment.
    pub(super) fn view_with_counts<T>(&self, ask: impl FnOnce(&Tallies) -> T) -> (View, T) {
        let counts = self.lock();
        (self.links.view(), ask(&counts))
    }

    /// Returns the domains that have links, except the default one, served or not.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn domains(&self) -> Result<Vec<DomainName>, StoreError> {
        domains::with_links(&self.view_with_counts(|_| ()).0)
    }

    /// Stops the thread that sorts lists. Lists that are not kept then stay unsorted.
    pub fn stop_sorting(&self) {
        self.sorted_lists.stop();
    }

    /// Stops the background threads that count and sign.
    pub fn stop(&self) {
        let counts = self.lock();
        self.stopping.store(true, Ordering::Release);
        // The lock is held while the flag is set, so a thread that is about to wait sees it.
        drop(counts);
        self.filters.wake_signer();
        self.uncounted.notify_all();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Tallies> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_crawlable(entry: &IndexEntry) -> bool {
    let index_key = memchr::memchr(0, &entry.key).map_or(&entry.key[..], |end| &entry.key[..end]);
    entry.kind == IndexKind::Tags && index_key.ends_with(CRAWLABLE.as_bytes())
}
