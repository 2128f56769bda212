//! A world of its own for membership: heartbeats, leases that are taken over, and links made alone.
//!
//! `replication::members` and `replication::lease` are driven as the threads of a node drive them
//! (`services/replication/heartbeat.rs`, `counter.rs`, `gateway.rs`, `services/ids/worker.rs`), one piece between two
//! waits in each step, so that a process may be suspended in any of them. Of links there is only what a take-over can
//! harm: claims, links made alone, and their delivery.
//!
//! Each node has a clock that runs up to a twentieth fast or slow, begins anywhere, and goes on while the process is
//! suspended. The promises:
//!
//! 1. A node makes no link alone with a value that another has taken over, unless its process stood still between the
//!    look at its lease and the commit.
//! 2. A lease is taken over once for one going.
//! 3. No code has two links at once that Redis has accepted.
//! 4. Nobody is taken over from within the time after a heartbeat that Redis took; outages of Redis that are longer
//!    than six tenths of it do not count.
//! 5. At the end all agree, and what was made alone is there, unless its lease was taken over before it was delivered.
//!
//! A lease counts as torn where Redis lost a take-over or the last heartbeat before it: only 3 and the agreement hold
//! for its codes. A code is contested, so that one of two links made alone may be lost, when it was taken over while a
//! link of it was not in Redis, or when the node that had gone finds it in the queue of a core after its return.

mod links;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use carom_model::replication::State;
use carom_model::replication::lease::CodeCounter;
use carom_model::replication::members::{Lease, Members, NodeId};
use carom_model::replication::rules::{self, Verdict};

use crate::codes::{Index, States};
use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::trace::note;

/// After how long of silence a node has gone, in milliseconds.
const AFTER: u64 = 100_000;

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A tenth of the time is left for clocks that do not run alike.
    Tenth,
    /// A node is taken over from only if its heartbeat is still the one that was watched.
    Unchanged,
    /// After an outage everybody's silence is measured anew.
    Anew,
    /// A lost command.
    Lost,
    /// A silence is measured until the answer was heard, not until the heartbeat was begun.
    Answer,
    /// A process keeps what an earlier one had leased only by the time that was written down.
    Heard,
    /// No such time is written down of a node that came back too late.
    Fresh,
    /// Nothing is leased before the first heartbeat.
    Begun,
    /// A node that came back too late throws away what others may have.
    GiveUp,
    /// Of what was taken over, only codes are used that Redis does not have.
    Used,
    /// Two heartbeats of a node differ, although Redis's clock was set back so that they have the same time.
    Number,
}

/// The fate of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Answered,
    Unanswered,
    Late,
    Lost,
}

/// The faults of a schedule.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    command: usize,
    sleep: bool,
    restart: bool,
    reboot: bool,
    failover: bool,
    away: bool,
    cut: bool,
    wall_clock: bool,
}

/// A heartbeat: its time by the clock of Redis, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Beat {
    score: u64,
    number: u64,
}

/// Nodes and leases in Redis.
#[derive(Clone, Default)]
struct Space {
    beats: BTreeMap<usize, Beat>,
    leases: BTreeMap<u64, usize>,
    counter: CodeCounter,
}

/// The state of the heartbeat thread.
enum Heart {
    Idle,
    Sending(Duration),
    Heard(Duration, Vec<(NodeId, u64)>, u64),
    Acting(Vec<(NodeId, u64)>),
}

/// The next action of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wake {
    GoesOn,
    Restarts,
    Reboots,
}

/// A request between the gateway and the writer.
struct Order {
    value: u64,
    link: State,
    /// The answer of Redis.
    answer: Option<Verdict>,
    /// True if the lease held when that was asked, and the time of the question.
    alone: bool,
    at: u64,
}

/// A node. What is below `rows` is on its disk.
struct Node {
    rate: u64,
    booted: (u64, u64),
    boot: u64,
    sleeps: Option<(u64, Wake)>,
    cut_until: u64,
    lease: Lease,
    members: Members,
    heart: Heart,
    /// Values that a core may use, and whether they came to it before anybody could know that they are lost.
    values: VecDeque<(u64, bool)>,
    orders: VecDeque<Order>,
    granted: Option<u64>,
    reclaimed: VecDeque<u64>,
    checked: Option<Vec<u64>>,
    given_up: u32,
    rows: VecDeque<u64>,
    links: States,
    undelivered: BTreeSet<u64>,
    compare: bool,
    heard: Option<(u64, Duration)>,
    floor: u64,
}

/// The true owner of the values of a lease.
struct Owner {
    node: usize,
    torn: bool,
}

/// A link that was acknowledged.
struct Made {
    value: u64,
    claim: u64,
    alone: bool,
}

/// One run.
pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    now: u64,
    faults: Faults,
    space: Space,
    states: States,
    /// The data of the replicas, and its age.
    replicas: (Space, States, u64),
    server: u64,
    wall_clock: u64,
    away_until: u64,
    /// Time for which Redis was away in outages that must not count.
    outages: u64,
    late: Vec<(usize, Option<(Index, State)>)>,
    nodes: Vec<Node>,
    claims: u64,
    owners: BTreeMap<u64, Owner>,
    contested: BTreeSet<u64>,
    asked: BTreeSet<u64>,
    forgotten: BTreeSet<Index>,
    made: Vec<Made>,
    /// The last heartbeat of each node that Redis took: when, without outages, and its mark.
    beaten: Vec<Option<(u64, u64)>>,
    /// Number of heartbeats that Redis took.
    beats: u64,
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed ^ 0x6d65_6d62);
        let command = [0, 60, 250][rng.below(3)];
        let mut any = || rng.permille(400);
        let (sleep, restart, reboot, failover) = (any(), any(), any(), any());
        let (away, cut, wall_clock) = (any(), any() || any(), any());
        let faults = Faults { command, sleep, restart, reboot, failover, away, cut, wall_clock };
        let count = 2 + rng.below(3);
        let mut world = World {
            rng,
            guard,
            trace,
            step: 0,
            now: 10 * AFTER,
            faults,
            space: Space::default(),
            states: States::default(),
            replicas: (Space::default(), States::default(), 0),
            server: 0,
            wall_clock: 1_000_000_000,
            away_until: 0,
            outages: 0,
            late: Vec::new(),
            nodes: Vec::new(),
            claims: 0,
            owners: BTreeMap::new(),
            contested: BTreeSet::new(),
            asked: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            made: Vec::new(),
            beaten: vec![None; count],
            beats: 0,
        };
        note!(world, "{count} nodes, {:?}", world.faults);
        for _ in 0..count {
            let rate = [950, 1_000, 1_050, 950 + world.rng.below(101)][world.rng.below(4)] as u64;
            let booted = (world.now, world.rng.below(1_000_000) as u64);
            world.nodes.push(Node::new(rate, booted));
        }
        world
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(120)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.step = number;
        let ms = if self.rng.permille(950) { self.rng.below(10) } else { self.rng.below(2_000) };
        self.pass(ms as u64)?;
        for _ in 0..4 {
            if self.act()? {
                break;
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<(), String> {
        self.come_to_rest()?;
        self.check()
    }
}

impl World {
    /// Returns how long a node takes for that time; without the tenth, so much longer that nothing is left of it.
    fn patience(&self) -> Duration {
        Duration::from_millis(if self.guard == Some(Guard::Tenth) { AFTER / 9 * 10 } else { AFTER })
    }

    fn act(&mut self) -> Result<bool, String> {
        // More happens to the first than to the others, so that things that go wrong meet.
        let node = if self.rng.permille(350) { 0 } else { self.rng.below(self.nodes.len()) };
        match self.rng.below(100) {
            84..92 => {
                let pieces = 1 + self.rng.below(6);
                self.go_on(pieces).map(|()| true)
            }
            92.. => Ok(self.fault(node)),
            _ if self.nodes[node].sleeps.is_some() => Ok(false),
            0..18 => Ok(self.ask(node)? && (self.rng.permille(400) || self.commit(node)?)),
            18..34 => self.commit(node),
            34..42 => self.deliver(node),
            42..44 => Ok(self.follow(node)),
            44..62 => self.beat(node).map(|()| true),
            _ => Ok(self.replenish(node)),
        }
    }

    /// Much time passes, and most of what is well goes on as ever.
    fn go_on(&mut self, pieces: usize) -> Result<(), String> {
        for _ in 0..pieces {
            let ms = AFTER / 25 + self.rng.below(AFTER as usize / 12) as u64;
            self.pass(ms)?;
            for node in 0..self.nodes.len() {
                if self.nodes[node].sleeps.is_some() {
                    continue;
                }
                if self.rng.permille(500) {
                    self.replenish(node);
                }
                let pieces = if self.rng.permille(850) { 5 } else { self.rng.below(3) };
                for _ in 0..pieces {
                    self.beat(node)?;
                }
                if self.rng.permille(80) {
                    self.follow(node);
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, ms: u64) -> Result<(), String> {
        if self.now + ms > self.replicas.2 + 100 || self.rng.permille(100) {
            self.replicate();
        }
        self.now += ms;
        for node in 0..self.nodes.len() {
            if let Some((until, wake)) = self.nodes[node].sleeps.filter(|(until, _)| *until <= self.now) {
                note!(self, "node {node} {wake:?}, as of {until}");
                self.nodes[node].sleeps = None;
                self.wake(node, wake);
            }
        }
        if !self.late.is_empty() && self.is_up() && self.rng.permille(200) {
            self.carry_out_late()?;
        }
        Ok(())
    }

    fn replicate(&mut self) {
        self.replicas = (self.space.clone(), self.states.clone(), self.now);
    }

    fn is_up(&self) -> bool {
        self.away_until <= self.now
    }

    fn fate(&mut self, node: usize) -> Fate {
        if !self.is_up() || self.nodes[node].cut_until > self.now {
            return Fate::Lost;
        }
        if !self.rng.permille(self.faults.command) {
            return Fate::Answered;
        }
        [Fate::Unanswered, Fate::Late, Fate::Lost][self.rng.below(3)]
    }

    fn carry_out_late(&mut self) -> Result<(), String> {
        let at = self.rng.below(self.late.len());
        match self.late.swap_remove(at) {
            (node, None) => self.take_beat(node),
            // Nobody waits for the answer; what it leads to is seen by others.
            (_, Some((index, link))) => _ = self.change(index, rules::claim(self.states.get(index), &link))?,
        }
        Ok(())
    }

    fn fault(&mut self, node: usize) -> bool {
        let (faults, until) = (self.faults, self.now + AFTER * (1 + self.rng.below(30) as u64) / 20);
        let wake = match self.rng.below(9) {
            0 if faults.sleep => Wake::GoesOn,
            1 | 8 if faults.restart => Wake::Restarts,
            2 if faults.reboot => Wake::Reboots,
            3 if faults.failover => return self.fail_over(),
            4 if faults.away && self.is_up() => {
                let ms = until - self.now;
                self.outages += if ms >= AFTER * 6 / 10 { ms } else { 0 };
                self.away_until = until;
                note!(self, "Redis is away until {until}");
                return true;
            }
            5 | 6 if faults.cut => {
                self.nodes[node].cut_until = until;
                note!(self, "node {node} is cut off until {until}, now {}", self.now);
                return true;
            }
            7 if faults.wall_clock => {
                self.wall_clock = 1_000_000_000 + self.rng.below(50_000) as u64;
                return true;
            }
            _ => return false,
        };
        // Also for a moment, which changes nothing but where things stand.
        let until = if self.rng.permille(500) { self.now + 1 } else { until };
        if wake == Wake::GoesOn && self.rng.permille(500) {
            // The worst moment: it has looked at its clock, and has yet to send.
            self.nodes[node].heart = Heart::Sending(self.nodes[node].clock(self.now));
        }
        note!(self, "node {node} stands still until {until}, then {wake:?}");
        self.nodes[node].sleeps.get_or_insert((until, wake));
        true
    }

    /// A replica takes the place of the master of the leases, or of that of the links.
    fn fail_over(&mut self) -> bool {
        if self.rng.permille(500) {
            self.space = self.replicas.0.clone();
            self.server += 1;
            for (start, owner) in &mut self.owners {
                owner.torn |= self.space.leases.get(start) != Some(&owner.node);
            }
            note!(self, "failover of the leases");
        } else {
            let has = |states: &States, index| states.get(index).cloned();
            let lost =
                self.states.iter().filter(|(index, state)| has(&self.replicas.1, *index).as_ref() != Some(state));
            self.forgotten.extend(lost.map(|(index, _)| *index));
            self.states = self.replicas.1.clone();
            self.nodes.iter_mut().for_each(|node| node.compare = true);
            note!(self, "failover of the links, {:?} forgotten", self.forgotten);
        }
        true
    }

    /// The script of heartbeats.
    fn take_beat(&mut self, node: usize) {
        if self.faults.wall_clock
            && let Some(last) = self.space.beats.get(&node).copied()
            && self.rng.permille(200)
        {
            // The worst step back: this heartbeat gets the time of the last one.
            self.wall_clock = last.score - self.now;
        }
        self.beats += 1;
        let beat = Beat { score: self.wall_clock + self.now, number: self.beats };
        self.space.beats.insert(node, beat);
        let counter = &mut self.space.counter;
        counter.floor = counter.floor.max(self.nodes[node].floor);
        self.beaten[node] = Some((self.now - self.outages, self.mark(beat)));
    }

    /// The mark by which nodes know a heartbeat.
    fn mark(&self, beat: Beat) -> u64 {
        if self.guard == Some(Guard::Number) { beat.score } else { beat.number }
    }

    /// A piece of what the thread of heartbeats does, up to where it waits.
    fn beat(&mut self, node: usize) -> Result<(), String> {
        let now = self.nodes[node].clock(self.now);
        match std::mem::replace(&mut self.nodes[node].heart, Heart::Idle) {
            Heart::Idle => self.nodes[node].heart = Heart::Sending(now),
            Heart::Sending(sent) => {
                let fate = self.fate(node);
                match fate {
                    Fate::Lost => {}
                    Fate::Late => self.late.push((node, None)),
                    Fate::Answered | Fate::Unanswered => self.take_beat(node),
                }
                if fate == Fate::Answered {
                    let beats =
                        self.space.beats.iter().map(|(node, beat)| (node.to_string(), self.mark(*beat))).collect();
                    self.nodes[node].heart = Heart::Heard(sent, beats, self.space.counter.floor);
                }
                note!(self, "node {node} beats as of {sent:?}, at {}: {fate:?}", self.now);
            }
            Heart::Heard(sent, beats, floor) => {
                let writes_down = self.rng.permille(600);
                let (guard, patience) = (self.guard, self.patience());
                let losses = self.nodes[node].lease.losses();
                self.nodes[node].hear((sent, now), &beats, writes_down, (guard, patience));
                if self.faults.restart && losses != self.nodes[node].lease.losses() && self.rng.permille(300) {
                    // The worst moment: it knows what it has lost, and has yet to throw that away.
                    self.nodes[node].sleeps = Some((self.now, Wake::Restarts));
                }
                self.nodes[node].floor = self.nodes[node].floor.max(floor);
                let gone = self.nodes[node].members.gone(now, Duration::from_millis(AFTER));
                self.nodes[node].heart =
                    Heart::Acting(gone.into_iter().filter(|(gone, _)| *gone != node.to_string()).collect());
            }
            Heart::Acting(mut gone) => {
                if let Some((gone, beat)) = gone.pop() {
                    self.reclaim(node, gone.parse().unwrap(), beat)?;
                }
                if !gone.is_empty() {
                    self.nodes[node].heart = Heart::Acting(gone);
                }
            }
        }
        Ok(())
    }
}
