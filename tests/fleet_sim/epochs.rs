//! A world of its own for a Redis that loses all of its data while nodes are away and processes start again: slugs that only
//! a node which is away has must not be missing elsewhere.
//!
//! `replication::known_members`, `replication::confirmations` and `replication::passing` are driven as the heartbeat thread
//! drives them, with the record of the members on disk. The stream, the comparison and the heartbeats take one step each.
//! Nodes never count as gone, and none joins later: a node cannot know of members that came and went while it was away.
//!
//! The promises:
//!
//! 1. No node answers 404 for an acknowledged slug. A node takes every loss of Redis for one of a moment ago until its next
//!    heartbeat, because it has lost its connections.
//! 2. In the end every node has every slug, and answers 404 for others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_model::replication::confirmations::Confirmations;
use carom_model::replication::known_members::{KnownMembers, ListedMember, MemberRecord};
use carom_model::replication::passing::PassedBeats;

use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::trace::note;

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A Redis that has lost its data has another epoch.
    Epoch,
    /// The names of the members are on disk.
    Recorded,
    /// A member that is back counts once it has passed a heartbeat.
    Passed,
}

/// A heartbeat, as Redis shows it.
#[derive(Clone, Debug)]
struct Beat {
    number: u64,
    is_restoring: bool,
    passed: BTreeMap<String, u64>,
}

/// The data of Redis.
#[derive(Default, Debug)]
struct Redis {
    epoch: Option<String>,
    slugs: BTreeSet<u64>,
    stream: Vec<u64>,
    beats: BTreeMap<usize, Beat>,
}

/// The threads of a node that runs.
#[derive(Debug)]
struct Process {
    /// Used for the instants of heartbeats.
    passing: Confirmations,
    passed: PassedBeats,
    members: KnownMembers,
    /// The instant before which everything in the stream is in the store.
    followed: Duration,
    /// The losses of Redis before the last heartbeat; `None` before the first.
    heard: Option<usize>,
    /// True if another node may be about to bring back what Redis has lost.
    others_restore: bool,
}

/// A node: its disk, and its process if it runs.
#[derive(Debug)]
struct Node {
    slugs: BTreeSet<u64>,
    /// The place in the stream, and the losses of Redis before it was read.
    position: (usize, usize),
    compare: bool,
    record: MemberRecord,
    process: Option<Process>,
}

/// One run.
pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    /// Orders what happens.
    instant: u64,
    redis: Redis,
    /// Number of times that Redis has lost everything.
    losses: usize,
    nodes: Vec<Node>,
    /// The acknowledged slugs: all numbers below.
    slugs: u64,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed ^ 0x6570_6f63);
        let node = |_| Node {
            slugs: BTreeSet::new(),
            position: (0, 0),
            compare: false,
            record: MemberRecord::default(),
            process: None,
        };
        let nodes: Vec<Node> = (0..2 + rng.below(2)).map(node).collect();
        let (step, instant, losses, slugs) = (0, 1_000, 0, 0);
        let redis = Redis::default();
        let mut world = World { rng, guard, trace, step, instant, redis, losses, nodes, slugs };
        (0..world.nodes.len()).for_each(|node| world.start(node));
        world.round();
        world
    }

    fn draw_steps(&mut self) -> usize {
        40 + self.rng.below(60)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.step = number;
        let node = self.rng.below(self.nodes.len());
        match self.rng.below(100) {
            0..12 => self.create(node),
            12..30 => self.beat(node),
            30..44 => self.follow(node),
            44..52 => self.compare(node),
            52..74 => return self.read(node),
            74..78 => self.round(),
            78..86 => self.stop(node),
            86..96 => self.start(node),
            _ => self.lose_all(),
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), String> {
        self.step += 1;
        (0..self.nodes.len()).for_each(|node| self.start(node));
        (0..4).for_each(|_| self.round());
        let all: BTreeSet<u64> = (0..self.slugs).collect();
        for (number, node) in self.nodes.iter().enumerate() {
            if node.slugs != all {
                return Err(format!("node {number} has {:?} of {} slugs", node.slugs, self.slugs));
            }
            if !self.is_settled(number) {
                return Err(format!("node {number} still waits: {:?}", node.process));
            }
        }
        Ok(())
    }
}

impl World {
    fn tick(&mut self) -> Duration {
        self.instant += 1;
        Duration::from_millis(self.instant)
    }

    /// All nodes that run read, compare and send heartbeats.
    fn round(&mut self) {
        for _ in 0..4 {
            for node in 0..self.nodes.len() {
                self.follow(node);
                self.compare(node);
                self.beat(node);
            }
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        note!(self, "node {node} starts");
        let now = self.tick();
        let is_forgetful = self.guard == Some(Guard::Recorded);
        let record = if is_forgetful { MemberRecord::default() } else { self.nodes[node].record.clone() };
        // No process uses the numbers of another.
        let first = 1_000_000 * (node as u64 + 1) + 100 * self.instant;
        self.nodes[node].process = Some(Process {
            passing: Confirmations::new(first),
            passed: PassedBeats::default(),
            members: KnownMembers::new(node.to_string(), record, now),
            followed: Duration::ZERO,
            heard: None,
            others_restore: false,
        });
    }

    fn stop(&mut self, node: usize) {
        if self.nodes[node].process.take().is_some() {
            note!(self, "node {node} stops");
        }
    }

    fn lose_all(&mut self) {
        note!(self, "Redis comes back empty");
        self.redis = Redis::default();
        self.losses += 1;
    }

    /// A client creates a slug, which every other node gets from the stream.
    fn create(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            return;
        }
        let slug = self.slugs;
        self.slugs += 1;
        note!(self, "node {node} creates slug {slug}");
        self.redis.slugs.insert(slug);
        self.redis.stream.push(slug);
        self.nodes[node].slugs.insert(slug);
    }

    /// A node reads the stream, or notices that Redis has lost its place.
    fn follow(&mut self, node: usize) {
        let began = self.tick();
        let (end, losses) = (self.redis.stream.len(), self.losses);
        let Node { slugs, position, compare, process: Some(process), .. } = &mut self.nodes[node] else { return };
        if position.1 == losses {
            slugs.extend(&self.redis.stream[position.0..]);
        } else {
            *compare = true;
        }
        *position = (end, losses);
        if !*compare {
            process.followed = began;
        }
    }

    /// A node exchanges everything with Redis, if it has to.
    fn compare(&mut self, node: usize) {
        let Node { slugs, position, compare, process: Some(_), .. } = &mut self.nodes[node] else { return };
        if !*compare || position.1 != self.losses {
            return;
        }
        note!(self, "node {node} compares");
        let lacking = slugs.difference(&self.redis.slugs).copied();
        self.redis.stream.extend(lacking);
        self.redis.slugs.extend(slugs.iter());
        slugs.extend(&self.redis.slugs);
        *compare = false;
    }

    /// A node sends a heartbeat, and hears of the others.
    fn beat(&mut self, node: usize) {
        let (sent, now) = (self.tick(), self.tick());
        let (me, guard) = (node.to_string(), self.guard);
        let Redis { epoch, beats, .. } = &mut self.redis;
        let Node { compare, record, process: Some(process), .. } = &mut self.nodes[node] else { return };
        let number = process.passing.begin(sent);
        process.passed.follow(process.followed);
        let epoch = &*epoch.get_or_insert_with(|| number.to_string());
        beats.insert(node, Beat { number, is_restoring: *compare, passed: process.passed.numbers() });
        let others: Vec<(usize, Beat)> =
            beats.iter().filter(|(other, _)| **other != node).map(|(other, beat)| (*other, beat.clone())).collect();
        process.passed.hear(others.iter().map(|(other, beat)| (other.to_string(), beat.number)), now);
        let listed = beats.iter().map(|(other, beat)| {
            let passed = beat.passed.get(&me).and_then(|number| process.passing.sent(*number));
            let passed = if guard == Some(Guard::Passed) { Some(now) } else { passed };
            ListedMember { node: other.to_string(), mark: beat.number, passed }
        });
        let epoch = if guard == Some(Guard::Epoch) { "the only one" } else { epoch.as_str() };
        process.members.observe(epoch, listed, (sent, now), Duration::MAX);
        *record = process.members.record();
        let is_any_restoring = others.iter().any(|(_, beat)| beat.is_restoring);
        process.others_restore = is_any_restoring || !process.members.awaited().is_empty();
        process.heard = Some(self.losses);
        note!(self, "node {node} sends a heartbeat");
    }

    /// True if a node believes a denial of Redis.
    fn is_settled(&self, node: usize) -> bool {
        let process = self.nodes[node].process.as_ref();
        process.is_some_and(|process| process.heard == Some(self.losses) && !process.others_restore)
    }

    /// A client asks a node for a slug that it does not have.
    fn read(&self, node: usize) -> Result<(), String> {
        let missing = |slug: &u64| !self.nodes[node].slugs.contains(slug) && !self.redis.slugs.contains(slug);
        match (0..self.slugs).find(missing).filter(|_| self.is_settled(node)) {
            Some(slug) => Err(format!("node {node} answers 404 for slug {slug}, which exists")),
            None => Ok(()),
        }
    }
}
