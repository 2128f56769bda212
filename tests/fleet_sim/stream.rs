//! A model of the streams of Redis: the IDs of entries, trimming, and what readers find at their positions.
//!
//! [`Stream`] is one stream. [`Database`] has the states of codes beside their streams, for the worlds in which every script
//! gets through. A replica is a clone, so a failover or a loss is an assignment. The main world copies entry by entry to
//! replicas that lag behind, and so has its own servers (`redis.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use carom::bridge::FleetDecision;
use carom_model::link::Version;
use carom_model::replication::follow::{StreamEntry, StreamPosition, StreamRead, check_position};
use carom_model::replication::retention::millis;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::{EntryId, State};
use carom_shards::Code;
use xxhash_rust::xxh3::xxh3_64;

use crate::adapter;
use crate::codes::{Index, States, code_at};

/// An entry of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: EntryId,
    /// The code that changed; `None` in an entry that only marks a place.
    pub(crate) code: Option<Index>,
    /// The state of the code.
    pub(crate) text: Rc<[u8]>,
    /// The link that lost the code to this state.
    pub(crate) displaced: Option<Version>,
}

impl Item {
    fn position(&self) -> StreamPosition {
        StreamPosition { id: self.id, check: xxh3_64(&self.text) }
    }

    fn entry(&self) -> StreamEntry {
        let (code, text) = (self.code.map(code_at), self.text.to_vec());
        StreamEntry { id: self.id, code, text, displaced: self.displaced, is_newer: false }
    }
}

/// A stream.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stream {
    items: VecDeque<Item>,
    /// The ID of the last entry that was appended. A trim may have removed the entry.
    last: EntryId,
}

impl Stream {
    /// Returns the ID of the next entry. It follows the clock of the server, and is always above the last one.
    pub(crate) fn next_id(&self, ms: u64) -> EntryId {
        let last = self.last;
        if ms > last.ms { EntryId { ms, seq: 0 } } else { EntryId { ms: last.ms, seq: last.seq + 1 } }
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, item: Item) {
        self.last = item.id;
        self.items.push_back(item);
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the position of the last entry.
    pub(crate) fn end(&self) -> Option<StreamPosition> {
        self.items.back().map(Item::position)
    }

    /// Returns the entries from a position on, including the one at the position; from the first one without a position.
    pub(crate) fn entries(&self, position: Option<StreamPosition>, most: usize) -> Vec<StreamEntry> {
        let from = position.map_or(EntryId::default(), |position| position.id);
        self.items.iter().filter(|item| item.id >= from).take(most).map(Item::entry).collect()
    }

    /// Reads on from a position. `most` counts the entry at the position.
    pub(crate) fn read(&self, position: Option<StreamPosition>, most: usize) -> StreamRead {
        check_position(position, self.entries(position, most))
    }

    /// Removes all but the last entries.
    pub(crate) fn keep_last(&mut self, count: usize) {
        self.items.drain(..self.items.len().saturating_sub(count));
    }

    /// Removes the entries before an ID.
    pub(crate) fn keep_from(&mut self, first: EntryId) {
        self.items.retain(|item| item.id >= first);
    }

    /// Returns the IDs of all entries.
    pub(crate) fn ids(&self) -> Vec<EntryId> {
        self.items.iter().map(|item| item.id).collect()
    }
}

/// The states of codes, and the streams of their changes. The codes take turns at the streams.
#[derive(Clone, Debug)]
pub(crate) struct Database<const STREAMS: usize> {
    pub(crate) states: States,
    /// The time of the last change of each state, in milliseconds.
    changed_ms: BTreeMap<Index, u64>,
    pub(crate) streams: [Stream; STREAMS],
}

impl<const STREAMS: usize> Default for Database<STREAMS> {
    fn default() -> Database<STREAMS> {
        let streams = std::array::from_fn(|_| Stream::default());
        Database { states: States::default(), changed_ms: BTreeMap::new(), streams }
    }
}

impl<const STREAMS: usize> Database<STREAMS> {
    /// Returns the number of the stream of a code.
    pub(crate) fn stream_of(index: Index) -> usize {
        usize::from(index) % STREAMS
    }

    fn append(&mut self, stream: usize, change: Option<(Index, &State, Option<Version>)>, now: u64) -> StreamPosition {
        let stream = &mut self.streams[stream];
        let code = change.map(|(index, ..)| index);
        let text = change.map_or(Vec::new(), |(index, state, _)| state.to_text(&code_at(index)));
        let displaced = change.and_then(|(.., displaced)| displaced);
        let item = Item { id: stream.next_id(now), code, text: text.into(), displaced };
        let at = item.position();
        stream.push(item);
        at
    }

    /// Takes a state in the place of `before`, and tells of it in the stream.
    pub(crate) fn accept(&mut self, index: Index, state: &State, before: Option<&State>, now: u64) -> StreamPosition {
        self.states.set(index, Some(state.clone()));
        self.changed_ms.insert(index, now);
        self.append(Self::stream_of(index), Some((index, state, rules::displaced(before, state))), now)
    }

    /// Takes the state of a verdict on the present one. Returns the entry that tells of the state, if there is one.
    pub(crate) fn carry_out(&mut self, index: Index, verdict: &Verdict, now: u64) -> Option<StreamPosition> {
        match verdict {
            Verdict::Accepted(state) => {
                let before = self.states.get(index).cloned();
                Some(self.accept(index, state, before.as_ref(), now))
            }
            Verdict::Same => self.streams[Self::stream_of(index)].end(),
            Verdict::Held(_) | Verdict::HeldUnread(_) | Verdict::Absent => None,
        }
    }

    /// Takes the state of a verdict on `before`. Returns what the gateway tells the writer.
    pub(crate) fn decide(&mut self, index: Index, verdict: Verdict, before: Option<&State>, now: u64) -> FleetDecision {
        match verdict {
            Verdict::Accepted(state) => {
                let at = self.accept(index, &state, before, now);
                FleetDecision::Accepted { state, echo: adapter::echo(Self::stream_of(index), at) }
            }
            Verdict::Held(state) => FleetDecision::Held(state),
            Verdict::Same | Verdict::HeldUnread(_) | Verdict::Absent => FleetDecision::Absent,
        }
    }

    /// Takes the states that are newer than the present ones. Returns the present states that stay, and true if one was
    /// taken.
    pub(crate) fn offer_all(&mut self, states: Vec<(Index, State)>, now: u64) -> (Vec<(Code, State)>, bool) {
        let (mut held, mut is_any_new) = (Vec::new(), false);
        for (index, state) in states {
            let verdict = rules::offer(self.states.get(index), &state);
            self.carry_out(index, &verdict, now);
            match verdict {
                Verdict::Accepted(_) => is_any_new = true,
                Verdict::Held(state) => held.push((code_at(index), state)),
                Verdict::Same | Verdict::HeldUnread(_) | Verdict::Absent => {}
            }
        }
        (held, is_any_new)
    }

    /// Returns all states.
    pub(crate) fn all(&self) -> Vec<(Code, State)> {
        self.states.iter().map(|(index, state)| (code_at(*index), state.clone())).collect()
    }

    /// Returns the position of the last entry of a stream. An empty stream first gets an empty entry.
    pub(crate) fn end(&mut self, stream: usize, now: u64) -> StreamPosition {
        self.streams[stream].end().unwrap_or_else(|| self.append(stream, None, now))
    }

    /// Loses all states and entries. The IDs go on.
    pub(crate) fn lose_everything(&mut self) {
        (self.states, self.changed_ms) = (States::default(), BTreeMap::new());
        self.streams.iter_mut().for_each(|stream| stream.keep_last(0));
    }

    /// Removes the states that have not changed for the retention.
    pub(crate) fn expire(&mut self, retention: Duration, now: u64) {
        let Database { states, changed_ms, .. } = self;
        changed_ms.retain(|index, changed_ms| {
            let is_kept = *changed_ms + millis(retention) > now;
            if !is_kept {
                states.set(*index, None);
            }
            is_kept
        });
    }
}
