//! Visits that links had before they were imported: the rows of these links, and the sums over all links, apps and
//! domains.
//!
//! The record of a link says how many there were. The writer derives the rows in the commit that stores or ends the
//! link, whether a client, the stream of another node or a comparison brings it. So each node counts them once, and a
//! repeated import counts nothing twice, even if the link was deleted in between. Only the writer's thread changes these
//! rows.

use std::collections::HashMap;

use super::planner::EarlierChange;
use carom_model::access::AppName;
use carom_model::link::Link;
use carom_model::link::earlier_visits::{EarlierVisits, EndedVisits};
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
                EarlierChange::Arrives { link, visits, before, displaced, may_be_stored } => {
                    let (name, counts) = (Subject::Link(link.code).name(), counts_of(*visits));
                    if *may_be_stored && stored(links, &name)? == Some(counts) {
                        continue;
                    }
                    let ended = if before.is_none() { ended(links, &name)? } else { None };
                    let ended = ended.filter(|ended| ended.is_of(link.created_ms, &link.target));
                    batch.put_earlier_visits(&name, counts);
                    if let Some(displaced) = displaced {
                        batch.put_ended_earlier(&name, displaced);
                    } else if ended.is_some() {
                        batch.remove_ended_earlier(&name);
                    }
                    self.add_link(links, batch, (link.as_ref(), counts), before.as_ref().or(ended.as_ref()))?;
                }
                // The sums keep the visits of links that are gone, as those of other visits do. The row of the ended link
                // says which: it may be imported again.
                EarlierChange::Leaves { code, left } => {
                    let name = Subject::Link(*code).name();
                    batch.remove_earlier_visits(&name);
                    if let Some(left) = left {
                        batch.put_ended_earlier(&name, left);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the earlier visits of a link to the sums, in place of those that the sums have of it already.
    fn add_link(
        &mut self,
        links: &Links,
        batch: &mut Batch,
        (link, counts): (&Link, VisitCounts),
        counted: Option<&EndedVisits>,
    ) -> Result<(), StoreError> {
        let nothing = VisitCounts::default();
        let less = counted.map_or(nothing, |counted| counts_of(counted.visits()));
        let (former, app) = (counted.and_then(EndedVisits::app), link.labels.app.as_ref().map(AppName::as_str));
        let name_of = |app: &str| VisitGroup::App(app.into()).name();
        if let Some(former) = former.filter(|former| app != Some(*former)) {
            self.change(links, batch, name_of(former), (less, nothing))?;
        }
        if let Some(app) = app {
            let less = if former == Some(app) { less } else { nothing };
            self.change(links, batch, name_of(app), (less, counts))?;
        }
        let domain = link.code.domain().map(|domain| VisitGroup::Domain(domain).name());
        for name in domain.into_iter().chain([Subject::All.name()]) {
            self.change(links, batch, name, (less, counts))?;
        }
        Ok(())
    }

    fn change(
        &mut self,
        links: &Links,
        batch: &mut Batch,
        name: Vec<u8>,
        (less, more): (VisitCounts, VisitCounts),
    ) -> Result<(), StoreError> {
        let before = match self.0.get(&name) {
            Some(sum) => *sum,
            None => stored(links, &name)?.unwrap_or_default(),
        };
        let mut sum =
            VisitCounts { total: before.total.saturating_sub(less.total), bots: before.bots.saturating_sub(less.bots) };
        sum.add(more);
        batch.put_earlier_visits(&name, sum);
        self.0.insert(name, sum);
        Ok(())
    }
}

fn counts_of(visits: EarlierVisits) -> VisitCounts {
    VisitCounts { total: visits.total(), bots: visits.bots() }
}

/// Returns the visits of the last ended link with a name. A damaged row counts as none.
fn ended(links: &Links, name: &[u8]) -> Result<Option<EndedVisits>, StoreError> {
    match links.ended_earlier(name) {
        Err(StoreError::Damaged(what)) => {
            tracing::error!(%what, "a count of earlier visits cannot be read, and the sums may count it twice");
            Ok(None)
        }
        ended => ended,
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
    use carom_model::link::Origin;
    use carom_model::testing::link;

    const BEFORE: &str = "https://a.example/";

    /// Returns the link of an app with so many earlier visits, two of them of bots.
    fn imported(app: &str, total: u64) -> Link {
        let mut link = link("abc", Origin::Custom);
        (link.created_ms, link.target) = (1, BEFORE.to_owned());
        link.labels.app = AppName::parse(app).ok();
        link.labels.earlier_visits = EarlierVisits::new(total, 2);
        link
    }

    fn arrives(link: &Link, may_be_stored: bool) -> EarlierChange {
        let visits = link.labels.earlier_visits.unwrap();
        EarlierChange::Arrives { link: Arc::new(link.clone()), visits, before: None, displaced: None, may_be_stored }
    }

    fn ended_visits(link: &Link) -> EndedVisits {
        let app = link.labels.app.as_ref().map(AppName::as_str);
        EndedVisits::new(link.created_ms, &link.target, link.labels.earlier_visits.unwrap(), app)
    }

    fn leaves(link: &Link) -> EarlierChange {
        EarlierChange::Leaves { code: link.code, left: Some(ended_visits(link)) }
    }

    fn apply(links: &Links, sums: &mut EarlierSums, changes: &[EarlierChange]) {
        let mut batch = links.batch();
        sums.put(links, &mut batch, changes).unwrap();
        links.commit(batch).unwrap();
    }

    /// Returns the earlier visits of the link, of all links, and of two apps.
    fn totals(links: &Links) -> [Option<u64>; 4] {
        let code = carom_shards::Code::parse(b"abc").unwrap();
        let [shop, blog] = ["shop", "blog"].map(|app| VisitGroup::App(app.into()).name());
        [Subject::Link(code).name(), Subject::All.name(), shop, blog]
            .map(|name| links.earlier_visits(&name).unwrap().map(|counts| counts.total))
    }

    #[test]
    fn visits_are_added_once_and_sums_outlive_links() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), KEY).unwrap();
        let of_shop = imported("shop", 5);
        let mut sums = EarlierSums::default();
        apply(&links, &mut sums, &[arrives(&of_shop, false)]);
        // The record was unreadable meanwhile, and is read again by another process.
        for sums in [&mut sums, &mut EarlierSums::default()] {
            apply(&links, sums, &[arrives(&of_shop, true)]);
            assert_eq!(totals(&links), [Some(5), Some(5), Some(5), None]);
        }
        apply(&links, &mut sums, &[leaves(&of_shop)]);
        assert_eq!(totals(&links), [None, Some(5), Some(5), None]);
        assert_eq!(links.earlier_visits(&Subject::All.name()).unwrap(), Some(VisitCounts { total: 5, bots: 2 }));
    }

    #[test]
    fn link_that_is_imported_again_replaces_its_visits() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), KEY).unwrap();
        let mut sums = EarlierSums::default();
        apply(&links, &mut sums, &[arrives(&imported("shop", 5), false)]);
        apply(&links, &mut sums, &[leaves(&imported("shop", 5))]);
        // By another process, with more visits.
        apply(&links, &mut EarlierSums::default(), &[arrives(&imported("shop", 8), false)]);
        assert_eq!(totals(&links), [Some(8), Some(8), Some(8), None]);
        assert_eq!(links.ended_earlier(b"abc").unwrap(), None);
        // For another app.
        let mut sums = EarlierSums::default();
        apply(&links, &mut sums, &[leaves(&imported("shop", 8))]);
        apply(&links, &mut sums, &[arrives(&imported("blog", 9), false)]);
        assert_eq!(totals(&links), [Some(9), Some(9), Some(0), Some(9)]);
        // While the link is there.
        let (link, before) = (Arc::new(imported("blog", 4)), Some(ended_visits(&imported("blog", 9))));
        let visits = EarlierVisits::new(4, 2).unwrap();
        let change = EarlierChange::Arrives { link, visits, before, displaced: None, may_be_stored: false };
        apply(&links, &mut sums, &[change]);
        assert_eq!(totals(&links), [Some(4), Some(4), Some(0), Some(4)]);
    }

    #[test]
    fn visits_of_another_link_are_added() {
        let dir = tempfile::tempdir().unwrap();
        let (links, _) = Links::open(dir.path(), KEY).unwrap();
        let (first, mut second) = (imported("shop", 5), imported("shop", 7));
        (second.created_ms, second.target) = (2, "https://b.example/".to_owned());
        let mut sums = EarlierSums::default();
        apply(&links, &mut sums, &[arrives(&first, false)]);
        let (link, displaced) = (Arc::new(second.clone()), Some(ended_visits(&first)));
        let visits = EarlierVisits::new(7, 2).unwrap();
        let change = EarlierChange::Arrives { link, visits, before: None, displaced, may_be_stored: false };
        apply(&links, &mut sums, &[change]);
        assert_eq!(totals(&links), [Some(7), Some(12), Some(12), None]);
        assert_eq!(links.ended_earlier(b"abc").unwrap(), Some(ended_visits(&first)), "it may come back");
        // The first one comes back.
        let (link, displaced) = (Arc::new(first), Some(ended_visits(&second)));
        let visits = EarlierVisits::new(5, 2).unwrap();
        let change = EarlierChange::Arrives { link, visits, before: None, displaced, may_be_stored: false };
        apply(&links, &mut sums, &[change]);
        assert_eq!(totals(&links), [Some(5), Some(12), Some(12), None]);
        assert_eq!(links.ended_earlier(b"abc").unwrap(), Some(ended_visits(&second)));
    }
}
