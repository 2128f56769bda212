//! Links that were deleted before a search. Redis has only tombstones of them, which no property selects. But the streams of
//! changes still have earlier states, and the event log of this node has the links of its own requests. Such a link was
//! deleted if Redis has the tombstone of its code, or another link.
//!
//! Each search reads the streams and the log once. It leaves out the links of purges that are not complete: their traces are
//! still there. A link matches by any state that is left of it, also by an earlier one.

use std::collections::HashSet;
use std::time::Instant;

use carom_shards::Code;

use super::{NotSelected, PIECE, READ_PER_SECOND, REDIS_TIMEOUT, Search, Searcher};
use crate::services::purges::registry::{PurgeStage, locked};
use carom_limits::{PURGE_LINKS_MAX, SELECTED_OPEN_MAX};
use carom_model::purge::PurgedLink;
use carom_model::purge::selection::PurgeSelection;
use carom_model::replication::follow::StreamEntry;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Partition, State};

/// Links after which a search that only counts looks for no more of them: as many as a search purges before it waits.
const COUNTED_MAX: usize = SELECTED_OPEN_MAX * PURGE_LINKS_MAX;

/// The code, the time of creation and the claim of a link.
type LinkKey = (Code, u64, Option<u64>);

/// The deleted links that a search has found.
#[derive(Debug)]
struct DeletedLinks {
    /// The links of purges that are not complete, and those that were found.
    known: HashSet<LinkKey>,
    /// The links that were found, and that are in no purge yet.
    found: Vec<PurgedLink>,
}

fn key_of(link: &PurgedLink) -> LinkKey {
    (link.code, link.created_ms, link.claim)
}

impl DeletedLinks {
    fn new<'l>(purged: impl Iterator<Item = &'l PurgedLink>) -> DeletedLinks {
        DeletedLinks { known: purged.map(key_of).collect(), found: Vec::new() }
    }

    /// Takes a deleted link, unless it is known.
    fn add(&mut self, link: PurgedLink) {
        if self.known.insert(key_of(&link)) {
            self.found.push(link);
        }
    }
}

impl Searcher {
    /// Counts or purges the selected links that were deleted before, as far as the streams of changes and the event log of this
    /// node still have them.
    pub(super) fn find_deleted(&mut self, search: &mut Search<'_>) -> Result<(), NotSelected> {
        let mut deleted = DeletedLinks::new(locked(&self.registry).open_links());
        for partition in Partition::all() {
            self.read_stream(partition, search, &mut deleted)?;
        }
        self.read_events(search, &mut deleted)?;
        self.purge_deleted(search, &mut deleted)
    }

    fn read_stream(
        &mut self,
        partition: Partition,
        search: &mut Search<'_>,
        deleted: &mut DeletedLinks,
    ) -> Result<(), NotSelected> {
        let mut behind = None;
        loop {
            let begun = Instant::now();
            let entries = self.redis.entries_behind(partition, behind, PIECE, REDIS_TIMEOUT)?;
            let Some(last) = entries.last() else { return Ok(()) };
            behind = Some(last.id);
            let links = entries.iter().filter_map(|entry| link_in(entry, search.terms)).collect();
            if !self.add_deleted(links, search, deleted)? {
                return Ok(());
            }
            // Redis may have read the state of each code as well.
            self.pause(begun, 2 * entries.len(), READ_PER_SECOND)?;
        }
    }

    fn read_events(&mut self, search: &mut Search<'_>, deleted: &mut DeletedLinks) -> Result<(), NotSelected> {
        let (terms, mut after) = (search.terms, 0);
        loop {
            let begun = Instant::now();
            let (links, last) = self.links.links_in_events(after, PIECE, |_, link| terms.has(link))?;
            if !self.add_deleted(links, search, deleted)? {
                return Ok(());
            }
            let Some(last) = last else { return Ok(()) };
            after = last;
            self.pause(begun, PIECE, READ_PER_SECOND)?;
        }
    }

    /// Adds those of some links that were deleted, and begins a purge once they are enough for one. Returns false if the search
    /// has counted as many as it counts.
    fn add_deleted(
        &mut self,
        mut links: Vec<PurgedLink>,
        search: &mut Search<'_>,
        deleted: &mut DeletedLinks,
    ) -> Result<bool, NotSelected> {
        links.retain(|link| !deleted.known.contains(&key_of(link)));
        if links.is_empty() {
            return Ok(true);
        }
        let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
        let states = self.redis.states(&codes, REDIS_TIMEOUT);
        for (link, received) in links.into_iter().zip(states) {
            // This node may have a later state than Redis.
            if let Some(link) = deleted_link(link, received?.as_ref())
                && self.links.has_ended(&link)?
            {
                deleted.add(link);
            }
        }
        if search.terms.confirmed.is_none() {
            return Ok(deleted.found.len() < COUNTED_MAX);
        }
        if deleted.found.len() >= PURGE_LINKS_MAX {
            self.purge_deleted(search, deleted)?;
        }
        Ok(true)
    }

    /// Begins purges of the links that were found. A search that only counts begins none.
    fn purge_deleted(&mut self, search: &mut Search<'_>, deleted: &mut DeletedLinks) -> Result<(), NotSelected> {
        let found = std::mem::take(&mut deleted.found);
        if search.terms.confirmed.is_none() {
            search.counts.deleted_before += found.len() as u64;
        } else {
            for links in found.chunks(PURGE_LINKS_MAX) {
                self.begin_purge_of_deleted(search, links)?;
            }
        }
        locked(&self.selections).show(search.id, search.counts);
        Ok(())
    }

    fn begin_purge_of_deleted(&mut self, search: &mut Search<'_>, links: &[PurgedLink]) -> Result<(), NotSelected> {
        let (purge, count) = (self.begin_purge(search, links, true)?, links.len() as u64);
        // It leaves out a link that exists after all, as after a failover that has lost its deletion.
        locked(&self.registry).advance(purge, PurgeStage::Due)?;
        self.eraser.unpark();
        locked(&self.selections).count(search.id, count)?;
        search.counts.deleted_before += count;
        Ok(())
    }
}

/// Returns the selected link in an entry of a stream, with the instant of the entry as its end.
fn link_in(entry: &StreamEntry, terms: &PurgeSelection) -> Option<PurgedLink> {
    let code = entry.code.filter(|code| terms.may_have(code))?;
    match ReceivedState::from_text(code, &entry.text) {
        Ok(ReceivedState::Known(State::Link(link))) if terms.has(&link) => {
            Some(PurgedLink { ended_ms: Some(entry.id.ms), ..PurgedLink::of(&link) })
        }
        _ => None,
    }
}

/// Returns a link with the time of its deletion, given the state that Redis has of its code; `None` if the link exists, or may
/// exist. If the code has another link, the time stays as it is.
fn deleted_link(link: PurgedLink, state: Option<&ReceivedState>) -> Option<PurgedLink> {
    match state? {
        ReceivedState::Known(State::Gone(gone)) => {
            let deleted_ms = (link.claim == Some(gone.version.claim)).then_some(gone.deleted_ms);
            Some(PurgedLink { ended_ms: link.ended_ms.max(deleted_ms), ..link })
        }
        ReceivedState::Known(State::Link(present)) => (!link.is(present.identity())).then_some(link),
        ReceivedState::Unread(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use carom_model::access::Scope;
    use carom_model::link::{Link, Origin, Version};
    use carom_model::purge::EndedSelector;
    use carom_model::replication::EntryId;
    use carom_model::testing::link;

    fn claimed(claim: u64) -> Link {
        Link { version: Version { rev: 1, claim, edit: 0 }, ..link("a", Origin::Custom) }
    }

    fn of_link(claim: u64) -> State {
        State::Link(Arc::new(claimed(claim)))
    }

    fn entry(state: &State) -> StreamEntry {
        let (id, code) = (EntryId { ms: 5, seq: 0 }, claimed(0).code);
        StreamEntry { id, code: Some(code), text: state.to_text(&code), displaced: None, is_newer: false }
    }

    fn found(claim: u64) -> PurgedLink {
        PurgedLink { ended_ms: Some(5), ..PurgedLink::of(&claimed(claim)) }
    }

    #[test]
    fn entries_of_streams_have_selected_links() {
        let terms = |prefix: &str| {
            let selector = EndedSelector::Destination(vec![prefix.to_owned()]);
            PurgeSelection { selector, scope: Scope::ALL, confirmed: None }
        };
        let own = terms(&claimed(7).target);
        assert_eq!(link_in(&entry(&of_link(7)), &own), Some(found(7)));
        assert_eq!(link_in(&entry(&of_link(7).deleted(9)), &own), None, "a tombstone has no destination");
        assert_eq!(link_in(&entry(&of_link(7)), &terms("https://none.example/")), None);
        let damaged = StreamEntry { text: b"damaged".to_vec(), ..entry(&of_link(7)) };
        assert_eq!(link_in(&damaged, &own), None);
        let place = StreamEntry { code: None, ..entry(&of_link(7)) };
        assert_eq!(link_in(&place, &own), None);
    }

    #[test]
    fn links_are_deleted_once_redis_says_so() {
        let known = |state: State| Some(ReceivedState::Known(state));
        let deleted = |state: Option<ReceivedState>| deleted_link(found(7), state.as_ref());
        assert_eq!(deleted(known(of_link(7).deleted(9))), Some(PurgedLink { ended_ms: Some(9), ..found(7) }));
        assert_eq!(deleted(known(of_link(8).deleted(9))), Some(found(7)), "a later link was deleted then");
        assert_eq!(deleted(known(of_link(8))), Some(found(7)), "the code has its next link");
        assert_eq!(deleted(known(of_link(7))), None, "the link exists");
        assert_eq!(deleted(None), None, "Redis may lack the link");
        assert_eq!(deleted(Some(ReceivedState::Unread(b"later".as_slice().into()))), None);
    }

    #[test]
    fn links_are_found_once() {
        let mut deleted = DeletedLinks::new([found(7)].iter());
        [7, 8, 8].into_iter().for_each(|claim| deleted.add(found(claim)));
        assert_eq!(deleted.found, [found(8)], "the first one is in a purge");
    }
}
