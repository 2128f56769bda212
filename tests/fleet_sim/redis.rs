//! A model of Redis: for each partition the states and the stream, and the counter.
//!
//! Scripts are atomic, so a command is one step. Each partition has a master and a replica that lags behind by some
//! last commands; a failover loses those. A master may come back empty or from an old dump. Entries have the names that
//! Redis gives: by the server's clock, but always above the last one, and streams are trimmed.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use carom_model::link::Version;
use carom_model::replication::State;
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::lease::{self, CodeCounter, Granted};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::ReceivedState;
use xxhash_rust::xxh3::xxh3_64;

use crate::adapter;
use crate::codes::{Index, PARTS, States, code_at, part_of};
use crate::guards::Guard;
use crate::stream::{Item, Stream};
use crate::versions::{self, Form};

/// The margin in the model; far above what a schedule leases, as in production.
pub(crate) const MARGIN: u64 = 64;

/// A command for a partition.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Takes a code for a new link.
    Claim(Index, State),
    /// Deletes the link of a code that has this claim, at that time.
    Remove(Index, u64, u64),
    /// Deletes the link of a code whose time is over, at that time, if it is in this state.
    Expire(Index, State, u64),
    /// Brings a state.
    Offer(Index, State),
    /// Restores the text of a state that only the next version knows, in the place of this text or of none.
    Restore(Index, Arc<[u8]>, Option<Vec<u8>>),
}

impl Command {
    /// The code it is about.
    pub(crate) fn index(&self) -> Index {
        match self {
            Command::Claim(index, _) | Command::Offer(index, _) => *index,
            Command::Remove(index, ..) | Command::Expire(index, ..) | Command::Restore(index, ..) => *index,
        }
    }
}

/// The answer of a script.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The verdict on the command.
    pub(crate) verdict: Verdict,
    /// The entry that tells of it, or the last one of the stream.
    pub(crate) echo: Option<StreamPosition>,
}

/// The data of a server of a partition.
#[derive(Clone, Default, Debug)]
struct Data {
    states: States,
    /// Codes whose state is of a kind that only the next version knows.
    later: BTreeSet<Index>,
    stream: Stream,
}

impl Data {
    fn apply(&mut self, change: Change, trim: usize) {
        if let Some((index, state)) = change.state {
            if change.is_later {
                self.later.insert(index);
            } else {
                self.later.remove(&index);
            }
            self.states.set(index, Some(state));
        }
        self.stream.push(change.item);
        self.stream.keep_last(trim);
    }
}

#[derive(Clone, Debug)]
struct Change {
    state: Option<(Index, State)>,
    is_later: bool,
    item: Item,
}

/// A partition: its master, its replica, and the last dump.
#[derive(Clone, Default, Debug)]
struct Shard {
    master: Data,
    replica: Data,
    lag: VecDeque<Change>,
    dump: Option<Data>,
    clock: i64,
    /// Every entry that was ever made.
    made: Vec<StreamPosition>,
}

/// The whole state of Redis.
#[derive(Debug)]
pub(crate) struct Redis {
    /// The partition that was changed last.
    pub(crate) changed: usize,
    /// True if it answers at all.
    pub(crate) up: bool,
    /// Number of replicas; 0 if there are none.
    pub(crate) replicas: u64,
    /// Commands on their way that nobody waits for any more.
    pub(crate) delayed: Vec<(Command, Form, u8)>,
    shards: [Shard; PARTS],
    trim: usize,
    /// The counter, what the replica has of it, and the last dump.
    pub(crate) counter: CodeCounter,
    counter_replica: CodeCounter,
    counter_dump: CodeCounter,
    /// The server that answers for the counter. Servers are numbered in the order in which they took over.
    server: u32,
    nonce: u64,
    guard: Option<Guard>,
}

impl Redis {
    /// An empty one whose streams keep so many entries.
    pub(crate) fn new(trim: usize, replicas: u64, guard: Option<Guard>) -> Redis {
        Redis {
            changed: 0,
            up: true,
            replicas,
            delayed: Vec::new(),
            shards: Default::default(),
            trim,
            counter: CodeCounter::default(),
            counter_replica: CodeCounter::default(),
            counter_dump: CodeCounter::default(),
            server: 0,
            nonce: 0,
            guard,
        }
    }

    /// Runs a script.
    pub(crate) fn execute(&mut self, command: &Command, form: Form, now: u64) -> Answer {
        let index = command.index();
        let is_unread = !form.reads && self.is_later(index);
        let stored = self.shards[part_of(index)].master.states.get(index);
        let verdict = match command {
            Command::Restore(_, text, over) => {
                versions::over_text(index, text, (self.text(index).as_deref(), over.as_deref()))
            }
            _ if is_unread => versions::over_unread(stored.unwrap(), command),
            Command::Claim(_, link) if self.guard == Some(Guard::InsertIfAbsent) => Verdict::Accepted(link.clone()),
            Command::Claim(_, link) => rules::claim(stored, link),
            Command::Remove(_, claim, at) => adapter::remove(stored, *claim, *at),
            Command::Expire(_, state, at) if self.guard == Some(Guard::Exact) => {
                adapter::remove(stored, state.version().claim, *at)
            }
            Command::Expire(_, state, at) => rules::expire(stored, state, *at),
            Command::Offer(_, state) => rules::offer(stored, state),
        };
        let echo = match &verdict {
            Verdict::Accepted(state) => {
                // A script that does not know the kind takes it for no link.
                let displaced = rules::displaced(stored.filter(|_| !is_unread), state);
                for (other, _, changes) in &mut self.delayed {
                    *changes += u8::from(other.index() == index);
                }
                let (text, is_later) = match command {
                    Command::Restore(_, text, _) => (text.to_vec(), true),
                    _ => versions::to_text(index, state, form),
                };
                let change = (Some((index, state.clone())), is_later, text.into());
                Some(self.append(part_of(index), change, displaced, now))
            }
            Verdict::Same => self.shards[part_of(index)].master.stream.end(),
            Verdict::Held(_) | Verdict::HeldUnread(_) | Verdict::Absent => None,
        };
        Answer { verdict, echo }
    }

    fn append(
        &mut self,
        part: usize,
        (state, is_later, text): (Option<(Index, State)>, bool, Rc<[u8]>),
        displaced: Option<Version>,
        now: u64,
    ) -> StreamPosition {
        self.changed = part;
        let shard = &mut self.shards[part];
        let check = xxh3_64(&text);
        let mut id = shard.master.stream.next_id(now.saturating_add_signed(shard.clock));
        // After a loss and with a clock that was set back, the same state could get the same name once more, to the
        // millisecond. Nobody could tell the two; here time is so short that it would happen, so it is left out.
        while shard.made.contains(&StreamPosition { id, check }) {
            id.ms += 1;
        }
        shard.made.push(StreamPosition { id, check });
        let item = Item { id, code: state.as_ref().map(|(index, _)| *index), text, displaced };
        let change = Change { state, is_later, item };
        if self.replicas > 0 {
            shard.lag.push_back(change.clone());
        }
        shard.master.apply(change, self.trim);
        StreamPosition { id, check }
    }

    /// The stream of a partition.
    pub(crate) fn stream(&self, part: usize) -> &Stream {
        &self.shards[part].master.stream
    }

    /// Appends an entry that only marks a place.
    pub(crate) fn mark(&mut self, part: usize, now: u64) -> StreamPosition {
        self.nonce += 1;
        let text = self.nonce.to_le_bytes().as_slice().into();
        self.append(part, (None, false, text), None, now)
    }

    /// Returns the position of the last entry of a stream. An empty stream first gets an entry that only marks a place.
    pub(crate) fn end(&mut self, part: usize, now: u64) -> StreamPosition {
        self.stream(part).end().unwrap_or_else(|| self.mark(part, now))
    }

    /// The first code of a partition from that place on, with its state.
    pub(crate) fn scan(&self, part: usize, from: Index) -> Option<&(Index, State)> {
        self.shards[part].master.states.next_of(part, from)
    }

    /// The state of a code.
    pub(crate) fn state(&self, index: Index) -> Option<&State> {
        self.shards[part_of(index)].master.states.get(index)
    }

    /// True if the state of a code is of a kind that only the next version knows.
    pub(crate) fn is_later(&self, index: Index) -> bool {
        self.shards[part_of(index)].master.later.contains(&index)
    }

    /// The state of a code, as a node receives it that reads the next version or not.
    pub(crate) fn received(&self, index: Index, reads: bool) -> Option<ReceivedState> {
        let state = self.state(index)?;
        if reads || !self.is_later(index) {
            return Some(ReceivedState::Known(state.clone()));
        }
        Some(ReceivedState::Unread(versions::later_text(index, state).into()))
    }

    /// The text of the state of a code.
    pub(crate) fn text(&self, index: Index) -> Option<Vec<u8>> {
        let state = self.state(index)?;
        let is_later = self.is_later(index);
        Some(if is_later { versions::later_text(index, state) } else { state.to_text(&code_at(index)) })
    }

    /// All states.
    pub(crate) fn states(&self) -> impl Iterator<Item = &(Index, State)> {
        self.shards.iter().flat_map(|shard| shard.master.states.iter())
    }

    /// The replica takes so many more commands.
    pub(crate) fn replicate(&mut self, part: usize, commands: usize) {
        let shard = &mut self.shards[part];
        for change in shard.lag.drain(..commands.min(shard.lag.len())) {
            shard.replica.apply(change, self.trim);
        }
    }

    /// Number of commands by which the replica is behind.
    pub(crate) fn lag(&self, part: usize) -> usize {
        self.shards[part].lag.len()
    }

    /// The replica becomes the master; what it did not have is gone.
    pub(crate) fn fail_over(&mut self, part: usize) {
        self.break_connections(part);
        let shard = &mut self.shards[part];
        shard.lag.clear();
        shard.master = shard.replica.clone();
    }

    /// Drops the commands in flight to a server.
    fn break_connections(&mut self, part: usize) {
        self.delayed.retain(|(command, ..)| part_of(command.index()) != part);
    }

    /// Keeps a dump of a partition.
    pub(crate) fn save(&mut self, part: usize) {
        self.shards[part].dump = Some(self.shards[part].master.clone());
    }

    /// A partition starts again from its dump, or with nothing. Says whether anything was there before.
    pub(crate) fn restart(&mut self, part: usize, empty: bool) {
        self.break_connections(part);
        let shard = &mut self.shards[part];
        shard.master = if empty { Data::default() } else { shard.dump.clone().unwrap_or_default() };
        shard.replica = shard.master.clone();
        shard.lag.clear();
    }

    /// The clock of a partition's server jumps.
    pub(crate) fn jump(&mut self, part: usize, by: i64) {
        self.shards[part].clock = by;
    }

    /// Takes values from the counter.
    pub(crate) fn lease(&mut self, seen: u64, want: u64) -> Granted {
        let (seen, margin) = match self.guard {
            Some(Guard::Floor) => {
                self.counter.floor = 0;
                (0, MARGIN)
            }
            Some(Guard::Margin) => (seen, 0),
            _ => (seen, MARGIN),
        };
        let name = format!("s{}", self.server);
        lease::lease(&mut self.counter, seen, want, margin, &name)
    }

    /// Takes a heartbeat, and tells the floor.
    pub(crate) fn beat(&mut self, seen: u64) -> u64 {
        self.counter.floor = self.counter.floor.max(seen);
        self.counter.floor
    }

    /// The replica has the counter as it is now.
    pub(crate) fn replicate_counter(&mut self) {
        self.counter_replica = self.counter.clone();
    }

    /// Keeps a dump of the counter.
    pub(crate) fn save_counter(&mut self) {
        self.counter_dump = self.counter.clone();
    }

    /// The counter as it would be after a failover.
    pub(crate) fn counter_after_failover(&self) -> CodeCounter {
        self.counter_replica.clone()
    }

    /// The counter as it would be after a restart from the dump.
    pub(crate) fn counter_after_restart(&self) -> CodeCounter {
        self.counter_dump.clone()
    }

    /// Lets another server answer for the counter, with this value.
    pub(crate) fn move_counter(&mut self, to: CodeCounter) {
        self.server += 1;
        self.counter_replica = to.clone();
        self.counter = to;
    }
}
