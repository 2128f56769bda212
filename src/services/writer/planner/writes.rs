//! The input and the result of a commit: stored states, writes, and effects.

use std::collections::HashSet;
use std::sync::Arc;

use carom_shards::Code;

use crate::bridge::{LinkChange, RemovalResult, WriterReply};
use crate::services::search::IndexedChange;
use carom_model::access::AppName;
use carom_model::access::idempotency::IdempotencyHash;
use carom_model::events::LinkEvent;
use carom_model::link::earlier_visits::{EarlierVisits, EndedVisits};
use carom_model::link::history::Edit;
use carom_model::link::{DueEvent, Link, Origin, UrlEntry, Version};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::outbox::OutboxWrites;
use carom_model::replication::rules;
use carom_model::replication::state::StateHead;
use carom_model::replication::{Partition, State};
use carom_store::links::EndKind;

/// The stored state of a code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeState {
    /// No state, neither now nor before.
    Absent,
    /// A link or a tombstone.
    Held(State),
    /// A record that cannot be decoded or read.
    Damaged,
    /// Unknown: the read failed for a reason that may pass.
    Unknown,
    /// A state that only a later version can decode, as Redis has it. The code is marked, and the node has no record.
    Unread(Arc<[u8]>),
    /// A record that only a later version can decode. It stays as it is, unless a later state comes from Redis.
    Newer(StateHead),
}

impl CodeState {
    /// Returns the state, if there is a readable one.
    pub fn state(&self) -> Option<&State> {
        match self {
            CodeState::Held(state) => Some(state),
            CodeState::Absent
            | CodeState::Damaged
            | CodeState::Unknown
            | CodeState::Unread(_)
            | CodeState::Newer(_) => None,
        }
    }

    /// True if only a later version can decode the state.
    pub(super) fn is_newer(&self) -> bool {
        matches!(self, CodeState::Unread(_) | CodeState::Newer(_))
    }

    /// Returns the head of the state, also of one that only a later version can decode.
    pub(super) fn head(&self) -> Option<StateHead> {
        match self {
            CodeState::Held(state) => Some(StateHead { is_link: Some(state.is_link()), version: state.version() }),
            CodeState::Unread(text) => StateHead::of(text),
            CodeState::Newer(head) => Some(*head),
            CodeState::Absent | CodeState::Damaged | CodeState::Unknown => None,
        }
    }

    /// True if a node with this state adopts one that came from Redis.
    pub(super) fn adopts(&self, theirs: &State) -> bool {
        match self {
            CodeState::Unread(_) | CodeState::Newer(_) => rules::follows(self.head().as_ref(), theirs),
            state => rules::adopts(state.state(), theirs),
        }
    }

    /// True if the state is a link with `maxVisits`, or may be one.
    pub(super) fn is_limited(&self) -> bool {
        match self {
            CodeState::Held(State::Link(link)) => link.policy.max_visits.is_some(),
            CodeState::Absent | CodeState::Held(State::Gone(_)) => false,
            CodeState::Damaged | CodeState::Unknown | CodeState::Unread(_) | CodeState::Newer(_) => true,
        }
    }
}

/// A message that the writer sends once the commit is durable.
#[derive(Debug)]
pub enum CommitEffect {
    /// The owner of the code applies the change, then passes the answer on to the client, if one waits.
    Apply {
        /// The code whose owner gets the change.
        code: Code,
        /// The change to apply.
        change: LinkChange,
        /// The answer to the client that waits.
        answer: Option<WriterReply>,
    },
    /// The client gets an answer, and no owner gets a change.
    Answer(WriterReply),
}

impl CommitEffect {
    /// Returns the answer to the client that waits.
    pub fn answer(&self) -> Option<&WriterReply> {
        match self {
            CommitEffect::Apply { answer, .. } => answer.as_ref(),
            CommitEffect::Answer(reply) => Some(reply),
        }
    }
}

/// A conflict of two links for one code, or of two changes of one link. The state in Redis stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The code.
    pub code: Code,
    /// The version of the state that is lost.
    pub lost: Version,
    /// The version of the state that stays.
    pub kept: Version,
    /// True if both are states of one link, which stays.
    pub is_one_link: bool,
}

/// A change to the visits that links had before their import.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EarlierChange {
    /// The commit stores a link with earlier visits.
    Arrives {
        /// The link, as the commit stores it.
        link: Arc<Link>,
        /// The visits that its record has from before the import.
        visits: EarlierVisits,
        /// The visits of the same link before the commit: those that the sums have.
        before: Option<EndedVisits>,
        /// The visits of another link, which has ended in the commit.
        displaced: Option<EndedVisits>,
        /// True if the state before could not be read, so that the visits may be stored already.
        may_be_stored: bool,
    },
    /// The link of a code has no such visits any more.
    Leaves {
        /// The code whose link has ended, or has lost these visits.
        code: Code,
        /// The visits that it had; `None` if its record could not be read.
        left: Option<EndedVisits>,
    },
}

/// The writes of a commit.
#[derive(Debug, Default)]
pub struct Writes {
    /// The last state of each code that changes; `None` removes the record.
    pub states: Vec<(Code, Option<State>)>,
    /// Changes to the index of destinations: the time when the link of an entry was last used; `None` removes the entry.
    pub urls: Vec<(UrlEntry, Option<u64>)>,
    /// Changes to the index of ends: an entry, with true to add it and false to remove it.
    pub ends: Vec<(EndKind, DueEvent, bool)>,
    /// Changes to the lists of links: links to add, to move or to remove.
    pub relisted: Vec<IndexedChange>,
    /// Changes to the outbox.
    pub outbox: OutboxWrites,
    /// New positions in the streams.
    pub positions: Vec<(Partition, StreamPosition)>,
    /// Partitions that must be compared as a whole (true), or no longer need to be (false).
    pub compare: Vec<(Partition, bool)>,
    /// Codes that change and had a link with `maxVisits`, and true if that link has ended.
    pub limited: Vec<(Code, bool)>,
    /// Codes whose link has ended, so that its visits are dropped.
    pub ended: Vec<Code>,
    /// Changes to the visits that links had before their import.
    pub earlier: Vec<EarlierChange>,
    /// Links that were created with an idempotency key: the hash of the key, the creation time, and the code.
    pub created_with: Vec<(IdempotencyHash, u64, Code)>,
    /// Entries for the history of links.
    pub edits: Vec<(Code, Edit)>,
    /// Events of links, in their order.
    pub events: Vec<LinkEvent>,
    /// Codes to mark, with the text of the state that this version cannot decode; `None` clears a mark.
    pub unread: Vec<(Code, Option<Arc<[u8]>>)>,
    /// Change in the number of marks: negative if the commit removes more than it adds.
    pub unread_change: i64,
    /// Partitions to compare after an upgrade.
    pub compare_later: Vec<Partition>,
    /// Number of links with generated codes that the commit creates.
    pub issued: u64,
}

impl Writes {
    /// Notes that a code is to be marked, or that its mark is to be cleared.
    pub(super) fn note_unread(&mut self, code: Code, before: &CodeState, after: &CodeState) {
        let was_marked = matches!(before, CodeState::Unread(_));
        if let CodeState::Unread(text) = after {
            self.unread.push((code, Some(Arc::clone(text))));
            self.unread_change += i64::from(!was_marked);
        } else if was_marked {
            self.unread.push((code, None));
            self.unread_change -= 1;
        }
    }

    /// Counts the link of a code if it is new and its code was generated. A node with a shared home does not store most
    /// links before their first change, so a changed link is not new.
    pub(super) fn note_issued(&mut self, before: &CodeState, after: &CodeState) {
        let was_link = before.state().is_some_and(State::is_link);
        let is_new = |link: &Link| !was_link && link.origin == Origin::Issued && link.version.edit == 0;
        self.issued += u64::from(matches!(after, CodeState::Held(State::Link(link)) if is_new(link)));
    }

    /// Notes the visits from before an import that come or go with the link of a code. `ended` is true if the code was
    /// without a link at some point of the commit.
    pub(super) fn note_earlier_visits(&mut self, code: Code, before: &CodeState, after: &CodeState, ended: bool) {
        let is_unreadable =
            |state: &CodeState| state.is_newer() || matches!(state, CodeState::Damaged | CodeState::Unknown);
        // A link with a state that only a later version can decode keeps its visits.
        if is_unreadable(after) {
            return;
        }
        let left = earlier_of(before).map(|(link, visits)| {
            EndedVisits::new(link.created_ms, &link.target, visits, link.labels.app.as_ref().map(AppName::as_str))
        });
        match earlier_of(after) {
            Some((link, visits)) if ended || left.as_ref().map(EndedVisits::visits) != Some(visits) => {
                let may_be_stored = is_unreadable(before) && !ended;
                let is_same = |left: &EndedVisits| !ended || left.is_of(link.created_ms, &link.target);
                let (before, displaced) = if left.as_ref().is_some_and(is_same) { (left, None) } else { (None, left) };
                let link = Arc::clone(link);
                self.earlier.push(EarlierChange::Arrives { link, visits, before, displaced, may_be_stored });
            }
            Some(_) => {}
            None if left.is_some() || is_unreadable(before) => self.earlier.push(EarlierChange::Leaves { code, left }),
            None => {}
        }
    }

    /// True if there is nothing to write. `limited`, `ended`, `earlier`, `created_with` and `edits` are filled only for
    /// codes in `states`, `issued` counts some of them, and `unread_change` only changes with `unread`, so this need not check them.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.urls.is_empty()
            && self.ends.is_empty()
            && self.relisted.is_empty()
            && self.outbox == OutboxWrites::default()
            && self.positions.is_empty()
            && self.compare.is_empty()
            && self.unread.is_empty()
            && self.events.is_empty()
            && self.compare_later.is_empty()
    }
}

/// The changes of a commit to the index of ends, besides those that follow from its links.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Entries whose link is gone or has another end.
    pub(super) stale: Vec<DueEvent>,
    /// Entries of deletions that were cancelled, or that another node carried out.
    pub(super) cancelled: Vec<DueEvent>,
    /// Quarantine entries of codes that this commit leaves unused, and that may be reused later.
    pub(super) quarantined: Vec<DueEvent>,
    /// Quarantine entries that are removed, because their codes are free or have another state.
    pub(super) released: HashSet<DueEvent>,
    /// The report for the thread that gave the order, if one did.
    pub(super) removal: Option<RemovalResult>,
}

/// Returns a link with the visits that it had before its import.
fn earlier_of(stored: &CodeState) -> Option<(&Arc<Link>, EarlierVisits)> {
    match stored {
        CodeState::Held(State::Link(link)) => link.labels.earlier_visits.map(|visits| (link, visits)),
        _ => None,
    }
}

/// Returns the entry of a link in the index of destinations.
pub(super) fn entry_of(stored: &CodeState) -> Option<UrlEntry> {
    match stored {
        CodeState::Held(State::Link(link)) => Some(link.url_entry()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::link::Origin;
    use carom_model::testing::link;

    #[test]
    fn earlier_visits_come_and_go_with_their_link() {
        let with = |total| {
            let mut link = link("abc", Origin::Custom);
            link.labels.earlier_visits = EarlierVisits::new(total, 0);
            CodeState::Held(State::Link(Arc::new(link)))
        };
        let code = Code::parse(b"abc").unwrap();
        let noted = |before: &CodeState, after: &CodeState, ended| {
            let mut writes = Writes::default();
            writes.note_earlier_visits(code, before, after, ended);
            writes.earlier.pop().map(|change| match change {
                EarlierChange::Arrives { visits, may_be_stored, .. } => (visits.total(), may_be_stored),
                EarlierChange::Leaves { .. } => (0, false),
            })
        };
        assert_eq!(noted(&CodeState::Absent, &with(5), false), Some((5, false)));
        assert_eq!(noted(&with(5), &with(5), false), None, "a change of the link counts nothing again");
        assert_eq!(noted(&with(5), &with(5), true), Some((5, false)), "another link with as many visits");
        assert_eq!(noted(&with(5), &with(7), false), Some((7, false)));
        assert_eq!(noted(&with(5), &with(0), false), Some((0, false)));
        assert_eq!(noted(&with(5), &CodeState::Absent, true), Some((0, false)));
        assert_eq!(noted(&CodeState::Absent, &with(0), false), None);
        let unread = CodeState::Unread(b"a later state"[..].into());
        assert_eq!(noted(&with(5), &unread, false), None, "the link goes on");
        assert_eq!(noted(&unread, &with(5), false), Some((5, true)));
        assert_eq!(noted(&CodeState::Damaged, &CodeState::Absent, true), Some((0, false)));
    }

    #[test]
    fn earlier_visits_of_the_same_link_are_replaced() {
        let with = |total, created_ms, target: &str| {
            let mut link = link("abc", Origin::Custom);
            (link.created_ms, link.target) = (created_ms, target.to_owned());
            link.labels.earlier_visits = EarlierVisits::new(total, 0);
            CodeState::Held(State::Link(Arc::new(link)))
        };
        let totals = |after: &CodeState, ended| {
            let mut writes = Writes::default();
            let before = with(5, 1, "https://a.example/");
            writes.note_earlier_visits(Code::parse(b"abc").unwrap(), &before, after, ended);
            let total = |visits: Option<EndedVisits>| visits.map(|visits| visits.visits().total());
            writes.earlier.pop().map(|change| match change {
                EarlierChange::Arrives { before, displaced, .. } => [total(before), total(displaced)],
                EarlierChange::Leaves { left, .. } => [None, total(left)],
            })
        };
        let other = with(7, 2, "https://b.example/");
        assert_eq!(totals(&other, false), Some([Some(5), None]), "a change of the link");
        assert_eq!(totals(&other, true), Some([None, Some(5)]), "another link");
        assert_eq!(totals(&with(7, 1, "https://b.example/"), true), Some([Some(5), None]), "imported again");
        assert_eq!(totals(&with(7, 2, "https://a.example/"), true), Some([Some(5), None]), "imported without a date");
        assert_eq!(totals(&CodeState::Absent, true), Some([None, Some(5)]));
    }
}
