//! What Redis may not have: codes whose state must still be brought to it, and changes that it has accepted but that have
//! not come back through the stream.
//!
//! An entry is made in the same commit as the change and removed only when the change was seen in the stream of its
//! partition: from then on its loss would be a gap for every node that follows (see [`super::follow`]). A change that the
//! stream has passed without showing it was lost, and is brought again. What is kept on disk is only which codes; what to
//! bring is their present state in the store. So several changes of one code are brought as one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use carom_shards::Code;

use super::follow::Position;
use super::{Echo, EntryId, Partition, State};

/// One code that has something to be brought, by the number of its entry: entries are brought in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The number of the entry.
    pub seq: u64,
    /// The code.
    pub code: Code,
}

/// What must change on disk for the outbox, in the commit in which it changed here.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OutboxWrites {
    /// Entries that are new.
    pub added: Vec<Delivery>,
    /// Entries that are done.
    pub removed: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pending {
    seq: u64,
    /// Where it will come by, once Redis has it.
    echo: Option<Echo>,
    /// How often [`Outbox::tick`] has found it waiting there.
    ticks: u8,
    /// Whether it came from Redis, and is only to be seen in the stream.
    is_theirs: bool,
}

/// How many entries and withdrawn links are remembered: far more than come by while an answer is on its way.
const RECENT: usize = 4_096;

/// The outbox of a node, as its writer keeps it.
#[derive(Clone, Default, Debug)]
pub struct Outbox {
    next_seq: u64,
    pending: HashMap<Code, Pending>,
    /// What is waited for to come by. Several codes may wait for one entry, behind which all of theirs lie.
    echoes: BTreeSet<(Echo, Code)>,
    /// Up to where each stream was read.
    places: BTreeMap<Partition, Position>,
    /// Entries that came by last and were taken into account.
    recent: VecDeque<Echo>,
    /// Links whose clients were told that they were not made, and that may turn up.
    withdrawn: VecDeque<(Code, u64)>,
    writes: OutboxWrites,
    deliveries: Vec<Delivery>,
}

impl Outbox {
    /// The outbox with the entries that are on disk, in their order, and the places up to which streams were read. All
    /// entries are brought again: whether Redis has them is not known after a restart.
    pub fn restore(
        entries: impl IntoIterator<Item = Delivery>,
        places: impl IntoIterator<Item = (Partition, Position)>,
    ) -> Outbox {
        let mut outbox = Outbox { places: places.into_iter().collect(), ..Outbox::default() };
        for delivery in entries {
            outbox.next_seq = outbox.next_seq.max(delivery.seq + 1);
            let pending = Pending { seq: delivery.seq, echo: None, ticks: 0, is_theirs: false };
            if let Some(older) = outbox.pending.insert(delivery.code, pending) {
                outbox.writes.removed.push(older.seq);
            }
            outbox.deliveries.push(delivery);
        }
        outbox
    }

    /// Notes that a code has changed. With `echo`, Redis has accepted that already. If its stream was read beyond that by
    /// now, it may have been lost before, and is brought again.
    pub fn note(&mut self, code: Code, echo: Option<Echo>) {
        self.forget(&code);
        let echo = echo.filter(|echo| !self.is_behind(*echo));
        let delivery = Delivery { seq: self.next_seq, code };
        self.next_seq += 1;
        self.pending.insert(code, Pending { seq: delivery.seq, echo, ticks: 0, is_theirs: false });
        self.writes.added.push(delivery);
        match echo {
            Some(echo) => _ = self.echoes.insert((echo, code)),
            None => self.deliveries.push(delivery),
        }
    }

    /// Notes that a code has a state now that Redis has told of, and that has not come by in the stream: until it has,
    /// Redis may lose it, and then nobody may be there who brings it again.
    pub fn note_theirs(&mut self, code: Code) {
        self.note(code, None);
        if let Some(pending) = self.pending.get_mut(&code) {
            pending.is_theirs = true;
        }
    }

    /// Removes the entry of a code, if there is one.
    pub fn forget(&mut self, code: &Code) {
        if let Some(pending) = self.pending.remove(code) {
            pending.echo.map(|echo| self.echoes.remove(&(echo, *code)));
            self.writes.removed.push(pending.seq);
        }
    }

    /// Whether a stream was read up to there. It may be another by now.
    fn is_behind(&self, echo: Echo) -> bool {
        self.places.get(&echo.partition).is_some_and(|place| echo.id <= place.id)
    }

    /// Whether the node stands at this very entry, so that its loss would be a gap.
    fn is_place(&self, echo: Echo) -> bool {
        self.places.get(&echo.partition) == Some(&Position { id: echo.id, check: echo.check })
    }

    /// Redis has the change of this entry now; it will come by there, or did already.
    pub fn accepted(&mut self, delivery: Delivery, echo: Echo) {
        if self.is_current(delivery) && self.is_place(echo) {
            return self.forget(&delivery.code);
        }
        if let Some(pending) = self.pending.get_mut(&delivery.code).filter(|pending| pending.seq == delivery.seq) {
            let before = pending.echo.replace(echo);
            before.map(|echo| self.echoes.remove(&(echo, delivery.code)));
            self.echoes.insert((echo, delivery.code));
        }
    }

    /// Whether an entry is the newest of its code.
    pub fn is_current(&self, delivery: Delivery) -> bool {
        self.pending.get(&delivery.code).is_some_and(|pending| pending.seq == delivery.seq)
    }

    /// Whether a code's state was not accepted by Redis yet, so that what comes from there may be older.
    pub fn is_undelivered(&self, code: &Code) -> bool {
        self.pending.get(code).is_some_and(|pending| pending.echo.is_none() && !pending.is_theirs)
    }

    /// Brings again what has waited for its echo since the last call but one. To be called now and then: an echo that was
    /// lost may be ahead of everything that comes by.
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
            self.again(code);
        }
    }

    /// Redis may have made a link, or make it yet, whose client is told that it was not made. It is deleted when it turns
    /// up; a restart forgets of it.
    pub fn withdraw(&mut self, code: Code, claim: u64) {
        self.withdrawn.push_back((code, claim));
        if self.withdrawn.len() > RECENT {
            self.withdrawn.pop_front();
        }
    }

    /// Whether a link is to be deleted that turned up.
    pub fn is_withdrawn(&self, code: &Code, state: &State) -> bool {
        state.is_link() && self.withdrawn.contains(&(*code, state.version().claim))
    }

    /// This entry was seen, and its state taken over, or it was older than what is here.
    pub fn taken(&mut self, echo: Echo) {
        self.recent.push_back(echo);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Whether this entry was [`Outbox::taken`] a short while ago.
    pub fn was_taken(&self, echo: Echo) -> bool {
        self.recent.contains(&echo)
    }

    /// The stream of its partition has shown this entry.
    pub fn seen(&mut self, echo: Echo) {
        while let Some(code) = self.first_from(echo).filter(|(of, _)| *of == echo).map(|(_, code)| code) {
            self.forget(&code);
        }
    }

    /// The stream of a partition was read up to this entry: what should have come by and did not was lost.
    pub fn passed(&mut self, partition: Partition, to: Position) {
        self.places.insert(partition, to);
        self.bring_again(partition, to.id);
    }

    fn bring_again(&mut self, partition: Partition, id: EntryId) {
        let from = Echo { partition, id: EntryId::default(), check: 0 };
        let to = Echo { partition, id, check: u64::MAX };
        while let Some((_, code)) = self.first_from(from).filter(|(echo, _)| *echo <= to) {
            self.again(code);
        }
    }

    /// The first that is waited for at or behind this place.
    fn first_from(&self, echo: Echo) -> Option<(Echo, Code)> {
        self.echoes.range((echo, Code::FIRST)..).next().copied()
    }

    /// The place in a stream is gone, and this is the new one: whatever was to come by is brought again.
    pub fn lost_place(&mut self, partition: Partition, at: Position) {
        self.bring_again(partition, EntryId { ms: u64::MAX, seq: u64::MAX });
        self.places.insert(partition, at);
    }

    fn again(&mut self, code: Code) {
        let pending = self.pending.get_mut(&code).expect("every echo belongs to an entry");
        pending.ticks = 0;
        let seq = pending.seq;
        if let Some(echo) = pending.echo.take() {
            self.echoes.remove(&(echo, code));
        }
        self.deliveries.push(Delivery { seq, code });
    }

    /// How many codes have an entry.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether Redis has everything, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// What must be written with the next commit. An entry that came and went since the last call is left out.
    pub fn take_writes(&mut self) -> OutboxWrites {
        let mut writes = std::mem::take(&mut self.writes);
        writes.added.retain(|added| self.pending.get(&added.code).is_some_and(|pending| pending.seq == added.seq));
        writes
    }

    /// What must be brought to Redis since the last call, in order, once it is on disk.
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

    /// The place of that entry.
    fn at(seq: u64) -> Position {
        Position { id: echo(seq).id, check: seq }
    }

    #[test]
    fn an_entry_stays_until_it_comes_by() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), None);
        let [first] = outbox.take_deliveries()[..] else { panic!("one delivery") };
        assert_eq!(outbox.take_writes(), OutboxWrites { added: vec![first], removed: vec![] });
        assert!(outbox.is_undelivered(&code("a")));
        outbox.accepted(first, echo(5));
        assert!(!outbox.is_undelivered(&code("a")) && !outbox.is_empty());
        outbox.seen(Echo { partition: Partition(4), ..echo(5) });
        assert_eq!(outbox.len(), 1, "that was another stream");
        outbox.seen(echo(5));
        assert!(outbox.is_empty());
        assert_eq!(outbox.take_writes(), OutboxWrites { added: vec![], removed: vec![first.seq] });
    }

    #[test]
    fn what_the_stream_passes_without_showing_it_is_brought_again() {
        let mut outbox = Outbox::default();
        outbox.note(code("a"), Some(echo(5)));
        outbox.note(code("b"), Some(echo(9)));
        assert_eq!(outbox.take_deliveries(), []);
        outbox.passed(HERE, at(4));
        assert_eq!(outbox.take_deliveries(), []);
        outbox.passed(HERE, at(6));
        assert_eq!(outbox.take_deliveries(), [Delivery { seq: 0, code: code("a") }]);
        outbox.lost_place(HERE, at(20));
        assert_eq!(outbox.take_deliveries(), [Delivery { seq: 1, code: code("b") }]);
        assert_eq!(outbox.take_writes().added.len(), 2, "they stay on disk");
    }

    #[test]
    fn what_redis_has_had_for_long_is_not_waited_for() {
        // Nothing more may ever come by in a quiet stream.
        let mut outbox = Outbox::restore([Delivery { seq: 3, code: code("a") }], [(HERE, at(9))]);
        let [delivery] = outbox.take_deliveries()[..] else { panic!("one delivery") };
        outbox.accepted(delivery, echo(9));
        assert!(outbox.is_empty());
        // What was passed a while ago may have been lost before.
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
        assert!(outbox.is_withdrawn(&code("abc"), &mine) && !outbox.is_withdrawn(&code("abc"), &theirs));
        assert!(!outbox.is_withdrawn(&code("abc"), &mine.deleted(1)));
    }

    #[test]
    fn several_may_wait_for_one_entry() {
        let mut outbox = Outbox::default();
        for text in ["a", "b", "c"] {
            outbox.note(code(text), None);
        }
        for delivery in outbox.take_deliveries() {
            outbox.accepted(delivery, echo(7));
        }
        outbox.seen(echo(7));
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
        outbox.accepted(first, echo(1));
        outbox.seen(echo(1));
        assert_eq!(outbox.len(), 1, "an answer to the earlier one says nothing of the later one");
        assert_eq!(outbox.take_writes().removed, [first.seq]);
    }

    #[test]
    fn a_restart_brings_everything_again_in_order() {
        let entries = [(4, "a"), (7, "b"), (9, "a")].map(|(seq, text)| Delivery { seq, code: code(text) });
        let mut outbox = Outbox::restore(entries, []);
        assert_eq!(outbox.take_deliveries(), entries);
        assert!(!outbox.is_current(entries[0]) && outbox.is_current(entries[2]));
        assert_eq!(outbox.take_writes().removed, [4]);
        outbox.note(code("c"), None);
        assert_eq!(outbox.take_deliveries()[0].seq, 10);
    }
}
