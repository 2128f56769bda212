//! The selections of a node with a shared home, and their files: one for each in the folder `purge-selections` of the data
//! directory. A file has the terms of the selection, such as a destination, until the node has read all links. From then on,
//! it has numbers only.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::folder::PurgeFolder;
use super::registry::kept_since_ms;
use crate::bridge::{PurgeProgress, PurgeStep, SelectionProgress};
use crate::services::replication::redis::Scan;
use carom_limits::{SELECTIONS_KNOWN_MAX, SELECTIONS_OPEN_MAX};
use carom_model::purge::PurgeId;
use carom_model::purge::selection::PurgeSelection;
use carom_telemetry::clock::unix_ms;

/// The folder in the data directory.
const FOLDER: &str = "purge-selections";

/// The step of a selection whose links the node looks for.
const STEP: &str = "reading all links in Redis";

/// The step of a selection that waits for others, in words that follow "the node is".
const WAITS: &str = "waiting for the search for other links to purge";

/// The numbers of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SelectionCounts {
    /// The states that were examined, since the search last began.
    pub(super) examined: u64,
    /// The links that were deleted or counted.
    pub(super) matched: u64,
    /// The links, existing and deleted ones, that only a later version can decode, since the search last began.
    pub(super) unreadable: u64,
    /// The links that were deleted before the search, and that were purged or counted.
    pub(super) deleted_before: u64,
}

/// A purge of a search, until the stored numbers of the search have its links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UncountedPurge {
    pub(super) purge: PurgeId,
    /// True for links that were deleted before the search, false for links that the search deletes.
    pub(super) deleted_before: bool,
}

/// The place of a search in the home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SearchPlace {
    /// A text that names the servers, their processes and their slots. The scan is valid only while it is the same.
    pub(super) home: String,
    pub(super) scan: Scan,
}

/// A selection.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Selection {
    /// The instant of the request, in milliseconds since 1970 UTC by the clock of Redis.
    at_ms: u64,
    only_counts: bool,
    /// The terms; `None` once the search has ended.
    terms: Option<PurgeSelection>,
    /// The present numbers.
    counts: SelectionCounts,
    /// The numbers at the stored place.
    stored: SelectionCounts,
    /// The place up to which all links are in purges. `None` before the first one, or if the servers do not tell who they are.
    place: Option<SearchPlace>,
    /// The purges of its links, without those that had ended when the file was last written.
    purges: Vec<PurgeId>,
    /// The last purge of its links, if the stored numbers lack them.
    uncounted: Option<UncountedPurge>,
    stopped: Option<String>,
    error: Option<String>,
    /// The instant at which this process began to search, in milliseconds since 1970 UTC; `None` before that.
    searching_since_ms: Option<u64>,
}

/// The selections that a node knows.
#[derive(Debug)]
pub(super) struct SelectionRegistry {
    folder: PurgeFolder,
    all: BTreeMap<PurgeId, Selection>,
}

impl SelectionRegistry {
    /// Reads the selections of a data directory.
    ///
    /// # Errors
    /// If the folder or a file in it cannot be read. A malformed file is logged and skipped.
    pub(super) fn open(data_dir: &Path) -> io::Result<SelectionRegistry> {
        // A malformed file may have a destination, which no later start removes.
        let malformed = "a search for links to purge cannot be read; begin it again, and delete the file";
        let (folder, all) = PurgeFolder::open(data_dir.join(FOLDER), parsed, malformed)?;
        Ok(SelectionRegistry { folder, all })
    }

    /// Adds a selection.
    ///
    /// # Errors
    /// The reason why it cannot begin, in words for the client.
    pub(super) fn begin(&mut self, id: PurgeId, at_ms: u64, terms: PurgeSelection) -> Result<(), String> {
        let open = self.all.values().filter(|selection| selection.terms.is_some()).count();
        if open >= SELECTIONS_OPEN_MAX {
            return Err(format!("{open} searches for links to purge have not ended yet; try again when one has"));
        }
        self.make_room().map_err(|error| format!("the file of an earlier selection cannot be removed: {error}"))?;
        let selection = Selection {
            at_ms,
            only_counts: terms.confirmed.is_none(),
            terms: Some(terms),
            counts: SelectionCounts::default(),
            stored: SelectionCounts::default(),
            place: None,
            purges: Vec::new(),
            uncounted: None,
            stopped: None,
            error: None,
            searching_since_ms: None,
        };
        self.replace(id, selection).map_err(|error| format!("the selection cannot be stored: {error}"))
    }

    /// Forgets the oldest selections that have ended until another one has room.
    fn make_room(&mut self) -> io::Result<()> {
        while self.all.len() >= SELECTIONS_KNOWN_MAX {
            let ended = self.all.iter().filter(|(_, selection)| selection.terms.is_none());
            let oldest = ended.min_by_key(|(_, selection)| selection.at_ms).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return Ok(()) };
            self.folder.remove(oldest)?;
            self.all.remove(&oldest);
        }
        Ok(())
    }

    /// Returns the selections whose search has not ended, the oldest first.
    pub(super) fn open_ones(&self) -> Vec<(PurgeId, PurgeSelection)> {
        let terms = |(id, selection): (&PurgeId, &Selection)| Some((*id, selection.at_ms, selection.terms.clone()?));
        let mut open: Vec<(PurgeId, u64, PurgeSelection)> = self.all.iter().filter_map(terms).collect();
        open.sort_by_key(|(_, at_ms, _)| *at_ms);
        open.into_iter().map(|(id, _, terms)| (id, terms)).collect()
    }

    /// Returns the numbers and the place with which a search continues.
    pub(super) fn resume(&mut self, id: PurgeId) -> (SelectionCounts, Option<SearchPlace>) {
        let Some(selection) = self.all.get_mut(&id) else { return (SelectionCounts::default(), None) };
        selection.searching_since_ms.get_or_insert_with(unix_ms);
        selection.counts = selection.stored;
        (selection.counts, selection.place.clone())
    }

    /// Returns the purge whose links the stored numbers lack, after an attempt that was interrupted; `None` for no such purge.
    pub(super) fn uncounted(&self, id: PurgeId) -> Option<PurgeId> {
        Some(self.all.get(&id)?.uncounted?.purge)
    }

    /// Counts the links of the purge that the stored numbers lack, durably. The search does not find them again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn count(&mut self, id: PurgeId, links: u64) -> io::Result<()> {
        self.change(id, |selection| match selection.uncounted.take() {
            Some(UncountedPurge { deleted_before: true, .. }) => selection.stored.deleted_before += links,
            Some(UncountedPurge { deleted_before: false, .. }) => selection.stored.matched += links,
            None => {}
        })
    }

    /// Shows the present numbers of a search to clients.
    pub(super) fn show(&mut self, id: PurgeId, counts: SelectionCounts) {
        if let Some(selection) = self.all.get_mut(&id) {
            (selection.counts, selection.error) = (counts, None);
        }
    }

    /// Adds a purge of links of a selection, durably and before the purge begins. Forgets those that have ended. `matched` is
    /// the number of links that were deleted before it. `is_open` is true for a purge that has not ended.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add_purge(
        &mut self,
        id: PurgeId,
        added: UncountedPurge,
        matched: u64,
        is_open: impl Fn(PurgeId) -> bool,
    ) -> io::Result<()> {
        self.change(id, |selection| {
            selection.purges.retain(|purge| is_open(*purge));
            selection.purges.push(added.purge);
            (selection.stored.matched, selection.uncounted) = (matched, Some(added));
        })
    }

    /// Stores the place up to which all links are in purges, with the numbers, durably. `place` is `None` if the servers do not
    /// tell who they are.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn store(&mut self, id: PurgeId, counts: SelectionCounts, place: Option<SearchPlace>) -> io::Result<()> {
        self.change(id, |selection| {
            (selection.counts, selection.stored, selection.place) = (counts, counts, place);
            selection.uncounted = None;
        })
    }

    /// Lets a search begin again, durably: links may have passed it. Keeps the numbers of the links that it has deleted or
    /// purged.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn restart(&mut self, id: PurgeId) -> io::Result<()> {
        self.change(id, |selection| {
            let SelectionCounts { matched, deleted_before, .. } = selection.stored;
            let none = SelectionCounts::default();
            selection.stored =
                if selection.only_counts { none } else { SelectionCounts { matched, deleted_before, ..none } };
            (selection.counts, selection.place) = (selection.stored, None);
        })
    }

    /// Ends a search, durably, and forgets its terms. `stopped` has the reason if it has not read all links.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn end(&mut self, id: PurgeId, stopped: Option<String>) -> io::Result<()> {
        self.change(id, |selection| {
            (selection.terms, selection.place, selection.error) = (None, None, None);
            (selection.stored, selection.uncounted) = (selection.counts, None);
            selection.stopped = stopped;
        })
    }

    /// Notes why a search could not continue. It tries again.
    pub(super) fn fail(&mut self, id: PurgeId, why: &str) {
        if let Some(selection) = self.all.get_mut(&id) {
            selection.error = Some(why.to_owned());
        }
    }

    /// Removes the selections that have ended and are older than [`carom_limits::PURGES_KEPT`].
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        let since_ms = kept_since_ms(now_ms);
        let folder = &self.folder;
        self.all.retain(|id, selection| {
            let is_kept = selection.terms.is_some() || selection.at_ms >= since_ms;
            // If the removal fails, the next call tries again.
            is_kept || folder.remove(*id).is_err()
        });
    }

    /// Returns the progress of a search without that of its purges, and these; `None` if there is no such selection.
    pub(super) fn progress(&self, id: PurgeId) -> Option<(PurgeProgress, Vec<PurgeId>)> {
        let selection = self.all.get(&id)?;
        let (counts, has_ended) = (selection.counts, selection.terms.is_none());
        let step = match selection.searching_since_ms {
            Some(since_ms) => PurgeStep { what: STEP, since_ms },
            None => PurgeStep { what: WAITS, since_ms: selection.at_ms },
        };
        let progress = PurgeProgress {
            id,
            at_ms: selection.at_ms,
            links: if selection.only_counts { 0 } else { (counts.matched + counts.deleted_before) as usize },
            is_complete: has_ended,
            nodes: Vec::new(),
            sites: Vec::new(),
            step: (!has_ended).then_some(step),
            error: selection.error.clone(),
            selection: Some(SelectionProgress {
                only_counts: selection.only_counts,
                examined: counts.examined,
                matched: counts.matched,
                unreadable: counts.unreadable,
                deleted_before: counts.deleted_before,
                has_ended,
                stopped: selection.stopped.clone(),
            }),
        };
        Some((progress, selection.purges.clone()))
    }

    /// Changes a selection, durably. Does nothing if there is no such selection.
    fn change(&mut self, id: PurgeId, change: impl FnOnce(&mut Selection)) -> io::Result<()> {
        let Some(mut selection) = self.all.get(&id).cloned() else { return Ok(()) };
        change(&mut selection);
        self.replace(id, selection)
    }

    /// Stores a selection, durably. If that fails, the former one stays.
    fn replace(&mut self, id: PurgeId, selection: Selection) -> io::Result<()> {
        self.folder.write(id, &to_json(&selection), !self.all.contains_key(&id))?;
        self.all.insert(id, selection);
        Ok(())
    }
}

fn to_json(selection: &Selection) -> Value {
    let SelectionCounts { examined, matched, unreadable, deleted_before } = selection.stored;
    let purges: Vec<String> = selection.purges.iter().map(ToString::to_string).collect();
    let place = selection.place.as_ref().map(|place| json!({ "home": place.home, "scan": place.scan.to_json() }));
    let uncounted = |deleted_before: bool| {
        let uncounted = selection.uncounted.filter(|uncounted| uncounted.deleted_before == deleted_before);
        uncounted.map(|uncounted| uncounted.purge.to_string())
    };
    json!({
        "at": selection.at_ms,
        "onlyCounts": selection.only_counts,
        "terms": selection.terms.as_ref().map(PurgeSelection::to_json),
        "examined": examined,
        "matched": matched,
        "unreadable": unreadable,
        "deletedBefore": deleted_before,
        "place": place,
        "purges": purges,
        "uncounted": uncounted(false),
        "uncountedDeletedBefore": uncounted(true),
        "stopped": selection.stopped,
    })
}

/// Returns the selection in a file; `None` if it is malformed.
fn parsed(bytes: &[u8]) -> Option<Selection> {
    let json: Value = serde_json::from_slice(bytes).ok()?;
    let number = |name: &str| json.get(name)?.as_u64();
    let terms = json.get("terms")?;
    let terms = if terms.is_null() { None } else { Some(PurgeSelection::from_json(terms)?) };
    let purge = |purge: &Value| PurgeId::parse(purge.as_str()?);
    let place = |place: &Value| {
        Some(SearchPlace { home: place["home"].as_str()?.to_owned(), scan: Scan::from_json(&place["scan"])? })
    };
    let stored = SelectionCounts {
        examined: number("examined")?,
        matched: number("matched")?,
        unreadable: number("unreadable")?,
        // Earlier versions did not look for such links.
        deleted_before: number("deletedBefore").unwrap_or_default(),
    };
    let uncounted = |name: &str, deleted_before: bool| {
        Some(UncountedPurge { purge: json.get(name).and_then(purge)?, deleted_before })
    };
    Some(Selection {
        at_ms: number("at")?,
        only_counts: json.get("onlyCounts")?.as_bool()?,
        terms,
        counts: stored,
        stored,
        // Without a readable place, the search begins again.
        place: json.get("place").and_then(place),
        purges: json.get("purges")?.as_array()?.iter().map(purge).collect::<Option<_>>()?,
        uncounted: uncounted("uncounted", false).or_else(|| uncounted("uncountedDeletedBefore", true)),
        stopped: json.get("stopped")?.as_str().map(str::to_owned),
        error: None,
        searching_since_ms: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use carom_model::access::Scope;
    use carom_model::purge::EndedSelector;

    const ID: PurgeId = PurgeId(1);

    fn deleting(purge: u64) -> UncountedPurge {
        UncountedPurge { purge: PurgeId(purge), deleted_before: false }
    }

    fn of_deleted(purge: u64) -> UncountedPurge {
        UncountedPurge { purge: PurgeId(purge), deleted_before: true }
    }

    fn terms(confirmed: Option<u64>) -> PurgeSelection {
        let selector = EndedSelector::Destination(vec!["https://a.example/secret".to_owned()]);
        PurgeSelection { selector, scope: Scope::ALL, confirmed }
    }

    fn counts(examined: u64, matched: u64) -> SelectionCounts {
        SelectionCounts { examined, matched, ..SelectionCounts::default() }
    }

    fn place(home: &str) -> Option<SearchPlace> {
        let scan = json!({"masters": [["10.0.0.1", 7_000]], "cursor": "17"});
        Some(SearchPlace { home: home.to_owned(), scan: Scan::from_json(&scan).unwrap() })
    }

    fn open(dir: &Path) -> SelectionRegistry {
        SelectionRegistry::open(dir).unwrap()
    }

    #[test]
    fn search_continues_at_its_stored_place() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        assert_eq!(registry.resume(ID), (counts(0, 0), None));
        registry.store(ID, counts(100, 2), place("a")).unwrap();
        registry.show(ID, counts(150, 2));
        assert_eq!(registry.resume(ID), (counts(100, 2), place("a")));
        let mut registry = open(dir.path());
        assert_eq!(registry.open_ones(), [(ID, terms(Some(9)))]);
        assert_eq!(registry.resume(ID), (counts(100, 2), place("a")));
        registry.restart(ID).unwrap();
        assert_eq!(open(dir.path()).resume(ID), (counts(0, 2), None));
    }

    #[test]
    fn refused_selection_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        let path = registry.folder.path_of(ID);
        // The file has got its name, and the write fails after that.
        fs::write(&path, "{}").unwrap();
        fs::create_dir(path.with_extension("json.new")).unwrap();
        assert!(registry.begin(ID, 1_000, terms(None)).is_err());
        assert!(!path.exists(), "the next start would continue the search");
    }

    #[test]
    fn links_of_an_interrupted_purge_are_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        registry.store(ID, counts(100, 2), place("a")).unwrap();
        assert_eq!(registry.uncounted(ID), None);
        // A third link was deleted with an earlier purge.
        registry.add_purge(ID, deleting(7), 3, |_| true).unwrap();
        registry.show(ID, counts(150, 5));
        let mut registry = open(dir.path());
        assert_eq!(registry.progress(ID).unwrap().1, [PurgeId(7)]);
        assert_eq!(registry.uncounted(ID), Some(PurgeId(7)), "its links would not count as confirmed ones");
        registry.count(ID, 2).unwrap();
        assert_eq!(registry.uncounted(ID), None);
        let mut registry = open(dir.path());
        assert_eq!(registry.uncounted(ID), None);
        assert_eq!(registry.resume(ID), (counts(100, 5), place("a")));
        registry.add_purge(ID, deleting(8), 5, |_| true).unwrap();
        registry.store(ID, counts(200, 6), place("a")).unwrap();
        assert_eq!(open(dir.path()).uncounted(ID), None, "the stored numbers have its links");
    }

    #[test]
    fn links_deleted_before_are_counted_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        registry.add_purge(ID, of_deleted(7), 0, |_| true).unwrap();
        registry.count(ID, 3).unwrap();
        registry.add_purge(ID, of_deleted(8), 0, |_| true).unwrap();
        let mut registry = open(dir.path());
        assert_eq!(registry.uncounted(ID), Some(PurgeId(8)), "the search would not find its links again");
        assert_eq!(registry.progress(ID).unwrap().1, [PurgeId(7), PurgeId(8)]);
        registry.count(ID, 2).unwrap();
        registry.count(ID, 9).unwrap();
        let expected = SelectionCounts { deleted_before: 5, ..counts(0, 0) };
        let mut registry = open(dir.path());
        assert_eq!(registry.uncounted(ID), None);
        assert_eq!(registry.resume(ID), (expected, None));
        registry.restart(ID).unwrap();
        assert_eq!(open(dir.path()).resume(ID), (expected, None), "they are in purges");
        let (progress, _) = registry.progress(ID).unwrap();
        assert_eq!(progress.selection.unwrap().deleted_before, 5);
    }

    #[test]
    fn file_of_an_earlier_version_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        registry.store(ID, SelectionCounts { deleted_before: 5, ..counts(100, 2) }, None).unwrap();
        let file = registry.folder.path_of(ID);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("deletedBefore", "unknown")).unwrap();
        assert_eq!(open(dir.path()).resume(ID), (counts(100, 2), None));
    }

    #[test]
    fn step_began_with_the_first_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(None)).unwrap();
        let step = |registry: &SelectionRegistry| registry.progress(ID).unwrap().0.step.unwrap();
        assert_eq!(step(&registry), PurgeStep { what: WAITS, since_ms: 1_000 });
        registry.all.get_mut(&ID).unwrap().searching_since_ms = Some(5);
        registry.resume(ID);
        assert_eq!(step(&registry), PurgeStep { what: STEP, since_ms: 5 }, "an attempt that failed is no new search");
    }

    #[test]
    fn search_that_only_counts_counts_no_link_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(None)).unwrap();
        registry.store(ID, counts(100, 2), place("a")).unwrap();
        registry.show(ID, counts(150, 3));
        assert_eq!(registry.resume(ID).0, counts(100, 2));
        registry.restart(ID).unwrap();
        assert_eq!(registry.resume(ID), (counts(0, 0), None));
    }

    #[test]
    fn file_of_an_ended_search_has_no_destination() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        let file = registry.folder.path_of(ID);
        let text = || fs::read_to_string(&file).unwrap();
        assert!(text().contains("secret"), "a restart would lose it");
        registry.show(ID, counts(150, 3));
        registry.end(ID, Some("too many".to_owned())).unwrap();
        assert!(!text().contains("secret"), "{}", text());
        fs::write(file.with_file_name("0000000000000002.json.new"), "secret").unwrap();
        let registry = open(dir.path());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "half a file is left");
        assert!(registry.open_ones().is_empty());
        let (progress, _) = registry.progress(ID).unwrap();
        assert!(progress.is_complete);
        let selection = progress.selection.unwrap();
        assert_eq!((selection.examined, selection.matched), (150, 3));
        assert_eq!(selection.stopped.as_deref(), Some("too many"));
    }

    #[test]
    fn ended_purges_leave_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(Some(9))).unwrap();
        for number in [5, 6, 7] {
            registry.add_purge(ID, deleting(number), 0, |purge| purge == PurgeId(6)).unwrap();
        }
        assert_eq!(open(dir.path()).progress(ID).unwrap().1, [PurgeId(6), PurgeId(7)]);
    }

    #[test]
    fn too_many_open_selections_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        for number in 0..SELECTIONS_OPEN_MAX as u64 {
            registry.begin(PurgeId(number), 1_000 - number, terms(None)).unwrap();
        }
        assert!(registry.begin(PurgeId(99), 1, terms(None)).unwrap_err().contains("have not ended"));
        let first = registry.open_ones().remove(0).0;
        assert_eq!(first, PurgeId(SELECTIONS_OPEN_MAX as u64 - 1), "the oldest comes first");
        registry.end(first, None).unwrap();
        assert_eq!(registry.begin(PurgeId(99), 1, terms(None)), Ok(()));
    }

    #[test]
    fn oldest_ended_selection_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        let (going_on, first, second) = (PurgeId(1), PurgeId(3), PurgeId(2));
        for (id, at_ms) in [(going_on, 1), (first, 2), (second, 3)] {
            registry.begin(id, at_ms, terms(None)).unwrap();
        }
        registry.end(first, None).unwrap();
        registry.end(second, None).unwrap();
        let ended = registry.all[&second].clone();
        let others = 4..=SELECTIONS_KNOWN_MAX as u64;
        registry.all.extend(others.map(|number| (PurgeId(number), ended.clone())));
        let next = PurgeId(9_999);
        registry.begin(next, 4, terms(None)).unwrap();
        assert_eq!(registry.all.len(), SELECTIONS_KNOWN_MAX);
        assert!(registry.progress(first).is_none());
        let left = open(dir.path());
        assert!(left.progress(first).is_none(), "its file is left");
        for id in [going_on, second, next] {
            assert!(left.progress(id).is_some(), "{id}");
        }
    }

    #[test]
    fn only_ended_selections_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = open(dir.path());
        registry.begin(ID, 1_000, terms(None)).unwrap();
        registry.begin(PurgeId(2), 1_000, terms(None)).unwrap();
        registry.end(ID, None).unwrap();
        let kept_ms = carom_limits::PURGES_KEPT.as_millis() as u64;
        registry.forget_old(1_000 + kept_ms);
        assert!(registry.progress(ID).is_some());
        registry.forget_old(1_001 + kept_ms);
        assert!(registry.progress(ID).is_none());
        assert!(open(dir.path()).progress(ID).is_none(), "its file is left");
        assert!(registry.progress(PurgeId(2)).is_some(), "it goes on");
    }
}
