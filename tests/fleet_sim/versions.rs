//! Nodes of two versions: the next one knows a kind of links that this one cannot decode.
//!
//! `replication::formats` decides who writes it, `replication::state` what a node can decode, and the planner and
//! `replication::rules` what happens to a code that a node cannot. The kind is a letter of the state's text, as in
//! `formats::next`. A node changes its version when its process ends.
//!
//! The model leaves out fields of stream entries that a reader must understand, and records in the store that an older
//! version cannot decode: after a step back, a node still has the links that it had decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use carom::bridge::{OutboxReply, StreamBatch, WriterOrder};
use carom_model::link::Version;
use carom_model::replication::State;
use carom_model::replication::formats;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::{ReceivedState, StateHead};
use carom_shards::Code;

use crate::adapter;
use crate::codes::{Index, code_at, index_of, part_of};
use crate::guards::Guard;
use crate::node::Node;
use crate::redis::Command;
use crate::rng::Rng;
use crate::trace::{brief, note};
use crate::world::World;

/// The formats that a node reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// True if it reads the kind of the next version.
    pub(crate) reads: bool,
    /// True if it writes that kind.
    writes: bool,
}

/// The versions of the nodes.
#[derive(Debug)]
pub(crate) struct Versions {
    /// For each node, true if it is of the next version.
    next: Vec<bool>,
    /// True if nodes change their versions in this schedule.
    change: bool,
    /// True if some go back to the older version.
    back: bool,
    /// True if the format of a silent node does not count.
    forgets: bool,
}

impl Versions {
    /// Draws the versions of a schedule: in most of them, all nodes are of this one.
    pub(crate) fn draw(count: usize, rng: &mut Rng) -> Versions {
        if !rng.permille(350) {
            return Versions { next: vec![false; count], change: false, back: false, forgets: false };
        }
        let next = (0..count).map(|_| rng.permille(600)).collect();
        Versions { next, change: true, back: rng.permille(500), forgets: rng.permille(300) }
    }

    /// The versions of nodes that change them, and may go back: for each node, true if it begins with the next version.
    pub(crate) fn of(next: &[bool]) -> Versions {
        Versions { next: next.to_vec(), change: true, back: true, forgets: false }
    }

    /// True if a node reads the kind of the next version.
    pub(crate) fn reads(&self, node: usize) -> bool {
        self.next[node]
    }
}

/// The newest states that a node has read and could not decode, as long as nothing was lost.
#[derive(Clone, Default, Debug)]
pub(crate) struct Places {
    newest: BTreeMap<Index, Version>,
    /// True if the process may have marked a code.
    pub(crate) has_marks: bool,
}

impl Places {
    /// Notes the states of an order that cannot be decoded.
    pub(crate) fn note(&mut self, order: &WriterOrder, guard: Option<Guard>) {
        let WriterOrder::Followed(StreamBatch { entries, .. }) = order else {
            let is_unread = |reply: &OutboxReply| matches!(reply.verdict, Verdict::HeldUnread(_));
            self.has_marks |= match order {
                WriterOrder::Unread(_) => true,
                WriterOrder::Delivered(delivered) => delivered.iter().any(is_unread),
                _ => false,
            };
            return;
        };
        for (_, change) in entries {
            let Some(change) = change else { continue };
            let ReceivedState::Unread(text) = &change.state else { continue };
            self.has_marks |= guard != Some(Guard::Unread);
            let version = StateHead::of(text).unwrap().version;
            let newest = self.newest.entry(index_of(&change.code)).or_insert(version);
            if !rules::is_earlier(version, *newest) {
                *newest = version;
            }
        }
    }
}

/// The order, without what cannot be decoded.
pub(crate) fn without_unread(order: WriterOrder) -> WriterOrder {
    let WriterOrder::Followed(mut batch) = order else { return order };
    for (_, change) in &mut batch.entries {
        *change = change.take().filter(|change| matches!(change.state, ReceivedState::Known(_)));
    }
    WriterOrder::Followed(batch)
}

/// True if the link is one for which the next version has a kind.
fn is_of_kind(state: &State) -> bool {
    state.is_link() && state.version().claim.is_multiple_of(2)
}

/// The text of a state in the form of a node, and true if that is of the next version.
pub(crate) fn to_text(index: Index, state: &State, form: Form) -> (Vec<u8>, bool) {
    let is_later = form.writes && is_of_kind(state);
    (if is_later { later_text(index, state) } else { state.to_text(&code_at(index)) }, is_later)
}

/// The text of a state in the kind of the next version.
pub(crate) fn later_text(index: Index, state: &State) -> Vec<u8> {
    let mut text = state.to_text(&code_at(index));
    text[0] = if text[0] == b'I' { b'Y' } else { b'X' };
    text
}

/// Decodes a text as a node does; `None` for an entry that only marks a place.
pub(crate) fn from_text(code: Code, text: &[u8], reads: bool) -> Option<ReceivedState> {
    let mut text = text.to_vec();
    if reads {
        text[0] = match text[0] {
            b'X' => b'C',
            b'Y' => b'I',
            letter => letter,
        };
    }
    ReceivedState::from_text(code, &text).ok()
}

/// The order for a state that Redis has.
pub(crate) fn found(index: Index, state: ReceivedState) -> WriterOrder {
    match state {
        ReceivedState::Known(state) => WriterOrder::ComparedStates(vec![(code_at(index), state)]),
        ReceivedState::Unread(text) => WriterOrder::Unread(vec![(code_at(index), text)]),
    }
}

/// The verdict of the older script over a state of the next version.
pub(crate) fn over_unread(stored: &State, command: &Command) -> Verdict {
    let text = later_text(command.index(), stored);
    let head = StateHead::of(&text).unwrap();
    match command {
        Command::Offer(_, state) if rules::replaces_unread(&head, state) => Verdict::Accepted(state.clone()),
        Command::Offer(..) | Command::Claim(..) | Command::Remove(..) | Command::Expire(..) | Command::Restore(..) => {
            Verdict::HeldUnread(text.into())
        }
    }
}

/// The verdict of the script on a text of the next version that replaces `over`, or restores a state of which Redis has none.
pub(crate) fn over_text(index: Index, text: &[u8], (stored, over): (Option<&[u8]>, Option<&[u8]>)) -> Verdict {
    match (stored, from_text(code_at(index), text, true)) {
        (None, Some(ReceivedState::Known(state))) => Verdict::Accepted(state),
        (Some(stored), Some(ReceivedState::Known(state))) if Some(stored) == over => Verdict::Accepted(state),
        (stored, _) => Verdict::HeldUnread(stored.unwrap_or_default().into()),
    }
}

impl World {
    /// Returns the formats that a node reads and writes now.
    pub(crate) fn form_of(&self, node: usize) -> Form {
        let reads = self.versions.reads(node);
        let format = |next: bool| Some(if next { formats::NEWEST } else { formats::FIRST });
        let is_live = |other: &usize| !self.versions.forgets || *other == node || !self.nodes[*other].cut;
        let live = (0..self.nodes.len()).filter(is_live).map(|other| format(self.versions.reads(other)));
        let agreed = formats::agreed(live) == formats::NEWEST;
        Form { reads, writes: reads && (agreed || self.guard == Some(Guard::Agreed)) }
    }

    /// A node is restarted with another version.
    pub(crate) fn change_version(&mut self, node: usize) -> Result<bool, String> {
        if !self.versions.change || (self.versions.reads(node) && !self.versions.back) {
            return Ok(false);
        }
        self.versions.next[node] = !self.versions.next[node];
        note!(self, "node {node} is of the next version: {}", self.versions.next[node]);
        self.crash(node, false)?;
        Ok(true)
    }

    /// The process of a node has ended, and another one begins.
    pub(crate) fn begin_process(&mut self, node: usize, power: bool) -> Result<(), String> {
        let reads = self.versions.reads(node);
        let at = &mut self.nodes[node];
        if self.guard == Some(Guard::Marked) {
            at.store.forget_marks();
        }
        if power {
            at.places = Places::default();
        }
        if reads {
            at.store.upgrade();
        }
        at.start(&mut self.ledger)?;
        at.places.has_marks = !at.store.now.unread.is_empty();
        if self.guard == Some(Guard::Again) {
            return Ok(());
        }
        // The kept texts may be readable by now.
        for (index, text) in at.store.now.unread.clone() {
            if let Some(ReceivedState::Known(state)) = from_text(code_at(index), &text, reads) {
                // Redis may have lost it, and no other node have it.
                let order = if self.guard == Some(Guard::Kept) {
                    found(index, ReceivedState::Known(state))
                } else {
                    adapter::looked_up(vec![(code_at(index), state)])
                };
                at.followed.push_back(order);
            }
        }
        Ok(())
    }

    /// A node asks Redis for the states of its marked codes.
    pub(crate) fn read_again(&mut self, node: usize) -> bool {
        if !self.reaches(node) || self.guard == Some(Guard::Again) {
            return false;
        }
        let (reads, before) = (self.versions.reads(node), self.nodes[node].followed.len());
        let mut is_any_lost = false;
        for (index, text) in self.nodes[node].store.now.unread.clone() {
            let theirs = self.redis.received(index, reads);
            if theirs != Some(ReceivedState::Unread(Arc::clone(&text))) {
                self.nodes[node].followed.extend(theirs.map(|state| found(index, state)));
                is_any_lost |= self.restore(node, index, text);
            }
        }
        is_any_lost || self.nodes[node].followed.len() > before
    }

    /// A node restores the text of a marked code, if Redis has lost the state. Says whether it has asked for that.
    fn restore(&mut self, node: usize, index: Index, text: Arc<[u8]>) -> bool {
        // Without the delivery after an upgrade, little breaks as long as the texts are restored before.
        if matches!(self.guard, Some(Guard::Restored | Guard::Kept)) {
            return false;
        }
        let over = self.redis.text(index);
        let stored = over.as_deref().and_then(StateHead::of);
        if !rules::restores(&StateHead::of(&text).unwrap(), stored.as_ref()) {
            return false;
        }
        let heard = self.call(node, &Command::Restore(index, text, over));
        note!(self, "node {node} restores the text of code {index}: {}", brief(&heard));
        true
    }

    /// The text of a marked code whose state Redis has lost: the node neither shows nor changes nor gives away what Redis
    /// has instead.
    pub(crate) fn lost_mark(&self, node: usize, index: Index) -> Option<Arc<[u8]>> {
        let text = self.nodes[node].store.now.unread.get(&index)?;
        let is_lost = match self.redis.received(index, self.versions.reads(node)) {
            None => true,
            Some(ReceivedState::Known(theirs)) => !rules::follows(StateHead::of(text).as_ref(), &theirs),
            Some(ReceivedState::Unread(_)) => false,
        };
        is_lost.then(|| Arc::clone(text))
    }

    /// A node must not serve a state that it knows to be replaced.
    pub(crate) fn check_places(&mut self, node: usize) -> Result<(), String> {
        let marks = !self.nodes[node].store.now.unread.is_empty();
        if marks && !self.versions.back && !self.versions.forgets {
            return Err(format!("node {node} cannot decode what the others write"));
        }
        let at = &self.nodes[node];
        for (index, version) in &at.places.newest {
            let is_own = at.outbox.is_undelivered(&code_at(*index)) || self.ledger.losses[part_of(*index)] > 0;
            let Some(served) = at.served.get(*index).filter(|_| !is_own) else { continue };
            if rules::is_earlier(served.version(), *version) {
                return Err(format!("node {node} serves {served:?}, and has read {version:?} after it"));
            }
        }
        Ok(())
    }

    /// All nodes are of the next version from now on. Says whether that changed anything.
    pub(crate) fn upgrade_all(&mut self) -> Result<bool, String> {
        if !self.versions.change {
            return Ok(false);
        }
        for node in 0..self.nodes.len() {
            if !self.versions.reads(node) {
                self.versions.next[node] = true;
                note!(self, "node {node} is upgraded");
                self.crash(node, false)?;
            }
        }
        Ok(true)
    }

    /// True if a node has a newer state than Redis, which has lost that one and refuses it until the node is upgraded. Another
    /// node may have read the state before it was lost; the node that noted the loss brings it for both.
    pub(crate) fn brings_later(&self, node: &Node, index: Index, state: &State) -> bool {
        let part = part_of(index);
        let is_earlier = |theirs: &State| rules::is_earlier(theirs.version(), state.version());
        let is_lost = self.ledger.losses[part] > 0 && self.redis.is_later(index);
        let has_it = |other: &Node| other.id == node.id || other.store.now.states.get(index) == Some(state);
        let is_noted =
            |other: &Node| other.store.now.compare_later[part] && !self.versions.reads(other.id) && has_it(other);
        is_lost && self.redis.state(index).is_some_and(is_earlier) && self.nodes.iter().any(is_noted)
    }

    /// A node has marked the codes that it cannot decode, and no others. If Redis has lost such a state, the node has
    /// restored its text. Only a tombstone of the same link stays in Redis, and the mark until the node is upgraded.
    pub(crate) fn check_marks(&self, node: &Node) -> Result<(), String> {
        let reads = self.versions.reads(node.id);
        for (index, text) in &node.store.now.unread {
            let theirs = self.redis.received(*index, reads);
            let marked = StateHead::of(text).unwrap();
            let is_lost = match &theirs {
                None => true,
                Some(ReceivedState::Known(theirs)) => !rules::follows(Some(&marked), theirs),
                Some(ReceivedState::Unread(theirs)) => {
                    rules::is_earlier(StateHead::of(theirs).unwrap().version, marked.version)
                }
            };
            let stored = self.redis.text(*index);
            let stored = stored.as_deref().and_then(StateHead::of);
            let is_left = self.guard == Some(Guard::Kept) || !rules::restores(&marked, stored.as_ref());
            let may_stay = is_lost && is_left && !reads && self.ledger.losses[part_of(*index)] > 0;
            if !may_stay && theirs != Some(ReceivedState::Unread(Arc::clone(text))) {
                return Err(format!("node {} has marked code {index}, and Redis has {theirs:?}", node.id));
            }
        }
        Ok(())
    }
}
