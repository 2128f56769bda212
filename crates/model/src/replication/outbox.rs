//! The changes that Redis may not have. They are codes whose state must still be sent, and changes that Redis has
//! accepted but that have not appeared in the stream.
//!
//! An entry is written in the commit of its change. It is removed only once the stream of its partition has shown the
//! change. From then on, a loss would be a gap for every node that follows (see [`super::follow`]). If the stream was
//! read beyond the place of a change without showing it, the change was lost, and is sent again. The disk keeps only
//! the codes; the state to send is the present one in the store. So several changes of one code are sent as one.

mod settling;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use carom_shards::Code;

use self::settling::Settling;
use super::follow::StreamPosition;
use super::{Echo, EntryId, Partition, State};

/// A code whose state must be sent, by the number of its entry. Entries are queued in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The number of the entry.
    pub seq: u64,
    /// The code whose state is sent.
    pub code: Code,
}

/// The writes of the outbox to disk, in the commit of the change that caused them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OutboxWrites {
    /// New entries.
    pub added: Vec<Delivery>,
    /// Numbers of completed entries.
    pub removed: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PendingChange {
    seq: u64,
    /// The entry of the stream in which the change will appear, once Redis has it.
    echo: Option<Echo>,
    /// Number of calls of [`Outbox::tick`] that have found it waiting there.
    ticks: u8,
    /// True if the state came from Redis, and only has to appear in the stream.
    is_reported: bool,
}

/// Number of stream entries and withdrawn links that are remembered: far more than pass while an answer is on its way.
const RECENT: usize = 4_096;

/// The outbox of a node. It belongs to the writer thread.
#[derive(Clone, Default, Debug)]
pub struct Outbox {
    next_seq: u64,
    pending: HashMap<Code, PendingChange>,
    /// The stream entries that codes wait for. A change that Redis already had waits for the last entry of its stream,
    /// which cannot come before its own. So several codes may wait for one entry.
    echoes: BTreeSet<(Echo, Code)>,
    /// The position up to which each stream was read.
    positions: BTreeMap<Partition, StreamPosition>,
    /// The last stream entries that this node has applied.
    recent: VecDeque<Echo>,
    /// Links that may still appear although their clients got an error.
    withdrawn: VecDeque<(Code, u64)>,
    /// Codes of which a change of another node may have been left out, because a change of this node waits for Redis.
    /// After a restart it is unknown which these are, so all codes of the outbox count.
    left_out: HashSet<Code>,
    /// Codes whose state Redis refused, because it has an earlier one of a kind that its scripts do not know: at most
    /// [`RECENT`].
    refused: HashSet<Code>,
    /// Partitions with further such codes: more than fit, or from before a restart. There, any code counts as refused.
    refused_in: HashSet<Partition>,
    writes: OutboxWrites,
    deliveries: Vec<Delivery>,
    /// `None` on a node that stores all links.
    settling: Option<Settling>,
}

impl Outbox {
    /// Returns the outbox of a node that stores a state only as long as Redis may not have it.
    #[must_use]
    pub fn with_settling(self) -> Outbox {
        Outbox { settling: Some(Settling::default()), ..self }
    }

    /// Restores the outbox from the entries on disk, in their order, and the positions up to which streams were read.
    /// All entries are sent again: after a restart it is unknown whether Redis has them.
    pub fn restore(
        entries: impl IntoIterator<Item = Delivery>,
        positions: impl IntoIterator<Item = (Partition, StreamPosition)>,
    ) -> Outbox {
        let mut outbox = Outbox { positions: positions.into_iter().collect(), ..Outbox::default() };
        for delivery in entries {
            outbox.next_seq = outbox.next_seq.max(delivery.seq + 1);
            let pending = PendingChange { seq: delivery.seq, echo: None, ticks: 0, is_reported: false };
            outbox.left_out.insert(delivery.code);
            if let Some(older) = outbox.pending.insert(delivery.code, pending) {
                outbox.writes.removed.push(older.seq);
            }
            outbox.deliveries.push(delivery);
        }
        outbox
    }

    /// Records that a code has changed. With `echo`, Redis has accepted the change already. If the stream was read
    /// beyond that entry by now, the change may have been lost before, and is sent again.
    pub fn note(&mut self, code: Code, echo: Option<Echo>) {
        self.remove(&code);
        let echo = echo.filter(|echo| !self.is_read_past(*echo));
        let delivery = Delivery { seq: self.next_seq, code };
        assert!(
            self.writes.added.last().is_none_or(|last| last.seq < delivery.seq),
            "the entry would replace one of another code on disk"
        );
        self.next_seq += 1;
        self.pending.insert(code, PendingChange { seq: delivery.seq, echo, ticks: 0, is_reported: false });
        self.writes.added.push(delivery);
        match echo {
            Some(echo) => _ = self.echoes.insert((echo, code)),
            None => self.deliveries.push(delivery),
        }
        self.assert_listed(&code);
    }

    /// Records that a code has a state that Redis has reported and the stream has not shown. Until it does, Redis may
    /// lose the state, and then perhaps no other node would send it again. A node that does not store all links forgets
    /// the entry of the code: the node that made the change sends it again.
    pub fn note_reported(&mut self, code: Code) {
        if self.settling.is_some() {
            return self.remove(&code);
        }
        self.note(code, None);
        if let Some(pending) = self.pending.get_mut(&code) {
            pending.is_reported = true;
        }
    }

    /// Removes the entry of a code, if it has one.
    pub fn remove(&mut self, code: &Code) {
        if let Some(pending) = self.pending.remove(code) {
            self.left_out.remove(code);
            if let Some(echo) = pending.echo {
                assert!(self.echoes.remove(&(echo, *code)), "the change was awaited, and would not have been noticed");
            }
            self.writes.removed.push(pending.seq);
            self.begin_settling(*code);
        }
    }

    /// Records that Redis has the state of a code, and may still lose it.
    pub fn begin_settling(&mut self, code: Code) {
        self.settling.iter_mut().for_each(|settling| settling.add(code));
    }

    /// Records that this node does not store the state of a code, so that it need not settle.
    pub fn stop_settling(&mut self, code: &Code) {
        self.settling.iter_mut().for_each(|settling| settling.remove(code));
    }

    /// True if the state of a code is to be stored for a while longer, although Redis has it. Call [`Outbox::settle`]
    /// before.
    pub fn is_settling(&self, code: &Code) -> bool {
        self.settling.as_ref().is_some_and(|settling| settling.has(code))
    }

    /// True if a stream was read up to the place of that entry, or beyond. Another entry may have that place by now.
    fn is_read_past(&self, echo: Echo) -> bool {
        self.positions.get(&echo.partition).is_some_and(|position| echo.id <= position.id)
    }

    /// True if the node's position is this very entry, so that its loss would be a gap.
    fn is_position(&self, echo: Echo) -> bool {
        self.positions.get(&echo.partition) == Some(&StreamPosition { id: echo.id, check: echo.check })
    }

    /// Records that Redis has the change of this entry. It will appear at `echo`, or did already.
    pub fn note_accepted(&mut self, delivery: Delivery, echo: Echo) {
        if self.is_current(delivery) && self.is_position(echo) {
            return self.remove(&delivery.code);
        }
        if let Some(pending) = self.pending.get_mut(&delivery.code).filter(|pending| pending.seq == delivery.seq) {
            self.left_out.remove(&delivery.code);
            let before = pending.echo.replace(echo);
            if let Some(before) = before {
                assert!(self.echoes.remove(&(before, delivery.code)), "an awaited change was not listed");
            }
            self.echoes.insert((echo, delivery.code));
        }
        self.assert_listed(&delivery.code);
    }

    /// Asserts that the outbox awaits a stream entry exactly if the entry of the code has one.
    fn assert_listed(&self, code: &Code) {
        let echo = self.pending.get(code).and_then(|pending| pending.echo);
        assert!(
            echo.is_none_or(|echo| self.echoes.contains(&(echo, *code))),
            "the change would stay in the outbox although the stream has shown it"
        );
        assert!(self.echoes.len() <= self.pending.len(), "a code awaits several stream entries");
    }

    /// True if an entry is the newest of its code.
    pub fn is_current(&self, delivery: Delivery) -> bool {
        self.pending.get(&delivery.code).is_some_and(|pending| pending.seq == delivery.seq)
    }

    /// True if Redis has not yet accepted a code's state, so that a state from there may be older.
    pub fn is_undelivered(&self, code: &Code) -> bool {
        self.pending.get(code).is_some_and(|pending| pending.echo.is_none() && !pending.is_reported)
    }

    /// Records that a change of another node was left out, because Redis has not accepted our change of the code.
    pub fn leave_out(&mut self, code: Code) {
        debug_assert!(self.is_undelivered(&code), "no change of this node is in its way");
        self.left_out.insert(code);
    }

    /// Records that no change of another node was left out of a code: the state of this node is the latest.
    pub fn note_none_left_out(&mut self, code: &Code) {
        self.left_out.remove(code);
    }

    /// True if this node may lack a change that it has read in a stream.
    pub fn has_left_out(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// Records that Redis refused the state of a code, although the state in Redis is earlier.
    pub fn note_refused(&mut self, code: Code) {
        if self.refused.len() < RECENT {
            self.refused.insert(code);
        } else {
            self.refused_in.insert(Partition::of(&code));
        }
    }

    /// Records after a restart that Redis may have refused states of these partitions. The store has the partitions,
    /// because they are compared after an upgrade.
    pub fn restore_refused(&mut self, partitions: impl IntoIterator<Item = Partition>) {
        self.refused_in.extend(partitions);
    }

    /// Takes the record of [`Outbox::note_refused`]. Returns true if there may have been one.
    pub fn take_refused(&mut self, code: &Code) -> bool {
        self.refused.remove(code) || self.refused_in.contains(&Partition::of(code))
    }

    /// True if a code has an entry.
    pub fn has(&self, code: &Code) -> bool {
        self.pending.contains_key(code)
    }

    /// Sends changes again that have waited for their stream entry since the last call but one. To be called every few
    /// seconds: in a quiet stream, no later entry shows that an entry was lost.
    pub fn tick(&mut self) {
        let mut late = Vec::new();
        for (code, pending) in self.pending.iter_mut().filter(|(_, pending)| pending.echo.is_some()) {
            pending.ticks += 1;
            if pending.ticks > 1 {
                late.push((pending.seq, *code));
            }
        }
        late.sort_unstable();
        for (_, code) in late {
            self.resend(code);
        }
    }

    /// Records that Redis may have made a link, or may still make it, although its client gets an error. The link is
    /// deleted when it appears. A restart forgets this.
    pub fn withdraw(&mut self, code: Code, claim: u64) {
        self.withdrawn.push_back((code, claim));
        if self.withdrawn.len() > RECENT {
            self.withdrawn.pop_front();
        }
    }

    /// True if a link that appeared must be deleted.
    pub fn is_withdrawn(&self, code: &Code, state: &State) -> bool {
        state.is_link() && self.withdrawn.contains(&(*code, state.version().claim))
    }

    /// Records that this node has applied the stream entry of a code: it has adopted its state, or has a later one.
    pub fn note_applied(&mut self, echo: Echo, code: Code) {
        self.recent.push_back(echo);
        let is_full = self.recent.len() > RECENT;
        if is_full {
            self.recent.pop_front();
        }
        self.settling.iter_mut().for_each(|settling| settling.note_applied(code, is_full));
    }

    /// True if this entry was applied a short while ago ([`Outbox::note_applied`]).
    pub fn was_applied(&self, echo: Echo) -> bool {
        self.recent.contains(&echo)
    }

    /// True if an entry was applied a short while ago, and a later one of the same code since. Always false on a
    /// node that stores all links.
    pub fn was_superseded(&self, echo: Echo, code: &Code) -> bool {
        let at = self.recent.iter().rposition(|applied| *applied == echo);
        at.zip(self.settling.as_ref()).is_some_and(|(at, settling)| settling.was_applied_after(at, code))
    }

    /// Records that the stream has shown this entry.
    pub fn note_seen(&mut self, echo: Echo) {
        while let Some(code) = self.first_from(echo).filter(|(of, _)| *of == echo).map(|(_, code)| code) {
            self.remove(&code);
        }
    }

    /// Records that the stream of a partition was read up to this entry. Changes that should have appeared by then were
    /// lost.
    pub fn note_position(&mut self, partition: Partition, to: StreamPosition) {
        self.positions.insert(partition, to);
        self.resend_up_to(partition, to.id);
    }

    fn resend_up_to(&mut self, partition: Partition, id: EntryId) {
        let from = Echo { partition, id: EntryId::default(), check: 0 };
        let to = Echo { partition, id, check: u64::MAX };
        while let Some((_, code)) = self.first_from(from).filter(|(echo, _)| *echo <= to) {
            self.resend(code);
            debug_assert!(
                self.deliveries.last().is_some_and(|last| last.code == code),
                "a lost change is not sent again"
            );
        }
    }

    /// Returns the first awaited entry at or behind this one.
    fn first_from(&self, echo: Echo) -> Option<(Echo, Code)> {
        self.echoes.range((echo, Code::FIRST)..).next().copied()
    }

    /// Records that the position in a stream is lost, and that `at` is the new one. Every awaited change is sent again.
    pub fn note_lost_position(&mut self, partition: Partition, at: StreamPosition) {
        self.resend_up_to(partition, EntryId { ms: u64::MAX, seq: u64::MAX });
        self.positions.insert(partition, at);
        self.unsettle(partition);
    }

    /// Sends the states again that Redis had a moment ago, and may have lost with the position.
    fn unsettle(&mut self, partition: Partition) {
        let Some(settling) = &mut self.settling else { return };
        for code in settling.take_of(partition) {
            if !self.has(&code) {
                self.note(code, None);
            }
        }
    }

    /// Returns the codes whose states this node need not store any longer, because they have had no entry since the
    /// instant `until` or before. Instants are times since the boot of the machine, and `now` is the present one. Empty
    /// on a node that stores all links.
    pub fn settle(&mut self, now: Duration, until: Duration) -> Vec<Code> {
        let Some(settling) = &mut self.settling else { return Vec::new() };
        let mut settled = settling.settle(now, until);
        // A code with an entry settles later, once that entry is removed.
        settled.retain(|code| !self.pending.contains_key(code));
        settled
    }

    /// Returns the number of codes whose states Redis has, and that this node stores for a while longer.
    pub fn settling(&self) -> usize {
        self.settling.as_ref().map_or(0, Settling::len)
    }

    fn resend(&mut self, code: Code) {
        let pending = self.pending.get_mut(&code).expect("every echo belongs to an entry");
        pending.ticks = 0;
        let seq = pending.seq;
        if let Some(echo) = pending.echo.take() {
            assert!(self.echoes.remove(&(echo, code)), "an awaited change was not listed");
        }
        self.deliveries.push(Delivery { seq, code });
    }

    /// Returns the number of codes whose state Redis has not accepted, as far as is known.
    pub fn undelivered(&self) -> usize {
        self.pending.len() - self.echoes.len()
    }

    /// Returns the number of codes with an entry.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// True if Redis has everything, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the writes for the next commit, without entries that were added and removed since the last call.
    pub fn take_writes(&mut self) -> OutboxWrites {
        let mut writes = std::mem::take(&mut self.writes);
        debug_assert!(
            writes.added.is_sorted_by(|one, next| one.seq < next.seq),
            "a restart would send the changes in another order"
        );
        writes.added.retain(|added| self.pending.get(&added.code).is_some_and(|pending| pending.seq == added.seq));
        writes
    }

    /// Returns the entries to send to Redis since the last call, in order. They may be sent once they are on disk.
    pub fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Partition = Partition(3);

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    fn echo(seq: u64) -> Echo {
        Echo { partition: HERE, id: EntryId { ms: 1, seq }, check: seq }
    }

    /// Returns the position of that entry.
    fn at(seq: u64) -> StreamPosition {
        StreamPosition { id: echo(seq).id, check: seq }
    }

    #[test]
    fn left_out_changes_count_until_ours_is_delivered() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), None);
        assert!(!outbox.has_left_out(), "no other change has come");
        outbox.leave_out(code("a"));
        assert!(outbox.has_left_out());
        let delivery = outbox.take_deliveries()[0];
        outbox.note_accepted(delivery, echo(5));
        assert!(!outbox.has_left_out(), "ours is the newest");
        outbox.note(code("a"), None);
        assert!(!outbox.has_left_out(), "that was before");
        assert!(Outbox::restore([delivery], []).has_left_out(), "a change may have been left out before the restart");
    }

    #[test]
    fn an_entry_stays_until_the_stream_shows_it() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), None);
        let [first] = outbox.take_deliveries()[..] else { panic!("one delivery") };
        assert_eq!(outbox.take_writes(), OutboxWrites { added: vec![first], removed: vec![] });
        assert!(outbox.is_undelivered(&code("a")));
        assert!(outbox.undelivered() == 1);
        outbox.note_accepted(first, echo(5));
        assert_eq!(outbox.undelivered(), 0, "Redis has it");
        assert!(!outbox.is_undelivered(&code("a")));
        assert!(!outbox.is_empty());
        outbox.note_seen(Echo { partition: Partition(4), ..echo(5) });
        assert_eq!(outbox.len(), 1, "that was another stream");
        outbox.note_seen(echo(5));
        assert!(outbox.is_empty());
        assert_eq!(outbox.take_writes(), OutboxWrites { added: vec![], removed: vec![first.seq] });
    }

    #[test]
    fn a_change_that_the_stream_skips_is_sent_again() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), Some(echo(5)));
        outbox.note(code("b"), Some(echo(9)));
        assert_eq!(outbox.take_deliveries(), []);
        outbox.note_position(HERE, at(4));
        assert_eq!(outbox.take_deliveries(), []);
        outbox.note_position(HERE, at(6));
        assert_eq!(outbox.take_deliveries(), [Delivery { seq: 0, code: code("a") }]);
        outbox.note_lost_position(HERE, at(20));
        assert_eq!(outbox.take_deliveries(), [Delivery { seq: 1, code: code("b") }]);
        assert_eq!(outbox.take_writes().added.len(), 2, "they stay on disk");
    }

    #[test]
    fn a_change_that_redis_has_had_for_long_is_complete() {
        // In a quiet stream no further entry may ever come.
        let mut outbox = Outbox::restore([Delivery { seq: 3, code: code("a") }], [(HERE, at(9))]);
        let [delivery] = outbox.take_deliveries()[..] else { panic!("one delivery") };
        outbox.note_accepted(delivery, echo(9));
        assert!(outbox.is_empty());
        // A change that was passed a while ago may have been lost before.
        outbox.note(code("b"), Some(echo(8)));
        assert_eq!(outbox.take_deliveries().len(), 1);
        outbox.note(code("c"), Some(echo(10)));
        assert!(outbox.take_deliveries().is_empty());
        outbox.tick();
        assert!(outbox.take_deliveries().is_empty());
        outbox.tick();
        assert_eq!(outbox.take_deliveries().len(), 1, "nothing came by for long");
    }

    #[test]
    fn a_withdrawn_link_is_known_when_it_turns_up() {
        use crate::link::Origin;
        use crate::replication::rules::tests::link;
        let mut outbox = Outbox::default();
        outbox.withdraw(code("abc"), 7);
        let (mine, theirs) = (link(Origin::Custom, 1, 7), link(Origin::Custom, 1, 8));
        assert!(outbox.is_withdrawn(&code("abc"), &mine));
        assert!(!outbox.is_withdrawn(&code("abc"), &theirs));
        assert!(!outbox.is_withdrawn(&code("abc"), &mine.deleted(1)));
    }

    #[test]
    fn refused_states_are_bounded_and_survive_a_restart() {
        let mut outbox = Outbox::default();
        let codes: Vec<Code> = (0..2 * RECENT).map(|number| code(&format!("c{number}"))).collect();
        codes.iter().for_each(|code| outbox.note_refused(*code));
        assert_eq!(outbox.refused.len(), RECENT);
        assert!(codes.iter().all(|code| outbox.take_refused(code)), "a change would never be offered again");
        let mut restarted = Outbox::restore([], []);
        assert!(!restarted.take_refused(&codes[0]));
        restarted.restore_refused([Partition::of(&codes[0])]);
        let is_of_first = |code: &&Code| Partition::of(code) == Partition::of(&codes[0]);
        for code in &codes {
            assert_eq!(restarted.take_refused(code), is_of_first(&code), "{code}");
        }
    }

    #[test]
    fn several_codes_may_wait_for_one_entry() {
        let mut outbox = Outbox::default();
        for text in ["a", "b", "c"] {
            outbox.note(code(text), None);
        }
        for delivery in outbox.take_deliveries() {
            outbox.note_accepted(delivery, echo(7));
        }
        outbox.note_seen(echo(7));
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_later_change_takes_the_place_of_an_earlier_one() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), None);
        let first = outbox.take_deliveries()[0];
        outbox.take_writes();
        outbox.note(code("a"), None);
        assert!(!outbox.is_current(first));
        outbox.note_accepted(first, echo(1));
        outbox.note_seen(echo(1));
        assert_eq!(outbox.len(), 1, "an answer to the earlier one says nothing of the later one");
        assert_eq!(outbox.take_writes().removed, [first.seq]);
    }

    #[test]
    fn a_restart_sends_everything_again_in_order() {
        let entries = [(4, "a"), (7, "b"), (9, "a")].map(|(seq, text)| Delivery { seq, code: code(text) });
        let mut outbox = Outbox::restore(entries, []);
        assert_eq!(outbox.take_deliveries(), entries);
        assert!(!outbox.is_current(entries[0]));
        assert!(outbox.is_current(entries[2]));
        assert_eq!(outbox.take_writes().removed, [4]);
        outbox.note(code("c"), None);
        assert_eq!(outbox.take_deliveries()[0].seq, 10);
    }
}
