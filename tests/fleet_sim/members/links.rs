//! Links that depend on leases: a node's process and its values, links made with Redis and alone, the take-over, and
//! the invariants of all that.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carom_model::replication::State;
use carom_model::replication::lease::{self, is_replicated};
use carom_model::replication::members::{Lease, Members, NodeId};
use carom_model::replication::rules::{self, Verdict};

use super::{AFTER, Fate, Faults, Guard, Heart, Made, Node, Order, Owner, Wake, World};
use crate::codes::{Index, States, VALUES, issued, new_link};
use crate::redis::MARGIN;
use crate::trace::note;

/// Values of one lease.
const WANT: u64 = 3;

/// Values that a core has at once.
const QUEUE: usize = 2;

/// An order that waits longer than this has met a process that stood still.
const STALL: u64 = 300;

/// Rounds within which everything must come to rest.
const ROUNDS: usize = 60;

impl Node {
    pub(super) fn new(rate: u64, booted: (u64, u64)) -> Node {
        Node {
            rate,
            booted,
            boot: 0,
            sleeps: None,
            cut_until: 0,
            lease: Lease::new(None, Duration::from_millis(AFTER)),
            members: Members::default(),
            heart: Heart::Idle,
            values: VecDeque::new(),
            orders: VecDeque::new(),
            granted: None,
            reclaimed: VecDeque::new(),
            checked: None,
            given_up: 0,
            rows: VecDeque::new(),
            links: States::default(),
            undelivered: BTreeSet::new(),
            compare: false,
            heard: None,
            floor: 0,
        }
    }

    /// The time since this start of the machine, as its own clock measures it.
    pub(super) fn clock(&self, now: u64) -> Duration {
        let (at, shown) = self.booted;
        Duration::from_millis(shown + (now - at) * self.rate / 1_000)
    }

    /// Handles an answer in the heartbeat thread.
    pub(super) fn hear(
        &mut self,
        (sent, now): (Duration, Duration),
        beats: &[(NodeId, u64)],
        writes_down: bool,
        (guard, patience): (Option<Guard>, Duration),
    ) {
        self.lease.confirm(sent, if guard == Some(Guard::Answer) { sent } else { now });
        if guard == Some(Guard::Lost) && self.lease.is_lost() {
            self.lease = Lease::new(Some(sent), patience);
        }
        let watched = if guard == Some(Guard::Anew) { Duration::MAX } else { Duration::from_millis(AFTER) };
        self.members.observe(beats, (sent, now), watched);
        if writes_down && (!self.lease.is_lost() || guard == Some(Guard::Fresh)) {
            self.heard = Some((self.boot, sent));
        }
    }

    /// A process begins.
    fn start(&mut self, now: u64, guard: Option<Guard>, patience: Duration) {
        let heard = self.heard.filter(|(boot, _)| *boot == self.boot).map(|(_, heard)| heard);
        self.lease = Lease::resume(heard, self.clock(now), patience);
        if guard == Some(Guard::Heard) {
            self.lease = Lease::new(None, patience);
        } else if !self.lease.has_begun() {
            self.rows.clear();
        }
        self.members = Members::default();
        self.heart = Heart::Idle;
        (self.granted, self.checked, self.given_up) = (None, None, 0);
        self.values.clear();
        self.orders.clear();
        self.reclaimed.clear();
    }
}

impl World {
    pub(super) fn wake(&mut self, node: usize, wake: Wake) {
        let (now, guard, patience) = (self.now, self.guard, self.patience());
        let shown = self.rng.below(1_000_000) as u64;
        let at = &mut self.nodes[node];
        if wake == Wake::Reboots {
            (at.boot, at.booted) = (at.boot + 1, (now, shown));
        }
        if wake != Wake::GoesOn {
            at.start(now, guard, patience);
            if self.faults.cut && self.rng.permille(200) {
                self.nodes[node].cut_until = now + AFTER / 4;
            }
        }
    }

    /// The owner of a value, and whether Redis has forgotten it.
    fn owner(&self, value: u64) -> &Owner {
        self.owners.range(..=value).next_back().map(|(_, owner)| owner).unwrap()
    }

    fn is_others(&self, node: usize, value: u64) -> bool {
        let owner = self.owner(value);
        !owner.torn && owner.node != node
    }

    /// True if there was a link, or may be one, that Redis does not have.
    fn is_unknown(&self, value: u64) -> bool {
        self.asked.contains(&value) && self.states.get(issued(value)).is_none()
    }

    /// A code changes in Redis.
    pub(super) fn change(&mut self, index: Index, verdict: Verdict) -> Result<Verdict, String> {
        if let Verdict::Accepted(state) = &verdict {
            if self.states.get(index).is_some_and(|stored| stored.version().claim != state.version().claim) {
                return Err(format!("code {index} has two links that Redis accepted"));
            }
            self.states.set(index, Some(state.clone()));
        }
        Ok(verdict)
    }

    /// The script that takes the leases of a node that has gone, and its answer.
    pub(super) fn reclaim(&mut self, node: usize, gone: usize, beat: u64) -> Result<(), String> {
        let fate = self.fate(node);
        let last = self.space.beats.get(&gone).map(|last| self.mark(*last));
        let is_same = last == Some(beat) || self.guard == Some(Guard::Unchanged);
        if !matches!(fate, Fate::Answered | Fate::Unanswered) || !is_same {
            return Ok(());
        }
        let (heard, last) = self.beaten[gone].unwrap();
        // Redis has lost the last heartbeat: it was watched without it.
        let is_unsaid = last != beat && self.guard != Some(Guard::Unchanged);
        let silent = self.now - self.outages - heard;
        note!(self, "node {node} takes over from {gone}, silent for {silent}, at {}: {fate:?}", self.now);
        if !is_unsaid && silent * 1_050 + 20_000 < AFTER * 1_000 {
            return Err(format!("node {gone} was taken over from after {silent} ms"));
        }
        let theirs = self.space.leases.iter().filter(|(_, owner)| **owner == gone);
        let taken: Vec<u64> = theirs.map(|(start, _)| *start).collect();
        for start in &taken {
            self.space.leases.insert(*start, node);
            let owner = self.owners.entry(*start).or_insert(Owner { node: gone, torn: false });
            if owner.node != gone && !owner.torn {
                return Err(format!("the lease of {start} was taken over from {gone} and belongs to {}", owner.node));
            }
            *owner = Owner { node, torn: owner.torn || is_unsaid };
            let unknown: Vec<u64> = (*start..*start + WANT).filter(|value| self.is_unknown(*value)).collect();
            self.contested.extend(unknown);
        }
        self.space.beats.remove(&gone);
        if fate == Fate::Answered {
            self.nodes[node].reclaimed.extend(taken);
        }
        Ok(())
    }

    /// A core asks for a link with its next value, and the gateway asks Redis.
    pub(super) fn ask(&mut self, node: usize) -> Result<bool, String> {
        let Some((value, is_early)) = self.nodes[node].values.pop_front() else { return Ok(false) };
        self.claims += 1;
        let link = State::Link(Arc::new(new_link(issued(value), self.claims, self.now)));
        self.asked.insert(value);
        if is_early && self.is_others(node, value) {
            self.contested.insert(value);
        }
        let (index, fate) = (issued(value), self.fate(node));
        let mut answer = None;
        match fate {
            Fate::Lost => {}
            Fate::Late => self.late.push((node, Some((index, link.clone())))),
            Fate::Answered | Fate::Unanswered => {
                let verdict = rules::claim(self.states.get(index), &link);
                answer = Some(self.change(index, verdict)?).filter(|_| fate == Fate::Answered);
            }
        }
        let at = &mut self.nodes[node];
        let alone = at.lease.holds(at.clock(self.now));
        let order = Order { value, link, answer, alone, at: self.now };
        at.orders.push_back(order);
        note!(self, "node {node} asks for value {value}, claim {}: {fate:?}, alone: {alone}", self.claims);
        Ok(true)
    }

    /// The writer of a node decides an order, syncs and acknowledges.
    pub(super) fn commit(&mut self, node: usize) -> Result<bool, String> {
        let Some(Order { value, link, answer, alone, at }) = self.nodes[node].orders.pop_front() else {
            return Ok(false);
        };
        let (index, claim) = (issued(value), link.version().claim);
        let mine = self.nodes[node].links.get(index).cloned();
        match answer {
            Some(Verdict::Accepted(state)) => {
                let at = &mut self.nodes[node];
                at.undelivered.remove(&value);
                at.links.set(index, Some(state));
                // What Redis has forgotten meanwhile does not come by in its stream, and is brought again.
                at.compare |= self.states.get(index).is_none();
                self.made.push(Made { value, claim, alone: false });
            }
            Some(verdict) => {
                if let Verdict::Held(state) = verdict {
                    self.adopt(node, value, &state);
                }
            }
            None if mine.is_some() || !alone => {}
            None => {
                if self.is_others(node, value) {
                    if self.now - at <= STALL {
                        return Err(format!("node {node} used value {value} alone, which another has taken over"));
                    }
                    self.contested.insert(value);
                }
                note!(self, "node {node} makes a link alone with value {value}");
                let at = &mut self.nodes[node];
                at.links.set(index, Some(link));
                at.undelivered.insert(value);
                self.made.push(Made { value, claim, alone: true });
            }
        }
        Ok(true)
    }

    fn adopt(&mut self, node: usize, value: u64, theirs: &State) -> bool {
        let (at, index) = (&mut self.nodes[node], issued(value));
        let adopts = !at.undelivered.contains(&value) && rules::adopts(at.links.get(index), theirs);
        if adopts {
            at.links.set(index, Some(theirs.clone()));
        }
        adopts
    }

    /// Delivers links that were made alone or that Redis has forgotten.
    pub(super) fn deliver(&mut self, node: usize) -> Result<bool, String> {
        let Some(value) = self.nodes[node].undelivered.first().copied() else { return Ok(false) };
        let (index, fate) = (issued(value), self.fate(node));
        if !matches!(fate, Fate::Answered | Fate::Unanswered) {
            return Ok(true);
        }
        let mine = self.nodes[node].links.get(index).cloned().unwrap();
        let verdict = rules::offer(self.states.get(index), &mine);
        let verdict = self.change(index, verdict)?;
        note!(self, "node {node} brings value {value}: {fate:?}, held: {}", matches!(verdict, Verdict::Held(_)));
        if fate == Fate::Answered {
            self.nodes[node].undelivered.remove(&value);
            if let Verdict::Held(theirs) = verdict {
                self.adopt(node, value, &theirs);
            }
        }
        Ok(true)
    }

    /// A node hears what others did; after a loss it finds what Redis lacks.
    pub(super) fn follow(&mut self, node: usize) -> bool {
        if self.fate(node) != Fate::Answered {
            return false;
        }
        let theirs: Vec<(Index, State)> = self.states.iter().cloned().collect();
        let first = issued(0);
        let mut moved = false;
        for (index, state) in &theirs {
            moved |= self.adopt(node, u64::from(index - first), state);
        }
        let at = &mut self.nodes[node];
        if std::mem::take(&mut at.compare) {
            let lacking = at.links.iter().map(|(index, _)| *index).filter(|index| self.states.get(*index).is_none());
            at.undelivered.extend(lacking.map(|index| u64::from(index - first)));
            moved = true;
        }
        moved
    }

    /// A piece of what the replenisher does.
    pub(super) fn replenish(&mut self, node: usize) -> bool {
        let at = &mut self.nodes[node];
        // The thread looks at that only between two leases.
        let is_between = at.granted.is_none() && at.checked.is_none();
        let is_late = at.given_up != at.lease.losses() && is_between;
        if is_late && self.guard != Some(Guard::GiveUp) {
            at.given_up = at.lease.losses();
            at.rows.clear();
            at.reclaimed.clear();
        }
        if let Some(free) = at.checked.take() {
            for value in free.into_iter().filter(|value| at.links.get(issued(*value)).is_none()) {
                at.rows.push_front(value);
            }
        } else if let Some(start) = at.granted.take() {
            at.rows.extend(start..start + WANT);
        } else if at.values.len() < QUEUE && !at.rows.is_empty() {
            let value = at.rows.pop_front().unwrap();
            at.values.push_back((value, !is_late));
        } else if let Some(start) = at.reclaimed.pop_front() {
            self.check_reclaimed(node, start);
        } else {
            return at.rows.len() < 2 * WANT as usize && self.lease(node);
        }
        true
    }

    /// Redis is asked which codes of a lease have a state; without an answer they stay unused.
    fn check_reclaimed(&mut self, node: usize, start: u64) {
        if self.fate(node) != Fate::Answered {
            return;
        }
        let mut free: Vec<u64> = (start..start + WANT).collect();
        self.contested.extend(free.iter().filter(|value| self.is_unknown(**value)).copied().collect::<Vec<_>>());
        free.retain(|value| self.states.get(issued(*value)).is_none() || self.guard == Some(Guard::Used));
        note!(self, "node {node} finds {free:?} free in the lease of {start}");
        self.nodes[node].checked = Some(free);
    }

    fn lease(&mut self, node: usize) -> bool {
        let has_begun = self.nodes[node].lease.has_begun() || self.guard == Some(Guard::Begun);
        if !has_begun || self.space.counter.next + 2 * MARGIN > VALUES {
            return false;
        }
        let fate = self.fate(node);
        if !matches!(fate, Fate::Answered | Fate::Unanswered) {
            return false;
        }
        let (floor, server) = (self.nodes[node].floor, self.server.to_string());
        let start = lease::lease(&mut self.space.counter, floor, WANT, MARGIN, &server).start;
        self.space.leases.insert(start, node);
        self.owners.insert(start, Owner { node, torn: false });
        let confirmed = u64::from(self.rng.permille(800));
        note!(self, "node {node} leases {start}: {fate:?}, confirmed: {confirmed}");
        if confirmed > 0 {
            self.replicate();
        }
        if fate == Fate::Answered && is_replicated(confirmed, 1) {
            let at = &mut self.nodes[node];
            (at.granted, at.floor) = (Some(start), start + WANT);
        }
        true
    }

    /// All is well again, and everything comes to rest.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        self.step += 1;
        self.faults = Faults::default();
        self.now = self.now.max(self.away_until);
        while !self.late.is_empty() {
            self.carry_out_late()?;
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].cut_until = 0;
            if let Some((_, wake)) = self.nodes[node].sleeps.take() {
                self.wake(node, wake);
            }
        }
        for _ in 0..ROUNDS {
            let mut moved = false;
            for node in 0..self.nodes.len() {
                self.beat(node)?;
                // What waits since before has met a process that stood still.
                moved |= self.commit(node)? | self.deliver(node)? | self.follow(node);
            }
            self.pass(1)?;
            if !moved {
                return Ok(());
            }
        }
        Err("it does not come to rest".to_owned())
    }

    /// Checks the invariants at the end.
    pub(super) fn check(&self) -> Result<(), String> {
        for (number, node) in self.nodes.iter().enumerate() {
            if node.links != self.states || !node.undelivered.is_empty() {
                let differs =
                    (0..VALUES).find(|value| node.links.get(issued(*value)) != self.states.get(issued(*value)));
                return Err(format!("node {number} has another state than Redis: {differs:?}, {:?}", node.undelivered));
            }
        }
        for Made { value, claim, alone } in &self.made {
            let index = issued(*value);
            let is_there = self.states.get(index).is_some_and(|state| state.version().claim == *claim);
            let is_excused = self.contested.contains(value) || self.owner(*value).torn;
            if !is_there && !is_excused && (*alone || !self.forgotten.contains(&index)) {
                return Err(format!("link {claim} with value {value} is lost, made alone: {alone}"));
            }
        }
        Ok(())
    }
}
