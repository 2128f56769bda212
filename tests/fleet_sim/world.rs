//! A schedule: nodes, Redis and clients, and a step at a time of any of them, chosen by the seed.

use std::sync::Arc;

use carom::bridge::{OutboxReply, WriterOrder};
use carom::services::writer::planner::Writes;
use carom_model::replication::outbox::Delivery;
use carom_model::replication::rules::Verdict;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Partition, lease, rules};

use crate::adapter;
use crate::codes::{PARTS, VALUES, code_at, index_of, part_of};
use crate::faults::Faults;
use crate::guards::Guard;
use crate::heartbeats::Heartbeats;
use crate::ledger::Ledger;
use crate::node::{Cut, Node};
use crate::redis::{Answer, Command, Redis};
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::store::Batch;
use crate::trace::{brief, note};
use crate::versions::Versions;

/// The fate of a command.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Redis has answered.
    Answer(Answer),
    /// Redis has not answered.
    Nothing {
        /// True if it may have been asked.
        asked: bool,
    },
}

impl Heard {
    /// The answer about a code whose state the node cannot decode, and which it therefore leaves alone.
    pub(crate) fn unread(text: &Arc<[u8]>) -> Heard {
        Heard::Answer(Answer { verdict: Verdict::HeldUnread(Arc::clone(text)), echo: None })
    }
}

/// One run.
pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) redis: Redis,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ledger: Ledger,
    /// Milliseconds since 1970, as nobody's clock shows them.
    pub(crate) now: u64,
    pub(crate) step: usize,
    pub(crate) guard: Option<Guard>,
    /// The highest counter value that may be used by anybody.
    pub(crate) granted: u64,
    /// The counter as each node knows it, or would if no guard was left out.
    pub(crate) known: Vec<u64>,
    /// The reports of the nodes on the delivery of their links, and the clients that wait for them.
    pub(crate) heartbeats: Heartbeats,
    pub(crate) claims: u64,
    /// True if nodes take changes while they cannot ask.
    pub(crate) alone: bool,
    /// The versions of the nodes.
    pub(crate) versions: Versions,
    /// True if the steps are told.
    pub(crate) trace: bool,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed);
        let faults = Faults::draw(&mut rng);
        let replicas = u64::from(rng.permille(750));
        let redis = Redis::new(4 + rng.below(8), replicas, guard);
        let count = 2 + rng.below(2);
        let alone = rng.permille(800);
        let nodes = (0..count).map(Node::new).collect();
        let versions = Versions::draw(count, &mut rng);
        let mut world = World {
            rng,
            faults,
            redis,
            nodes,
            ledger: Ledger::default(),
            now: 1_000_000,
            step: 0,
            guard,
            granted: 0,
            known: vec![0; count],
            heartbeats: Heartbeats::new(count),
            claims: 0,
            alone,
            versions,
            trace,
        };
        note!(world, "{count} nodes, {replicas} replicas, {}", brief(&world.faults));
        if world.rng.permille(850) {
            (0..count).for_each(|node| world.settle(node));
            (0..PARTS).for_each(|part| world.redis.replicate(part, PARTS));
        }
        // The fleet is older than the schedule: every node has heard of the counter.
        for node in 0..count {
            world.grant(node, 2, true).unwrap();
        }
        (0..count).for_each(|node| world.beat(node));
        world.redis.replicate_counter();
        world
    }

    fn draw_steps(&mut self) -> usize {
        50 + self.rng.below(90)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        (self.step, self.now) = (number, self.now + self.rng.below(3) as u64);
        for _ in 0..6 {
            if self.act()? {
                break;
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), String> {
        self.come_to_rest()?;
        self.ledger.check(&self.redis)
    }
}

impl World {
    /// A node has followed all streams up to here, and there is nothing yet. New nodes compare everything first, and
    /// heal much of what others have missed.
    fn settle(&mut self, node: usize) {
        let end = |part: usize| (Partition(part as u8), self.redis.end(part, self.now));
        let writes = Writes { positions: (0..PARTS).map(end).collect(), ..Writes::default() };
        self.nodes[node].store.commit(Batch::Commit(Box::new(writes)));
        self.nodes[node].store.sync();
        self.nodes[node].start(&mut self.ledger).unwrap();
    }

    /// Takes a step, if the one that was chosen can be taken.
    fn act(&mut self) -> Result<bool, String> {
        let node = self.rng.below(self.nodes.len());
        match self.rng.below(134) {
            128.. => self.resolve(node),
            122..128 => self.send_beats(node),
            116.. => self.read(node),
            110..116 => Ok(self.expire(node)),
            104.. => Ok(self.change(node)),
            0..7 => Ok(self.create_issued(node)),
            7..14 => Ok(self.create_slug(node)),
            14..20 => Ok(self.delete(node)),
            20..40 => self.commit(node, Cut::Not),
            40..50 => Ok(self.deliver(node)),
            50..68 => Ok(self.follow(node)),
            68..80 => Ok(self.compare(node)),
            80..84 => self.lease(node),
            84..89 => {
                let part = self.rng.below(PARTS);
                let commands = self.rng.below(4).min(self.redis.lag(part));
                self.redis.replicate(part, commands);
                Ok(commands > 0)
            }
            89..91 => {
                let unsynced = self.nodes[node].store.unsynced();
                self.nodes[node].store.sync();
                Ok(unsynced > 0)
            }
            91..93 => Ok(self.late()),
            93 => {
                self.nodes[node].tick();
                Ok(true)
            }
            94 | 95 => self.look(node),
            96..98 => self.change_version(node),
            98 => Ok(self.read_again(node)),
            _ => self.fault(node),
        }
    }

    /// True if a node can speak to Redis now.
    pub(crate) fn reaches(&self, node: usize) -> bool {
        self.redis.up && !self.nodes[node].cut
    }

    /// Sends a command and waits for a while.
    pub(crate) fn call(&mut self, node: usize, command: &Command) -> Heard {
        let (now, faults) = (self.now, self.faults);
        let form = self.form_of(node);
        if !self.reaches(node) {
            return Heard::Nothing { asked: self.rng.permille(300) };
        }
        if !self.rng.permille(faults.command) {
            return Heard::Answer(self.redis.execute(command, form, now));
        }
        let fate = self.rng.below(6);
        note!(self, "  command of node {node}: fate {fate}");
        match fate {
            // Lost on the way.
            0 => {}
            // Done, and the answer is lost.
            1 => _ = self.redis.execute(command, form, now),
            // Done when nobody waits any more.
            2 => self.redis.delayed.push((command.clone(), form, 0)),
            // Sent again by the library: the first answer came, and the second is still to be done.
            3 if faults.resend => {
                let answer = self.redis.execute(command, form, now);
                if matches!(answer.verdict, Verdict::Accepted(_)) {
                    self.redis.delayed.push((command.clone(), form, 0));
                }
                return Heard::Answer(answer);
            }
            // Sent again by the library: the first answer was lost.
            4 if faults.resend => {
                self.redis.execute(command, form, now);
                return Heard::Answer(self.redis.execute(command, form, now));
            }
            _ => return Heard::Nothing { asked: false },
        }
        Heard::Nothing { asked: true }
    }

    /// A command that was delayed is done.
    pub(crate) fn late(&mut self) -> bool {
        if self.redis.delayed.is_empty() || !self.redis.up {
            return false;
        }
        let at = self.rng.below(self.redis.delayed.len());
        let (command, form, changes) = self.redis.delayed.swap_remove(at);
        if changes > 1 {
            // What comes after so many other changes cannot be told from something new; it must not come that late.
            return true;
        }
        let answer = self.redis.execute(&command, form, self.now);
        note!(self, "late: {}: {}", brief(&command), brief(&answer));
        true
    }

    /// The writer of a node commits some orders.
    pub(crate) fn commit(&mut self, node: usize, cut: Cut) -> Result<bool, String> {
        let most = 1 + self.rng.below(5);
        self.commit_up_to(node, most, cut)
    }

    pub(crate) fn commit_up_to(&mut self, node: usize, most: usize, cut: Cut) -> Result<bool, String> {
        let (trace, step) = (self.trace, self.step);
        let at = &mut self.nodes[node];
        let now = self.now.saturating_add_signed(at.clock);
        let mut tell = |what: &dyn std::fmt::Debug| {
            if trace {
                println!("{step:>4}   writer {node}: {}", brief(what));
            }
        };
        let shared = (&mut self.rng, &mut self.ledger);
        let committed = at.commit(shared, now, (most, cut), self.guard, &mut tell)?;
        // Otherwise the node goes down now, and serves nothing more.
        if cut == Cut::Not {
            self.check_places(node)?;
        }
        Ok(committed)
    }

    /// The deliverer of a node brings the next state.
    pub(crate) fn deliver(&mut self, node: usize) -> bool {
        let Some(delivery @ Delivery { code, .. }) = self.nodes[node].deliveries.front().copied() else { return false };
        let index = index_of(&code);
        let Some(sent) = self.nodes[node].store.now.states.get(index).cloned() else {
            self.nodes[node].deliveries.pop_front();
            return true;
        };
        let heard = self.call(node, &Command::Offer(index, sent.clone()));
        note!(self, "node {node} offers {}: {}", brief(&sent), brief(&heard));
        let Heard::Answer(Answer { verdict, echo }) = heard else { return self.reaches(node) };
        let echo = echo.map(|at| adapter::echo(part_of(index), at));
        let delivered = OutboxReply { delivery, sent, verdict, echo };
        let joins = self.rng.permille(300);
        let at = &mut self.nodes[node];
        at.deliveries.pop_front();
        match at.followed.back_mut() {
            Some(WriterOrder::Delivered(group)) if joins => group.push(delivered),
            _ => at.followed.push_back(WriterOrder::Delivered(vec![delivered])),
        }
        true
    }

    fn follow(&mut self, node: usize) -> bool {
        let (part, most) = (self.rng.below(PARTS), 2 + self.rng.below(8));
        self.follow_part(node, part, most)
    }

    pub(crate) fn follow_part(&mut self, node: usize, part: usize, most: usize) -> bool {
        if !self.reaches(node) {
            return false;
        }
        let at = &mut self.nodes[node];
        let reads = self.versions.reads(node);
        let moved = at.follow(&mut self.redis, (part, most, self.now), reads, self.guard);
        if moved {
            note!(self, "node {node} follows: {}", brief(&self.nodes[node].followed.back()));
        }
        moved
    }

    fn compare(&mut self, node: usize) -> bool {
        let part = self.rng.below(PARTS);
        (0..PARTS).any(|nth| self.compare_part(node, (part + nth) % PARTS))
    }

    pub(crate) fn compare_part(&mut self, node: usize, part: usize) -> bool {
        if !self.reaches(node) || !self.nodes[node].compares(part) {
            return false;
        }
        // The thread has read the stream before each piece: another past of Redis is noticed before it is compared
        // with.
        if self.follow_part(node, part, 10) {
            return true;
        }
        // Only some commands of a comparison fail; it offers one thing in a step.
        let (lost, done) = (self.rng.permille(self.faults.command), self.rng.permille(500));
        let (now, trace, step, form) = (self.now, self.trace, self.step, self.form_of(node));
        let moved = self.nodes[node].compare(&mut self.redis, (part, now), form.reads, self.guard, |redis, command| {
            let answer = (!lost || done).then(|| redis.execute(command, form, now));
            if trace {
                println!(
                    "{step:>4} node {node} compares, and offers {}: {}, lost: {lost}",
                    brief(command),
                    brief(&answer)
                );
            }
            answer.filter(|_| !lost)
        });
        note!(self, "node {node} compares {part}: {moved} {}", brief(&self.nodes[node].followers[part]));
        moved
    }

    /// A client asks for a code that the node does not know, and the node asks Redis.
    pub(crate) fn look(&mut self, node: usize) -> Result<bool, String> {
        if !self.reaches(node) || self.ledger.requests.is_empty() {
            return Ok(false);
        }
        let index = self.ledger.requests[self.rng.below(self.ledger.requests.len())].code;
        if self.nodes[node].served.get(index).is_some() {
            return Ok(false);
        }
        let Some(ReceivedState::Known(state)) = self.redis.received(index, self.versions.reads(node)) else {
            return Ok(false);
        };
        if self.lost_mark(node, index).is_some() {
            return Ok(false);
        }
        if !state.is_link() || !rules::adopts(self.nodes[node].store.now.states.get(index), &state) {
            return Ok(false);
        }
        note!(self, "node {node} looks up code {index}: {}", brief(&state));
        self.nodes[node].check_served(&self.ledger, index, &state)?;
        self.nodes[node].found.push_back(adapter::looked_up(vec![(code_at(index), state)]));
        Ok(true)
    }

    /// A node takes values, or tells of its own.
    fn lease(&mut self, node: usize) -> Result<bool, String> {
        if !self.reaches(node) {
            return Ok(false);
        }
        if self.nodes[node].values.len() > 2 || self.redis.counter.next + 200 > VALUES {
            self.beat(node);
            return Ok(true);
        }
        let confirmed = self.rng.permille(700);
        if self.rng.permille(self.faults.command) {
            // The answer is lost: nobody gets these.
            self.redis.lease(self.nodes[node].store.now.known(), 2);
            return Ok(true);
        }
        self.grant(node, 2, confirmed)?;
        Ok(true)
    }

    fn grant(&mut self, node: usize, want: u64, confirmed: bool) -> Result<(), String> {
        let at = &mut self.nodes[node];
        let granted = self.redis.lease(at.store.now.known(), want);
        if confirmed {
            self.redis.replicate_counter();
        }
        note!(self, "node {node} leases {granted:?}, confirmed: {confirmed}");
        let counts = lease::is_replicated(u64::from(confirmed), self.redis.replicas);
        if !counts && self.guard != Some(Guard::Wait) {
            return Ok(());
        }
        let end = granted.start + want;
        self.ledger.lease(node, granted.start, end)?;
        if counts {
            self.granted = self.granted.max(end);
        }
        self.known[node] = self.known[node].max(end);
        at.values.extend(granted.start..end);
        at.store.commit(Batch::Leases(end, at.store.now.floor));
        at.store.sync();
        Ok(())
    }

    fn beat(&mut self, node: usize) {
        let disk = &self.nodes[node].store.now;
        let (mark, floor) = (disk.mark, self.redis.beat(disk.known()));
        note!(self, "node {node} beats, floor {floor}");
        self.known[node] = self.known[node].max(floor);
        let store = &mut self.nodes[node].store;
        store.commit(Batch::Leases(mark, floor.max(store.now.floor)));
        store.sync();
    }

    /// The process of a node ends and starts again; or its power is lost.
    pub(crate) fn crash(&mut self, node: usize, power: bool) -> Result<(), String> {
        let at = &mut self.nodes[node];
        if power {
            let kept = self.rng.below(at.store.unsynced() + 1);
            at.store.lose_power(kept);
        }
        if self.guard == Some(Guard::Mark) {
            at.store.commit(Batch::Leases(0, 0));
            at.store.sync();
        }
        note!(self, "node {node} restarts, power lost: {power}");
        self.end_heartbeats(node);
        self.begin_process(node, power)
    }
}
