//! The end of a link: removes expired links, and frees those of their codes that may be reused.
//!
//! The order comes from a thread that read the index of ends some time ago, so the link as the commit finds it decides.
//! Nothing is removed if the end was moved, if the link was deleted, or if its slug belongs to another link by now. The
//! end then differs from the entry. An entry stays if only a later version can decode the link.

use std::collections::HashSet;
use std::sync::Arc;

use carom_shards::{Code, GeneratedCode};

use super::writes::Removals;
use super::{CodeState, CommitEffect, CommitPlanner, LookedUpCode};
use crate::bridge::{LinkChange, RemovalResult};
use carom_model::events::EventCause;
use carom_model::link::history::Author;
use carom_model::link::{DueEvent, Link, Origin};
use carom_model::replication::State;
use carom_store::links::EndKind;

impl CommitPlanner<'_> {
    /// Removes those of these links that end as their entries say and have expired by `until_ms`. With `recycles`,
    /// their generated codes get a quarantine entry in the index.
    pub(super) fn expire(
        &mut self,
        ends: Vec<DueEvent>,
        until_ms: u64,
        recycles: bool,
        look_up: impl Fn(&Code) -> CodeState,
    ) {
        let mut expired = 0;
        for due in ends {
            match self.current_state(&due.code, &look_up) {
                CodeState::Held(State::Link(link)) if link.expiry() == Some(due) => {
                    if due.at_ms <= until_ms {
                        self.put_tombstone(&link, recycles);
                        self.note_removal(&link, EventCause::Expiry);
                        expired += 1;
                    }
                }
                CodeState::Unknown | CodeState::Newer(_) => {}
                CodeState::Absent | CodeState::Held(_) | CodeState::Damaged | CodeState::Unread(_) => {
                    self.removals.stale.push(due);
                }
            }
        }
        self.removals.removal.get_or_insert_default().expired += expired;
    }

    /// Deletes those of these links whose deletion is still scheduled as their entries say, and due by `until_ms`.
    pub(super) fn delete_scheduled(
        &mut self,
        deletions: Vec<(DueEvent, Author)>,
        until_ms: u64,
        look_up: impl Fn(&Code) -> CodeState,
    ) {
        for (due, author) in deletions {
            let before = self.current_state(&due.code, &look_up);
            match &before {
                CodeState::Held(State::Link(link)) if link.deletion() == Some(due) => {
                    if due.at_ms <= until_ms {
                        self.put_tombstone(link, false);
                        self.note_removal(link, EventCause::Schedule);
                        self.note_edit(due.code, &before, &author);
                    }
                }
                CodeState::Unknown | CodeState::Newer(_) => {}
                CodeState::Absent | CodeState::Held(_) | CodeState::Damaged | CodeState::Unread(_) => {
                    self.removals.cancelled.push(due);
                }
            }
        }
        self.removals.removal.get_or_insert_default();
    }

    fn put_tombstone(&mut self, link: &Arc<Link>, recycles: bool) {
        let code = link.code;
        let gone = State::Link(Arc::clone(link)).deleted(self.now_ms);
        assert!(
            matches!(&gone, State::Gone(tombstone) if tombstone.deleted_ms == self.now_ms),
            "the quarantine entry would not match its tombstone, so the code would stay unused forever"
        );
        if gone.is_free() {
            self.set(code, CodeState::Absent);
        } else {
            self.set(code, CodeState::Held(gone));
            // Private codes and codes from elsewhere were not generated from the code space.
            if recycles && GeneratedCode::from_code(&code.within(None)).is_some() {
                self.removals.quarantined.push(DueEvent { at_ms: self.now_ms, code });
            }
        }
        self.effects.push(CommitEffect::Apply { code, change: LinkChange::Remove(code), answer: None });
    }

    /// Updates the quarantine of a code whose state this node of a fleet adopts. The code of a link that was removed
    /// after its expiry gets an entry, because it may be recycled later. If the tombstone is from before
    /// `links.keep_expired` had passed, a person has deleted the link ([`Link::deletion_ms`]), and the code gets none.
    /// Removes the entry of a tombstone that is replaced by another state.
    pub(super) fn quarantine(&mut self, code: Code, before: &CodeState, after: &State) {
        match (before, after) {
            (CodeState::Held(old @ State::Gone(gone)), _) if old.is_tombstone() && !after.is_tombstone() => {
                self.removals.released.insert(DueEvent { at_ms: gone.deleted_ms, code });
            }
            (CodeState::Held(State::Link(link)), State::Gone(gone))
                if after.is_tombstone()
                    && link
                        .removal_ms(self.keep_expired_ms)
                        .is_some_and(|removal_ms| removal_ms <= gone.deleted_ms)
                    && GeneratedCode::from_code(&code.within(None)).is_some() =>
            {
                self.removals.quarantined.push(DueEvent { at_ms: gone.deleted_ms, code });
            }
            _ => {}
        }
    }

    /// Removes the tombstones of these codes, unless the codes have changed since the start of their quarantine.
    /// Handles only entries up to `until_ms`. The thread that gave the order may issue the codes again, so the commit
    /// must be durable before that thread gets them.
    pub(super) fn release_codes(
        &mut self,
        quarantined: Vec<DueEvent>,
        until_ms: u64,
        look_up: impl Fn(&Code) -> CodeState,
    ) {
        let mut codes = Vec::new();
        for entry in quarantined {
            match self.current_state(&entry.code, &look_up) {
                CodeState::Held(State::Gone(gone))
                    if (gone.deleted_ms, gone.origin) == (entry.at_ms, Origin::Issued) =>
                {
                    if entry.at_ms <= until_ms {
                        self.set(entry.code, CodeState::Absent);
                        self.removals.released.insert(entry);
                        codes.push(entry.code);
                    }
                }
                CodeState::Unknown | CodeState::Newer(_) => {}
                CodeState::Absent | CodeState::Held(_) | CodeState::Damaged | CodeState::Unread(_) => {
                    self.removals.released.insert(entry);
                }
            }
        }
        debug_assert_eq!(
            codes.iter().collect::<HashSet<_>>().len(),
            codes.len(),
            "a code that is freed twice would be issued twice"
        );
        self.needs_sync |= !codes.is_empty();
        self.removals.removal.get_or_insert_default().codes.extend(codes);
    }

    /// Takes the report on removed links and freed codes; `None` if this commit had no such order.
    pub fn take_removal(&mut self) -> Option<RemovalResult> {
        self.removals.removal.take().map(|removal| RemovalResult { is_done: true, ..removal })
    }

    /// Returns the changes to the index of ends: each entry once, with true to add it and false to remove it.
    pub(super) fn end_writes(&mut self) -> Vec<(EndKind, DueEvent, bool)> {
        let Removals { stale, cancelled, quarantined, released, .. } = std::mem::take(&mut self.removals);
        let mut writes = Vec::new();
        for LookedUpCode { before, after, .. } in self.codes.values().filter(|looked| looked.must_write) {
            for (of, due_of) in
                [(EndKind::Link, end_of as fn(&CodeState) -> Option<DueEvent>), (EndKind::Deletion, deletion_of)]
            {
                let (old, new) = (due_of(before), due_of(after));
                if old != new {
                    writes.extend(old.map(|due| (of, due, false)));
                    writes.extend(new.map(|due| (of, due, true)));
                }
            }
        }
        // Leaves out entries that this commit has handled above, or schedules again.
        let decided: HashSet<DueEvent> = self
            .codes
            .values()
            .flat_map(|looked| [deletion_of(&looked.before), deletion_of(&looked.after)])
            .flatten()
            .collect();
        let cancelled: HashSet<DueEvent> = cancelled.into_iter().filter(|due| !decided.contains(due)).collect();
        writes.extend(cancelled.into_iter().map(|due| (EndKind::Deletion, due, false)));
        if !stale.is_empty() {
            // A link that this commit changed may have the end of a stale entry again.
            let decided: HashSet<DueEvent> = self.codes.values().filter_map(|looked| end_of(&looked.after)).collect();
            let decided: HashSet<DueEvent> = writes.iter().map(|(_, due, _)| *due).chain(decided).collect();
            let stale: HashSet<DueEvent> = stale.into_iter().filter(|due| !decided.contains(due)).collect();
            writes.extend(stale.into_iter().map(|due| (EndKind::Link, due, false)));
        }
        // A commit of stream entries may contain both a removal and the release of its code.
        let kept = quarantined.into_iter().filter(|entry| !released.contains(entry));
        writes.extend(kept.map(|entry| (EndKind::Quarantine, entry, true)));
        writes.extend(released.into_iter().map(|entry| (EndKind::Quarantine, entry, false)));
        debug_assert_eq!(
            writes.iter().map(|(of, due, _)| (*of as u8, *due)).collect::<HashSet<_>>().len(),
            writes.len(),
            "an entry of the index of ends is both added and removed"
        );
        writes
    }
}

/// Returns the entry of a link in the index of ends, if it has an end.
fn end_of(stored: &CodeState) -> Option<DueEvent> {
    match stored {
        CodeState::Held(State::Link(link)) => link.expiry(),
        _ => None,
    }
}

/// Returns the entry of a link's scheduled deletion in the index of ends, if it has one.
fn deletion_of(stored: &CodeState) -> Option<DueEvent> {
    match stored {
        CodeState::Held(State::Link(link)) => link.deletion(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
