//! What lists are made of: the indexes by date and by tag, and in memory how many entries come before any of them.
//!
//! The writer commits through here ([`Catalog::commit`]), so that what is counted and what is stored change together, and
//! whoever takes a [`View`] with counts under the same lock has both as they were at one moment. After a start the counts
//! are made in the background ([`counting`]); until then lists go without them. [`list`] finds a page, [`query_workers`] are the
//! threads that do it.

mod counting;
mod domains;
pub(super) mod filter;
mod filter_builder;
mod held;
mod keeping;
mod list;
mod ngram_filters;
mod part;
pub mod query_workers;
mod rank_index;
mod ranked_page;
mod search_scan;
mod section;
mod section_file;
mod tags;
#[cfg(test)]
mod tests;
mod text_file;
mod texts;
pub mod visits;
mod walk;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::counting::Counted;
use self::ngram_filters::Signatures;
use self::tags::TagCounts;
use self::text_file::{Extent, TextFile};
use carom_model::access::{AppName, Scope};
use carom_model::domains::DomainName;
use carom_model::link::Link;
use carom_model::query::Place;
use carom_store::links::catalog::{CRAWLABLE, Entry, Listing, Marks, Shelf, View};
use carom_store::links::{Batch, Links, StoreError};

pub use self::counting::start as start_counting;
pub use self::filter_builder::start as start_signing;

/// A link that a commit puts in the place of another, or of nothing; or takes away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relisted {
    /// What was there.
    pub before: Option<Arc<Link>>,
    /// What is there from now on.
    pub after: Option<Arc<Link>>,
}

impl Relisted {
    /// What becomes of the entries; `None` where they stay as they are, and searches find the link by the same.
    pub fn of(before: Option<&Arc<Link>>, after: Option<&Arc<Link>>) -> Option<Relisted> {
        fn found_by(link: &Arc<Link>) -> (Listing<'_>, &str, Option<&str>) {
            (listing(link), &link.target, link.labels.title.as_deref())
        }
        let is_same = before.map(found_by) == after.map(found_by);
        (!is_same).then(|| Relisted { before: before.cloned(), after: after.cloned() })
    }

    /// The entries that go, those that come, and those that say something else.
    fn entries(&self) -> [Vec<Entry>; 3] {
        let entries = |link: &Option<Arc<Link>>| link.as_ref().map_or(Vec::new(), |link| listing(link).entries());
        let (before, after) = (entries(&self.before), entries(&self.after));
        let is_place_in =
            |entry: &Entry, of: &[Entry]| of.iter().any(|other| (other.shelf, &other.key) == (entry.shelf, &entry.key));
        let gone = before.iter().filter(|entry| !is_place_in(entry, &after)).cloned().collect();
        let (stay, new): (Vec<Entry>, Vec<Entry>) = after.into_iter().partition(|entry| is_place_in(entry, &before));
        [gone, new, stay.into_iter().filter(|entry| !before.contains(entry)).collect()]
    }
}

/// Where lists have a link.
pub fn listing(link: &Link) -> Listing<'_> {
    Listing {
        place: Place::new(link.created_ms, link.code),
        tags: link.labels.tags.joined(),
        // A private link is one that nobody comes upon.
        crawlable: link.labels.crawlable && !link.is_private(),
        app: link.labels.app.as_ref().map(AppName::as_str),
        marks: Marks { end_ms: link.policy.valid_until_ms, limited: link.policy.max_visits.is_some() },
    }
}

/// What is counted of the indexes.
#[derive(Debug, Default)]
struct Tallies {
    dates: Counted,
    tags: Counted,
    of_tags: TagCounts,
    /// Whether tags should be counted again, of which there were too many.
    is_recount_due: bool,
}

impl Tallies {
    fn of(&mut self, shelf: Shelf) -> &mut Counted {
        if shelf == Shelf::Dates { &mut self.dates } else { &mut self.tags }
    }

    /// Takes an entry into account that is in the index from now on, or is not any more. It comes back if its run is too
    /// long now.
    fn change(&mut self, shelf: Shelf, key: Vec<u8>, added: bool) -> Option<(Shelf, Vec<u8>)> {
        let (key, is_long) = self.of(shelf).change(key, added)?;
        if shelf == Shelf::Tags {
            self.is_recount_due |= self.of_tags.change(&key, added);
        }
        is_long.then_some((shelf, key))
    }
}

/// The indexes of a store that is open, and their counts.
#[derive(Debug)]
pub struct Catalog {
    links: Links,
    counts: Mutex<Tallies>,
    /// Taken last where both are, and for no longer than a few hundred sections take.
    signatures: Mutex<Signatures>,
    /// Wakes the thread that signs.
    unsigned: Condvar,
    /// Wakes the thread that counts.
    uncounted: Condvar,
    /// Where texts are that are searched, if there is such a place.
    texts: Option<Arc<TextFile>>,
    /// Whether texts or sections could not be written there.
    is_unwritten: AtomicBool,
    /// Changes since sections were written, and what else the next start would have to do again.
    unsaved: AtomicU64,
    /// How often a link has become one that crawlers may follow, or has ceased to be one.
    crawlable_changes: AtomicU64,
    /// Whether nobody needs the counts any more.
    stopping: AtomicBool,
}

impl Catalog {
    /// The catalog of a store. Nothing is counted or signed yet; signatures take `search_memory` bytes at most, and the texts of
    /// their links a file in `dir`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(links: Links, search_memory: u64, dir: &Path) -> Result<Catalog, StoreError> {
        if search_memory == 0 {
            section_file::remove(dir);
            TextFile::remove(dir);
        }
        let texts = (search_memory > 0).then(|| TextFile::open(dir)).transpose().unwrap_or_else(|error| {
            tracing::info!(%error, "cannot create a temporary file for link texts; searches take longer");
            None
        });
        let last = links.view().keys(Shelf::Dates, &[], &[]).next_back().transpose()?;
        let end = last.map_or(Vec::new(), |last| counting::just_behind(&last));
        Ok(Catalog {
            links,
            counts: Mutex::default(),
            signatures: Mutex::new(Signatures::new(&end, search_memory)),
            unsigned: Condvar::new(),
            uncounted: Condvar::new(),
            texts: texts.map(Arc::new),
            is_unwritten: AtomicBool::new(false),
            unsaved: AtomicU64::new(0),
            crawlable_changes: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Commits a batch together with the entries of the links that it changes.
    ///
    /// # Errors
    /// Those of [`Links::commit`].
    pub fn commit(&self, mut batch: Batch, relisted: &[Relisted]) -> Result<(), StoreError> {
        let mut changes = Vec::with_capacity(relisted.len());
        for one in relisted {
            let [gone, new, changed] = one.entries();
            gone.iter().for_each(|entry| batch.unlist(entry));
            new.iter().chain(&changed).for_each(|entry| batch.list(entry));
            changes.extend(gone.into_iter().map(|entry| (entry, false)));
            changes.extend(new.into_iter().map(|entry| (entry, true)));
        }
        if relisted.is_empty() {
            return self.links.commit(batch);
        }
        let signs = self.signatures().is_on();
        let after = relisted.iter().filter_map(|one| one.after.as_deref());
        let searched: Vec<Vec<u8>> = after.filter(|_| signs).map(filter_builder::entry).collect();
        let crawlable = |(entry, _): &&(Entry, bool)| is_crawlable(entry);
        let crawlable_changes = changes.iter().filter(crawlable).count() as u64;
        let mut counts = self.lock();
        self.links.commit(batch)?;
        self.crawlable_changes.fetch_add(crawlable_changes, Ordering::AcqRel);
        self.sign(searched);
        let mut long = Vec::new();
        for (entry, added) in changes {
            long.extend(counts.change(entry.shelf, entry.key, added));
        }
        if counts.is_recount_due {
            self.uncounted.notify_one();
        }
        // Only now: what is stored and what is counted are the same again.
        for (shelf, key) in long {
            // If it cannot be read it stays long, and is tried again with the next entry.
            if let Err(error) = counts.of(shelf).shorten(&self.links.view(), shelf, &key) {
                tracing::warn!(%error, "cannot read an index of links");
            }
        }
        Ok(())
    }

    /// Takes into account what links say from now on.
    fn sign(&self, entries: Vec<Vec<u8>>) {
        self.unsaved.fetch_add(entries.len() as u64, Ordering::Relaxed);
        if self.signatures().add(entries) {
            self.unsigned.notify_one();
        }
    }

    /// Has tags counted again if fewer of them may be left than there were: somebody has asked for them.
    fn ask_again_for_tags(&self, scope: &Scope) {
        let mut counts = self.lock();
        if counts.of_tags.ask_again(scope) {
            counts.is_recount_due = true;
            self.uncounted.notify_one();
        }
    }

    fn signatures(&self) -> MutexGuard<'_, Signatures> {
        self.signatures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a section signed again whose texts cannot be read.
    fn forget_texts(&self, key: &[u8], texts: &Arc<Extent>) {
        self.signatures().forget_texts(key, texts);
        self.unsigned.notify_one();
    }

    /// What is stored, and what `ask` takes from the counts, as they are at one moment.
    fn look<T>(&self, ask: impl FnOnce(&Tallies) -> T) -> (View, T) {
        let counts = self.lock();
        (self.links.view(), ask(&counts))
    }

    /// The domains that have links, besides the default one, whether they are served or not.
    ///
    /// # Errors
    /// If the index cannot be read.
    pub fn domains(&self) -> Result<Vec<DomainName>, StoreError> {
        domains::with_links(&self.look(|_| ()).0)
    }

    /// Ends what counts and signs in the background.
    pub fn stop(&self) {
        let (counts, signatures) = (self.lock(), self.signatures());
        self.stopping.store(true, Ordering::Release);
        // A thread that begins to wait sees it.
        drop((counts, signatures));
        self.unsigned.notify_all();
        self.uncounted.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Tallies> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_crawlable(entry: &Entry) -> bool {
    let shelf = memchr::memchr(0, &entry.key).map_or(&entry.key[..], |end| &entry.key[..end]);
    entry.shelf == Shelf::Tags && shelf.ends_with(CRAWLABLE.as_bytes())
}
