//! An hour in which two sites do not reach each other, by the clock of their servers.
//!
//! Before it, each relay has read the streams of the other site to their ends, or has only begun to. Meanwhile, both sites
//! create, change and delete links, also of the same slugs, and count visits. Streams are trimmed, and one Redis may lose
//! everything. Redis keeps states for a week, as by default, for a little more than the hour, or for less. Then the sites
//! meet again, and a Redis may lose everything once more. The steps are those of [`super::World`]. A relay that is not killed
//! stands still for the hour, like a process that is suspended between any two steps. `may_have_missed`, `missing_since`,
//! `needs_copies` and `read_of_pass` decide what a gap means. `visits::batches` and `visits::count_exchange` decide on
//! visits, of which Redis keeps a short window.
//!
//! The promises, beside that of each look of a node:
//!
//! 1. With the retention of a week, no site needs an operator.
//! 2. Unless a site or a node does, both sites end with the same links, none of which is lost or comes back.
//! 3. In the end, both sites count every visit once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use carom_model::replication::retention::first_kept;
use carom_model::visits::batches::{BatchAdmission, BatchId, FleetCounts};
use carom_model::visits::count_exchange::OwnStream;
use carom_model::visits::entries::batches_of;
use carom_model::visits::origins::OriginId;

use super::{Guard, Relay, Site};
use crate::codes::{Index, SLUGS};
use crate::schedules::Simulation;
use crate::trace::note;

/// Steps before the separation, and during it.
const TOGETHER: usize = 8;
const APART: usize = 40;

const HOUR_MS: u64 = 3_600_000;

/// The default retention.
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;

/// Times for which Redis keeps a state. The last one is shorter than the separation. A node that does not follow its own streams
/// for half of that time is behind.
const RETENTIONS_MS: [u64; 3] = [WEEK_MS, HOUR_MS * 3 / 2, HOUR_MS * 2 / 3];

/// Entries of one origin that Redis keeps.
const WINDOW: usize = 4;

/// Rounds in which everything comes to rest, and the time of each: together longer than a relay holds its positions.
const ROUNDS: usize = 20;
const ROUND_MS: u64 = 750;

/// Steps of a relay in a round.
const RELAY_STEPS: usize = 12;

/// The visits on the node of a site, and in its Redis.
struct Counting {
    counts: FleetCounts,
    own: OwnStream,
    /// The visits of each origin that count on the node.
    rows: BTreeMap<OriginId, u64>,
    /// The entries in Redis by their origin, each with the number of its last batch.
    streams: BTreeMap<OriginId, VecDeque<(u64, Vec<u8>)>>,
    /// The number of the last batch of each origin, as Redis knows it.
    noted: BTreeMap<OriginId, u64>,
}

/// Returns the origin of the visits of a site.
fn origin_of(site: usize) -> OriginId {
    OriginId(site as u64 + 1)
}

impl Counting {
    fn new(site: usize) -> Counting {
        let mut counts = FleetCounts::new(None);
        counts.identify(origin_of(site), "node", (false, false));
        let (own, rows) = (OwnStream::default(), BTreeMap::new());
        Counting { counts, own, rows, streams: BTreeMap::new(), noted: BTreeMap::new() }
    }

    fn noted_of(&self, origin: OriginId) -> u64 {
        self.noted.get(&origin).copied().unwrap_or(0)
    }

    fn last_of(&self, origin: OriginId) -> u64 {
        self.streams.get(&origin).and_then(|stream| stream.back()).map_or(0, |(last, _)| *last)
    }

    /// The node counts a visit, and syncs it.
    fn visit(&mut self) {
        self.counts.add_own(0, vec![1]);
        let synced = self.counts.take_unsynced();
        self.counts.add_synced(synced);
        self.own.add(self.counts.take_ready());
        *self.rows.entry(self.counts.own_origin().0).or_default() += 1;
    }

    fn put(&mut self, origin: OriginId, last: u64, entry: Vec<u8>) {
        if self.last_of(origin) < last {
            let stream = self.streams.entry(origin).or_default();
            stream.push_back((last, entry));
            stream.drain(..stream.len().saturating_sub(WINDOW));
        }
    }

    /// The node publishes what its Redis lacks.
    fn publish(&mut self) {
        let (own, synced) = self.counts.own_origin();
        let noted = self.noted_of(own);
        self.own.hear(noted);
        if self.own.is_unsure() {
            let in_stream = self.last_of(own);
            assert!(self.own.compare(synced, in_stream, noted), "the node would become another origin");
        }
        while let Some(entry) = self.own.next_entry() {
            self.put(own, entry.last, entry.bytes);
            self.own.sent(entry.last);
        }
        if let Some(number) = self.own.number_to_note(synced, noted) {
            self.noted.insert(own, number);
        }
    }

    /// The relay of another site copies the streams that are ahead here.
    fn copy_to(&self, other: &mut Counting) {
        for (origin, number) in &self.noted {
            let behind = other.last_of(*origin).max(other.noted_of(*origin));
            if *number > other.noted_of(*origin) {
                let entries = self.streams.get(origin).into_iter().flatten().filter(|(last, _)| *last > behind);
                entries.for_each(|(last, entry)| other.put(*origin, *last, entry.clone()));
                other.noted.insert(*origin, *number);
            }
        }
    }

    /// The node takes the batches of the other site, and a snapshot if some are missing.
    fn follow(&mut self, other: &Counting, guard: Option<Guard>) {
        let origin = other.counts.own_origin().0;
        let entries = self.streams.get(&origin).cloned().unwrap_or_default();
        for batch in entries.iter().flat_map(|(last, entry)| batches_of(entry, *last).unwrap()) {
            let admission = self.counts.admits(origin, batch.number);
            let is_again = admission == BatchAdmission::Known && guard == Some(Guard::VisitOnce);
            if admission == BatchAdmission::Next || is_again {
                let (slot, _) = self.counts.slot_for(origin, "node").unwrap();
                self.counts.note(BatchId { slot, number: batch.number });
                *self.rows.entry(origin).or_default() += batch.content.len() as u64;
            }
        }
        if self.counts.counted_of(origin) < self.noted_of(origin) {
            let slot = self.counts.begin_snapshot(origin, "node").unwrap();
            self.counts.end_snapshot(slot, other.counts.counted_of(origin), 0);
            self.rows.insert(origin, other.rows.get(&origin).copied().unwrap_or(0));
        }
    }
}

pub(crate) struct World {
    sites: super::World,
    counting: [Counting; 2],
    visits: [u64; 2],
    /// The step of the separation at which a Redis loses everything, and its site.
    lost: Option<(usize, usize)>,
    /// True if a Redis loses everything after the sites have met again.
    is_lost_again: bool,
    /// Steps in a hundred that concern links.
    busy: usize,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut sites = super::World::new(seed, guard, trace);
        let rng = &mut sites.rng;
        let retention_ms = RETENTIONS_MS[rng.below(RETENTIONS_MS.len())];
        let lost = (TOGETHER + 1 + rng.below(APART), rng.below(3));
        let (is_lost_again, busy) = (rng.permille(500), [10, 40][rng.below(2)]);
        sites.retention_ms = retention_ms;
        let mut world = World {
            sites,
            counting: [Counting::new(0), Counting::new(1)],
            visits: [0; 2],
            lost: Some(lost).filter(|(_, site)| *site < 2),
            is_lost_again,
            busy,
        };
        note!(world.sites, "Redis keeps a state for {} minutes", retention_ms / 60_000);
        if world.sites.rng.permille(600) {
            world.meet().unwrap();
        }
        world
    }

    fn draw_steps(&mut self) -> usize {
        TOGETHER + APART
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.sites.cut = number > TOGETHER;
        let passed_ms = if self.sites.cut { HOUR_MS / APART as u64 } else { self.sites.rng.below(2_000) as u64 };
        self.pass(passed_ms);
        if let Some((_, site)) = self.lost.filter(|(at, _)| *at == number) {
            self.lose_everything(site);
        }
        self.act();
        self.sites.broken.take().map_or(Ok(()), Err)
    }

    fn rest(&mut self) -> Result<(), String> {
        self.sites.cut = false;
        self.meet()?;
        if self.is_lost_again {
            let site = usize::from(!self.sites.sites[0].redis.may_lack);
            self.lose_everything(site);
            self.meet()?;
        }
        self.check()
    }
}

impl World {
    /// Some time passes.
    fn pass(&mut self, ms: u64) {
        let super::World { now, step, sites, retention_ms, .. } = &mut self.sites;
        *now += ms;
        *step = (*now / 1_000) as usize;
        for site in sites {
            let data = &mut site.redis.data;
            data.expire(Duration::from_millis(*retention_ms), *now);
            for stream in &mut data.streams {
                if let Some(first) = first_kept(&stream.ids(), now.saturating_sub(*retention_ms)) {
                    stream.keep_from(first);
                }
            }
        }
    }

    fn act(&mut self) {
        let rng = &mut self.sites.rng;
        let (site, index) = (rng.below(2), rng.below(SLUGS) as Index);
        if rng.below(100) < self.busy {
            match rng.below(10) {
                // The node refuses changes.
                _ if self.sites.is_behind(site) => {}
                0..4 => self.sites.create(site, index),
                4..7 => self.sites.change(site, index),
                _ => self.sites.delete(site, index),
            }
            return;
        }
        match rng.below(10) {
            0..3 => {
                self.counting[site].visit();
                self.visits[site] += 1;
                note!(self.sites, "visit {} of site {site}", self.visits[site]);
            }
            3..5 => self.follow(site),
            5 => self.sites.trim(site),
            6 => self.sites.sites[site].relay = Relay::default(),
            _ => self.relay(site),
        }
    }

    fn follow(&mut self, site: usize) {
        self.sites.follow(site);
        self.counting[site].publish();
    }

    /// The relay of a site works for a while.
    fn relay(&mut self, site: usize) {
        (0..RELAY_STEPS).for_each(|_| self.sites.relay(site));
        if self.sites.cut {
            return;
        }
        let [one, other] = &mut self.counting;
        let (own, other) = if site == 0 { (one, other) } else { (other, one) };
        other.copy_to(own);
        own.follow(other, self.sites.guard);
    }

    fn lose_everything(&mut self, site: usize) {
        self.sites.lose_everything(site);
        let counting = &mut self.counting[site];
        counting.streams.clear();
        counting.noted.clear();
    }

    /// The sites reach each other for some time.
    fn meet(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.pass(ROUND_MS);
            for site in 0..2 {
                self.follow(site);
                self.relay(site);
                self.sites.look(site)?;
            }
            self.sites.broken.take().map_or(Ok(()), Err)?;
        }
        (0..2).for_each(|site| self.follow(site));
        Ok(())
    }

    /// The promises about what there is in the end.
    fn check(&self) -> Result<(), String> {
        for (site, counting) in self.counting.iter().enumerate() {
            let counted = [0, 1].map(|of| counting.rows.get(&origin_of(of)).copied().unwrap_or(0));
            if counted != self.visits {
                return Err(format!("site {site} counts {counted:?} of the visits {:?}", self.visits));
            }
        }
        let [one, other] = &self.sites.sites;
        if [one, other].into_iter().any(|site| site.redis.may_lack || site.needs_copy) {
            let needs_nobody = self.sites.retention_ms == WEEK_MS;
            return if needs_nobody { Err("a site needs an operator after an hour".to_owned()) } else { Ok(()) };
        }
        if one.states != other.states {
            return Err(format!("one site has {:?}, and the other one {:?}", one.states, other.states));
        }
        for (index, state) in one.redis.data.states.iter().chain(other.redis.data.states.iter()) {
            if one.states.get(*index) != Some(state) {
                return Err(format!("a Redis has {state:?}, and its node {:?}", one.states.get(*index)));
            }
        }
        for (index, state) in one.states.iter().filter(|(_, state)| state.is_link()) {
            if self.sites.ended.contains(&state.version().claim) {
                return Err(format!("slug {index} has a deleted link again: {state:?}"));
            }
        }
        for (claim, (index, ..)) in &self.sites.live {
            let state = one.states.get(*index).filter(|state| state.is_link());
            let is_there = state.is_some_and(|state| state.version().claim == *claim);
            if !is_there && !self.sites.reported.contains(claim) {
                return Err(format!("claim {claim} of slug {index} is lost: {state:?}"));
            }
        }
        Ok(())
    }
}

/// Returns a world whose sites have not met, with a retention shorter than the separation.
fn apart() -> World {
    let mut world = World::new(0, None, false);
    world.sites = super::World::new(0, None, false);
    world.sites.retention_ms = HOUR_MS * 2 / 3;
    world
}

/// Lets the relay of site 0 find that its position in the first stream of site 1 is lost. That site has two links there.
fn begin_comparison(world: &mut World) {
    [0, 2].into_iter().for_each(|index| world.sites.create(1, index));
    world.sites.sites[1].redis.data.streams[0].keep_last(1);
    while world.sites.sites[0].relay.lost[0].is_none() {
        world.sites.relay(0);
    }
}

/// Cuts the sites off for an hour, in which the links expire. Returns true if site 0 then says that it may lack them.
fn separate(world: &mut World) -> bool {
    world.sites.cut = true;
    world.pass(HOUR_MS);
    assert_eq!(world.sites.sites[1].redis.data.states.iter().count(), 0, "the links have expired");
    world.sites.cut = false;
    world.meet().unwrap();
    world.sites.sites[0].redis.may_lack
}

#[test]
fn relay_that_stands_still_finds_a_long_gap() {
    let mut world = apart();
    world.meet().unwrap();
    begin_comparison(&mut world);
    assert!(!world.sites.sites[0].redis.may_lack, "the gap is short");
    assert!(separate(&mut world));
}

#[test]
fn broken_off_first_comparison_is_a_gap() {
    let mut world = apart();
    begin_comparison(&mut world);
    world.sites.sites[0].relay = Relay::default();
    assert!(separate(&mut world));
}

#[test]
fn pass_counts_from_its_beginning() {
    let mut world = apart();
    world.meet().unwrap();
    // The relay has read the first stream, and not yet the second one.
    while world.sites.sites[0].relay.part == 0 {
        world.sites.relay(0);
    }
    [0, 2].into_iter().for_each(|index| world.sites.create(1, index));
    world.sites.sites[1].redis.data.streams[0].keep_last(1);
    assert!(separate(&mut world), "the pass ends an hour later");
}

#[test]
fn node_behind_takes_no_link_for_missing() {
    let mut world = apart();
    world.meet().unwrap();
    // Two links in one stream reach the Redis of site 0. Its node reads neither, and Redis keeps the entry of the second.
    [0, 2].into_iter().for_each(|index| world.sites.create(1, index));
    (0..4 * RELAY_STEPS).for_each(|_| world.sites.relay(0));
    let stored = |world: &World| world.sites.sites[0].redis.data.states.iter().count();
    assert_eq!(stored(&world), 2);
    world.sites.cut = true;
    world.pass(HOUR_MS);
    assert_eq!(stored(&world), 0, "their states have expired");
    // The relay still has its position, so the site has everything of the other one.
    world.sites.cut = false;
    world.meet().unwrap();
    let Site { redis, needs_copy, states, .. } = &world.sites.sites[0];
    assert!(!redis.may_lack);
    assert!(*needs_copy);
    assert!(states.get(0).is_none());
}
