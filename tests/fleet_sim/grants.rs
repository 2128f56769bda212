//! A world of its own for visit limits: all nodes together answer a limited link at most as often as its maximum says.
//!
//! `carom_model::visits::grants` decides, as the scripts in Redis do. The model is what they decide about: one partition
//! with two links, whose data a failover cuts off, a dump sets back, or a restart empties. A server that was replaced still
//! answers some nodes. Nodes report link by link, and may meet another server, or be killed, between any two pieces of a
//! report. Commands are lost, carried out without an answer, or late. A node that stops leaves its totals to the others, which
//! no longer wait for it.
//!
//! The promises:
//!
//! 1. No link is visited more often than its maximum, at any time.
//! 2. Once everything is well, all nodes get visits until none are left.
//!
//! The model leaves out:
//!
//! * Members that come and go: all nodes have heard of each other before the first step.
//! * Links that end, and changes of the maximum.
//! * Nodes that do not hear that a stopped node runs again.

use std::collections::{BTreeMap, BTreeSet};

use carom_model::visits::grants::{GrantAdmission, GrantEpoch, GrantLedger, share_of};

use crate::rng::Rng;
use crate::schedules::Simulation;
use crate::trace::note;

/// Number of limited links.
const LINKS: usize = 2;

/// Most visits of one share.
const SHARE: u64 = 8;

/// Most servers that answer, the replaced ones among them.
const SERVERS: usize = 3;

/// Rounds within which all visits must be used up.
const ROUNDS_MAX: usize = 60;

/// Something without which a promise breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A Redis that may have lost grants waits for the reports of all nodes.
    Reports,
    /// Another server than before may have lost grants.
    Server,
    /// A node takes no grant of an earlier epoch than the last one that it knows.
    Later,
    /// A process knows the other nodes of an earlier one.
    Holders,
}

/// The faults of a schedule.
#[derive(Clone, Copy, Default, Debug)]
struct Faults {
    command: bool,
    kill: bool,
    cut: bool,
    empty: bool,
    failover: bool,
    dump: bool,
    stale: bool,
    stop: bool,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        let mut any = || rng.permille(500);
        let (command, kill, cut, empty) = (any(), any(), any(), any());
        Faults { command, kill, cut, empty, failover: any(), dump: any(), stale: any(), stop: any() }
    }
}

/// The last heartbeat of a node.
#[derive(Clone, Copy, Debug)]
struct Beat {
    /// The time by the clock of Redis, which is never set back.
    time: u64,
    /// The totals that the node has left, if it was stopped.
    left: Option<[u64; LINKS]>,
}

/// The data of a server.
#[derive(Clone, Default, Debug)]
struct Data {
    ledger: GrantLedger,
    totals: [u64; LINKS],
    beats: BTreeMap<usize, Beat>,
}

/// A server that is the master, or was.
#[derive(Debug)]
struct Server {
    name: String,
    data: Data,
}

/// A report under way: its epoch, and the next link.
#[derive(Clone, Copy, Debug)]
struct Pass {
    epoch: GrantEpoch,
    link: usize,
}

/// A node.
#[derive(Default, Debug)]
struct Node {
    /// On disk: the known totals and the last epoch.
    taken: [u64; LINKS],
    epoch: GrantEpoch,
    /// On disk: the nodes that it has heard of.
    known: BTreeSet<usize>,
    /// Granted visits that are left.
    left: [u64; LINKS],
    pass: Option<Pass>,
    /// The server that it talks to.
    at: usize,
    is_cut: bool,
    /// True once a heartbeat of this process was answered.
    has_beaten: bool,
    is_stopped: bool,
    /// The times of the latest heartbeats that this process has heard.
    latest: BTreeMap<usize, u64>,
    /// The nodes that an earlier process has heard of, and that this one has not seen run, each with the time of a heartbeat.
    unseen: BTreeMap<usize, Option<u64>>,
}

impl Node {
    /// Begins another process on the same disk.
    fn restart(&mut self) {
        (self.pass, self.has_beaten, self.is_stopped) = (None, false, false);
        self.latest.clear();
        self.unseen = self.known.iter().map(|other| (*other, None)).collect();
    }

    /// Hears that a node that was stopped runs again.
    fn hear_start(&mut self, other: usize, time: u64) {
        self.latest.insert(other, time);
        self.known.insert(other);
        self.unseen.remove(&other);
    }

    /// Hears the heartbeats of the other nodes, as `heartbeat/departures.rs` does. Takes over what a stopped node has left.
    fn hear(&mut self, node: usize, beats: &BTreeMap<usize, Beat>) {
        for (other, beat) in beats.iter().filter(|(other, _)| **other != node) {
            let latest = self.latest.entry(*other).or_default();
            *latest = beat.time.max(*latest);
            let is_latest = *latest == beat.time;
            if beat.left.is_none() {
                let before = self.unseen.get_mut(other).and_then(|before| before.replace(beat.time));
                if before.is_some_and(|before| before != beat.time) {
                    self.unseen.remove(other);
                }
            }
            let is_last = is_latest && !self.unseen.contains_key(other);
            if let Some(left) = beat.left.filter(|_| is_last) {
                self.taken.iter_mut().zip(left).for_each(|(taken, left)| *taken = left.max(*taken));
                self.known.remove(other);
            } else {
                self.known.insert(*other);
            }
        }
    }
}

/// A command.
#[derive(Clone, Debug)]
enum Command {
    /// Requests visits of a link.
    Allow { node: usize, link: usize, known: GrantEpoch, taken: u64, others: Vec<String> },
    /// Asks for the epoch.
    Look { node: usize, known: GrantEpoch, others: Vec<String> },
    /// Reports the total of a link.
    Total { known: GrantEpoch, link: usize, taken: u64 },
    /// Ends a report.
    End { node: usize, known: GrantEpoch, others: Vec<String> },
}

/// The answer to a command.
#[derive(Clone, Debug)]
enum Answer {
    Granted { given: u64, taken: u64 },
    Missing(String),
    Epoch(GrantEpoch, bool),
    Reported(bool),
}

/// One run.
#[derive(Debug)]
pub(crate) struct World {
    rng: Rng,
    guard: Option<Guard>,
    trace: bool,
    step: usize,
    faults: Faults,
    /// The servers that answer; the last one is the master.
    servers: Vec<Server>,
    replica: Data,
    dump: Data,
    /// Names and random numbers given so far.
    drawn: u64,
    nodes: Vec<Node>,
    max: [u64; LINKS],
    made: [u64; LINKS],
    /// Commands on their way that nobody waits for any more, each with the name of its server.
    late: Vec<(String, Command)>,
}

fn name(node: usize) -> String {
    format!("n{node}")
}

impl Simulation for World {
    type Guard = Guard;

    fn new(seed: u64, guard: Option<Guard>, trace: bool) -> World {
        let mut rng = Rng::new(seed ^ 0x6772_616e_7473);
        let faults = Faults::draw(&mut rng);
        let max = [(); LINKS].map(|()| 6 + rng.below(20) as u64);
        let nodes = (0..2 + rng.below(2)).map(|_| Node::default()).collect();
        let servers = vec![Server { name: "s0".to_owned(), data: Data::default() }];
        let (replica, dump, late) = (Data::default(), Data::default(), Vec::new());
        let (step, drawn, made) = (0, 0, [0; LINKS]);
        let mut world =
            World { rng, guard, trace, step, faults, servers, replica, dump, drawn, nodes, max, made, late };
        note!(world, "{} nodes, maxima {max:?}, {faults:?}", world.nodes.len());
        for _ in 0..2 {
            (0..world.nodes.len()).for_each(|node| world.beat(node));
        }
        world
    }

    fn draw_steps(&mut self) -> usize {
        60 + self.rng.below(160)
    }

    fn step(&mut self, number: usize) -> Result<(), String> {
        self.step = number;
        let (node, link) = (self.rng.below(self.nodes.len()), self.rng.below(LINKS));
        if self.nodes[node].is_stopped {
            if self.rng.permille(200) {
                self.start(node);
            }
            return self.check();
        }
        match self.rng.below(100) {
            0..30 => self.visit(node, link),
            30..58 => self.report(node),
            58..64 => self.beat(node),
            64..70 => self.replica = self.servers[self.master()].data.clone(),
            70..79 => self.meet(node),
            79..82 => self.late_command(),
            _ => self.fault(node),
        }
        self.check()
    }

    fn rest(&mut self) -> Result<(), String> {
        self.step += 1;
        note!(self, "everything is well again");
        self.faults = Faults::default();
        let master = self.master();
        self.nodes.iter_mut().for_each(|node| (node.at, node.is_cut) = (master, false));
        (0..self.nodes.len()).for_each(|node| self.start(node));
        for _ in 0..ROUNDS_MAX {
            let mut is_over = true;
            for node in 0..self.nodes.len() {
                self.beat(node);
                is_over &= self.nodes[node].pass.is_none();
                self.begin_report(node);
                while self.nodes[node].pass.is_some() {
                    self.report_next(node);
                }
                for link in 0..LINKS {
                    self.visit(node, link);
                    self.check()?;
                    let is_used_up = matches!(self.ask(node, link), Some(Answer::Granted { given: 0, .. }));
                    is_over &= is_used_up && self.nodes[node].left[link] == 0;
                }
            }
            if is_over {
                return Ok(());
            }
        }
        Err("some node gets no answer about the visits that are left".to_owned())
    }
}

impl World {
    fn master(&self) -> usize {
        self.servers.len() - 1
    }

    fn number(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn leaves_out(&self, guard: Guard) -> bool {
        self.guard == Some(guard)
    }

    fn check(&self) -> Result<(), String> {
        let over = (0..LINKS).find(|&link| self.made[link] > self.max[link]);
        over.map_or(Ok(()), |link| Err(format!("{} visits of link {link}, of {}", self.made[link], self.max[link])))
    }

    /// Carries out a command, as the scripts do.
    fn execute(&mut self, at: usize, command: Command) -> Answer {
        let (nonce, any_epoch) = (self.number(), self.leaves_out(Guard::Later));
        let (any_server, waits) = (self.leaves_out(Guard::Server), !self.leaves_out(Guard::Reports));
        let max = self.max;
        let Server { name: server, data } = &mut self.servers[at];
        let server = if any_server { "" } else { server.as_str() };
        let last = |known| if any_epoch { GrantEpoch::default() } else { known };
        match command {
            Command::Allow { node, link, known, taken, others } => {
                let epoch = data.ledger.enter(last(known), nonce, server);
                let known = if any_epoch { epoch } else { known };
                let others: &[String] = if waits { &others } else { &[] };
                if let GrantAdmission::Missing(node) = data.ledger.admit(&name(node), known, others) {
                    return Answer::Missing(node);
                }
                let before = data.totals[link].max(taken);
                let given = share_of(max[link].saturating_sub(before), 1, SHARE);
                data.totals[link] = before + given;
                Answer::Granted { given, taken: before + given }
            }
            Command::Look { node, known, others } => {
                let (epoch, node) = (data.ledger.enter(last(known), nonce, server), name(node));
                let is_reported = data.ledger.has_report(&node);
                if epoch == known && is_reported {
                    data.ledger.report(&node, &others);
                }
                Answer::Epoch(epoch, is_reported)
            }
            Command::Total { known, link, taken } => {
                let is_same = data.ledger.enter(known, nonce, server) == known;
                if is_same {
                    data.totals[link] = data.totals[link].max(taken);
                }
                Answer::Reported(is_same)
            }
            Command::End { node, known, others } => {
                let is_same = data.ledger.enter(known, nonce, server) == known;
                if is_same {
                    data.ledger.report(&name(node), &others);
                }
                Answer::Reported(is_same)
            }
        }
    }

    /// Sends a command. It may be lost, carried out without an answer, or late.
    fn send(&mut self, node: usize, command: Command) -> Option<Answer> {
        let Node { at, is_cut, .. } = self.nodes[node];
        if is_cut {
            return None;
        }
        if !self.faults.command || !self.rng.permille(120) {
            let answer = self.execute(at, command.clone());
            note!(self, "node {node} to {}: {command:?}: {answer:?}", self.servers[at].name);
            return Some(answer);
        }
        let fate = self.rng.below(3);
        note!(self, "node {node} to {}: {command:?}: fate {fate}", self.servers[at].name);
        match fate {
            0 => {}
            1 => _ = self.execute(at, command),
            _ => self.late.push((self.servers[at].name.clone(), command)),
        }
        None
    }

    fn late_command(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let chosen = self.rng.below(self.late.len());
        let (server, command) = self.late.swap_remove(chosen);
        if let Some(at) = self.servers.iter().position(|of| of.name == server) {
            let answer = self.execute(at, command.clone());
            note!(self, "late, at {server}: {command:?}: {answer:?}");
        }
    }

    fn beat(&mut self, node: usize) {
        let time = self.number();
        let of = &mut self.nodes[node];
        if !of.is_cut {
            let beats = &mut self.servers[of.at].data.beats;
            beats.insert(node, Beat { time, left: None });
            of.hear(node, beats);
            of.has_beaten = true;
        }
    }

    /// Stops a node. Its granted visits wait for the next process. Without Redis, it leaves nothing to the others.
    fn stop(&mut self, node: usize) {
        let time = self.number();
        let of = &mut self.nodes[node];
        if !of.is_cut && of.has_beaten {
            self.servers[of.at].data.beats.insert(node, Beat { time, left: Some(of.taken) });
        }
        of.is_stopped = true;
        note!(self, "node {node} stops");
    }

    /// Starts a node that was stopped. The others hear of it.
    fn start(&mut self, node: usize) {
        if !self.nodes[node].is_stopped {
            return;
        }
        note!(self, "node {node} starts again");
        let time = self.number();
        self.nodes[node].restart();
        for (_, other) in self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node) {
            other.hear_start(node, time);
        }
    }

    /// Returns the names of the other nodes that a node has heard of.
    fn others(&self, node: usize) -> Vec<String> {
        self.nodes[node].known.iter().filter(|other| **other != node).map(|other| name(*other)).collect()
    }

    fn ask(&mut self, node: usize, link: usize) -> Option<Answer> {
        let of = &self.nodes[node];
        if !of.has_beaten {
            return None;
        }
        let others = self.others(node);
        let allow = Command::Allow { node, link, known: of.epoch, taken: of.taken[link], others };
        let answer = self.send(node, allow)?;
        if let Answer::Granted { given, taken } = answer {
            let of = &mut self.nodes[node];
            of.taken[link] = of.taken[link].max(taken);
            of.left[link] += given;
        }
        Some(answer)
    }

    fn visit(&mut self, node: usize, link: usize) {
        if self.nodes[node].left[link] == 0 {
            let answer = self.ask(node, link);
            if matches!(answer, Some(Answer::Missing(missing)) if missing == name(node)) {
                self.begin_report(node);
            }
        }
        let left = &mut self.nodes[node].left[link];
        if *left > 0 {
            *left -= 1;
            self.made[link] += 1;
            note!(self, "node {node} answers visit {} of link {link}", self.made[link]);
        }
    }

    /// Takes the next piece of a report, or all of them.
    fn report(&mut self, node: usize) {
        self.begin_report(node);
        let is_whole = self.rng.permille(500);
        self.report_next(node);
        while is_whole && self.nodes[node].pass.is_some() {
            self.report_next(node);
        }
    }

    fn begin_report(&mut self, node: usize) {
        let Node { pass, epoch: known, has_beaten, .. } = self.nodes[node];
        if pass.is_some() || !has_beaten {
            return;
        }
        let look = Command::Look { node, known, others: self.others(node) };
        let Some(Answer::Epoch(epoch, is_reported)) = self.send(node, look) else { return };
        if is_reported && (epoch == known || self.leaves_out(Guard::Later)) {
            return;
        }
        let of = &mut self.nodes[node];
        (of.epoch, of.pass) = (epoch, Some(Pass { epoch, link: 0 }));
    }

    fn report_next(&mut self, node: usize) {
        let Some(Pass { epoch: known, link }) = self.nodes[node].pass else { return };
        let command = if link < LINKS {
            Command::Total { known, link, taken: self.nodes[node].taken[link] }
        } else {
            Command::End { node, known, others: self.others(node) }
        };
        let is_taken = matches!(self.send(node, command), Some(Answer::Reported(true)));
        let next = (is_taken && link < LINKS).then_some(Pass { epoch: known, link: link + 1 });
        self.nodes[node].pass = next;
    }

    /// A node finds the master, or a server that was replaced.
    fn meet(&mut self, node: usize) {
        let is_stale = self.faults.stale && self.rng.permille(400);
        self.nodes[node].at = if is_stale { self.rng.below(self.servers.len()) } else { self.master() };
    }

    fn fault(&mut self, node: usize) {
        let (faults, master) = (self.faults, self.master());
        match self.rng.below(18) {
            0 | 1 if faults.failover && self.servers.len() < SERVERS => {
                let (name, data) = (format!("s{}", self.number()), self.replica.clone());
                note!(self, "{name} takes over");
                self.servers.push(Server { name, data });
            }
            2 if faults.empty => {
                if self.rng.permille(500) {
                    self.servers[master].name = format!("s{}", self.number());
                }
                note!(self, "{} is empty", self.servers[master].name);
                self.servers[master].data = Data::default();
                if self.rng.permille(700) {
                    self.replica = Data::default();
                }
            }
            3 if faults.dump => {
                let name = format!("s{}", self.number());
                note!(self, "{name} starts with a dump");
                self.servers[master] = Server { name, data: self.dump.clone() };
                self.replica = self.dump.clone();
            }
            4 | 5 => self.dump = self.servers[master].data.clone(),
            6..10 if faults.kill => {
                note!(self, "node {node} is killed");
                let forgets = self.leaves_out(Guard::Holders);
                let of = &mut self.nodes[node];
                of.left = [0; LINKS];
                if forgets {
                    of.known.clear();
                }
                of.restart();
            }
            10..13 if faults.cut => self.nodes[node].is_cut ^= true,
            13..15 if faults.stop => self.stop(node),
            _ => {}
        }
    }
}
