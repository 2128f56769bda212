//! A world of its own for two sites, each with a Redis, a node and a relay that reads the streams of the other one.
//!
//! `replication::sites`, `replication::rules` and `replication::follow` are driven as the relay and the nodes drive them,
//! one entry of a stream at a time. The sites are cut off from each other, relays are killed between any two steps,
//! streams are trimmed, and each Redis may lose everything: its node then brings back what it has, which may lack what the
//! relay had brought. Or a master of a cluster is replaced by a replica that lacks the last changes, and another master
//! keeps the notes of the relay. A node has what its own clients were told; the main world has the rest of a site.
//!
//! The promises:
//!
//! 1. No acknowledged link is lost without a delete or a reported conflict.
//! 2. What was deleted stays deleted.
//! 3. No state replaces one that nodes would keep.
//! 4. Once a site has heard of the other one up to an instant, its Redis has a state for every code whose link that site
//!    had acknowledged before it.
//! 5. In the end, both sites have the same states, and their nodes no other ones.
//!
//! An hour of separation by the clock, with states that expire, is in `sites/separation.rs`. What a relay makes of a gap is in
//! `sites/gaps.rs`.

mod gaps;
pub(crate) mod separation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carom_model::link::Link;
use carom_model::replication::follow::{StreamPosition, StreamRead};
use carom_model::replication::retention::lag_max_ms;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::sites::{Hearing, HeldPositions, LastRead, Settlement, read_of_pass, replace, settle};
use carom_model::replication::{Partition, State};

use crate::codes::{Index, SLUGS, States, code_at, index_of, new_link};
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::stream::Database;
use crate::trace::{brief, note};

/// Streams of a site.
const PARTS: usize = 2;

/// Steps for which a position is not stored, and within which a replica has all changes.
const HELD_FOR: Duration = Duration::from_secs(12);

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// Both sites decide alike between states of one revision.
    Tie,
    /// A state is replaced only if it is the one that the decision was about.
    Unchanged,
    /// A position is stored once all states before it are decided on.
    Stored,
    /// A position is stored some time after that.
    Held,
    /// After a lost position, all states are offered.
    Gap,
    /// Notes of a relay are stored only while Redis has its earlier ones.
    Owner,
    /// A pass that was under way at an instant does not count for it.
    Pass,
    /// A gap in which states may have expired is noted. Matters if the sites are cut off for long, like the next ones.
    Lack,
    /// A gap lasts until all states are compared.
    Compared,
    /// The first contact counts as a read, so a gap in the first comparison is noted.
    Contact,
    /// A site with such a gap has not read everything, however often its relay passes.
    ReadOfPass,
    /// A visit counts once.
    VisitOnce,
}

/// The states and the streams of a site.
type Data = Database<PARTS>;

/// The Redis of a site.
#[derive(Default)]
struct Redis {
    data: Data,
    /// The relay whose notes count, the number of its passes, and its positions in the streams of the other site.
    relay: u64,
    passes: u64,
    places: [Option<StreamPosition>; PARTS],
    /// The time of the last pass, and true if states of the other site may have expired before it.
    read_ms: u64,
    may_lack: bool,
}

/// The process that is the relay of its site.
#[derive(Default)]
struct Relay {
    /// The identity of the process; 0 before it has taken over.
    id: u64,
    passes: u64,
    /// The time of the last pass.
    read_ms: u64,
    positions: [Option<StreamPosition>; PARTS],
    /// The positions that are not stored yet.
    held: HeldPositions,
    /// The end of a stream whose position was lost, and the codes that are still to be compared.
    lost: [Option<(StreamPosition, Vec<Index>)>; PARTS],
    /// The stream that the present pass reads, and the time at which it met the end of the first one.
    part: usize,
    begun_ms: u64,
    /// The time by the clock of the other Redis, as of the step before.
    clock_ms: u64,
    /// A state that is to be offered next.
    todo: Option<(Index, State)>,
    /// A state that is to replace another one.
    pending: Option<(Index, State, State)>,
    /// A position that is to be stored once there is neither.
    to_store: Option<(usize, StreamPosition)>,
}

#[derive(Default)]
struct Site {
    redis: Redis,
    /// The data of a replica, and the instant of its last change.
    replica: Option<(Duration, Data)>,
    relay: Relay,
    /// The states of the node, and its positions in the streams of its site.
    states: States,
    positions: [Option<StreamPosition>; PARTS],
    hearing: Hearing,
    /// The time of the last pass, as the node remembers it.
    read: LastRead,
    /// The time of the first contact to the other site; 0 before it.
    met_ms: u64,
    /// True if the nodes have seen counter values.
    has_values: bool,
    /// The times at which the node took its states.
    taken_ms: BTreeMap<Index, u64>,
    /// The time up to which the node has followed the streams of its site, and true if only a copy of another node can help it.
    followed_ms: u64,
    needs_copy: bool,
    /// The last look of the node at the notes of the relay.
    looked: Option<(Duration, u64, u64)>,
}

pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    now: u64,
    /// The time for which Redis keeps a state, in milliseconds; 0 for ever.
    retention_ms: u64,
    sites: [Site; 2],
    /// True if the sites do not reach each other.
    cut: bool,
    claims: u64,
    relays: u64,
    /// The acknowledged links that nobody has deleted: their codes, their sites and the instants of their creation.
    live: BTreeMap<u64, (Index, usize, Duration)>,
    /// The claims of links whose delete was acknowledged, and of those whose loss was reported.
    ended: BTreeSet<u64>,
    reported: BTreeSet<u64>,
    broken: Option<String>,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        World {
            rng: Rng::new(seed),
            guard,
            trace,
            step: 0,
            now: 1_000,
            retention_ms: 0,
            sites: Default::default(),
            cut: false,
            claims: 0,
            relays: 0,
            live: BTreeMap::new(),
            ended: BTreeSet::new(),
            reported: BTreeSet::new(),
            broken: None,
        }
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(120)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        (self.step, self.now) = (number, self.now + self.rng.below(3) as u64);
        self.act()?;
        self.broken.take().map_or(Ok(()), Err)
    }

    fn rest(&mut self) -> Result<(), String> {
        self.cut = false;
        for round in 0..40 {
            self.now += 1;
            for site in 0..2 {
                self.follow(site);
                (0..30).for_each(|_| self.relay(site));
                self.step += 1;
                if round > 20 {
                    self.look(site)?;
                }
            }
            self.broken.take().map_or(Ok(()), Err)?;
        }
        (0..2).for_each(|site| self.follow(site));
        self.check()
    }
}

impl World {
    fn act(&mut self) -> Result<(), String> {
        let (site, index) = (self.rng.below(2), self.rng.below(SLUGS) as Index);
        match self.rng.below(100) {
            0..12 => self.create(site, index),
            12..18 => self.change(site, index),
            18..26 => self.delete(site, index),
            26..36 => self.follow(site),
            36..77 => self.relay(site),
            77..80 => self.replicate(site),
            80..88 => return self.look(site),
            88..92 => {
                self.cut = self.rng.permille(500);
                note!(self, "the sites are cut off: {}", self.cut);
            }
            92..95 => self.trim(site),
            95..98 => {
                self.sites[site].relay = Relay::default();
                note!(self, "the relay of site {site} is killed");
            }
            98 => self.fall_back(site),
            _ => self.lose_everything(site),
        }
        Ok(())
    }

    /// Lets a Redis take a state. A link of another claim that loses its code is reported.
    fn accept(&mut self, site: usize, index: Index, state: &State) {
        let data = &mut self.sites[site].redis.data;
        let before = data.states.get(index).cloned();
        data.accept(index, state, before.as_ref(), self.now);
        self.reported.extend(rules::displaced(before.as_ref(), state).map(|lost| lost.claim));
        note!(self, "site {site} has {} of {index} over {}", brief(state), brief(&before));
        if before.as_ref().is_some_and(|before| !rules::adopts(Some(before), state)) {
            self.broken = Some(format!("nodes of site {site} keep {before:?}, and Redis has {state:?}"));
        }
    }

    /// Lets a Redis take what a client of its node was told.
    fn answer(&mut self, site: usize, index: Index, verdict: Verdict) -> Option<State> {
        let Verdict::Accepted(state) = verdict else { return None };
        self.accept(site, index, &state);
        self.keep(site, index, &state);
        Some(state)
    }

    /// A node takes a state.
    fn keep(&mut self, site: usize, index: Index, state: &State) {
        self.sites[site].states.set(index, Some(state.clone()));
        self.sites[site].taken_ms.insert(index, self.now);
    }

    fn both(&self, site: usize, index: Index) -> (Option<State>, Option<State>) {
        let Site { redis, states, .. } = &self.sites[site];
        (redis.data.states.get(index).cloned(), states.get(index).cloned())
    }

    fn create(&mut self, site: usize, index: Index) {
        self.claims += 1;
        let claim = self.claims;
        let link = State::Link(Arc::new(new_link(index, claim, self.now)));
        let (stored, mine) = self.both(site, index);
        let verdict = rules::claim(rules::present(stored.as_ref(), mine.as_ref(), true), &link);
        if self.answer(site, index, verdict).is_some() {
            self.live.insert(claim, (index, site, self.instant()));
        }
    }

    fn change(&mut self, site: usize, index: Index) {
        let (stored, mine) = self.both(site, index);
        let Some(State::Link(link)) = rules::newest(mine, stored.clone()) else { return };
        let target = format!("https://e.org/{site}/{}", self.step);
        let changed = State::Link(Arc::new(Link { version: link.version.edited(), target, ..Link::clone(&link) }));
        self.answer(site, index, rules::offer(stored.as_ref(), &changed));
    }

    fn delete(&mut self, site: usize, index: Index) {
        let (stored, mine) = self.both(site, index);
        let before = rules::present(stored.as_ref(), mine.as_ref(), false);
        let claim = before.map_or(0, |before| before.version().claim);
        let verdict = rules::remove(before, claim, self.now);
        if self.answer(site, index, verdict).is_some() {
            self.live.remove(&claim);
            self.ended.insert(claim);
        }
    }

    /// True if the node may lack changes that its Redis no longer has.
    fn is_behind(&self, site: usize) -> bool {
        let Site { followed_ms, needs_copy, .. } = &self.sites[site];
        let lag_max_ms = lag_max_ms(Duration::from_millis(self.retention_ms));
        *needs_copy || self.retention_ms > 0 && self.now - followed_ms > lag_max_ms
    }

    /// A node reads the streams of its site. After a lost position it compares in both directions, unless it is behind.
    fn follow(&mut self, site: usize) {
        let is_behind = self.is_behind(site);
        for part in 0..PARTS {
            let Some(position) = self.sites[site].positions[part] else {
                if is_behind {
                    self.sites[site].needs_copy = true;
                    continue;
                }
                let end = self.sites[site].redis.data.end(part, self.now);
                self.sites[site].positions[part] = Some(end);
                slugs_of(part).for_each(|index| self.compare(site, index));
                continue;
            };
            match self.sites[site].redis.data.streams[part].read(Some(position), usize::MAX) {
                StreamRead::Quiet => {}
                StreamRead::Gap => self.sites[site].positions[part] = None,
                StreamRead::Next(entries, to) => {
                    self.sites[site].positions[part] = Some(to);
                    for entry in entries {
                        let Some(code) = entry.code else { continue };
                        self.adopt(site, index_of(&code), &State::from_text(code, &entry.text).unwrap());
                    }
                }
            }
        }
        if self.sites[site].positions.iter().all(Option::is_some) {
            self.sites[site].followed_ms = self.now;
        }
    }

    /// A node adopts a state, or offers its own if that is newer.
    fn adopt(&mut self, site: usize, index: Index, theirs: &State) {
        let mine = self.sites[site].states.get(index).cloned();
        if rules::adopts(mine.as_ref(), theirs) {
            self.keep(site, index, theirs);
        } else if mine.as_ref() != Some(theirs) {
            self.offer_mine(site, index);
        }
    }

    fn compare(&mut self, site: usize, index: Index) {
        let (stored, mine) = self.both(site, index);
        if let Some(theirs) = &stored {
            self.adopt(site, index, theirs);
        } else if mine.is_some() && !self.has_expired(site, index) {
            self.offer_mine(site, index);
        }
    }

    /// True if Redis has removed the state of a node, and not lost it.
    fn has_expired(&self, site: usize, index: Index) -> bool {
        let taken_ms = self.sites[site].taken_ms.get(&index).copied().unwrap_or(0);
        self.retention_ms > 0 && taken_ms + self.retention_ms <= self.now
    }

    fn offer_mine(&mut self, site: usize, index: Index) {
        let (stored, Some(mine)) = self.both(site, index) else { return };
        if let Verdict::Accepted(state) = rules::offer(stored.as_ref(), &mine) {
            self.accept(site, index, &state);
        }
    }

    fn trim(&mut self, site: usize) {
        let kept = 1 + self.rng.below(3);
        self.sites[site].redis.data.streams.iter_mut().for_each(|stream| stream.keep_last(kept));
    }

    /// A Redis comes back empty, and its node brings back what it has.
    fn lose_everything(&mut self, site: usize) {
        note!(self, "the Redis of site {site} loses everything");
        self.now += 1;
        (self.sites[site].redis, self.sites[site].replica) = (Redis::default(), None);
        self.sites[site].positions = Default::default();
        self.follow(site);
    }

    /// A replica of a Redis has everything.
    fn replicate(&mut self, site: usize) {
        let at = self.instant();
        let site = &mut self.sites[site];
        site.replica = Some((at, site.redis.data.clone()));
    }

    /// A replica becomes the master of the states, and another master keeps the notes. The node brings back what it has. It
    /// takes nothing for missing for some time, and the relays, whose connections are lost, begin again from the stored
    /// positions.
    fn fall_back(&mut self, site: usize) {
        let now = self.instant();
        // Without `Stored`, positions are not held either, so this alone would break a promise.
        let replica = self.sites[site].replica.take().filter(|_| self.guard != Some(Guard::Stored));
        let Some((_, data)) = replica.filter(|(at, _)| *at + HELD_FOR > now) else { return };
        note!(self, "the Redis of site {site} falls back to a replica");
        self.now += 1;
        let site_of = &mut self.sites[site];
        site_of.redis.data = data;
        (site_of.relay, site_of.positions) = (Relay::default(), Default::default());
        (site_of.hearing, site_of.looked) = (Hearing::default(), None);
        self.sites[1 - site].relay = Relay::default();
        self.follow(site);
    }

    /// The relay of a site does one step.
    fn relay(&mut self, site: usize) {
        if self.cut {
            return;
        }
        let Site { redis, relay, read, .. } = &mut self.sites[site];
        if relay.id == 0 {
            self.relays += 1;
            read.hear(redis.relay, redis.passes, redis.read_ms);
            (redis.relay, redis.passes) = (self.relays, 0);
            let (id, read_ms, clock_ms) = (self.relays, read.at_ms, self.now);
            *relay = Relay { id, read_ms, clock_ms, positions: redis.places, ..Relay::default() };
            self.meet_first(site);
        } else if let Some((index, state)) = relay.todo.take() {
            self.offer(site, index, &state);
        } else if let Some((index, state, over)) = relay.pending.take() {
            let verdict = match self.guard {
                Some(Guard::Unchanged) => Verdict::Accepted(state.clone()),
                _ => replace(redis.data.states.get(index), &over, &state),
            };
            match verdict {
                Verdict::Accepted(state) => self.accept(site, index, &state),
                _ => relay.todo = Some((index, state)),
            }
        } else if let Some((part, position)) = relay.to_store.take() {
            self.store(site, Some((part, position)));
        } else {
            self.read(site);
        }
        self.sites[site].relay.clock_ms = self.now;
    }

    /// Offers a state of the other site.
    fn offer(&mut self, site: usize, index: Index, offered: &State) {
        let verdict = rules::offer(self.sites[site].redis.data.states.get(index), offered);
        if let Verdict::Accepted(state) = &verdict {
            return self.accept(site, index, state);
        }
        match settle(&code_at(index), offered, &verdict) {
            Settlement::Replace(over) if self.guard != Some(Guard::Tie) => {
                self.sites[site].relay.pending = Some((index, offered.clone(), over));
            }
            Settlement::Return(gone) => {
                let stored = self.sites[1 - site].redis.data.states.get(index);
                if let Verdict::Accepted(state) = rules::offer(stored, &gone) {
                    self.accept(1 - site, index, &state);
                }
            }
            _ => {}
        }
    }

    /// The relay reads an entry, or compares a code.
    fn read(&mut self, site: usize) {
        let now = self.now;
        let [first, second] = &mut self.sites;
        let (own, other) = if site == 0 { (first, second) } else { (second, first) };
        let (relay, data) = (&mut own.relay, &mut other.redis.data);
        let part = relay.part;
        if let Some((end, codes)) = &mut relay.lost[part] {
            let end = *end;
            match codes.pop() {
                Some(index) => relay.todo = data.states.get(index).map(|state| (index, state.clone())),
                None => self.end_comparison(site, part, end),
            }
            return;
        }
        let Some(position) = relay.positions[part] else { return self.note_lost(site, part) };
        match data.streams[part].read(Some(position), 2) {
            StreamRead::Gap if self.guard == Some(Guard::Gap) => relay.to_store = Some((part, data.end(part, now))),
            StreamRead::Gap => {
                relay.positions[part] = None;
                self.note_lost(site, part);
            }
            StreamRead::Next(entries, to) => {
                let entry = &entries[0];
                relay.todo = entry.code.map(|code| (index_of(&code), State::from_text(code, &entry.text).unwrap()));
                if self.guard == Some(Guard::Stored) {
                    self.store(site, Some((part, to)));
                } else {
                    relay.to_store = Some((part, to));
                }
            }
            StreamRead::Quiet => {
                if part == 0 {
                    relay.begun_ms = now;
                }
                relay.part = (part + 1) % PARTS;
                if relay.part == 0 {
                    let may_lack = own.redis.may_lack && self.guard != Some(Guard::ReadOfPass);
                    relay.passes += 1;
                    relay.read_ms = read_of_pass(relay.begun_ms, may_lack);
                    self.store(site, None);
                    let Site { relay, read, .. } = &mut self.sites[site];
                    read.hear(relay.id, relay.passes, relay.read_ms);
                }
            }
        }
    }

    /// The relay moves to a position, and stores its notes and the positions that it has held for long enough. If Redis has
    /// lost the earlier ones, it begins again.
    fn store(&mut self, site: usize, moved: Option<(usize, StreamPosition)>) {
        let now = self.instant();
        let Site { redis, relay, .. } = &mut self.sites[site];
        if redis.relay != relay.id && self.guard != Some(Guard::Owner) {
            *relay = Relay::default();
            return;
        }
        (redis.relay, redis.passes, redis.read_ms) = (relay.id, relay.passes, relay.read_ms);
        if let Some((part, position)) = moved {
            relay.held.add(now, vec![(Partition(part as u8), position)]);
            relay.positions[part] = Some(position);
            relay.lost[part] = None;
        }
        let is_late = !matches!(self.guard, Some(Guard::Held | Guard::Stored));
        let (count, due) = relay.held.due(now, if is_late { HELD_FOR } else { Duration::ZERO });
        due.into_iter().for_each(|(part, position)| redis.places[usize::from(part.0)] = Some(position));
        relay.held.forget(count);
    }

    fn instant(&self) -> Duration {
        Duration::from_secs(self.step as u64)
    }

    /// A node looks up to when its site has heard of the other one. A node that is behind takes nothing for missing.
    fn look(&mut self, site: usize) -> Result<(), String> {
        let (at, is_behind) = (self.instant(), self.is_behind(site));
        let keeps_all = self.retention_ms == 0;
        let Site { redis, hearing, looked, read, states, .. } = &mut self.sites[site];
        read.hear(redis.relay, redis.passes, redis.read_ms);
        let mut heard = hearing.look(at, redis.relay, redis.passes);
        if self.guard == Some(Guard::Pass) {
            let is_later = |(_, relay, passes): &(Duration, u64, u64)| *relay == redis.relay && *passes < redis.passes;
            heard = looked.filter(is_later).map(|(at, _, _)| at);
        }
        *looked = Some((at, redis.relay, redis.passes));
        let Some(heard) = heard.filter(|_| redis.relay > 0 && !redis.may_lack && !is_behind) else { return Ok(()) };
        let is_missing = |(_, (index, of, made)): &(&u64, &(Index, usize, Duration))| {
            // Redis may have let a state expire that the node has.
            let is_known = redis.data.states.get(*index).is_some() || !keeps_all && states.get(*index).is_some();
            *of != site && *made < heard && !is_known
        };
        match self.live.iter().find(is_missing) {
            Some((claim, (index, ..))) => Err(format!("site {site} takes slug {index}, claim {claim}, for missing")),
            None => Ok(()),
        }
    }

    /// The promises about what there is in the end.
    fn check(&self) -> Result<(), String> {
        let [one, other] = &self.sites;
        let everywhere = [&one.redis.data.states, &other.redis.data.states, &one.states, &other.states];
        for (index, state) in everywhere[0].iter().chain(everywhere[1].iter()) {
            let all = everywhere.map(|states| states.get(*index));
            if all != [Some(state); 4] {
                return Err(format!("the sites and their nodes have {all:?} for slug {index}"));
            }
            if state.is_link() && self.ended.contains(&state.version().claim) {
                return Err(format!("slug {index} has a deleted link again: {state:?}"));
            }
        }
        for (claim, (index, ..)) in &self.live {
            let state = everywhere[0].get(*index).filter(|state| state.is_link());
            let is_there = state.is_some_and(|state| state.version().claim == *claim);
            if !is_there && !self.reported.contains(claim) {
                return Err(format!("claim {claim} of slug {index} is lost: {state:?}"));
            }
        }
        Ok(())
    }
}

/// Returns the slugs whose changes are in a stream.
fn slugs_of(part: usize) -> impl Iterator<Item = Index> {
    (0..SLUGS as Index).filter(move |index| Data::stream_of(*index) == part)
}
