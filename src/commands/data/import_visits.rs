//! The visit counts of imported links, stored as the merged history of each link.
//!
//! A shortener tells how many visits a link had, and not when. So the counts are part of the total and of no day. They
//! are stored before the link, and set instead of added: an import that was cut off can be repeated.

use std::collections::{BTreeMap, HashMap};

use carom_shards::Code;

use carom_model::link::record::LinkRef;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::origins::OriginSlot;
use carom_model::visits::tally::{Subject, TallyRow, VisitCounts, VisitGroup};
use carom_store::links::{Ended, Links, RowPlace, StoreError, VisitRow};

/// Links whose counts are committed together.
const COUNTS_AT_ONCE: usize = 2_000;

/// The visits that a link brings along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ImportedVisits {
    code: Code,
    counts: VisitCounts,
    groups: Vec<VisitGroup>,
}

impl ImportedVisits {
    /// Returns the visits of a link; `None` if it had none.
    pub(super) fn of(code: Code, link: &LinkRef<'_>, counts: VisitCounts) -> Option<ImportedVisits> {
        let app = link.app.map(|app| VisitGroup::App(app.into()));
        let groups = app.into_iter().chain(code.domain().map(VisitGroup::Domain)).collect();
        (counts.total > 0).then_some(ImportedVisits { code, counts, groups })
    }
}

/// Stores the visits of imported links.
pub(super) struct VisitImport {
    slot: OriginSlot,
    /// Links that ended and whose rows a node would still remove.
    ended: HashMap<Code, Vec<Ended>>,
}

impl VisitImport {
    /// Prepares a store; `None` if it belongs to a node that counts visits together with others. Their counts travel in
    /// numbered batches, to which an import cannot add.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(super) fn of(links: &Links) -> Result<Option<VisitImport>, StoreError> {
        let origins = links.visit_origins()?.unwrap_or_default();
        let mut ended: HashMap<Code, Vec<Ended>> = HashMap::new();
        links.visits_ended()?.into_iter().for_each(|one| ended.entry(one.code).or_default().push(one));
        Ok((!origins.has_identity()).then(|| VisitImport { slot: origins.own_slot(), ended }))
    }

    /// Stores and syncs the visits of links that are about to be stored.
    pub(super) fn store(&self, links: &Links, all: &[ImportedVisits]) -> Result<(), StoreError> {
        for some in all.chunks(COUNTS_AT_ONCE) {
            self.store_some(links, some)?;
        }
        if all.is_empty() { Ok(()) } else { links.sync() }
    }

    fn store_some(&self, links: &Links, some: &[ImportedVisits]) -> Result<(), StoreError> {
        let mut batch = links.batch();
        let mut sums: BTreeMap<Vec<u8>, VisitCounts> = BTreeMap::new();
        // Slots are reused in a fleet only.
        let place = RowPlace::merged(self.slot, 0);
        for ImportedVisits { code, counts, groups } in some {
            let name = Subject::Link(*code).name();
            let mut rows = links.visits_of(&name)?;
            if let Some(ended) = self.ended.get(code) {
                // The rows belong to an earlier link with this code.
                let (kept, removed): (Vec<VisitRow>, Vec<VisitRow>) =
                    rows.into_iter().partition(|row| row.place == RowPlace::ENDED_EARLIER);
                removed.iter().for_each(|row| batch.remove_visits(&row.key));
                rows = kept;
                ended.iter().for_each(|ended| batch.forget_ended(ended));
            }
            let is_stored =
                |value: &[u8]| VisitHistory::decode(value).is_some_and(|history| history.all.counts == *counts);
            if rows.iter().any(|row| row.place == place && is_stored(&row.value)) {
                continue;
            }
            batch.put_visits(&name, place, &encoded(*counts, VisitHistory::default()));
            let names = groups.iter().map(VisitGroup::name).chain([Subject::All.name()]);
            names.for_each(|name| sums.entry(name).or_default().add(*counts));
        }
        for (name, counts) in sums {
            let stored = links.visits_of(&name)?.into_iter().find(|row| row.place == place);
            let history = stored.and_then(|row| VisitHistory::decode(&row.value)).unwrap_or_default();
            batch.put_visits(&name, place, &encoded(counts, history));
        }
        links.commit(batch)
    }
}

/// Returns the stored form of a history with more visits, at an unknown time.
fn encoded(counts: VisitCounts, mut history: VisitHistory) -> Vec<u8> {
    history.all.add(&TallyRow::from(counts));
    let mut value = Vec::new();
    history.encode(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(links: &Links, name: &[u8]) -> VisitCounts {
        let mut sum = VisitCounts::default();
        for row in links.visits_of(name).unwrap() {
            sum.add(VisitHistory::decode(&row.value).unwrap().all.counts);
        }
        sum
    }

    #[test]
    fn counts_are_set_once_and_added_to_all_links() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let code = |text: &str| Code::parse(text.as_bytes()).unwrap();
        let counts = |total| VisitCounts { total, bots: 1 };
        let of = |text, total| ImportedVisits { code: code(text), counts: counts(total), groups: Vec::new() };
        let shop = VisitGroup::App("shop".into());
        let all = [ImportedVisits { groups: vec![shop.clone()], ..of("a", 5) }, of("b", 7)];
        let import = VisitImport::of(&links).unwrap().unwrap();
        for _ in 0..2 {
            import.store(&links, &all).unwrap();
            assert_eq!(total(&links, &Subject::Link(code("a")).name()), counts(5));
            assert_eq!(total(&links, &Subject::All.name()), VisitCounts { total: 12, bots: 2 });
            assert_eq!(total(&links, &shop.name()), counts(5));
        }
        import.store(&links, &[of("c", 1)]).unwrap();
        assert_eq!(total(&links, &Subject::All.name()).total, 13);
    }

    #[test]
    fn visits_of_an_earlier_link_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), "key").unwrap();
        let code = Code::parse(b"a").unwrap();
        let name = Subject::Link(code).name();
        let mut batch = links.batch();
        let old = encoded(VisitCounts { total: 9, bots: 0 }, VisitHistory::default());
        batch.put_visits(&name, RowPlace::merged(0, 0), &old);
        batch.end_visits(&Ended { code, number: 1 });
        links.commit(batch).unwrap();
        let import = VisitImport::of(&links).unwrap().unwrap();
        let counts = VisitCounts { total: 2, bots: 0 };
        import.store(&links, &[ImportedVisits { code, counts, groups: Vec::new() }]).unwrap();
        assert_eq!(total(&links, &name), counts);
        assert!(links.visits_ended().unwrap().is_empty());
    }
}
