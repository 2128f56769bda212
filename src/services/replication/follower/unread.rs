//! Reads the states of marked codes again: those that this version could not decode when they came.
//!
//! At the start, which may follow an upgrade, the kept texts are decoded once more, without Redis. Redis may have lost
//! such a state, so it is delivered. From then on Redis is asked from time to time: it may have a later state by now, or a
//! good one for a damaged stream entry.

use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{ANSWER_TIME, Follower, Stopped};
use crate::bridge::WriterOrder;
use crate::bridge::fleet_view::since_boot;
use carom_model::replication::State;
use carom_model::replication::state::ReceivedState;
use carom_store::links::UnreadState;
use carom_telemetry::alarms::Alarm;

/// Interval between two passes over the marked codes.
const AGAIN_EVERY: Duration = Duration::from_secs(5);

/// Number of marked codes in one piece.
const PIECE: usize = 256;

impl Follower {
    /// Decodes the kept texts of all marked codes, as far as this version can.
    pub(super) fn decode_kept(&self) -> Result<(), Stopped> {
        let mut behind = None;
        loop {
            let page = match self.fleet.links.unread_page(behind.as_ref(), PIECE) {
                Ok(page) => page,
                Err(error) => {
                    tracing::error!(%error, "the marked codes cannot be read");
                    self.note_marks();
                    return Ok(());
                }
            };
            let Some((last, _)) = page.last() else { return Ok(()) };
            self.note_marks();
            behind = Some(*last);
            let states: Vec<(Code, State)> = page.into_iter().filter_map(decoded).collect();
            if !states.is_empty() {
                // Perhaps no other node has such a state, and a comparison since the loss has passed over the mark.
                self.send_to_writer(WriterOrder::LookedUpStates(states))?;
            }
        }
    }

    /// Reads some marked codes again. Returns true if more are left.
    pub(super) fn read_again(&mut self) -> Result<bool, Stopped> {
        if self.fleet.stats.fleet.unread.get() == 0 {
            // In a shared home, nothing is marked, and look-ups raise this alarm until the node is upgraded.
            if self.fleet.home.stores_all_links() {
                self.fleet.stats.alarms.clear(Alarm::NewerFormat);
            }
            self.forget_marks();
            return Ok(false);
        }
        self.unmarked.set(None);
        if self.rereading.rested.is_some_and(|rested| rested.elapsed() < AGAIN_EVERY) {
            return Ok(false);
        }
        let page = match self.fleet.links.unread_page(self.rereading.behind.as_ref(), PIECE) {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "the marked codes cannot be read");
                self.rereading.rested = Some(Instant::now());
                return Ok(false);
            }
        };
        self.rereading.behind = page.last().map(|(code, _)| *code);
        let more = page.len() == PIECE;
        let codes: Vec<Code> = page.iter().map(|(code, _)| *code).collect();
        let mut found = Vec::new();
        for ((code, text), answer) in page.into_iter().zip(self.redis.states(&codes, ANSWER_TIME)) {
            let Some(theirs) = self.leave_out(answer)? else { continue };
            let is_unread = matches!(theirs, Some(ReceivedState::Unread(_)));
            // If Redis has lost it, nodes that can decode it bring it back, and this one does after its upgrade.
            self.rereading.newer += u64::from(is_unread || self.fleet.has_lost_marked(&code, theirs.as_ref()));
            let is_same = matches!(&theirs, Some(ReceivedState::Unread(theirs)) if **theirs == *text);
            found.extend(theirs.filter(|_| !is_same).map(|state| (code, state)));
        }
        self.send_found(found)?;
        if !more {
            let newer = std::mem::take(&mut self.rereading.newer);
            self.rereading.behind = None;
            self.rereading.rested = Some(Instant::now());
            self.report(newer);
        }
        Ok(more)
    }

    /// Notes that a code is to be marked, before the writer hears of it.
    pub(super) fn note_marks(&self) {
        self.unmarked.set(None);
        self.fleet.view.note_marks();
    }

    /// Lets the node prove again that codes are missing, once no code is marked. Orders on their way may mark one, and
    /// cores may lack the state that replaced a mark, so it first follows the streams from now on.
    fn forget_marks(&mut self) {
        if !self.fleet.view.has_marks() {
            return;
        }
        let Some(since) = self.unmarked.get() else {
            if self.rereading.counted.is_some_and(|counted| counted.elapsed() < AGAIN_EVERY) {
                return;
            }
            self.rereading.counted = Some(Instant::now());
            // The published number is zero also if the store could not be read at the start.
            if self.fleet.links.count_unread().is_ok_and(|marks| marks == 0) {
                self.unmarked.set(Some(since_boot()));
            }
            return;
        };
        // The number is read last: it covers all orders before what the cores have followed.
        if self.fleet.view.has_followed(since) && self.fleet.stats.fleet.unread.get() == 0 {
            self.fleet.view.forget_marks(since);
        }
    }

    /// Raises the alarm if so many codes have a state of a later version.
    fn report(&self, newer: u64) {
        let alarms = &self.fleet.stats.alarms;
        if newer == 0 {
            return alarms.clear(Alarm::NewerFormat);
        }
        let text = format!(
            "{newer} codes have a state that only a newer version of carom can decode; they get 503 until this node is upgraded"
        );
        alarms.raise(Alarm::NewerFormat, text);
    }
}

/// Returns the state of a marked code, if this version can decode the kept text.
fn decoded((code, text): UnreadState) -> Option<(Code, State)> {
    State::from_text(code, &text).ok().map(|state| (code, state))
}
