//! Reads the states of marked codes again: those that this version could not decode when they came.
//!
//! At the start, which may follow an upgrade, the kept texts are decoded once more, without Redis. Redis may have lost
//! such a state, so it is delivered. From then on Redis is asked from time to time: it may have a later state by now,
//! or a good one for a damaged stream entry. If Redis has lost the state, the node restores the kept text there,
//! without decoding it. Perhaps no other node has the state, or knows of the delete before it.

use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{Follower, REDIS_TIMEOUT, Stopped};
use crate::bridge::WriterOrder;
use crate::bridge::fleet_view::since_boot;
use crate::services::replication::redis::KeptText;
use carom_model::replication::state::{NoState, ReceivedState, StateHead};
use carom_model::replication::{State, rules};
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
                self.clear_alarm();
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
        let (mut found, mut differing) = (Vec::new(), Vec::new());
        for ((code, text), answer) in page.into_iter().zip(self.redis.states(&codes, REDIS_TIMEOUT)) {
            let Some(theirs) = self.skip_refused(answer)? else { continue };
            let is_unread = matches!(theirs, Some(ReceivedState::Unread(_)));
            self.rereading.newer += u64::from(is_unread || self.fleet.has_lost_marked(&code, theirs.as_ref()));
            let is_same = matches!(&theirs, Some(ReceivedState::Unread(theirs)) if **theirs == *text);
            if !is_same {
                found.extend(theirs.map(|state| (code, state)));
                differing.push((code, text));
            }
        }
        self.send_found(found)?;
        self.restore_lost(differing)?;
        if !more {
            let newer = std::mem::take(&mut self.rereading.newer);
            self.rereading.behind = None;
            self.rereading.rested = Some(Instant::now());
            self.report(newer);
        }
        Ok(more)
    }

    /// Restores in Redis the kept texts of those of some marked codes whose states Redis has lost.
    fn restore_lost(&mut self, mut differing: Vec<UnreadState>) -> Result<(), Stopped> {
        // The links may be limited. After a loss of positions, the next pass begins once they are known.
        differing.retain(|(code, _)| self.has_position(code));
        // A node that is behind may lack a later state, which has expired in Redis.
        if differing.is_empty() || self.fleet.view.is_behind() {
            return Ok(());
        }
        // A state would be replaced only as it is in Redis, so its bytes are read, and not what this version makes of them.
        let codes: Vec<Code> = differing.iter().map(|(code, _)| *code).collect();
        let mut lost = Vec::new();
        for ((code, text), head) in differing.into_iter().zip(self.redis.heads(&codes, REDIS_TIMEOUT)) {
            let Some(over) = self.skip_refused(head)? else { continue };
            if is_lost(code, &text, &over) {
                lost.push(KeptText { code, text, over });
            }
        }
        for (kept, answer) in lost.iter().zip(self.redis.restore(&lost, REDIS_TIMEOUT)) {
            if self.skip_refused(answer)? == Some(true) {
                let code = kept.code;
                tracing::info!(%code, "restored a state that Redis had lost and only a newer version can decode");
            }
        }
        Ok(())
    }

    /// Notes that a code is to be marked, before the writer hears of it.
    pub(super) fn note_marks(&self) {
        self.unmarked.set(None);
        self.fleet.view.note_marked_code();
    }

    /// Lets the node prove again that codes are missing, once no code is marked. Orders on their way may mark one, and
    /// cores may lack the state that replaced a mark, so it first follows the streams from now on.
    fn forget_marks(&mut self) {
        if !self.fleet.view.has_marked_codes() {
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
            self.fleet.view.forget_marked_codes(since);
        }
    }

    /// Raises the alarm if so many codes have a state of a later version.
    fn report(&self, newer: u64) {
        if newer == 0 {
            return self.clear_alarm();
        }
        let text = format!(
            "{newer} codes have a state that only a newer version of carom can decode; they get 503 until this node is upgraded"
        );
        self.fleet.stats.alarms.raise(Alarm::NewerFormat, text);
    }

    /// Clears the alarm about states of a later version, unless the store has records of one: those stay until an upgrade.
    fn clear_alarm(&self) {
        if self.fleet.stats.store_newer.get() == 0 {
            self.fleet.stats.alarms.clear(Alarm::NewerFormat);
        }
    }
}

/// Returns the state of a marked code, if this version can decode the kept text.
fn decoded((code, text): UnreadState) -> Option<(Code, State)> {
    State::from_text(code, &text).ok().map(|state| (code, state))
}

/// True if Redis has lost the state of a marked code. `head` is the beginning of the state that Redis has instead, and empty
/// for none.
fn is_lost(code: Code, text: &[u8], head: &[u8]) -> bool {
    // No version can decode a damaged text, as of a stream entry, and its head may be damaged, too.
    let is_intact = State::from_text(code, text) != Err(NoState::Damaged);
    let Some(marked) = StateHead::of(text).filter(|_| is_intact) else { return false };
    match StateHead::of(head) {
        Some(stored) => rules::restores(&marked, Some(&stored)),
        // Another program may have written it.
        None => head.is_empty() && rules::restores(&marked, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use crate::services::replication::testing::context;
    use carom_model::link::{Link, Origin, Version};
    use carom_model::replication::follow::StreamPosition;
    use carom_model::replication::{EntryId, Partition};
    use std::sync::Arc;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn kept_texts_wait_until_grant_epochs_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let ((writer, _orders), (_outbox, deliveries)) = (sync_channel(8), channel());
        let mut follower = prepare(&fleet, writer, deliveries).unwrap();
        let code = Code::parse(b"abc").unwrap();
        let mut batch = fleet.links.batch();
        batch.mark_unread(&code, b"of a later version");
        fleet.links.commit(batch).unwrap();
        let marked = fleet.links.unread_page(None, PIECE).unwrap();
        assert_eq!(marked.len(), 1);
        assert!(follower.restore_lost(marked.clone()).is_ok(), "the position is lost, so Redis is not asked");
        follower.positions.insert(Partition::of(&code), StreamPosition { id: EntryId { ms: 1, seq: 0 }, check: 1 });
        assert!(follower.restore_lost(marked).is_err(), "Redis does not answer");
    }

    #[test]
    fn lost_states_are_told_by_their_heads() {
        let code = Code::parse(b"abc").unwrap();
        let state = |rev, claim| {
            let version = Version { rev, claim, edit: 0 };
            State::Link(Arc::new(Link { version, ..carom_model::testing::link("abc", Origin::Custom) }))
        };
        let mut text = state(3, 8).to_text(&code);
        text[0] = b'Z';
        let first = state(1, 7);
        for (theirs, expected) in [
            (Vec::new(), true),
            (first.to_text(&code), true),
            (first.deleted(9).to_text(&code), true),
            (text.clone(), false),
            (state(3, 8).to_text(&code), false),
            (state(5, 9).to_text(&code), false),
            (b"of another program".to_vec(), false),
        ] {
            assert_eq!(is_lost(code, &text, &theirs), expected, "{}", String::from_utf8_lossy(&theirs));
        }
        *text.last_mut().unwrap() ^= 1;
        assert!(!is_lost(code, &text, b""), "no version can decode it");
        assert!(!is_lost(code, b"", b""));
    }
}
