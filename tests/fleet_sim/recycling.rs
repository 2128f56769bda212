//! A world of its own for recycled codes: links expire, their codes wait until every member has passed the removals and
//! the releases, and get other links.
//!
//! `replication::passing`, `replication::vouching`, `replication::rules`, the outbox and the planner are driven as the
//! threads of a node drive them. Redis keeps all states in one stream, and may fall back to what a replica had. A node that
//! is cut off creates links alone, until the others forget it. Commands are neither lost nor late, and stores are durable
//! at once: the main world has the rest.
//!
//! The promises:
//!
//! 1. No code has two acknowledged links at once, and no two nodes may use it.
//! 2. When a link is created with a recycled code, every member has passed the removal of the former link.
//! 3. No node answers 404 for an acknowledged link because it has the tombstone of the former one.
//! 4. In the end all nodes and Redis have the same states, and every acknowledged link.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carom::bridge::{
    CreateAnswer, FleetDecision, OutboxReply, StoreRequest, StreamChange, Ticket, WriterOrder, WriterReply,
};
use carom::services::writer::planner::{CodeState, CommitEffect, CommitPlanner};
use carom_model::link::labels::LinkLabels;
use carom_model::link::{Link, Origin, Reuse, Version};
use carom_model::replication::follow::{Read, StreamEntry, StreamPosition, judge};
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_model::replication::passing::PassedBeats;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::vouching::{Statement, Vouching};
use carom_model::replication::{EntryId, Partition, State};
use carom_shards::{CoreId, Policy};

use crate::adapter;
use crate::codes::{Index, States, code_at, index_of, issued};
use crate::rng::Rng;
use crate::trace::brief;
use crate::world::note;

/// Silence after which a node is no member, in instants.
const AFTER: Duration = Duration::from_millis(80);

/// The stream that all codes share.
const STREAM: Partition = Partition(0);

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// Codes wait until every member has passed their removal and their release.
    Passed,
    /// A node uses a code only if its own store has the release that Redis accepted from it.
    Own,
    /// A tombstone proves that a code is missing only on a node that has just read the stream.
    Followed,
}

/// Redis.
#[derive(Clone, Default)]
struct Redis {
    states: BTreeMap<Index, State>,
    stream: Vec<StreamEntry>,
    last: EntryId,
}

impl Redis {
    fn append(&mut self, change: Option<(Index, &State)>, now: u64) -> StreamPosition {
        let last = self.last;
        let id = if now > last.ms { EntryId { ms: now, seq: 0 } } else { EntryId { ms: last.ms, seq: last.seq + 1 } };
        self.last = id;
        let code = change.map(|(index, _)| code_at(index));
        let text = change.map_or(Vec::new(), |(index, state)| state.to_text(&code_at(index)));
        let displaced = change.and_then(|(index, state)| rules::displaced(self.states.get(&index), state));
        let entry = StreamEntry { id, code, text, displaced, is_newer: false };
        let at = StreamPosition::of(&entry);
        self.stream.push(entry);
        at
    }

    fn accept(&mut self, index: Index, state: &State, now: u64) -> StreamPosition {
        let at = self.append(Some((index, state)), now);
        self.states.insert(index, state.clone());
        at
    }

    fn end(&mut self, now: u64) -> StreamPosition {
        match self.stream.last() {
            Some(last) => StreamPosition::of(last),
            None => self.append(None, now),
        }
    }
}

/// The last heartbeat of a node, as Redis shows it.
#[derive(Clone)]
struct Beat {
    number: u64,
    passed: BTreeMap<String, u64>,
}

/// The codes that a node is about to recycle.
#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Removed(Vec<Index>, Duration),
    /// With the number of positions that the node had lost; `None` if Redis may have lost releases since.
    Released(Vec<(Index, State)>, Duration, Option<u64>),
}

/// A node.
struct Node {
    states: States,
    outbox: Outbox,
    deliveries: VecDeque<Delivery>,
    position: Option<StreamPosition>,
    compare: bool,
    cut: bool,
    /// True once the others have forgotten the node, until it has read the stream again and has sent a heartbeat.
    is_gone: bool,
    /// True if the node has read the stream since it was cut off last and since the last loss.
    is_settled: bool,
    /// Number of positions that the node has lost.
    gaps: u64,
    /// The codes that the node may use.
    row: VecDeque<Index>,
    stage: Stage,
    /// The instant before which everything in the stream is in the store.
    followed: Duration,
    /// The instant before which all other nodes have passed everything.
    others_passed: Duration,
    passing: Vouching,
    passed: PassedBeats,
}

impl Node {
    fn new(first: u64) -> Node {
        Node {
            states: States::default(),
            outbox: Outbox::default(),
            deliveries: VecDeque::new(),
            position: None,
            compare: false,
            cut: false,
            is_gone: false,
            is_settled: false,
            gaps: 0,
            row: VecDeque::new(),
            stage: Stage::default(),
            followed: Duration::ZERO,
            others_passed: Duration::ZERO,
            passing: Vouching::new(first),
            passed: PassedBeats::default(),
        }
    }
}

/// One run.
pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    /// Orders what happens, and is the clock of Redis.
    instant: u64,
    redis: Redis,
    /// The data of a replica of Redis.
    replica: Redis,
    beats: BTreeMap<usize, Beat>,
    nodes: Vec<Node>,
    /// Counter values that were leased.
    leased: u64,
    claims: u64,
    /// The acknowledged link of each code that has not expired, by its claim.
    live: BTreeMap<Index, u64>,
    /// The revision of the last release of each code that a node may use.
    releases: BTreeMap<Index, u32>,
}

impl World {
    /// Runs the schedule of a seed.
    pub(crate) fn run(seed: u64, steps: Option<usize>, guard: Option<Guard>, trace: bool) -> Result<(), String> {
        let mut rng = Rng::new(seed ^ 0x7265_6379);
        let nodes = (0..2 + rng.below(2) as u64).map(|node| Node::new(1_000_000 * node)).collect();
        let (redis, replica) = (Redis::default(), Redis::default());
        let (beats, live, releases) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (step, instant, leased, claims) = (0, 1_000, 0, 0);
        let mut world =
            World { rng, guard, trace, step, instant, redis, replica, beats, nodes, leased, claims, live, releases };
        world.round();
        world.round();
        let steps = steps.unwrap_or(60 + world.rng.below(120));
        for step in 1..=steps {
            world.step = step;
            world.act()?;
        }
        world.rest()
    }

    fn act(&mut self) -> Result<(), String> {
        let node = self.rng.below(self.nodes.len());
        match self.rng.below(100) {
            0..14 => self.create(node)?,
            14..26 => self.expire(node),
            26..36 => self.begin(node),
            36..52 => self.proceed(node)?,
            52..60 => self.beat(node),
            60..68 => self.turn(node),
            68..78 => self.round(),
            78..84 => self.read(node)?,
            84..88 => self.replica = self.redis.clone(),
            88..91 => self.fail_over(),
            91..93 => self.restart(node),
            _ if node > 0 => {
                let is_cut = !self.nodes[node].cut;
                (self.nodes[node].cut, self.nodes[node].is_settled) = (is_cut, false);
                note!(self, "node {node} is cut off: {is_cut}");
                match (is_cut, self.rng.permille(500)) {
                    (true, true) => self.forget(),
                    (false, true) => self.read(node)?,
                    (_, false) => {}
                }
            }
            _ => self.forget(),
        }
        Ok(())
    }

    fn tick(&mut self) -> Duration {
        self.instant += 1;
        Duration::from_millis(self.instant)
    }

    /// All nodes send heartbeats and read the stream.
    fn round(&mut self) {
        for _ in 0..3 {
            for node in 0..self.nodes.len() {
                self.turn(node);
                self.beat(node);
            }
        }
    }

    /// A node sends a heartbeat, and hears of the others.
    fn beat(&mut self, node: usize) {
        if self.nodes[node].cut {
            return;
        }
        let sent = self.tick();
        let at = &mut self.nodes[node];
        // A node leases nothing before its heartbeat, so until then nobody need wait for it.
        at.is_gone &= !at.is_settled;
        let number = at.passing.begin(sent);
        at.passed.follow(at.followed);
        self.beats.insert(node, Beat { number, passed: at.passed.numbers() });
        let now = self.tick();
        let others: Vec<(String, Beat)> = self.beats.iter().filter(|(of, _)| **of != node).map(named).collect();
        let at = &mut self.nodes[node];
        at.passed.hear(others.iter().map(|(other, beat)| (other.clone(), beat.number)), now);
        let me = node.to_string();
        let statements = others.iter().map(|(other, beat)| {
            let statement = beat.passed.get(&me).map(|heard| Statement { undelivered: 0, heard: *heard });
            (other.clone(), beat.number, statement)
        });
        if let Some(passed) = at.passing.observe(number, statements, now, AFTER) {
            at.others_passed = at.others_passed.max(passed);
        }
    }

    /// Redis forgets a node that is cut off.
    fn forget(&mut self) {
        let Some(node) = self.nodes.iter().position(|node| node.cut && !node.is_gone) else { return };
        self.beats.remove(&node);
        self.nodes[node].is_gone = true;
        note!(self, "node {node} is forgotten");
    }

    /// A node reads the stream, delivers, and compares if it has to.
    fn turn(&mut self, node: usize) {
        if self.nodes[node].cut {
            return;
        }
        let began = self.tick();
        let position = self.nodes[node].position;
        let from = position.map_or(EntryId::default(), |position| position.id);
        let entries = self.redis.stream.iter().filter(|entry| entry.id >= from).cloned().collect();
        match judge(position, entries) {
            Read::Quiet => {}
            Read::Next(entries, to) => {
                let entries = entries.iter().map(decode).collect();
                self.commit(node, adapter::followed(STREAM.index(), entries, to));
            }
            Read::Gap => {
                note!(self, "node {node} has lost its position");
                self.nodes[node].gaps += 1;
                let at = self.redis.end(self.instant);
                self.commit(node, WriterOrder::PositionLost { partition: STREAM, at });
            }
        }
        self.deliver(node);
        if self.nodes[node].compare {
            self.compare(node);
        }
        let at = &mut self.nodes[node];
        if !at.compare && !at.outbox.has_passed_over() {
            (at.followed, at.is_settled) = (began, true);
            if at.is_gone {
                // Others may have taken over what it had leased.
                at.row.clear();
            }
        }
    }

    /// The writer of a node commits an order. Returns the answer to a client.
    fn commit(&mut self, node: usize, order: WriterOrder) -> Option<WriterReply> {
        let Node { states, outbox, deliveries, position, compare, .. } = &mut self.nodes[node];
        let mut plan = CommitPlanner::new(outbox, self.instant).with_recycling(Some(0));
        plan.add(order, |code| states.get(index_of(code)).cloned().map_or(CodeState::Absent, CodeState::Held));
        let (writes, effects) = plan.finish();
        for (code, state) in writes.states {
            states.set(index_of(&code), state);
        }
        writes.positions.into_iter().for_each(|(_, at)| *position = Some(at));
        writes.compare.into_iter().for_each(|(_, needed)| *compare = needed);
        deliveries.extend(outbox.take_deliveries());
        effects.iter().find_map(CommitEffect::answer).cloned()
    }

    fn deliver(&mut self, node: usize) {
        for delivery in std::mem::take(&mut self.nodes[node].deliveries) {
            let index = index_of(&delivery.code);
            let Some(sent) = self.nodes[node].states.get(index).cloned() else { continue };
            let verdict = rules::offer(self.redis.states.get(&index), &sent);
            note!(self, "node {node} offers {}: {}", brief(&sent), brief(&verdict));
            let at = match &verdict {
                Verdict::Accepted(state) => Some(self.redis.accept(index, state, self.instant)),
                Verdict::Same => self.redis.stream.last().map(StreamPosition::of),
                Verdict::Held(_) | Verdict::HeldUnread(_) | Verdict::Absent => None,
            };
            let echo = at.map(|at| adapter::echo(STREAM.index(), at));
            self.commit(node, WriterOrder::Delivered(vec![OutboxReply { delivery, sent, verdict, echo }]));
        }
    }

    /// A node compares everything with Redis.
    fn compare(&mut self, node: usize) {
        let theirs = self.redis.states.iter().map(|(index, state)| (code_at(*index), state.clone())).collect();
        self.commit(node, WriterOrder::ComparedStates(theirs));
        let mine: Vec<(Index, State)> = self.nodes[node].states.iter().cloned().collect();
        let (mut held, mut offered) = (Vec::new(), None);
        for (index, state) in mine {
            match rules::offer(self.redis.states.get(&index), &state) {
                Verdict::Accepted(state) => offered = Some(self.redis.accept(index, &state, self.instant)),
                Verdict::Held(state) => held.push((code_at(index), state)),
                Verdict::Same | Verdict::HeldUnread(_) | Verdict::Absent => {}
            }
        }
        self.commit(node, WriterOrder::ComparedStates(held));
        // Redis may lose what was offered before the node has read it back, so a comparison follows that finds it there.
        if offered.is_none() {
            self.commit(node, WriterOrder::Compared(STREAM));
        }
    }

    /// Redis falls back to what its replica has.
    fn fail_over(&mut self) {
        let lost = self.redis.stream.len().saturating_sub(self.replica.stream.len());
        self.redis = self.replica.clone();
        note!(self, "Redis has lost {lost} entries");
        // Nodes notice that within seconds, before they release codes or deny any.
        self.nodes.iter_mut().for_each(|node| node.is_settled = false);
        self.round();
    }

    /// The process of a node ends and starts again.
    fn restart(&mut self, node: usize) {
        let first = 1_000_000 * node as u64 + 100 * self.instant;
        let at = &mut self.nodes[node];
        (at.stage, at.passing, at.passed) = (Stage::default(), Vouching::new(first), PassedBeats::default());
        (at.followed, at.others_passed) = (Duration::ZERO, Duration::ZERO);
        note!(self, "node {node} starts again");
    }
}

/// The links and their codes.
impl World {
    /// A node creates a link with a recycled code, or with one that was just leased.
    fn create(&mut self, node: usize) -> Result<(), String> {
        let is_cut = self.nodes[node].cut;
        if self.nodes[node].is_gone {
            return Ok(());
        }
        let index = match self.nodes[node].row.pop_front() {
            Some(index) => index,
            None if is_cut => return Ok(()),
            None => {
                self.leased += 1;
                issued(self.leased)
            }
        };
        self.claims += 1;
        let claim = self.claims;
        let link = Arc::new(Link {
            code: code_at(index),
            policy: Policy { valid_until_ms: Some(1), ..Policy::default() },
            target: format!("https://e.org/{claim}"),
            created_ms: self.instant,
            origin: Origin::Issued,
            version: Version { rev: 1, claim, edit: 0 },
            labels: LinkLabels::default(),
        });
        let decision = if is_cut {
            FleetDecision::NoReply { asked: false, alone: true }
        } else {
            match rules::claim(self.redis.states.get(&index), &State::Link(Arc::clone(&link))) {
                Verdict::Accepted(state) => {
                    let at = self.redis.accept(index, &state, self.instant);
                    FleetDecision::Accepted { state, echo: adapter::echo(STREAM.index(), at) }
                }
                Verdict::Held(state) => FleetDecision::Held(state),
                Verdict::Same | Verdict::HeldUnread(_) | Verdict::Absent => FleetDecision::Absent,
            }
        };
        let request = StoreRequest::Create { link, reuse: Reuse::Never, ticket: Ticket::new(CoreId(0), 1) };
        let reply = self.commit(node, WriterOrder::Client(request, decision));
        note!(self, "node {node} creates {index}, claim {claim}, alone: {is_cut}: {}", brief(&reply));
        if !matches!(reply, Some(WriterReply::Create(_, CreateAnswer::Created))) {
            return Ok(());
        }
        self.check_members(index)?;
        match self.live.insert(index, claim) {
            Some(other) => Err(format!("node {node} gives code {index} to claim {claim}, and claim {other} has it")),
            None => Ok(()),
        }
    }

    /// Checks that every member has passed the release of a code, and so the removal before it.
    fn check_members(&self, index: Index) -> Result<(), String> {
        let Some(rev) = self.releases.get(&index) else { return Ok(()) };
        let has_passed = |node: &Node| node.states.get(index).is_some_and(|state| state.version().rev >= *rev);
        match self.nodes.iter().position(|node| !node.is_gone && !has_passed(node)) {
            Some(node) => Err(format!("code {index} has a link again, and node {node} has not passed its removal")),
            None => Ok(()),
        }
    }

    /// A node has Redis remove an expired link.
    fn expire(&mut self, node: usize) {
        if self.nodes[node].cut {
            return;
        }
        let links = self.nodes[node].states.iter().filter(|(_, state)| state.is_link());
        let links: Vec<(Index, State)> = links.cloned().collect();
        if links.is_empty() {
            return;
        }
        let (index, mine) = links[self.rng.below(links.len())].clone();
        if let Verdict::Accepted(state) = rules::expire(self.redis.states.get(&index), &mine, self.instant) {
            note!(self, "node {node} removes {}", brief(&mine));
            self.redis.accept(index, &state, self.instant);
            self.live.remove(&index);
        }
    }

    /// A node begins to recycle codes whose tombstones it has.
    fn begin(&mut self, node: usize) {
        if !matches!(self.nodes[node].stage, Stage::Idle) {
            return;
        }
        let states = self.nodes[node].states.iter();
        let codes: Vec<Index> = states.filter(|(_, state)| state.is_tombstone()).map(|(index, _)| *index).collect();
        if !codes.is_empty() {
            note!(self, "node {node} begins to recycle {codes:?}");
            let since = self.tick();
            self.nodes[node].stage = Stage::Removed(codes, since);
        }
    }

    fn have_all_passed(&self, node: usize, since: Duration) -> bool {
        let at = &self.nodes[node];
        at.followed > since && (at.others_passed > since || self.guard == Some(Guard::Passed))
    }

    /// A node takes the next step with the codes that it is about to recycle, if it may.
    fn proceed(&mut self, node: usize) -> Result<(), String> {
        let (is_settled, gaps) = (self.nodes[node].is_settled, Some(self.nodes[node].gaps));
        match std::mem::take(&mut self.nodes[node].stage) {
            Stage::Removed(codes, since) if is_settled && self.have_all_passed(node, since) => {
                self.release(node, &codes);
            }
            Stage::Released(codes, since, _) if !is_settled => {
                self.nodes[node].stage = Stage::Released(codes, since, None);
            }
            Stage::Released(codes, _, before) if before != gaps => self.await_members(node, codes),
            Stage::Released(codes, since, _) if self.have_all_passed(node, since) => {
                return self.use_codes(node, codes);
            }
            stage => self.nodes[node].stage = stage,
        }
        Ok(())
    }

    /// A node waits until every member has passed its releases.
    fn await_members(&mut self, node: usize, codes: Vec<(Index, State)>) {
        let since = self.tick();
        self.nodes[node].stage = Stage::Released(codes, since, Some(self.nodes[node].gaps));
    }

    fn release(&mut self, node: usize, codes: &[Index]) {
        let mut released = Vec::new();
        for index in codes {
            self.claims += 1;
            let release = self.nodes[node].states.get(*index).and_then(|state| state.released(self.claims));
            let Some(release) = release else { continue };
            if let Verdict::Accepted(state) = rules::offer(self.redis.states.get(index), &release) {
                self.redis.accept(*index, &state, self.instant);
                released.push((*index, state));
            }
        }
        note!(self, "codes of node {node} are released: {}", brief(&released));
        self.await_members(node, released);
    }

    fn use_codes(&mut self, node: usize, codes: Vec<(Index, State)>) -> Result<(), String> {
        for (index, release) in codes {
            if self.guard != Some(Guard::Own) && self.nodes[node].states.get(index) != Some(&release) {
                continue;
            }
            note!(self, "node {node} may use code {index}");
            if let Some(other) = self.nodes.iter().position(|other| other.row.contains(&index)) {
                return Err(format!("nodes {other} and {node} may both use code {index}"));
            }
            self.releases.insert(index, release.version().rev);
            self.nodes[node].row.push_back(index);
        }
        Ok(())
    }

    /// A client asks a node for an acknowledged link that it does not have.
    fn read(&mut self, node: usize) -> Result<(), String> {
        let at = &self.nodes[node];
        let last = self.redis.stream.last().map(StreamPosition::of);
        let has_followed = !at.cut && !at.compare && at.position == last;
        if !has_followed && self.guard != Some(Guard::Followed) {
            return Ok(());
        }
        let is_denied = |index: &Index| at.states.get(*index).is_some_and(State::is_tombstone);
        match self.live.keys().copied().find(is_denied) {
            Some(index) => Err(format!("node {node} answers 404 for code {index}, which has another link")),
            None => Ok(()),
        }
    }

    /// Everything is well again. All nodes must come to agree.
    fn rest(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().for_each(|node| node.cut = false);
        for _ in 0..10 {
            self.round();
            for at in &mut self.nodes {
                adapter::tick(&mut at.outbox);
                at.deliveries.extend(at.outbox.take_deliveries());
            }
        }
        let first = &self.nodes[0].states;
        for (node, at) in self.nodes.iter().enumerate() {
            if at.compare || !at.outbox.is_empty() {
                return Err(format!("node {node} does not come to rest: {:?}", at.outbox));
            }
            if at.states != *first {
                return Err(format!("node {node} has {:?}, node 0 has {first:?}", at.states));
            }
        }
        let here: BTreeMap<Index, State> = first.iter().cloned().collect();
        if here != self.redis.states {
            return Err(format!("the nodes have {here:?}, Redis has {:?}", self.redis.states));
        }
        for (index, claim) in &self.live {
            let is_there = |state: &State| state.is_link() && state.version().claim == *claim;
            if !first.get(*index).is_some_and(is_there) {
                return Err(format!("claim {claim} of code {index} is lost: {:?}", first.get(*index)));
            }
        }
        Ok(())
    }
}

/// Returns a heartbeat with the name of its node.
fn named((node, beat): (&usize, &Beat)) -> (String, Beat) {
    (node.to_string(), beat.clone())
}

/// Decodes an entry as the follower does.
fn decode(entry: &StreamEntry) -> (StreamPosition, Option<StreamChange>) {
    let told = entry.code.map(|code| {
        let state = ReceivedState::from_text(code, &entry.text).unwrap();
        StreamChange { code, state, displaced: entry.displaced }
    });
    (StreamPosition::of(entry), told)
}
