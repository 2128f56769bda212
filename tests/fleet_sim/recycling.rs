//! A world of its own for recycled codes: links expire, their codes wait until every member has passed the removals and
//! the releases, and get other links.
//!
//! `replication::passing`, `replication::confirmations`, `replication::rules`, the outbox and the planner are driven as
//! the threads of a node drive them. Redis keeps all states in one stream, and may fall back to what a replica had. A
//! node that is cut off creates links alone, until the others forget it. Commands are neither lost nor late, and stores
//! are durable at once: the main world has the rest.
//!
//! A node that was forgotten is a member again once it has sent a heartbeat and has then read the stream. From the
//! heartbeat on, the others wait for it. The reading brings the releases from before, which may not have waited for it
//! (`recycling/returns.rs`).
//!
//! The promises:
//!
//! 1. No code has two acknowledged links at once, and no two nodes may use it.
//! 2. When a link is created with a recycled code, every member has passed the release of the code, and so the removal
//!    of the former link.
//! 3. No node answers 404 for an acknowledged link because it has the tombstone of the former one.
//! 4. In the end all nodes and Redis have the same states, and every acknowledged link.

mod returns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carom::bridge::{CreateAnswer, FleetDecision, StoreRequest, Ticket, WriterOrder, WriterReply};
use carom_model::link::{Link, Reuse};
use carom_model::replication::State;
use carom_model::replication::confirmations::{Confirmations, DeliveryReport};
use carom_model::replication::follow::StreamRead;
use carom_model::replication::passing::PassedBeats;
use carom_model::replication::rules::{self, Verdict};
use carom_shards::{CoreId, Policy};

use crate::codes::{Index, issued, new_link};
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::stream::Database;
use crate::trace::{brief, note};
use crate::writer::{STREAM, Writer, followed};

/// Silence after which a node is no member, in instants.
const AFTER: Duration = Duration::from_millis(80);

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
    writer: Writer,
    cut: bool,
    /// True once the others have forgotten the node, until it has sent a heartbeat and has then read the stream.
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
    passing: Confirmations,
    passed: PassedBeats,
}

impl Node {
    fn new(first: u64) -> Node {
        Node {
            writer: Writer::default(),
            cut: false,
            is_gone: false,
            is_settled: false,
            gaps: 0,
            row: VecDeque::new(),
            stage: Stage::default(),
            followed: Duration::ZERO,
            others_passed: Duration::ZERO,
            passing: Confirmations::new(first),
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
    redis: Database<1>,
    /// The data of a replica of Redis.
    replica: Database<1>,
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

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed ^ 0x7265_6379);
        let nodes = (0..2 + rng.below(2) as u64).map(|node| Node::new(1_000_000 * node)).collect();
        let (redis, replica) = (Database::default(), Database::default());
        let (beats, live, releases) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (step, instant, leased, claims) = (0, 1_000, 0, 0);
        let mut world =
            World { rng, guard, trace, step, instant, redis, replica, beats, nodes, leased, claims, live, releases };
        world.round();
        world.round();
        world
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(120)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.step = number;
        self.act()
    }

    fn rest(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().for_each(|node| node.cut = false);
        for _ in 0..10 {
            self.round();
            self.nodes.iter_mut().for_each(|node| node.writer.tick());
        }
        self.check()
    }
}

impl World {
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
                self.cut_off(node, is_cut);
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
        let number = at.passing.begin(sent);
        at.passed.follow(at.followed);
        self.beats.insert(node, Beat { number, passed: at.passed.numbers() });
        let now = self.tick();
        let others: Vec<(String, Beat)> = self.beats.iter().filter(|(of, _)| **of != node).map(named).collect();
        let at = &mut self.nodes[node];
        at.passed.hear(others.iter().map(|(other, beat)| (other.clone(), beat.number)), now);
        let me = node.to_string();
        let reports = others.iter().map(|(other, beat)| {
            let report = beat.passed.get(&me).map(|heard| DeliveryReport { undelivered: 0, heard: *heard });
            (other.clone(), beat.number, report)
        });
        if let Some(passed) = at.passing.observe(number, reports, now, AFTER) {
            at.others_passed = at.others_passed.max(passed);
        }
    }

    /// A node loses its connection to Redis, or has one again.
    fn cut_off(&mut self, node: usize, is_cut: bool) {
        (self.nodes[node].cut, self.nodes[node].is_settled) = (is_cut, false);
        note!(self, "node {node} is cut off: {is_cut}");
    }

    /// Redis forgets a node that is cut off.
    fn forget(&mut self) {
        let is_silent = |node: &usize| self.nodes[*node].cut && self.beats.contains_key(node);
        let Some(node) = (0..self.nodes.len()).find(is_silent) else { return };
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
        match self.redis.streams[0].read(self.nodes[node].writer.position, usize::MAX) {
            StreamRead::Quiet => {}
            StreamRead::Next(entries, to) => _ = self.commit(node, followed(&entries, to)),
            StreamRead::Gap => {
                note!(self, "node {node} has lost its position");
                self.nodes[node].gaps += 1;
                let at = self.redis.end(0, self.instant);
                self.commit(node, WriterOrder::PositionLost { partition: STREAM, at });
            }
        }
        self.deliver(node);
        if self.nodes[node].writer.compare {
            self.compare(node);
        }
        let at = &mut self.nodes[node];
        if at.writer.has_followed() {
            (at.followed, at.is_settled) = (began, true);
            if at.is_gone {
                // Others may have taken over what it had leased.
                at.row.clear();
                // Releases from after its heartbeat have waited for it, and it has read the earlier ones.
                at.is_gone = !self.beats.contains_key(&node);
            }
        }
    }

    /// The writer of a node commits an order. Returns the answer to a client.
    fn commit(&mut self, node: usize, order: WriterOrder) -> Option<WriterReply> {
        self.nodes[node].writer.commit(order, self.instant, |plan| plan.with_recycling(Some(0))).1
    }

    fn deliver(&mut self, node: usize) {
        for delivery in self.nodes[node].writer.take_deliveries() {
            let reply = self.nodes[node].writer.deliver(delivery, &mut self.redis, self.instant);
            let Some(reply) = reply else { continue };
            note!(self, "node {node} offers {}: {}", brief(&reply.sent), brief(&reply.verdict));
            self.commit(node, WriterOrder::Delivered(vec![reply]));
        }
    }

    /// A node compares everything with Redis.
    fn compare(&mut self, node: usize) {
        self.commit(node, WriterOrder::ComparedStates(self.redis.all()));
        let mine = self.nodes[node].writer.states.iter().cloned().collect();
        let (held, is_any_new) = self.redis.offer_all(mine, self.instant);
        self.commit(node, WriterOrder::ComparedStates(held));
        // Redis may lose what was offered before the node has read it back, so a comparison follows that finds it there.
        if !is_any_new {
            self.commit(node, WriterOrder::Compared(STREAM));
        }
    }

    /// Redis falls back to what its replica has.
    fn fail_over(&mut self) {
        let lost = self.redis.streams[0].len().saturating_sub(self.replica.streams[0].len());
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
        (at.stage, at.passing, at.passed) = (Stage::default(), Confirmations::new(first), PassedBeats::default());
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
        let policy = Policy { valid_until_ms: Some(1), ..Policy::default() };
        let link = Arc::new(Link { policy, ..new_link(index, claim, self.instant) });
        let decision = if is_cut {
            FleetDecision::NoReply { was_sent: false, may_decide_alone: true }
        } else {
            let before = self.redis.states.get(index).cloned();
            let verdict = rules::claim(before.as_ref(), &State::Link(Arc::clone(&link)));
            self.redis.decide(index, verdict, before.as_ref(), self.instant)
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
        let has_passed = |node: &Node| node.writer.states.get(index).is_some_and(|state| state.version().rev >= *rev);
        match self.nodes.iter().position(|node| !node.is_gone && !has_passed(node)) {
            Some(node) => Err(format!("code {index} has a link again, and node {node} has not passed its release")),
            None => Ok(()),
        }
    }

    /// A node has Redis remove an expired link.
    fn expire(&mut self, node: usize) {
        if self.nodes[node].cut {
            return;
        }
        let links = self.nodes[node].writer.states.iter().filter(|(_, state)| state.is_link());
        let links: Vec<(Index, State)> = links.cloned().collect();
        if links.is_empty() {
            return;
        }
        let (index, mine) = links[self.rng.below(links.len())].clone();
        let verdict = rules::expire(self.redis.states.get(index), &mine, self.instant);
        self.redis.carry_out(index, &verdict, self.instant);
        if matches!(verdict, Verdict::Accepted(_)) {
            note!(self, "node {node} removes {}", brief(&mine));
            self.live.remove(&index);
        }
    }

    /// A node begins to recycle codes whose tombstones it has.
    fn begin(&mut self, node: usize) {
        if !matches!(self.nodes[node].stage, Stage::Idle) {
            return;
        }
        let states = self.nodes[node].writer.states.iter();
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
            let release = self.nodes[node].writer.states.get(*index).and_then(|state| state.released(self.claims));
            let Some(release) = release else { continue };
            let verdict = rules::offer(self.redis.states.get(*index), &release);
            self.redis.carry_out(*index, &verdict, self.instant);
            if let Verdict::Accepted(state) = verdict {
                released.push((*index, state));
            }
        }
        note!(self, "codes of node {node} are released: {}", brief(&released));
        self.await_members(node, released);
    }

    fn use_codes(&mut self, node: usize, codes: Vec<(Index, State)>) -> Result<(), String> {
        for (index, release) in codes {
            if self.guard != Some(Guard::Own) && self.nodes[node].writer.states.get(index) != Some(&release) {
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
        let Node { writer, cut, .. } = &self.nodes[node];
        let has_followed = !cut && !writer.compare && writer.position == self.redis.streams[0].end();
        if !has_followed && self.guard != Some(Guard::Followed) {
            return Ok(());
        }
        let is_denied = |index: &Index| writer.states.get(*index).is_some_and(State::is_tombstone);
        match self.live.keys().copied().find(is_denied) {
            Some(index) => Err(format!("node {node} answers 404 for code {index}, which has another link")),
            None => Ok(()),
        }
    }

    /// The promises about what there is in the end: all nodes agree.
    fn check(&self) -> Result<(), String> {
        let theirs = &self.redis.states;
        for (node, Node { writer, .. }) in self.nodes.iter().enumerate() {
            if !writer.is_at_rest() {
                return Err(format!("node {node} does not come to rest: {:?}", writer.outbox));
            }
            if writer.states != *theirs {
                return Err(format!("node {node} has {:?}, Redis has {theirs:?}", writer.states));
            }
        }
        for (index, claim) in &self.live {
            let is_there = |state: &State| state.is_link() && state.version().claim == *claim;
            if !theirs.get(*index).is_some_and(is_there) {
                return Err(format!("claim {claim} of code {index} is lost: {:?}", theirs.get(*index)));
            }
        }
        Ok(())
    }
}

/// Returns a heartbeat with the name of its node.
fn named((node, beat): (&usize, &Beat)) -> (String, Beat) {
    (node.to_string(), beat.clone())
}
