//! Visits that links had before they were imported: the rows of these links, and the sums over all links, apps and
//! domains.
//!
//! The record of a link says how many there were. The writer derives the rows in the commit that stores or ends the
//! link, whether a client, the stream of another node or a comparison brings it. So each node counts them once, and a
//! repeated import counts nothing twice. Only the writer's thread changes these rows.

use std::collections::HashMap;

use super::planner::EarlierChange;
use carom_model::visits::tally::{Subject, VisitCounts, VisitGroup};
use carom_store::links::{Batch, Links, StoreError};

/// Sums that are kept in memory from commit to commit. The store has all of them.
const SUMS_HELD: usize = 4_096;

/// The sums of earlier visits by their names, as far as this process has changed them lately. There is one for all
/// links, and one for each app and domain.
#[derive(Debug, Default)]
pub(super) struct EarlierSums(HashMap<Vec<u8>, VisitCounts>);

impl EarlierSums {
    /// Adds the changes of a commit to its batch. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read. Damaged rows are replaced.
    pub(super) fn put(
        &mut self,
        links: &Links,
        batch: &mut Batch,
        changes: &[EarlierChange],
    ) -> Result<(), StoreError> {
        // Between two commits, so that no sum is dropped that the store does not have yet.
        if self.0.len() > SUMS_HELD {
            self.0.clear();
        }
        for change in changes {
            match change {
                EarlierChange::Arrives { link, visits, may_be_stored } => {
                    let name = Subject::Link(link.code).name();
                    let counts = VisitCounts { total: visits.total(), bots: visits.bots() };
                    if *may_be_stored && stored(links, &name)? == Some(counts) {
                        continue;
                    }
                    batch.put_earlier_visits(&name, counts);
                    let app = link.labels.app.as_ref().map(|app| VisitGroup::App(app.as_str().into()));
                    let groups = app.into_iter().chain(link.code.domain().map(VisitGroup::Domain));
                    for name in groups.map(|group| group.name()).chain([Subject::All.name()]) {
                        self.add(links, batch, name, counts)?;
                    }
                }
                // The sums keep the visits of links that are gone, as those of other visits do.
                EarlierChange::Leaves(code) => batch.remove_earlier_visits(&Subject::Link(*code).name()),
            }
        }
        Ok(())
    }

    fn add(&mut self, links: &Links, batch: &mut Batch, name: Vec<u8>, counts: VisitCounts) -> Result<(), StoreError> {
        let mut sum = match self.0.get(&name) {
            Some(sum) => *sum,
            None => stored(links, &name)?.unwrap_or_default(),
        };
        sum.add(counts);
        batch.put_earlier_visits(&name, sum);
        self.0.insert(name, sum);
        Ok(())
    }
}

fn stored(links: &Links, name: &[u8]) -> Result<Option<VisitCounts>, StoreError> {
    match links.earlier_visits(name) {
        Err(StoreError::Damaged(what)) => {
            tracing::error!(%what, "a count of earlier visits cannot be read, and starts again");
            Ok(None)
        }
        counts => counts,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::services::testing::KEY;
    use carom_model::access::AppName;
    use carom_model::link::Origin;
    use carom_model::link::earlier_visits::EarlierVisits;
    use carom_model::testing::link;

    #[test]
    fn visits_are_added_once_and_sums_outlive_links() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), KEY).unwrap();
        let mut of_shop = link("abc", Origin::Custom);
        of_shop.labels.app = AppName::parse("shop").ok();
        let code = of_shop.code;
        let arrives = |may_be_stored| EarlierChange::Arrives {
            link: Arc::new(of_shop.clone()),
            visits: EarlierVisits::new(5, 2).unwrap(),
            may_be_stored,
        };
        let apply = |sums: &mut EarlierSums, changes: &[EarlierChange]| {
            let mut batch = links.batch();
            sums.put(&links, &mut batch, changes).unwrap();
            links.commit(batch).unwrap();
        };
        let total = |name: &[u8]| links.earlier_visits(name).unwrap().map(|counts| (counts.total, counts.bots));
        let (all, shop) = (Subject::All.name(), VisitGroup::App("shop".into()).name());
        let of_link = Subject::Link(code).name();
        let mut sums = EarlierSums::default();
        apply(&mut sums, &[arrives(false)]);
        // The record was unreadable meanwhile, and is read again by another process.
        for sums in [&mut sums, &mut EarlierSums::default()] {
            apply(sums, &[arrives(true)]);
            assert_eq!([&of_link, &all, &shop].map(|name| total(name)), [Some((5, 2)); 3]);
        }
        apply(&mut sums, &[EarlierChange::Leaves(code)]);
        assert_eq!([&of_link, &all, &shop].map(|name| total(name)), [None, Some((5, 2)), Some((5, 2))]);
        apply(&mut EarlierSums::default(), &[arrives(true), EarlierChange::Leaves(code)]);
        assert_eq!(total(&all), Some((10, 4)));
    }
}
