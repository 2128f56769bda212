//! A world of its own for the retention: Redis lets states expire and trims its stream, nodes lag behind and join by a
//! copy of another node.
//!
//! `replication::retention`, `replication::rules`, `replication::follow`, the outbox and the planner are driven as the
//! threads of a node drive them, each turn as one step. Node 0 is never cut off, so that there is always one to copy.
//! Commands are neither lost nor late, stores are durable at once, and there is one stream: the main world has the rest.
//! Redis loses everything only while all nodes that reach it have read its stream, and those bring back what is recent
//! before anybody asks.
//!
//! The promises:
//!
//! 1. No slug has two acknowledged links at once, and no acknowledged link or change is lost.
//! 2. What was deleted stays deleted.
//! 3. No node answers 404 for an acknowledged link.
//! 4. A node that has followed within half the retention keeps its position, unless Redis loses it.
//! 5. In the end all nodes have the same states, and Redis has no other ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use carom::bridge::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, StoreRequest, Ticket, WriterOrder, WriterReply,
};
use carom_model::access::Scope;
use carom_model::link::history::Author;
use carom_model::link::patch::Patch;
use carom_model::link::{Link, Reuse, Version};
use carom_model::replication::follow::StreamRead;
use carom_model::replication::retention::{FollowedSpan, first_kept, lag_max_ms, millis};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::{EntryId, State};
use carom_shards::CoreId;

use crate::adapter;
use crate::codes::{Index, SLUGS, code_at, new_link};
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::stream::Database;
use crate::trace::{brief, note};
use crate::writer::{STREAM, Writer, followed};

/// Time for which Redis keeps a state.
const RETENTION: Duration = Duration::from_millis(100);

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A claim brings the state of its node.
    Mine,
    /// A node that is behind refuses changes.
    Behind,
    /// A node that is behind does not compare with Redis.
    Compare,
    /// A node that is behind takes no code for missing.
    Missing,
    /// A node answers an earlier state in the stream with its own.
    Returned,
    /// A node that began when states had expired stays behind.
    Began,
    /// The last entry before the retention stays in the stream.
    Kept,
}

/// A node.
#[derive(Default)]
struct Node {
    writer: Writer,
    span: FollowedSpan,
    /// The log of changes, and the time since which it has all of them.
    log: Vec<(u64, Index)>,
    log_since: u64,
    cut: bool,
}

/// One run.
pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    now: u64,
    redis: Database<1>,
    /// The time since which Redis lets states expire; 0 if no node has told it.
    expiring_ms: u64,
    /// The time at which Redis last lost everything.
    lost_ms: u64,
    nodes: Vec<Node>,
    claims: u64,
    /// The acknowledged link of each slug that nobody has deleted, by its claim.
    live: BTreeMap<Index, u64>,
    /// The number of acknowledged changes of each link.
    edits: BTreeMap<u64, u32>,
    /// The claims of links whose delete was acknowledged.
    ended: BTreeSet<u64>,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed);
        let nodes = (0..2 + rng.below(2)).map(|_| Node::default()).collect();
        let mut world = World {
            rng,
            guard,
            trace,
            step: 0,
            now: 1_000,
            redis: Database::default(),
            expiring_ms: 0,
            lost_ms: 0,
            nodes,
            claims: 0,
            live: BTreeMap::new(),
            edits: BTreeMap::new(),
            ended: BTreeSet::new(),
        };
        (0..world.nodes.len()).try_for_each(|node| world.turn(node)).unwrap();
        world
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(120)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        (self.step, self.now) = (number, self.now + self.rng.below(15) as u64);
        self.turn(0)?;
        self.act()
    }

    fn rest(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().for_each(|node| node.cut = false);
        for _ in 0..30 {
            self.now += 1;
            for node in 0..self.nodes.len() {
                self.turn(node)?;
                self.nodes[node].writer.tick();
                self.join(node);
            }
        }
        self.redis.expire(RETENTION, self.now);
        for (node, Node { writer, span, .. }) in self.nodes.iter().enumerate() {
            if !self.is_current(node) || !writer.is_at_rest() {
                return Err(format!("node {node} does not come to rest: {span:?}, {:?}", writer.outbox));
            }
            let first = &self.nodes[0].writer.states;
            if writer.states != *first {
                return Err(format!("node {node} has {:?}, node 0 has {first:?}", writer.states));
            }
        }
        self.check()
    }
}

impl World {
    fn act(&mut self) -> Result<(), String> {
        let (node, index) = (self.rng.below(self.nodes.len()), self.rng.below(SLUGS) as Index);
        self.redis.expire(RETENTION, self.now);
        match self.rng.below(100) {
            0..14 => self.create(node, index),
            14..22 => {
                self.change(node, index);
                Ok(())
            }
            22..32 => {
                self.delete(node, index);
                Ok(())
            }
            32..48 => self.turn(node),
            48..60 => self.read(node, index),
            60..70 if node > 0 => {
                self.nodes[node].cut = self.rng.permille(500);
                note!(self, "node {node} is cut off: {}", self.nodes[node].cut);
                Ok(())
            }
            70..76 => {
                self.trim();
                Ok(())
            }
            76..79 => self.lose_everything(node),
            79..86 => {
                self.join(node);
                Ok(())
            }
            86.. => self.pass_time(),
            _ => Ok(()),
        }
    }

    /// Time passes without changes, and the nodes that reach Redis follow.
    fn pass_time(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.below(20) {
            self.now += 10;
            (0..self.nodes.len()).try_for_each(|node| self.turn(node))?;
        }
        note!(self, "it is {}", self.now);
        Ok(())
    }

    /// A node trims the stream.
    fn trim(&mut self) {
        let oldest_ms = self.now.saturating_sub(millis(RETENTION));
        let stream = &mut self.redis.streams[0];
        let first = match self.guard {
            Some(Guard::Kept) => Some(EntryId { ms: oldest_ms, seq: 0 }),
            _ => first_kept(&stream.ids(), oldest_ms),
        };
        if let Some(first) = first {
            stream.keep_from(first);
        }
        note!(self, "{} entries are left", self.redis.streams[0].len());
    }

    fn is_current(&self, node: usize) -> bool {
        let mut span = self.nodes[node].span;
        if self.guard == Some(Guard::Began) {
            span.began_ms = span.began_ms.min(span.expiring_ms);
        }
        span.is_current(self.now, RETENTION)
    }

    fn beat(&mut self, node: usize) {
        let span = &mut self.nodes[node].span;
        span.hear_expiring(self.expiring_ms);
        if span.expiring_ms == 0 {
            span.hear_expiring(self.now);
        }
        self.expiring_ms = span.expiring_ms;
    }

    /// A node sends a heartbeat, reads the stream, delivers, and compares if it has to.
    fn turn(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].cut {
            return Ok(());
        }
        self.redis.expire(RETENTION, self.now);
        self.beat(node);
        let is_current = self.is_current(node);
        let (position, until_ms) = (self.nodes[node].writer.position, self.nodes[node].span.until_ms);
        match self.redis.streams[0].read(position, usize::MAX) {
            StreamRead::Quiet => {}
            StreamRead::Next(entries, to) => {
                note!(self, "node {node} reads {} entries", entries.len());
                self.commit(node, followed(&entries, to));
            }
            StreamRead::Gap => {
                note!(self, "node {node} has lost its position, is current: {is_current}");
                let is_recent = self.now.saturating_sub(until_ms) <= lag_max_ms(RETENTION);
                if position.is_some() && is_recent && until_ms > self.lost_ms {
                    return Err(format!("the position of node {node} was trimmed, which followed until {until_ms}"));
                }
                let at = self.redis.end(0, self.now);
                self.commit(node, WriterOrder::PositionLost { partition: STREAM, at });
            }
        }
        self.deliver(node);
        if self.nodes[node].writer.compare && (is_current || self.guard == Some(Guard::Compare)) {
            self.compare(node);
        }
        let at = &mut self.nodes[node];
        if at.writer.has_followed() {
            at.span.advance(self.now);
        }
        Ok(())
    }

    /// The writer of a node commits an order. Returns the answer to a client.
    fn commit(&mut self, node: usize, order: WriterOrder) -> Option<WriterReply> {
        let (now, forgets) = (self.now, self.guard != Some(Guard::Returned));
        let Node { writer, log, .. } = &mut self.nodes[node];
        let (changed, answer) = writer.commit(order, now, |plan| plan.with_retention(forgets));
        log.extend(changed.into_iter().map(|index| (now, index)));
        answer
    }

    fn deliver(&mut self, node: usize) {
        for delivery in self.nodes[node].writer.take_deliveries() {
            let reply = self.nodes[node].writer.deliver(delivery, &mut self.redis, self.now);
            let Some(reply) = reply else { continue };
            note!(self, "node {node} offers {}: {}", brief(&reply.sent), brief(&reply.verdict));
            self.commit(node, WriterOrder::Delivered(vec![reply]));
        }
    }

    /// A node compares everything with Redis: it adopts what is there, and offers what has changed lately.
    fn compare(&mut self, node: usize) {
        self.commit(node, WriterOrder::ComparedStates(self.redis.all()));
        let oldest_ms = self.now.saturating_sub(millis(RETENTION));
        let at = &self.nodes[node];
        let is_recent = |index: Index| at.log.iter().any(|(changed_ms, of)| *of == index && *changed_ms >= oldest_ms);
        let is_offered = |(index, _): &&(Index, State)| at.log_since > oldest_ms || is_recent(*index);
        let mine = at.writer.states.iter().filter(is_offered).cloned().collect();
        let (held, _) = self.redis.offer_all(mine, self.now);
        self.commit(node, WriterOrder::ComparedStates(held));
        self.commit(node, WriterOrder::Compared(STREAM));
    }

    /// Redis comes back empty. Sometimes a new node starts at that very moment, in the place of another one.
    fn lose_everything(&mut self, node: usize) -> Result<(), String> {
        (0..self.nodes.len()).try_for_each(|node| self.turn(node))?;
        self.redis.lose_everything();
        (self.expiring_ms, self.lost_ms) = (0, self.now);
        note!(self, "Redis has lost everything");
        if node > 0 && !self.nodes[node].cut && self.nodes[node].writer.outbox.is_empty() && self.rng.permille(500) {
            self.nodes[node] = Node { log_since: self.now, ..Node::default() };
            note!(self, "node {node} is new");
            self.turn(node)?;
        }
        (0..self.nodes.len()).try_for_each(|node| self.turn(node))
    }

    /// A node that only a copy can help gets one of node 0, once Redis has everything of its outbox.
    fn join(&mut self, node: usize) {
        let at = &self.nodes[node];
        let needs_copy = at.writer.compare || !at.span.has_had_all(RETENTION);
        if self.is_current(node) || !needs_copy || at.cut || !at.writer.outbox.is_empty() {
            return;
        }
        let Node { writer, span, cut, .. } = &self.nodes[0];
        let (writer, span, cut) = (Writer::copy_of(writer), *span, *cut);
        self.nodes[node] = Node { writer, span, log: Vec::new(), log_since: self.now, cut };
        note!(self, "node {node} is a copy of node 0");
    }

    /// True if a node refuses changes.
    fn refuses(&self, node: usize) -> bool {
        !self.is_current(node) && self.guard != Some(Guard::Behind)
    }

    fn create(&mut self, node: usize, index: Index) -> Result<(), String> {
        if self.nodes[node].cut || self.refuses(node) {
            return Ok(());
        }
        self.claims += 1;
        let claim = self.claims;
        let link = Arc::new(new_link(index, claim, self.now));
        let state = State::Link(Arc::clone(&link));
        let mine = self.nodes[node].writer.states.get(index).filter(|_| self.guard != Some(Guard::Mine));
        let before = rules::present(self.redis.states.get(index), mine, true).cloned();
        let verdict = rules::claim(before.as_ref(), &state);
        let decision = self.redis.decide(index, verdict, before.as_ref(), self.now);
        let request = StoreRequest::Create { link, reuse: Reuse::Never, ticket: Ticket::new(CoreId(0), 1) };
        let reply = self.commit(node, WriterOrder::Client(request, decision));
        note!(self, "node {node} creates {index}, claim {claim}, over {}: {}", brief(&before), brief(&reply));
        if !matches!(reply, Some(WriterReply::Create(_, CreateAnswer::Created))) {
            return Ok(());
        }
        match self.live.insert(index, claim) {
            Some(other) => Err(format!("node {node} gives slug {index} to claim {claim}, and claim {other} has it")),
            None => Ok(()),
        }
    }

    fn change(&mut self, node: usize, index: Index) {
        if self.nodes[node].cut || self.refuses(node) {
            return;
        }
        let theirs = self.redis.states.get(index).cloned();
        let newest = rules::newest(self.nodes[node].writer.states.get(index).cloned(), theirs.clone());
        let Some(State::Link(link)) = newest else { return };
        let changed = State::Link(Arc::new(Link { version: link.version.edited(), ..Link::clone(&link) }));
        let verdict = rules::offer(theirs.as_ref(), &changed);
        let decision = self.redis.decide(index, verdict, theirs.as_ref(), self.now);
        let (code, patch) = (code_at(index), Box::new(Patch::default()));
        let (by, author, ticket) = (Scope::ALL, Author::default(), Ticket::new(CoreId(0), 1));
        let request = StoreRequest::Change { code, patch, by, author, ticket };
        let reply = self.commit(node, WriterOrder::Client(request, decision));
        note!(self, "node {node} changes {index} over {}: {}", brief(&theirs), brief(&reply));
        if let Some(WriterReply::Change(_, ChangeAnswer::Changed(link))) = reply {
            let edits = self.edits.entry(link.version.claim).or_default();
            *edits = link.version.edit.max(*edits);
        }
    }

    fn delete(&mut self, node: usize, index: Index) {
        if self.refuses(node) {
            return;
        }
        let mine = self.nodes[node].writer.states.get(index).cloned();
        let mut by_redis = None;
        let decision = if self.nodes[node].cut {
            FleetDecision::NoReply { was_sent: false, may_decide_alone: true }
        } else {
            let theirs = self.redis.states.get(index).cloned();
            let claim = theirs.as_ref().or(mine.as_ref()).map_or(0, |state| state.version().claim);
            let before = rules::present(theirs.as_ref(), mine.as_ref(), false).cloned();
            let verdict = adapter::remove(before.as_ref(), claim, self.now);
            by_redis = matches!(verdict, Verdict::Accepted(_)).then_some(claim);
            self.redis.decide(index, verdict, before.as_ref(), self.now)
        };
        let (code, by, author) = (code_at(index), Scope::ALL, Author::default());
        let request = StoreRequest::Delete { code, by, author, ticket: Ticket::new(CoreId(0), 1) };
        let reply = self.commit(node, WriterOrder::Client(request, decision));
        note!(self, "node {node} deletes {index}, which is {}: {}", brief(&mine), brief(&reply));
        if matches!(reply, Some(WriterReply::Delete(_, DeleteAnswer::Deleted))) {
            let here = mine.filter(State::is_link).map(|mine| mine.version().claim);
            self.ended.extend(by_redis.into_iter().chain(here));
            if self.live.get(&index).is_some_and(|claim| self.ended.contains(claim)) {
                self.live.remove(&index);
            }
        }
    }

    /// A client asks a node for a slug that it does not have.
    fn read(&mut self, node: usize, index: Index) -> Result<(), String> {
        let at = &self.nodes[node];
        let mine = at.writer.states.get(index);
        let is_sure = self.is_current(node) || self.guard == Some(Guard::Missing);
        if at.cut || !is_sure || mine.is_some_and(State::is_link) {
            return Ok(());
        }
        let theirs = self.redis.states.get(index).filter(|theirs| theirs.is_link());
        if theirs.is_some_and(|theirs| !mine.is_some_and(|mine| rules::is_over(mine, theirs))) {
            return Ok(());
        }
        match self.live.get(&index) {
            Some(claim) => Err(format!("node {node} answers 404 for slug {index}, claim {claim}")),
            None => Ok(()),
        }
    }

    /// The promises about what there is in the end.
    fn check(&self) -> Result<(), String> {
        let states = &self.nodes[0].writer.states;
        if let Some((index, theirs)) = self.redis.states.iter().find(|(of, it)| states.get(*of) != Some(it)) {
            return Err(format!("Redis has {theirs:?} for slug {index}, the nodes have {:?}", states.get(*index)));
        }
        for (index, claim) in &self.live {
            let edits = self.edits.get(claim).copied().unwrap_or(0);
            let is_there = |version: Version| version.claim == *claim && version.edit >= edits;
            if !states.get(*index).is_some_and(|state| state.is_link() && is_there(state.version())) {
                return Err(format!("claim {claim} of slug {index} is lost: {:?}", states.get(*index)));
            }
        }
        let is_ended = |(_, state): &&(Index, State)| state.is_link() && self.ended.contains(&state.version().claim);
        match states.iter().find(is_ended) {
            Some((index, state)) => Err(format!("slug {index} has a deleted link again: {state:?}")),
            None => Ok(()),
        }
    }
}
