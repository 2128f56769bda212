//! Keeps the search sections over a restart. It reads those of the last process, adds what has changed since, and
//! writes them from time to time and at shutdown.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::catalog::Catalog;
use super::section::{IndexSection, SIGNATURE_BYTES, Source};
use super::section_file::{self, SectionImage};
use super::text_chunk::entry_of;
use super::text_file::TextFile;
use super::texts::Texts;
use crate::services::threads::priority::{PacedLoop, pause_if_due};
use carom_limits::{SEARCH_KEPT_AFTER, SEARCH_REPLAYED_MAX};
use carom_model::link::record::{self, RecordRef};
use carom_model::query::LinkPosition;
use carom_store::links::StoreError;
use carom_store::links::catalog::View;
use carom_store::links::{ChangesSince, LogPosition};

/// Largest number of attempts to restore sections. An attempt fails if more links change meanwhile than are noted.
const RESTORES_MAX: usize = 3;

/// Restores the sections that the last process stored. Returns how many links they have and how many changed since, or
/// `None` if all sections must be rebuilt.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn restore(catalog: &Catalog) -> Result<Option<(u64, usize)>, StoreError> {
    restore_beside(catalog, || {})
}

/// Restores sections like [`restore`]. Calls `between` once the sections of an attempt are read, before they are in
/// use.
fn restore_beside(catalog: &Catalog, mut between: impl FnMut()) -> Result<Option<(u64, usize)>, StoreError> {
    for _ in 0..RESTORES_MAX {
        match try_restore(catalog, &mut between)? {
            Restored::Sections { links, changed } => return Ok(Some((links, changed))),
            Restored::None => return Ok(None),
            Restored::Overtaken => {}
        }
    }
    if let Some(texts) = &catalog.texts {
        discard_stored(texts);
    }
    Ok(None)
}

/// Removes what the last process stored. The caller has no section with texts in the text file.
fn discard_stored(texts: &TextFile) {
    remove_sections(texts);
    texts.keep_only(Vec::new());
    texts.take_freed();
}

/// The result of an attempt to restore sections.
enum Restored {
    /// The sections are in use.
    Sections { links: u64, changed: usize },
    /// No stored sections are usable.
    None,
    /// More links changed during the attempt than are noted.
    Overtaken,
}

fn try_restore(catalog: &Catalog, between: impl FnOnce()) -> Result<Restored, StoreError> {
    let Some(texts) = &catalog.texts else { return Ok(Restored::None) };
    let range = {
        let mut signatures = catalog.signatures();
        let range = signatures.unsigned_range();
        range.iter().for_each(|range| signatures.begin(range));
        range
    };
    // Opened after `begin`, so it has all earlier changes. Later ones are noted, and added at the end.
    let view = catalog.links.view();
    let read = section_file::read(texts.dir(), texts).unwrap_or_else(|error| {
        tracing::info!(%error, "the stored search index cannot be read and is rebuilt");
        None
    });
    let restored = match (range, read) {
        (Some(range), Some((position, mut sections))) => {
            keep_before(&mut sections, &range.1);
            let held_max = catalog.signatures().held_bytes_max();
            let changed = replay(catalog, &view, position, &mut sections, &range.1, held_max)?;
            changed.map(|changed| (range, sections, changed))
        }
        _ => None,
    };
    let Some((range, sections, changed)) = restored.filter(|(_, sections, _)| !sections.is_empty()) else {
        discard_stored(texts);
        return Ok(Restored::None);
    };
    // Sections that were left out have freed their ranges. The list is discarded, because new texts may use these
    // ranges from now on and must not be punched out.
    texts.take_freed();
    texts.keep_only(sections.iter().filter_map(file_range).collect());
    let links = sections.iter().map(|section| u64::from(section.len)).sum();
    between();
    let is_used = catalog.signatures().end(sections, &range);
    if !is_used {
        // The dropped sections name texts that the next attempt needs, so the list of freed ranges is discarded and
        // nothing is punched out.
        texts.take_freed();
        return Ok(Restored::Overtaken);
    }
    Ok(Restored::Sections { links, changed })
}

/// Drops the sections from `end` on, where the section for new links begins. If the newest links were deleted, it
/// begins before the last stored sections. Also drops the texts of each section that has texts of links behind its own
/// end. A purge would not find those texts, and sections made from them would be out of order.
fn keep_before(sections: &mut Vec<IndexSection>, end: &[u8]) {
    sections.retain(|section| *section.first < *end);
    let mut end = end;
    for section in sections.iter_mut().rev() {
        if section.bounds.as_ref().is_some_and(|(_, last)| **last >= *end) {
            section.forget();
        }
        end = &section.first;
    }
}

/// Removes the section file, whose texts a purge may have to remove.
pub(super) fn remove_sections(texts: &TextFile) {
    section_file::remove(texts.dir()).unwrap_or_else(|error| texts.note_left(&error));
}

fn file_range(section: &IndexSection) -> Option<(u64, u64)> {
    let Source::Stored(extent) = &section.texts else { return None };
    let [at, len, ..] = extent.place();
    Some((at, len))
}

/// Adds the links before `end` that changed since a position. Returns the number of all changed links; `None` if it is
/// unknown, or too large.
fn replay(
    catalog: &Catalog,
    view: &View,
    position: LogPosition,
    sections: &mut [IndexSection],
    end: &[u8],
    held_max: usize,
) -> Result<Option<usize>, StoreError> {
    let mut changed: BTreeSet<Code> = BTreeSet::new();
    let mut are_few = true;
    let since = catalog.links.changes_since(position, |code| {
        are_few = are_few && (changed.len() < SEARCH_REPLAYED_MAX || changed.contains(&code));
        if are_few {
            changed.insert(code);
        }
    })?;
    if since == ChangesSince::Unknown || !are_few {
        return Ok(None);
    }
    let mut small = Vec::new();
    for code in &changed {
        pause_if_due();
        let stored = match view.get(code) {
            Ok(Some(stored)) => stored,
            Ok(None) | Err(StoreError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        let decoded = record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored);
        let is_newer = decoded.as_ref().is_err_and(|error| error.is_newer());
        catalog.lacks_newer.fetch_or(is_newer, Ordering::Relaxed);
        let Ok(RecordRef::Link(link)) = decoded else { continue };
        let key = LinkPosition::new(link.created_ms, *code).to_bytes();
        if *key >= *end {
            // The section for new links has it.
            continue;
        }
        let behind = sections.partition_point(|section| *section.first <= *key);
        let Some(section) = behind.checked_sub(1).map(|at| &mut sections[at]) else { continue };
        section.add(&entry_of(&key, &Texts::of_record(code, &link), &mut small));
        if section.held_bytes() > held_max / 2 {
            section.forget();
        }
    }
    Ok(Some(changed.len()))
}

/// Writes the sections if enough has changed since the last write to slow down the next start, or if `is_end` and
/// anything has changed.
pub(super) fn save(catalog: &Catalog, is_end: bool) {
    let unsaved = catalog.unsaved.load(Ordering::Relaxed);
    let Some(texts) = &catalog.texts else {
        // Without a text file, there is no section file.
        return catalog.forgetting.note_done(catalog.forgetting.asked());
    };
    let is_due = unsaved >= if is_end { 1 } else { SEARCH_KEPT_AFTER };
    if !is_due && !catalog.forgetting.is_due() {
        return;
    }
    catalog.unsaved.fetch_sub(unsaved, Ordering::Relaxed);
    // Before the sections are copied.
    let forgets = catalog.forgetting.asked();
    match try_save(catalog, texts) {
        Ok(()) => _ = catalog.is_unwritten.swap(false, Ordering::Relaxed),
        Err(error) => {
            texts.punch(&texts.take_freed());
            if !catalog.is_unwritten.swap(true, Ordering::Relaxed) {
                tracing::info!(%error, "the search index cannot be stored; the next start rebuilds it");
            }
        }
    }
    // Also after an error, because no file is left then, or the text file has noted that.
    catalog.forgetting.note_done(forgets);
}

/// Writes the sections, and frees the ranges of the text file that only the old section file names. After an error, no
/// section file is left.
fn try_save(catalog: &Catalog, texts: &Arc<TextFile>) -> io::Result<()> {
    if catalog.lacks_newer.load(Ordering::Relaxed) {
        // An upgraded node would not find those links in the sections. Without a file, it makes all of them again.
        remove_sections(texts);
        texts.punch(&texts.take_freed());
        return Ok(());
    }
    // Commits hold this lock until the texts of their links are in the queue, and the lock of the sections adds those. So the
    // sections have everything up to this position. Later changes in them do no harm.
    let (_, position) = catalog.view_with_counts(|_| catalog.links.log_position());
    let sections = copy_sections(catalog);
    // Copies hold the ranges that they name, so none of these is among the freed ones.
    let freed = texts.take_freed();
    let written = write_sections(catalog, texts, position, &sections);
    if written.is_err() {
        // The old file names the freed ranges.
        remove_sections(texts);
    }
    texts.punch(&freed);
    // It takes long to free thousands of sections.
    let mut paced = PacedLoop::default();
    sections.into_iter().for_each(|_| paced.step());
    written
}

/// Writes the section file, if the disk has room for it.
fn write_sections(
    catalog: &Catalog,
    texts: &TextFile,
    position: LogPosition,
    sections: &[SectionImage],
) -> io::Result<()> {
    texts.check_room((sections.len() * SIGNATURE_BYTES) as u64)?;
    // The file must not get ahead of the store: a power failure could take back an unsynced commit.
    catalog.links.sync().map_err(io::Error::other)?;
    section_file::write(texts.dir(), position, sections)
}

/// Copies all sections, some at a time: searches wait for the lock. Each copy has everything that was committed before the
/// call. Where a section was dropped meanwhile, the file has a gap.
fn copy_sections(catalog: &Catalog) -> Vec<SectionImage> {
    let mut sections = Vec::new();
    let mut rest: Option<Box<[u8]>> = Some(Box::default());
    while let Some(from) = rest {
        rest = catalog.signatures().copy_some(&from, &mut sections);
        pause_if_due();
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::filter_builder::{sign_once, work_once};
    use super::super::tests::{CatalogModel, any_change, numbered, saved};
    use super::*;
    use crate::services::testing::{KEY, sleeps_of};
    use crate::services::threads::priority::Priority;
    use carom_model::link::Link;
    use carom_model::query::{Filter, OrderField, SortOrder};
    use carom_store::links::Links;

    /// Damage to a file: its name, and the place of the flipped bit or the cut, as a share of its length.
    #[derive(Clone, Debug)]
    enum Damage {
        None,
        Cut(&'static str, f64),
        Flip(&'static str, f64),
        /// An older copy of the section file.
        Old,
    }

    #[derive(Clone, Debug)]
    enum CatalogStep {
        Commit(Vec<(Code, Option<Link>)>),
        Sign,
        Save,
        /// Copies the section file for a later [`Damage::Old`].
        Copy,
        Restart(Damage),
    }

    fn any_step() -> impl Strategy<Value = CatalogStep> {
        let file = || prop_oneof![Just("search.sections"), Just("search.texts")];
        let damage = prop_oneof![
            3 => Just(Damage::None),
            1 => (file(), 0.0..1.0).prop_map(|(file, at)| Damage::Cut(file, at)),
            2 => (file(), 0.0..1.0).prop_map(|(file, at)| Damage::Flip(file, at)),
            1 => Just(Damage::Old),
        ];
        prop_oneof![
            4 => proptest::collection::vec(any_change(), 1..12).prop_map(CatalogStep::Commit),
            4 => Just(CatalogStep::Sign),
            2 => Just(CatalogStep::Save),
            1 => Just(CatalogStep::Copy),
            2 => damage.prop_map(CatalogStep::Restart),
        ]
    }

    fn harm(dir: &Path, damage: &Damage) {
        match damage {
            Damage::None => {}
            Damage::Cut(name, at) | Damage::Flip(name, at) => {
                let Ok(mut bytes) = std::fs::read(dir.join(name)) else { return };
                let at = (bytes.len() as f64 * at) as usize;
                match damage {
                    Damage::Cut(..) => bytes.truncate(at),
                    _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x20),
                }
                std::fs::write(dir.join(name), bytes).unwrap();
            }
            Damage::Old => _ = std::fs::copy(dir.join("aside"), dir.join("search.sections")),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn searches_find_every_link_whatever_becomes_of_the_files(steps in proptest::collection::vec(any_step(), 4..40)) {
            let mut model = CatalogModel::with_signatures(1_000);
            let check = |model: &CatalogModel| {
                for term in ["7.ex", "xxxxy", "none", "//5.example"] {
                    let filter = Filter { term: Some(term.to_owned()), ..Filter::default() };
                    model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 8);
                }
            };
            for step in steps {
                match step {
                    CatalogStep::Commit(changes) => model.commit(changes),
                    CatalogStep::Sign => _ = work_once(&model.catalog, || ()).unwrap(),
                    CatalogStep::Save => save(&model.catalog, true),
                    CatalogStep::Copy => _ = std::fs::copy(model.dir().join("search.sections"), model.dir().join("aside")),
                    CatalogStep::Restart(damage) => {
                        model = model.restarted(|dir| harm(dir, &damage));
                        restore(&model.catalog).unwrap();
                    }
                }
                check(&model);
            }
            while work_once(&model.catalog, || ()).unwrap() {}
            check(&model);
        }
    }

    #[test]
    fn a_commit_does_not_wait_for_background_threads() {
        let model = CatalogModel::with_signatures(1_000);
        let catalog = Arc::clone(&model.catalog);
        let ((locked, is_locked), (committed, is_committed)) = (channel(), channel());
        let background = std::thread::spawn(move || {
            let signatures = catalog.signatures();
            locked.send(()).unwrap();
            let result = is_committed.recv_timeout(Duration::from_secs(30));
            drop(signatures);
            result
        });
        is_locked.recv().unwrap();
        model.commit([numbered(7)]);
        // Without a receiver the test fails below.
        let _ = committed.send(());
        assert_eq!(background.join().unwrap(), Ok(()), "the commit has waited for the lock");
        let filter = Filter { term: Some("c000007".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 8);
    }

    #[test]
    fn a_start_signs_only_what_has_changed() {
        let model = CatalogModel::with_signatures(1_000);
        assert_eq!(restore(&model.catalog).unwrap(), None);
        model.commit((0..500).map(numbered));
        while work_once(&model.catalog, || ()).unwrap() {}
        save(&model.catalog, true);
        let sections = model.catalog.signatures().coverage().1;
        // A clean shutdown leaves nothing to replay.
        let model = model.restarted(|_| {});
        assert_eq!(restore(&model.catalog).unwrap(), Some((500, 0)));
        assert!(model.catalog.signatures().coverage().2);
        while work_once(&model.catalog, || ()).unwrap() {}
        let again = model.catalog.signatures().coverage().1;
        assert!(again <= sections + 5, "{again} instead of {sections}: only the one for links to come is divided");
        // After a crash, the links that have changed since are replayed.
        model.commit((495..505).map(numbered));
        let model = model.restarted(|_| {});
        assert_eq!(restore(&model.catalog).unwrap().map(|(_, changed)| changed), Some(10));
        let filter = Filter { term: Some("c000502".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 8);
    }

    /// Divides the sections of the last process, which had links with numbers below 20. Checks that searches find links
    /// that come later with earlier dates.
    fn check_divided(model: &CatalogModel) {
        model.commit((20..40).map(numbered));
        while work_once(&model.catalog, || ()).unwrap() {}
        model.commit((4..10).map(numbered));
        let filter = Filter { term: Some("c00000".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 8);
    }

    #[test]
    fn links_are_found_after_a_start_without_the_newest_ones() {
        let model = CatalogModel::with_signatures(1_000);
        model.commit((0..16).map(numbered));
        model.commit((4..16).map(|number| (numbered(number).0, None)));
        save(&model.catalog, true);
        let model = model.restarted(|_| {});
        assert!(restore(&model.catalog).unwrap().is_some());
        check_divided(&model);
    }

    #[test]
    fn links_are_found_if_some_were_committed_before_the_restore() {
        let model = CatalogModel::with_signatures(1_000);
        model.commit((0..4).map(numbered));
        save(&model.catalog, true);
        let model = model.restarted(|_| {});
        model.commit((8..20).map(numbered));
        assert!(restore(&model.catalog).unwrap().is_some());
        check_divided(&model);
    }

    #[test]
    fn sections_without_a_newer_link_are_not_stored() {
        let model = saved();
        let (code, link) = numbered(7);
        let mut batch = model.catalog.links.batch();
        batch.put(&code, &carom_model::testing::newer_record(&link.unwrap()));
        model.catalog.links.commit(batch).unwrap();
        let sections = model.dir().join("search.sections");
        assert!(sections.exists());
        let model = model.restarted(|dir| std::fs::remove_file(dir.join("search.sections")).unwrap());
        assert_eq!(restore(&model.catalog).unwrap(), None);
        while work_once(&model.catalog, || ()).unwrap() {}
        save(&model.catalog, true);
        assert!(!model.dir().join("search.sections").exists(), "an upgraded node would not find the link");
    }

    /// Signs all sections on a thread of this priority. Returns how often the thread slept.
    fn sleeps_of_signing(priority: Priority) -> u64 {
        let model = CatalogModel::with_signatures(1_000);
        model.commit((0..500).map(numbered));
        let model = model.restarted(|_| {});
        assert_eq!(restore(&model.catalog).unwrap(), None);
        let catalog = Arc::clone(&model.catalog);
        sleeps_of(priority, move || while work_once(&catalog, || ()).unwrap() {})
    }

    #[test]
    fn signing_pauses_beside_cores() {
        let sleeps = sleeps_of_signing(Priority::Background);
        assert!(sleeps >= 400, "{sleeps} for 500 links");
        let sleeps = sleeps_of_signing(Priority::Urgent);
        assert!(sleeps < 400, "{sleeps}: a thread that requests wait for does not pause");
    }

    #[test]
    fn what_a_command_has_signed_is_loaded_by_the_next_start() {
        let model = CatalogModel::with_signatures(1_000);
        model.commit((0..500).map(numbered));
        let memory = model.memory;
        let model = model.restarted(|dir| {
            let (links, _) = Links::open(dir, KEY).unwrap();
            sign_once(&links, memory, dir).unwrap();
        });
        assert_eq!(restore(&model.catalog).unwrap(), Some((500, 0)));
    }

    #[test]
    fn files_leave_if_changes_overtake_each_restore() {
        let model = saved();
        let model = model.restarted(|_| {});
        // Discards the sections that are being made, as too many changes do.
        let restored = restore_beside(&model.catalog, || model.catalog.signatures().purge(&[])).unwrap();
        assert_eq!(restored, None);
        let left = std::fs::metadata(model.dir().join("search.texts")).unwrap().len();
        assert_eq!(left, 0, "no purge would remove these texts");
        assert!(!model.dir().join("search.sections").exists());
        while work_once(&model.catalog, || ()).unwrap() {}
        let filter = Filter { term: Some("c0002".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 50);
    }

    #[test]
    fn files_leave_if_the_text_file_cannot_be_opened() {
        let model = CatalogModel::with_signatures(1).restarted(|dir| {
            std::fs::write(dir.join("search.sections"), "texts that no purge would remove").unwrap();
            let _ = std::fs::remove_file(dir.join("search.texts"));
            std::fs::create_dir(dir.join("search.texts")).unwrap();
        });
        assert!(model.catalog.texts.is_none());
        assert!(!model.dir().join("search.sections").exists());
    }

    #[test]
    fn a_damaged_section_is_signed_again_and_the_others_stay() {
        let model = saved();
        let model = model.restarted(|dir| harm(dir, &Damage::Flip("search.sections", 0.5)));
        assert!(restore(&model.catalog).unwrap().is_some());
        let mut again = 0;
        while work_once(&model.catalog, || ()).unwrap() {
            again += 1;
        }
        assert!((1..5).contains(&again), "{again} of {:?}", model.catalog.signatures().coverage());
        let filter = Filter { term: Some("c0002".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 50);
    }
}
