//! The follower of a stream, which compares a partition when its position in the stream is gone.
//!
//! Both are steps of one thread of a node in production, and send their orders in one queue.

use carom::bridge::{StreamChange, WriterOrder};
use carom_model::replication::Partition;
use carom_model::replication::follow::{StreamEntry, StreamPosition, StreamRead, check_position};
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::ReceivedState;

use crate::adapter;
use crate::codes::Index;
use crate::guards::Guard;
use crate::node::Node;
use crate::redis::{Answer, Command, Redis};
use crate::versions::{self, found};

/// The progress of a comparison. It is in memory only.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) enum Comparing {
    /// Nothing is compared.
    #[default]
    Idle,
    /// Redis is read, from that code on.
    Down(Index),
    /// Offers the states that Redis lacks, from this code on.
    Up(Index),
    /// Waits until the offered states come through the stream.
    Wait,
    /// The writer is told.
    Told,
}

/// The thread that follows a partition.
#[derive(Clone, Default, Debug)]
pub(crate) struct Follower {
    /// The position in the stream, ahead of the one that the writer has committed.
    position: Option<StreamPosition>,
    /// The progress of a comparison.
    comparing: Comparing,
    /// Entries that must come by before a comparison is over.
    expected: Vec<StreamPosition>,
    /// True if one of them was passed without being seen.
    missed: bool,
    /// Number of times that [`Follower::tick`] has found it waiting.
    ticks: u8,
    /// Gaps that the writer has not committed.
    pub(crate) gaps_open: usize,
}

impl Follower {
    /// One that starts at a place.
    pub(crate) fn at(position: Option<StreamPosition>) -> Follower {
        Follower { position, ..Follower::default() }
    }

    /// Some time has passed. What a comparison waits for may be lost, and ahead of everything that comes by.
    pub(crate) fn tick(&mut self) {
        if matches!(self.comparing, Comparing::Wait) {
            self.ticks += 1;
            if self.ticks > 1 {
                self.comparing = Comparing::Idle;
            }
        }
    }
}

impl Node {
    /// Reads on in a stream. Says whether anything was new.
    pub(crate) fn follow(
        &mut self,
        redis: &mut Redis,
        (part, most, now): (usize, usize, u64),
        reads: bool,
        guard: Option<Guard>,
    ) -> bool {
        let follower = &mut self.followers[part];
        let entries = redis.stream(part).entries(follower.position, most);
        let partition = Partition(part as u8);
        match check_position_without(guard, follower.position, entries) {
            StreamRead::Quiet => return false,
            StreamRead::Next(entries, to) => {
                if !follower.expected.is_empty() {
                    let places: Vec<StreamPosition> = entries.iter().map(StreamPosition::of).collect();
                    follower.expected.retain(|expected| !places.contains(expected));
                    follower.missed |= follower.expected.iter().any(|expected| expected.id <= to.id);
                }
                follower.position = Some(to);
                let states = entries.iter().map(|entry| decode(entry, reads)).collect();
                self.followed.push_back(adapter::followed(part, states, to));
            }
            StreamRead::Gap => {
                let at = redis.end(part, now);
                *follower = Follower { gaps_open: follower.gaps_open + 1, ..Follower::at(Some(at)) };
                self.followed.push_back(WriterOrder::PositionLost { partition, at });
            }
        }
        true
    }

    /// True if a stream was read to its end.
    pub(crate) fn has_read(&self, part: usize, redis: &Redis) -> bool {
        redis.stream(part).read(self.followers[part].position, usize::MAX) == StreamRead::Quiet
    }

    /// True if a comparison can go on without Redis, or waits for it.
    pub(crate) fn compares(&self, part: usize) -> bool {
        let follower = &self.followers[part];
        match follower.comparing {
            Comparing::Idle => self.store.now.compare[part] && follower.gaps_open == 0,
            Comparing::Told => self.followed.is_empty(),
            _ => true,
        }
    }

    /// Compares on. `ask` brings something to Redis; it may go unheard. Says whether anything was done.
    pub(crate) fn compare(
        &mut self,
        redis: &mut Redis,
        (part, now): (usize, u64),
        reads: bool,
        guard: Option<Guard>,
        ask: impl FnOnce(&mut Redis, &Command) -> Option<Answer>,
    ) -> bool {
        let follower = &mut self.followers[part];
        let orders = &mut self.followed;
        match follower.comparing {
            Comparing::Idle => {
                if !self.store.now.compare[part] || follower.gaps_open > 0 {
                    return false;
                }
                (follower.comparing, follower.missed, follower.ticks) = (Comparing::Down(0), false, 0);
                follower.expected.clear();
            }
            Comparing::Down(from) => match redis.scan(part, from).cloned() {
                Some((index, _)) => {
                    orders.extend(redis.received(index, reads).map(|state| found(index, state)));
                    follower.comparing = Comparing::Down(index + 1);
                }
                // What was found must be in the store first, or it would not be brought again should Redis lose it now.
                None if !orders.is_empty() => return false,
                None => {
                    follower.expected.push(redis.mark(part, now));
                    follower.comparing = Comparing::Up(0);
                }
            },
            Comparing::Up(from) => {
                let mine = self.store.now.states.next_of(part, from).filter(|_| guard != Some(Guard::Upwards));
                let Some((index, mine)) = mine else {
                    follower.comparing = Comparing::Wait;
                    return true;
                };
                let is_equal = redis.state(*index) == Some(mine) && (reads || !redis.is_later(*index));
                if !is_equal {
                    let Some(answer) = ask(redis, &Command::Offer(*index, mine.clone())) else { return false };
                    match (answer.verdict, answer.echo) {
                        (Verdict::Held(state), _) => orders.push_back(found(*index, ReceivedState::Known(state))),
                        (Verdict::HeldUnread(text), _) => orders.push_back(found(*index, ReceivedState::Unread(text))),
                        (_, Some(echo)) => follower.expected.push(echo),
                        _ => {}
                    }
                }
                follower.comparing = Comparing::Up(index + 1);
            }
            Comparing::Wait => {
                if follower.missed {
                    follower.comparing = Comparing::Idle;
                } else if follower.expected.is_empty() {
                    orders.push_back(WriterOrder::Compared(Partition(part as u8)));
                    follower.comparing = Comparing::Told;
                } else {
                    return false;
                }
            }
            Comparing::Told => {
                if !orders.is_empty() {
                    return false;
                }
                follower.comparing = Comparing::Idle;
            }
        }
        true
    }
}

fn check_position_without(
    guard: Option<Guard>,
    position: Option<StreamPosition>,
    entries: Vec<StreamEntry>,
) -> StreamRead {
    let first = entries.first().map(StreamPosition::of);
    match (guard, position, first) {
        (Some(Guard::Check), Some(place), Some(first)) if first.id == place.id => check_position(Some(first), entries),
        (Some(Guard::Gap), Some(place), first) => match first {
            None => StreamRead::Quiet,
            Some(first) if first.id == place.id => check_position(Some(first), entries),
            Some(_) => {
                let to = StreamPosition::of(&entries[entries.len() - 1]);
                StreamRead::Next(entries, to)
            }
        },
        _ => check_position(position, entries),
    }
}

fn decode(entry: &StreamEntry, reads: bool) -> (StreamPosition, Option<StreamChange>) {
    let state = entry.code.and_then(|code| Some((code, versions::from_text(code, &entry.text, reads)?)));
    let told = state.map(|(code, state)| StreamChange { code, state, displaced: entry.displaced });
    (StreamPosition::of(entry), told)
}
