//! Reads of codes that a node does not have: 404, or 503 because another node may have the link.
//!
//! `replication::absence` decides. The model takes every loss of Redis as one of a moment ago, every reading of a stream
//! to its end as fresh until the stream goes on, and a counter that more values were leased of than are left out as one
//! that was heard of too long ago.

use carom_model::replication::absence::{self, CodeForm};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{State, rules};
use carom_shards::CodeLength;

use crate::codes::{Index, PARTS, is_slug, part_of, value_of};
use crate::guards::Guard;
use crate::requests::known;
use crate::trace::note;
use crate::world::World;

/// Counter values behind the highest one that a node has heard of that others may have leased since.
const LEFT_OUT: u64 = 4;

/// The slug that looks like a generated code; see [`crate::codes`].
const SHAPED: Index = 2;

/// The form of a code, as its characters would tell.
pub(crate) fn form_of(index: Index) -> CodeForm {
    let length = CodeLength::DEFAULT;
    match index {
        SHAPED => CodeForm::Counted(length, length.codes() - 1),
        _ if is_slug(index) => CodeForm::Chosen,
        _ => CodeForm::Counted(length, value_of(index)),
    }
}

/// True for the tombstone of a generated code.
fn is_final(state: &State) -> bool {
    !state.is_link() && !state.is_free()
}

impl World {
    /// A client asks a node for a code that was requested before. No acknowledged link may be 404.
    pub(crate) fn read(&mut self, node: usize) -> Result<bool, String> {
        if self.ledger.requests.is_empty() {
            return Ok(false);
        }
        let index = self.ledger.requests[self.rng.below(self.ledger.requests.len())].code;
        if self.nodes[node].served.get(index).is_some() {
            return Ok(false);
        }
        if !self.is_missing(node, index) {
            self.doubt(node, index);
            return Ok(true);
        }
        note!(self, "node {node} answers 404 for code {index}");
        self.ledger.check_missing(node, index, usize::MAX)?;
        Ok(true)
    }

    /// True if the node answers 404 for a code that it does not serve.
    fn is_missing(&self, node: usize, index: Index) -> bool {
        let mut form = form_of(index);
        if self.guard == Some(Guard::Alone) && !is_slug(index) {
            form = CodeForm::Chosen;
        }
        let bound = self.bound(node);
        let is_settled = self.ledger.losses[part_of(index)] == 0 || self.guard == Some(Guard::Settled);
        let has_followed = self.has_followed(node) || self.guard == Some(Guard::Followed);
        if is_settled && absence::is_absent(form, bound, has_followed) {
            return true;
        }
        let mine = self.nodes[node].store.now.states.get(index);
        if mine.is_some_and(is_final) {
            return true;
        }
        if !self.redis.up || self.nodes[node].cut {
            return false;
        }
        if self.lost_mark(node, index).is_some() && self.guard != Some(Guard::Unread) {
            return false;
        }
        let is_denied = absence::is_denied(form, bound, is_settled, false);
        let reads = self.versions.reads(node) || self.guard == Some(Guard::Unread);
        let theirs = match self.redis.received(index, reads) {
            Some(ReceivedState::Unread(_)) => return false,
            // A node that takes no notice of such a state finds none.
            Some(_) if !self.versions.reads(node) && self.redis.is_later(index) => None,
            theirs => theirs.and_then(known),
        };
        match &theirs {
            // Redis may have lost another link of the slug.
            Some(theirs) if theirs.is_link() => mine.is_some_and(|mine| rules::is_over(mine, theirs)) && is_denied,
            theirs => theirs.as_ref().is_some_and(is_final) || is_denied,
        }
    }

    /// The first value that no node can have leased, as far as this node knows.
    pub(crate) fn bound(&self, node: usize) -> Option<u64> {
        if self.guard == Some(Guard::Bound) {
            return Some(self.known[node]);
        }
        let bound = self.known[node] + LEFT_OUT;
        (self.granted <= bound).then_some(bound)
    }

    /// True if the node has everything that is in the streams now.
    fn has_followed(&self, node: usize) -> bool {
        let at = &self.nodes[node];
        let is_read = |part: usize| at.has_read(part, &self.redis);
        at.followed.is_empty()
            && !at.places.has_marks
            && !at.outbox.has_left_out()
            && !at.store.now.compare.contains(&true)
            && (0..PARTS).all(is_read)
    }
}
