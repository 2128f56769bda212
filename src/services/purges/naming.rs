//! The purges of a search, each of which the search names before it begins. So a crash or an error in between leaves a name
//! without a purge, which has no links. The other way round, the links of an unnamed purge would not be counted, and the
//! search would be complete before its purges.

use std::io;
use std::sync::Mutex;

use super::registry::{PurgeRegistry, locked};
use super::selections::{SelectionRegistry, UncountedPurge};
use carom_model::purge::{PurgeId, PurgeList};

/// Begins a purge of links of a search, durably. `of` is the search, and the number of links that it has deleted before.
///
/// # Errors
/// The reason why it cannot begin, in words for the client.
pub(super) fn begin_named(
    selections: &Mutex<SelectionRegistry>,
    registry: &Mutex<PurgeRegistry>,
    of: (PurgeId, u64),
    added: UncountedPurge,
    list: PurgeList,
) -> Result<(), String> {
    let (id, matched) = of;
    let open = locked(registry).ids(|_, entry| entry.is_open());
    let named = locked(selections).add_purge(id, added, matched, |purge| open.contains(&purge));
    named.map_err(|error| format!("the progress cannot be stored: {error}"))?;
    locked(registry).begin(added.purge, list)
}

/// Counts the links of a purge that an interrupted attempt has begun, once the purge has settled on those that are deleted.
/// Until then, returns the purge.
///
/// # Errors
/// If the number cannot be stored.
pub(super) fn count_interrupted(
    selections: &Mutex<SelectionRegistry>,
    registry: &Mutex<PurgeRegistry>,
    id: PurgeId,
) -> io::Result<Option<PurgeId>> {
    let Some(purge) = locked(selections).uncounted(id) else { return Ok(None) };
    let settled = locked(registry).settled_len(purge);
    let Some(settled) = settled else { return Ok(Some(purge)) };
    locked(selections).count(id, settled as u64)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::access::Scope;
    use carom_model::purge::selection::PurgeSelection;
    use carom_model::purge::{EndedSelector, PurgedLink};
    use carom_shards::Code;

    #[test]
    fn interrupted_purge_of_a_search_is_named_and_counted_once() {
        let (dir, id) = (tempfile::tempdir().unwrap(), PurgeId(1));
        let open = || {
            let selections = SelectionRegistry::open(dir.path()).unwrap();
            (Mutex::new(selections), Mutex::new(PurgeRegistry::open(dir.path()).unwrap()))
        };
        let (selections, registry) = open();
        let terms = PurgeSelection { selector: EndedSelector::Domain(None), scope: Scope::ALL, confirmed: Some(9) };
        locked(&selections).begin(id, 5, terms).unwrap();
        let links = ["a", "b"].map(|slug| {
            let code = Code::parse(slug.as_bytes()).unwrap();
            PurgedLink { code, created_ms: 5, claim: Some(7), ended_ms: Some(6) }
        });
        let begin = |registry: &Mutex<PurgeRegistry>, number| {
            let added = UncountedPurge { purge: PurgeId(number), deleted_before: true };
            begin_named(&selections, registry, (id, 0), added, PurgeList { at_ms: 5, links: links.to_vec() })
        };
        // The second file cannot be written.
        std::fs::remove_dir_all(dir.path().join("purges")).unwrap();
        assert!(begin(&registry, 2).is_err());
        let (reopened, registry) = open();
        assert_eq!(locked(&reopened).progress(id).unwrap().1, [PurgeId(2)], "a purge would have no name");
        assert_eq!(count_interrupted(&selections, &registry, id).unwrap(), None);
        assert_eq!(locked(&selections).resume(id).0.deleted_before, 0, "no such purge has begun");
        // The process ends behind the second file.
        begin(&registry, 3).unwrap();
        let (selections, registry) = open();
        assert_eq!(locked(&selections).progress(id).unwrap().1, [PurgeId(3)]);
        assert_eq!(count_interrupted(&selections, &registry, id).unwrap(), Some(PurgeId(3)));
        locked(&registry).settle(PurgeId(3), links.to_vec()).unwrap();
        for _ in 0..2 {
            assert_eq!(count_interrupted(&selections, &registry, id).unwrap(), None);
        }
        assert_eq!(locked(&selections).resume(id).0.deleted_before, 2);
    }
}
