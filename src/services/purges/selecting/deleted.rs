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
use carom_model::replication::state::{ReceivedState, StateHead};
use carom_model::replication::{Partition, State};
use carom_store::links::LinksInEvents;

/// Links after which a search that only counts looks for no more of them: as many as a search purges before it waits.
const COUNTED_MAX: usize = SELECTED_OPEN_MAX * PURGE_LINKS_MAX;

/// The code, the time of creation and the claim of a link.
type LinkKey = (Code, u64, Option<u64>);

/// The code and the claim of a link of which only a later version can decode a state. Without a claim, the state does not show
/// which link it is.
type UnreadLink = (Code, Option<u64>);

/// The link in an entry of a stream, or in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkFound {
    /// A link that is selected.
    Selected(PurgedLink),
    /// A link that may be selected.
    Unread(UnreadLink),
}

/// The deleted links that a search has found.
#[derive(Debug)]
struct DeletedLinks {
    /// The links of purges that are not complete, and those that were found.
    known: HashSet<LinkKey>,
    /// The links that were found, and that are in no purge yet.
    found: Vec<PurgedLink>,
    /// The links that may be selected, at most [`COUNTED_MAX`].
    unread: HashSet<UnreadLink>,
}

fn key_of(link: &PurgedLink) -> LinkKey {
    (link.code, link.created_ms, link.claim)
}

impl DeletedLinks {
    fn new<'l>(purged: impl Iterator<Item = &'l PurgedLink>) -> DeletedLinks {
        DeletedLinks { known: purged.map(key_of).collect(), found: Vec::new(), unread: HashSet::new() }
    }

    /// True if a link need not be looked up.
    fn has(&self, found: &LinkFound) -> bool {
        match found {
            LinkFound::Selected(link) => self.known.contains(&key_of(link)),
            LinkFound::Unread(link) => self.unread.contains(link) || self.unread.len() >= COUNTED_MAX,
        }
    }

    /// Takes a deleted link, unless it is known.
    fn add(&mut self, link: PurgedLink) {
        if self.known.insert(key_of(&link)) {
            self.found.push(link);
        }
    }

    /// Returns the number of links of which no state that was read shows whether they are selected.
    fn unread_len(&self) -> u64 {
        let read: HashSet<UnreadLink> = self.known.iter().map(|(code, _, claim)| (*code, *claim)).collect();
        self.unread.difference(&read).count() as u64
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
        search.counts.unreadable += deleted.unread_len();
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
            let LinksInEvents { links, newer, last } =
                self.links.links_in_events(after, PIECE, |_, link| terms.has(link))?;
            let newer = newer.into_iter().filter(|(code, _)| terms.may_have(code)).map(LinkFound::Unread);
            let links = links.into_iter().map(LinkFound::Selected).chain(newer).collect();
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
        mut links: Vec<LinkFound>,
        search: &mut Search<'_>,
        deleted: &mut DeletedLinks,
    ) -> Result<bool, NotSelected> {
        links.retain(|link| !deleted.has(link));
        if links.is_empty() {
            return Ok(true);
        }
        let codes: Vec<Code> = links.iter().map(LinkFound::code).collect();
        let states = self.redis.states(&codes, REDIS_TIMEOUT);
        for (link, received) in links.into_iter().zip(states) {
            match (link, received?) {
                (LinkFound::Selected(link), state) => {
                    // This node may have a later state than Redis.
                    if let Some(link) = deleted_link(link, state.as_ref())
                        && self.links.has_ended(&link)?
                    {
                        deleted.add(link);
                    }
                }
                (LinkFound::Unread(link), Some(state)) if is_deleted(link, &state) => _ = deleted.unread.insert(link),
                (LinkFound::Unread(_), _) => {}
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

impl LinkFound {
    fn code(&self) -> Code {
        match self {
            LinkFound::Selected(PurgedLink { code, .. }) | LinkFound::Unread((code, _)) => *code,
        }
    }
}

/// Returns the link in an entry of a stream if it is selected, with the instant of the entry as its end, or if it may be.
fn link_in(entry: &StreamEntry, terms: &PurgeSelection) -> Option<LinkFound> {
    let code = entry.code.filter(|code| terms.may_have(code))?;
    match ReceivedState::from_text(code, &entry.text) {
        _ if entry.is_newer => unread_in(code, &entry.text),
        Ok(ReceivedState::Known(State::Link(link))) if terms.has(&link) => {
            Some(LinkFound::Selected(PurgedLink { ended_ms: Some(entry.id.ms), ..PurgedLink::of(&link) }))
        }
        Ok(ReceivedState::Unread(text)) => unread_in(code, &text),
        _ => None,
    }
}

/// Returns the link of a state that only a later version can decode, unless it is a tombstone.
fn unread_in(code: Code, text: &[u8]) -> Option<LinkFound> {
    let head = StateHead::of(text);
    let may_be_link = head.is_none_or(|head| head.is_link != Some(false));
    may_be_link.then(|| LinkFound::Unread((code, head.map(|head| head.version.claim))))
}

/// True if a link that may be selected was deleted, given the state that Redis has of its code. If this state cannot be decoded
/// either, and may be that of the link, the search comes to it later.
fn is_deleted((_, claim): UnreadLink, state: &ReceivedState) -> bool {
    match state {
        ReceivedState::Known(State::Gone(_)) => true,
        ReceivedState::Known(State::Link(present)) => claim.is_some_and(|claim| claim != present.version.claim),
        ReceivedState::Unread(text) => StateHead::of(text).is_some_and(|head| match head.is_link {
            Some(true) => claim.is_some_and(|claim| claim != head.version.claim),
            Some(false) => true,
            None => false,
        }),
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
        // Only the head of a tombstone is needed. A link may be the same one, which the search counts when it comes to it.
        ReceivedState::Unread(text) => {
            let is_tombstone = StateHead::of(text).is_some_and(|head| head.is_link == Some(false));
            is_tombstone.then_some(link)
        }
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
    use carom_shards::DomainId;
    use carom_shards::code::DOMAIN_ID_LEN;

    fn claimed(claim: u64) -> Link {
        Link { version: Version { rev: 1, claim, edit: 0 }, ..link("a", Origin::Custom) }
    }

    fn code() -> Code {
        claimed(0).code
    }

    fn of_link(claim: u64) -> State {
        State::Link(Arc::new(claimed(claim)))
    }

    fn entry(state: &State) -> StreamEntry {
        let (id, text) = (EntryId { ms: 5, seq: 0 }, state.to_text(&code()));
        StreamEntry { id, code: Some(code()), text, displaced: None, is_newer: false }
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
        assert_eq!(link_in(&entry(&of_link(7)), &own), Some(LinkFound::Selected(found(7))));
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
        let unread = |text: &[u8]| Some(ReceivedState::Unread(text.into()));
        assert_eq!(deleted(unread(b"later")), None);
        assert_eq!(deleted(unread(&of_link(8).to_text(&code()))), None, "the search comes to it");
        assert_eq!(deleted(unread(&of_link(7).deleted(9).to_text(&code()))), Some(found(7)), "its head is known");
    }

    #[test]
    fn entries_of_a_later_version_may_have_selected_links() {
        let terms = PurgeSelection { selector: EndedSelector::Domain(None), scope: Scope::ALL, confirmed: None };
        let unread = |claim| Some(LinkFound::Unread((code(), claim)));
        let later = |kind: u8| {
            let mut entry = entry(&of_link(7));
            entry.text[0] = kind;
            entry
        };
        assert_eq!(link_in(&later(b'Z'), &terms), unread(Some(7)));
        assert_eq!(link_in(&StreamEntry { is_newer: true, ..entry(&of_link(7)) }, &terms), unread(Some(7)));
        assert_eq!(link_in(&StreamEntry { is_newer: true, ..entry(&of_link(7).deleted(9)) }, &terms), None);
        let domain = EndedSelector::Domain(DomainId::from_bytes([1; DOMAIN_ID_LEN]));
        let of_domain = PurgeSelection { selector: domain, ..terms };
        assert_eq!(link_in(&later(b'Z'), &of_domain), None, "it is of another domain");
    }

    #[test]
    fn links_of_a_later_version_count_once_they_are_deleted() {
        let known = |state: State| ReceivedState::Known(state);
        let unread = |state: State| ReceivedState::Unread(state.to_text(&code()).into());
        for as_received in [known, unread] {
            for (state, is_over) in [(of_link(7).deleted(9), true), (of_link(8), true), (of_link(7), false)] {
                assert_eq!(is_deleted((code(), Some(7)), &as_received(state.clone())), is_over, "{state:?}");
            }
            assert!(!is_deleted((code(), None), &as_received(of_link(7))), "it may be that link");
        }
        let mut deleted = DeletedLinks::new([found(5)].iter());
        deleted.add(found(6));
        deleted.unread.extend([5, 6, 7, 7].map(|claim| (code(), Some(claim))));
        deleted.unread.insert((code(), None));
        assert_eq!(deleted.unread_len(), 2, "earlier states of two links can be decoded");
        assert!(deleted.has(&LinkFound::Unread((code(), Some(7)))));
        assert!(!deleted.has(&LinkFound::Unread((code(), Some(8)))));
    }

    #[test]
    fn links_are_found_once() {
        let mut deleted = DeletedLinks::new([found(7)].iter());
        [7, 8, 8].into_iter().for_each(|claim| deleted.add(found(claim)));
        assert_eq!(deleted.found, [found(8)], "the first one is in a purge");
    }
}
