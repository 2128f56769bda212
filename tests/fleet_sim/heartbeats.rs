//! Codes that may be generated, and that Redis does not have: a node answers 404 for them once all others have
//! confirmed the delivery of their links.
//!
//! `replication::confirmations` decides. A client that was not answered waits, as a *doubt*. Nodes send heartbeats in
//! any order, and one may arrive after its node has done other things. The heartbeats themselves are never lost: the
//! model takes a loss of any partition as one that keeps all doubts open.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_model::replication::absence;
use carom_model::replication::confirmations::{Confirmations, DeliveryReport};

use crate::absence::form_of;
use crate::codes::{Index, part_of};
use crate::guards::Guard;
use crate::trace::note;
use crate::world::World;

/// Clients that wait at once.
const DOUBTS_MAX: usize = 8;

/// A client that waits for 404.
#[derive(Debug)]
struct Doubt {
    node: usize,
    code: Index,
    /// The instant of the question.
    asked: u64,
    /// The event of the ledger before which a link must have been acknowledged to be missed.
    event: usize,
}

/// A heartbeat, as Redis shows it.
#[derive(Clone, Debug)]
struct Beat {
    number: u64,
    undelivered: u64,
    heard: BTreeMap<usize, u64>,
}

/// A node, as far as it confirms deliveries.
#[derive(Debug)]
struct HeartbeatNode {
    confirmations: Confirmations,
    /// The last heartbeat of each other node that it has heard of.
    heard: BTreeMap<usize, u64>,
    /// The instant before which all links are in Redis.
    delivered: u64,
    /// A heartbeat on its way.
    sent: Option<Beat>,
}

/// All nodes, their heartbeats in Redis, and their clients that wait.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    nodes: Vec<HeartbeatNode>,
    /// The last heartbeat of each node that Redis has.
    shown: BTreeMap<usize, Beat>,
    doubts: Vec<Doubt>,
    /// Orders what happens.
    instant: u64,
}

impl Heartbeats {
    pub(crate) fn new(nodes: usize) -> Heartbeats {
        let node = |node: usize| HeartbeatNode {
            confirmations: Confirmations::new(1_000_000 * node as u64),
            heard: BTreeMap::new(),
            delivered: 0,
            sent: None,
        };
        Heartbeats { nodes: (0..nodes).map(node).collect(), shown: BTreeMap::new(), doubts: Vec::new(), instant: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.instant += 1;
        self.instant
    }
}

impl World {
    /// A client waits for a node that can neither show the link nor deny it yet.
    pub(crate) fn doubt(&mut self, node: usize, code: Index) {
        if self.heartbeats.doubts.len() < DOUBTS_MAX {
            let (asked, event) = (self.heartbeats.tick(), self.ledger.now());
            note!(self, "node {node} is asked for code {code}, and waits");
            self.heartbeats.doubts.push(Doubt { node, code, asked, event });
        }
    }

    /// A node sends a heartbeat, or all of them send some and look at their clients that wait.
    pub(crate) fn send_beats(&mut self, node: usize) -> Result<bool, String> {
        if !self.rng.permille(300) {
            return Ok(self.step_heartbeat(node));
        }
        for _ in 0..6 {
            (0..self.nodes.len()).for_each(|node| _ = self.step_heartbeat(node));
        }
        for node in 0..self.nodes.len() {
            while self.resolve(node)? {}
        }
        Ok(true)
    }

    /// A node composes a heartbeat, or one arrives in Redis and is answered.
    fn step_heartbeat(&mut self, node: usize) -> bool {
        let Some(beat) = self.heartbeats.nodes[node].sent.take() else {
            let undelivered = self.nodes[node].outbox.undelivered() as u64;
            let at = Duration::from_millis(self.heartbeats.tick());
            let sender = &mut self.heartbeats.nodes[node];
            let number = sender.confirmations.begin(at);
            sender.sent = Some(Beat { number, undelivered, heard: sender.heard.clone() });
            return true;
        };
        if !self.reaches(node) {
            return false;
        }
        let (number, is_answered) = (beat.number, !self.rng.permille(self.faults.command));
        note!(self, "node {node} sends a heartbeat: {beat:?}, answered: {is_answered}");
        self.heartbeats.shown.insert(node, beat);
        if is_answered {
            self.hear_reports(node, number);
        }
        true
    }

    fn hear_reports(&mut self, node: usize, number: u64) {
        let (now, guard) = (self.heartbeats.tick(), self.guard);
        let nodes = self.nodes.len();
        let Heartbeats { nodes: all, shown, .. } = &mut self.heartbeats;
        let report = |other: usize| {
            let beat = shown.get(&other)?;
            let undelivered = if guard == Some(Guard::Empty) { 0 } else { beat.undelivered };
            let heard = if guard == Some(Guard::Heard) { Some(number) } else { beat.heard.get(&node).copied() };
            Some(DeliveryReport { undelivered, heard: heard? })
        };
        let others = (0..nodes).filter(|other| *other != node);
        let reports: Vec<_> = others.clone().map(|other| (other.to_string(), 0, report(other))).collect();
        let sender = &mut all[node];
        sender.heard = others.filter_map(|other| Some((other, shown.get(&other)?.number))).collect();
        let delivered = sender.confirmations.observe(number, reports, Duration::from_millis(now), Duration::MAX);
        sender.delivered = sender.delivered.max(delivered.map_or(0, |at| at.as_millis() as u64));
    }

    /// A node looks at its clients that wait. It asks Redis again once all links of their time are in Redis.
    pub(crate) fn resolve(&mut self, node: usize) -> Result<bool, String> {
        let delivered = self.heartbeats.nodes[node].delivered;
        let is_due = |doubt: &Doubt| doubt.node == node && doubt.asked < delivered;
        let Some(at) = self.heartbeats.doubts.iter().position(is_due) else { return Ok(false) };
        let Doubt { code, event, .. } = self.heartbeats.doubts.swap_remove(at);
        let is_settled = self.ledger.losses[part_of(code)] == 0;
        let has_link = self.redis.state(code).is_some_and(carom_model::replication::State::is_link);
        let is_denied = absence::is_denied(form_of(code), self.bound(node), is_settled, true);
        if self.reaches(node) && !has_link && is_denied {
            note!(self, "node {node} answers 404 for code {code}: all have confirmed");
            self.ledger.check_missing(node, code, event)?;
        }
        Ok(true)
    }

    /// The process of a node ends: its clients get no answer, and its heartbeats begin with another number.
    pub(crate) fn end_heartbeats(&mut self, node: usize) {
        self.heartbeats.doubts.retain(|doubt| doubt.node != node);
        let first = 1_000_000 * node as u64 + 1_000 * self.heartbeats.tick();
        let late = self.heartbeats.nodes[node].sent.take().filter(|_| self.rng.permille(500));
        self.heartbeats.nodes[node] = HeartbeatNode {
            confirmations: Confirmations::new(first),
            heard: BTreeMap::new(),
            delivered: 0,
            sent: None,
        };
        // What the old process has sent may still arrive.
        if let Some(beat) = late.filter(|_| self.reaches(node)) {
            self.heartbeats.shown.insert(node, beat);
        }
    }
}
