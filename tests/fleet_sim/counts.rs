//! Visits of a fleet: every node counts the visits of all nodes, each of them once.
//!
//! `carom_model::visits::{batches, exchange, origins}` decide, as in production. The model is what they write to and ask:
//! a log and a store that a power loss cuts off (`counts/node.rs`), and a Redis that keeps a short window of each stream,
//! loses writes or everything, and whose commands go astray (`counts/redis.rs`, `counts/exchange.rs`). Nodes are killed
//! between any two steps, also between those of a fold or a snapshot. Some never come back, and the directory of some is
//! replaced by an older copy of it. `counts/restarts.rs` has schedules that are written down, because few seeds draw them.
//!
//! The promises, once traffic stops and everything is well:
//!
//! 1. All nodes count the same visits.
//! 2. No visit counts twice on any node, at any time.
//! 3. A visit counts unless its node was killed before the visit was in the log (or lost its power before that was synced),
//!    or is gone for good before Redis had the batch, all earlier ones of its origin, and its number. A node that is killed
//!    has the batches that it has folded in its store alone, so they reach Redis and the others in a snapshot or never.
//! 4. If a batch is known to exist and no node has it any more, all nodes say that something is missing.
//!
//! The model leaves out:
//!
//! * Ends of links: a batch that says so drops counts of its origin.
//! * Hours, and limits of memory and of windows in bytes.
//! * A directory that is replaced by an older copy while Redis cannot be asked, or has forgotten the origin: its next
//!   batches get numbers that others have already.
//! * A copy that comes back after an older one has run, while Redis lacked batches of it: both have given their numbers.

mod exchange;
mod node;
mod redis;
mod restarts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_model::visits::origins::OriginId;

use self::node::{Disk, Node};
use self::redis::Redis;
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::trace::note;

/// Visits of one schedule.
const VISITS_MAX: usize = 60;

/// Seconds within which everything must come to rest: several snapshots, each with a request that is repeated.
const ROUNDS_MAX: usize = 400;

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A batch whose number is known is skipped.
    Once,
    /// A batch behind a missing one waits.
    Gap,
    /// A batch is published after its sync.
    Synced,
    /// Logs of the last process are synced before their batches are published.
    Recovered,
    /// The commit of a fold's mark has the numbers of its batches.
    Reached,
    /// Rows of a log count after its mark.
    Mark,
    /// An older copy of a directory is another origin.
    Renew,
    /// Rows of a snapshot count after its end.
    Building,
    /// A snapshot replaces what is counted in memory.
    Replaced,
    /// A node tells Redis the numbers of origins that it has forgotten.
    Lagging,
    /// A node that got no answer finds out what Redis has.
    Unsure,
    /// Origins that lack a batch take turns.
    Turns,
    /// A slot is free for another origin once its rows are removed.
    Emptied,
    /// The stream keeps the batches of earlier entries.
    Earlier,
}

/// The faults of a schedule.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    command: usize,
    kill: bool,
    power: bool,
    cut: bool,
    empty: bool,
    failover: bool,
    gone: bool,
    copy: bool,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        let command = [0, 60, 200][rng.below(3)];
        let mut any = || rng.permille(400);
        let mut faults = Faults {
            command,
            kill: any(),
            power: any(),
            cut: any(),
            empty: any(),
            failover: any(),
            gone: any(),
            copy: any(),
        };
        if faults.copy {
            (faults.empty, faults.failover, faults.cut, faults.power, faults.command) = (false, false, false, false, 0);
        }
        faults
    }
}

/// A visit.
#[derive(Clone, Debug)]
struct Visit {
    node: usize,
    /// True if its node lost it before it was durable, or with its directory.
    is_lost: bool,
    /// True once Redis has it, and says so.
    is_known: bool,
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    rng: Rng,
    faults: Faults,
    redis: Redis,
    nodes: Vec<Node>,
    visits: Vec<Visit>,
    /// The visits of each entry that Redis has got, with its origin and its last batch.
    sent: Vec<(OriginId, u64, Vec<u16>)>,
    /// The last batch of each origin that Redis lacked when the node started, and that was only in its store.
    unsent: BTreeMap<OriginId, u64>,
    /// Older copies of directories.
    copies: Vec<(usize, Disk)>,
    /// The time since boot, which is the same on all nodes.
    now: Duration,
    step: usize,
    guard: Option<Guard>,
    trace: bool,
    /// True if Redis keeps every batch and loses nothing, and so does each node.
    is_complete: bool,
    ids: u64,
    requests: u64,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed);
        let faults = Faults::draw(&mut rng);
        let is_complete = rng.permille(400);
        let window = if is_complete { usize::MAX } else { 1 + rng.below(4) };
        let count = 2 + rng.below(2);
        let mut world = World {
            rng,
            faults,
            redis: Redis::new(window),
            nodes: (0..count).map(|node| Node::new(format!("n{node}"))).collect(),
            visits: Vec::new(),
            sent: Vec::new(),
            unsent: BTreeMap::new(),
            copies: Vec::new(),
            now: Duration::from_secs(1_000),
            step: 0,
            guard,
            trace,
            is_complete,
            ids: 0,
            requests: 0,
        };
        note!(world, "{count} nodes, streams of {window}, {faults:?}");
        (0..count).for_each(|node| world.start(node));
        world
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(140)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        (self.step, self.now) = (number, self.now + Duration::from_millis(self.rng.below(1_500) as u64));
        for _ in 0..6 {
            if self.act() {
                break;
            }
        }
        self.count_once()
    }

    fn rest(&mut self) -> Result<(), String> {
        self.step += 1;
        note!(self, "everything is well again");
        self.faults = Faults::default();
        self.redis.up = true;
        while self.late() {}
        let more = if self.rng.permille(200) { 60 } else { 0 };
        let mut rounds = more;
        for node in 0..self.nodes.len() {
            self.nodes[node].cut = false;
            if !self.nodes[node].is_gone && self.nodes[node].process.is_none() {
                self.start(node);
            }
        }
        for _ in 0..ROUNDS_MAX {
            (self.step, self.now) = (self.step + 1, self.now + Duration::from_secs(1));
            for node in 0..self.nodes.len() {
                if !self.nodes[node].is_gone {
                    self.go_on(node);
                }
            }
            self.count_once()?;
            if self.agree().is_ok() {
                if rounds == 0 {
                    return Ok(());
                }
                rounds -= 1;
            }
        }
        self.agree()
    }
}

impl World {
    fn next_id(&mut self) -> OriginId {
        self.ids += 1;
        OriginId(self.ids)
    }

    fn start(&mut self, node: usize) {
        let id = self.next_id();
        self.nodes[node].start(id, self.guard);
        self.note_unsent(node);
        // Without an answer, the process goes on.
        let _ = self.compare(node);
        self.process(node).is_checked = true;
        let origin = self.process(node).counts.own_origin().0;
        note!(self, "node {node} starts, as {origin}");
    }

    /// Notes whether a node that starts has batches in its store alone. The last process folded them, as at the end of an
    /// hour, and could not publish them before it was killed. Neither the log nor Redis has them.
    fn note_unsent(&mut self, node: usize) {
        let own = self.process(node).counts.table().own();
        let (id, stored) = (own.id, own.applied);
        if self.redis.last(id) < stored {
            self.unsent.insert(id, stored);
        }
    }

    /// Takes a step, if the one that was chosen can be taken.
    fn act(&mut self) -> bool {
        let node = self.rng.below(self.nodes.len());
        if self.nodes[node].is_gone {
            return false;
        }
        if self.nodes[node].process.is_none() {
            if self.rng.permille(700) {
                return false;
            }
            self.start(node);
            return true;
        }
        let guard = self.guard;
        match self.rng.below(100) {
            0..18 if self.visits.len() < VISITS_MAX => {
                self.visit(node);
                true
            }
            18..30 => self.nodes[node].write_log(guard),
            30..40 => self.nodes[node].sync_log(),
            40..47 => self.nodes[node].fold(guard),
            47..60 => {
                let _ = self.publish(node);
                true
            }
            60..74 => {
                let _ = self.turn(node);
                true
            }
            74..80 => self.give(node).is_ok(),
            80..87 => self.take(node).is_ok(),
            87..89 => self.nodes[node].search(guard),
            89 => self.late(),
            90 => {
                let server = self.rng.below(3);
                self.redis.replicate(server);
                true
            }
            _ => self.fault(node),
        }
    }

    /// A node is visited.
    fn visit(&mut self, node: usize) {
        let visit = self.visits.len() as u16;
        self.visits.push(Visit { node, is_lost: false, is_known: false });
        self.nodes[node].visit(visit);
        note!(self, "node {node} is visited: {visit}");
    }

    /// A node dies for good, with its disk.
    fn lose(&mut self, node: usize) {
        self.kill(node, false);
        self.nodes[node].is_gone = true;
        note!(self, "node {node} is gone");
    }

    /// Something goes wrong, or is well again.
    fn fault(&mut self, node: usize) -> bool {
        let faults = self.faults;
        match self.rng.below(10) {
            0 | 1 if faults.kill => self.kill(node, false),
            2 if faults.power => self.kill(node, true),
            3 | 4 if faults.cut => {
                let (all, cut) = (self.rng.permille(300), self.rng.permille(500));
                if all {
                    self.redis.up = !cut;
                } else {
                    self.nodes[node].cut = cut;
                }
                note!(self, "node {node} (or all: {all}) is cut off: {cut}");
            }
            5 if faults.empty => {
                let server = if self.rng.permille(500) { Some(self.rng.below(3)) } else { None };
                self.redis.empty(server);
                self.is_complete = false;
                note!(self, "Redis is empty: {server:?}");
            }
            6 if faults.failover => {
                let server = self.rng.below(3);
                self.redis.fail_over(server);
                self.is_complete = false;
                note!(self, "failover of {server}");
            }
            7 if faults.gone && self.nodes.iter().filter(|node| !node.is_gone).count() > 2 => self.lose(node),
            8 if faults.copy => self.copies.push((node, self.nodes[node].disk.clone())),
            9 if faults.copy => return self.replace(node),
            _ => return false,
        }
        true
    }

    fn kill(&mut self, node: usize, power: bool) {
        let rng = if power { Some(&mut self.rng) } else { None };
        let lost = self.nodes[node].kill(rng);
        note!(self, "node {node} is killed, power lost: {power}; lost: {lost:?}");
        for visit in lost {
            let visit = &mut self.visits[usize::from(visit)];
            visit.is_lost |= visit.node == node;
        }
    }

    /// An older copy takes the place of a directory.
    fn replace(&mut self, node: usize) -> bool {
        let Some(at) = self.copies.iter().position(|(of, _)| *of == node) else { return false };
        self.kill(node, false);
        let (_, copy) = self.copies.swap_remove(at);
        let kept = copy.everything();
        for (number, visit) in self.visits.iter_mut().enumerate() {
            visit.is_lost |= visit.node == node && !kept.contains(&(number as u16));
        }
        // What others had been told of and had not applied yet may be lost with the directory.
        self.is_complete = false;
        self.nodes[node].disk = copy;
        note!(self, "the directory of node {node} is an older copy, with {kept:?}");
        self.start(node);
        let (own, last) = self.process(node).counts.own_origin();
        // This directory gives the numbers of their later batches to others, since Redis lacks those.
        self.copies.retain(|(_, copy)| copy.last_batch_as(own).is_none_or(|number| number <= last));
        true
    }

    fn live(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.is_gone)
    }

    /// No visit counts twice.
    fn count_once(&self) -> Result<(), String> {
        for (number, node) in self.live() {
            if let Some((visit, times)) = node.totals(self.guard).into_iter().find(|(_, times)| *times > 1) {
                return Err(format!("node {number} counts visit {visit} {times} times"));
            }
        }
        Ok(())
    }

    /// One second of a node that is well.
    fn go_on(&mut self, node: usize) {
        let guard = self.guard;
        self.nodes[node].write_log(guard);
        self.nodes[node].sync_log();
        let _ = self.publish(node);
        let _ = self.turn(node);
        for _ in 0..2 {
            let _ = self.give(node);
            let _ = self.take(node);
        }
        if self.rng.permille(300) || self.process(node).is_fold_asked() {
            (0..3).for_each(|_| _ = self.nodes[node].fold(guard));
        }
        if self.rng.permille(100) {
            self.nodes[node].search(guard);
        }
    }

    /// True if no node can apply the batch of a visit: an earlier batch was only in the store of its node, and no other node
    /// got that in a snapshot.
    fn is_cut_off(&self, visit: u16) -> bool {
        let lacks = |node: &Node, id, number| {
            node.process.as_ref().is_none_or(|process| process.counts.counted_of(id) < number)
        };
        self.sent.iter().filter(|(_, _, visits)| visits.contains(&visit)).any(|(id, last, _)| {
            let unsent = self.unsent.get(id).filter(|unsent| *unsent < last);
            unsent.is_some_and(|unsent| self.live().all(|(_, node)| lacks(node, *id, *unsent)))
        })
    }

    /// All nodes count the same visits, and all that must count.
    fn agree(&self) -> Result<(), String> {
        let totals: Vec<(usize, BTreeMap<u16, u32>)> =
            self.live().map(|(number, node)| (number, node.totals(self.guard))).collect();
        let all: BTreeSet<u16> = totals.iter().flat_map(|(_, totals)| totals.keys().copied()).collect();
        for (node, totals) in &totals {
            if let Some(visit) = all.iter().find(|visit| !totals.contains_key(visit)) {
                return Err(format!("node {node} does not count visit {visit}, which others count"));
            }
        }
        for (number, visit) in self.visits.iter().enumerate() {
            let is_kept = !visit.is_lost && !self.nodes[visit.node].is_gone;
            let is_readable = || !self.is_cut_off(number as u16);
            let must_count = is_kept || (visit.is_known && self.is_complete && is_readable());
            if must_count && !all.contains(&(number as u16)) {
                return Err(format!("no node counts visit {number}: {visit:?}"));
            }
        }
        for (number, node) in self.live() {
            let Some(process) = &node.process else { continue };
            for (id, (published, _)) in self.redis.notes() {
                let counted = process.counts.counted_of(*id);
                if counted < *published && process.others.lacks().all(|(of, ..)| of != *id) {
                    return Err(format!(
                        "node {number} has {counted} of {published} batches of {id}, and does not say so"
                    ));
                }
            }
        }
        Ok(())
    }
}
