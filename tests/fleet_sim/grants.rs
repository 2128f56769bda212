//! A world of its own for visit limits: all nodes together answer a limited link at most as often as its maximum says.
//!
//! `carom_model::visits::grants` decides, as the scripts in Redis do. The model is what they decide about: one partition
//! with two links, whose data a failover cuts off, a dump sets back, or a restart empties. A server that was replaced still
//! answers some nodes. Nodes report link by link, and may meet another server, or be killed, between any two pieces of a
//! report. Commands are lost, carried out without an answer, or late. A node that stops leaves its totals to the others, which
//! no longer wait for it. When it runs again, it gets visits once all others have heard of it. A node that hears of a further
//! one gets visits once that one has heard of it.
//!
//! The promises:
//!
//! 1. Nodes get at most as many visits of a link as its maximum says, so it is not visited more often, at any time.
//! 2. Once everything is well, all nodes get visits until none are left.
//!
//! Nodes join that have never heard of the others, also with a copy of the store of one (`grants/newcomers.rs`). A Redis that
//! was emptied lacks the links, too, until a node brings them back.
//!
//! The model leaves out:
//!
//! * Members that leave for good.
//! * Links that end, and changes of the maximum.
//! * Nodes that are stopped while another one runs again: they hear of it before they start.

mod newcomers;
mod node;

use std::collections::{BTreeMap, BTreeSet};

use carom_model::visits::grants::{GrantAdmission, GrantEpoch, GrantIntroduction, GrantLedger, share_of};

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
    /// A node stores what a stopped node has left before it no longer waits for it.
    Handover,
    /// A process gets visits only once the other nodes have heard of it.
    Introduction,
    /// A process gets visits only while each node that it has heard of later has heard of it, too.
    Further,
    /// A node that comes back to an emptied Redis begins another epoch before Redis gets links back.
    Rival,
    /// A node brings links back once all nodes that it has heard of have heard of it.
    Held,
    /// A node that joins with a copy of a store waits for the node of that store.
    Copied,
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
    join: bool,
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        let mut any = || rng.permille(500);
        let (command, kill, cut, empty) = (any(), any(), any(), any());
        let mut faults =
            Faults { command, kill, cut, empty, failover: any(), dump: any(), stale: any(), stop: any(), join: any() };
        if faults.stop && any() {
            // These lose visits that were granted, and keep nodes from hearing of each other.
            (faults.command, faults.kill, faults.cut, faults.stale) = (false, false, false, false);
        }
        faults
    }
}

/// The last heartbeat of a node.
#[derive(Clone, Debug)]
struct Beat {
    /// The time by the clock of Redis, which is never set back. It is the number of the heartbeat, too.
    time: u64,
    /// The heartbeats of the other nodes that the node had heard before.
    heard: BTreeMap<usize, u64>,
    /// The totals that the node has left, if it was stopped.
    left: Option<[u64; LINKS]>,
}

/// The data of a server.
#[derive(Clone, Default, Debug)]
struct Data {
    ledger: GrantLedger,
    totals: [u64; LINKS],
    beats: BTreeMap<usize, Beat>,
    /// True if the links are there.
    has_links: bool,
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
    /// The introduction of this process, from its first heartbeat on.
    introduction: Option<GrantIntroduction>,
    /// True while all other nodes that it knows have heard of this process.
    is_introduced: bool,
    /// The heartbeats of the other nodes that Redis had at the last one of this process.
    heard: BTreeMap<usize, u64>,
    is_stopped: bool,
    /// The times of the latest heartbeats that this process has heard.
    latest: BTreeMap<usize, u64>,
    /// The nodes that an earlier process has heard of, and that this one has not seen run, each with the time of a heartbeat.
    unseen: BTreeMap<usize, Option<u64>>,
    has_links: bool,
    /// The time since which the last epoch is the last one, and true once the node has heard of all live nodes since.
    epoch_at: u64,
    is_settled: bool,
}

/// A command.
#[derive(Clone, Debug)]
enum Command {
    /// Requests visits of a link.
    Allow { node: usize, link: usize, known: GrantEpoch, taken: u64, others: Vec<String> },
    /// Asks for the epoch.
    Look { node: usize, known: GrantEpoch, others: Vec<String>, is_settled: bool },
    /// Asks for the epoch without a report, with the random number of an epoch that begins.
    Enter { node: usize, known: GrantEpoch, nonce: u64 },
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
    /// Visits that nodes got, and those that they made of them.
    granted: [u64; LINKS],
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
        let nodes = (0..1 + rng.below(3)).map(|_| Node { has_links: true, ..Node::default() }).collect();
        let servers = vec![Server { name: "s0".to_owned(), data: Data { has_links: true, ..Data::default() } }];
        let (replica, dump, late) = (Data::default(), Data::default(), Vec::new());
        let (step, drawn, granted, made) = (0, 0, [0; LINKS], [0; LINKS]);
        let mut world =
            World { rng, guard, trace, step, faults, servers, replica, dump, drawn, nodes, max, granted, made, late };
        note!(world, "{} nodes, maxima {max:?}, {faults:?}", world.nodes.len());
        // A node hears of another one, then tells it, and that one hears that.
        for _ in 0..4 {
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
            if self.rng.permille(100) {
                self.start(node);
            }
            return self.check();
        }
        match self.rng.below(100) {
            0..30 => self.visit(node, link),
            30..54 => self.report(node),
            54..64 => self.beat(node),
            64..70 => self.replica = self.servers[self.master()].data.clone(),
            70..77 => self.meet(node),
            77..80 => self.bring_back(node),
            80..82 => self.late_command(),
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
                self.bring_back(node);
                self.beat(node);
                is_over &= self.nodes[node].pass.is_none();
                self.report_all(node);
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
        let over = (0..LINKS).find(|&link| self.granted[link].max(self.made[link]) > self.max[link]);
        over.map_or(Ok(()), |link| {
            let (granted, made, max) = (self.granted[link], self.made[link], self.max[link]);
            Err(format!("nodes got {granted} visits of link {link} and made {made}, of {max}"))
        })
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
            Command::Look { node, known, others, is_settled } => {
                let (epoch, node) = (data.ledger.enter(last(known), nonce, server), name(node));
                let is_reported = data.ledger.has_report(&node);
                if epoch == known && is_reported {
                    data.ledger.report(&node, &others);
                    if is_settled && !others.is_empty() {
                        data.ledger.complete(&node, if waits { &others } else { &[] });
                    }
                }
                Answer::Epoch(epoch, is_reported)
            }
            Command::Enter { node, known, nonce } => {
                let epoch = data.ledger.enter(last(known), nonce, server);
                Answer::Epoch(epoch, data.ledger.has_report(&name(node)))
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
        let (time, keeps_own) = (self.number(), self.leaves_out(Guard::Handover));
        let stays = self.leaves_out(Guard::Further);
        let of = &mut self.nodes[node];
        if of.is_cut {
            return;
        }
        let beats = &mut self.servers[of.at].data.beats;
        beats.insert(node, Beat { time, heard: of.heard.clone(), left: None });
        of.hear(node, beats, keeps_own);
        of.has_beaten = true;
        let was_introduced = of.is_introduced;
        of.introduce(node, time, beats);
        of.is_introduced |= was_introduced && stays;
        let is_news = of.is_introduced && !was_introduced;
        self.settle(node);
        if is_news {
            note!(self, "all nodes that node {node} knows have heard of it");
            // Those that are stopped hear of it before they start.
            let others = self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != node);
            others.for_each(|(_, other)| _ = other.known.insert(node));
        }
    }

    /// Stops a node. Its granted visits wait for the next process. Without Redis, it leaves nothing to the others.
    fn stop(&mut self, node: usize) {
        let time = self.number();
        let of = &mut self.nodes[node];
        if !of.is_cut && of.has_beaten {
            let beat = Beat { time, heard: of.heard.clone(), left: Some(of.taken) };
            self.servers[of.at].data.beats.insert(node, beat);
        }
        of.is_stopped = true;
        note!(self, "node {node} stops");
    }

    /// Starts a node that was stopped. A process first sends a heartbeat.
    fn start(&mut self, node: usize) {
        if self.nodes[node].is_stopped {
            note!(self, "node {node} starts again");
            self.nodes[node].restart();
            self.nodes[node].epoch_at = self.number();
            self.beat(node);
        }
    }

    /// Returns the names of the other nodes that a node has heard of.
    fn others(&self, node: usize) -> Vec<String> {
        self.nodes[node].known.iter().filter(|other| **other != node).map(|other| name(*other)).collect()
    }

    fn ask(&mut self, node: usize, link: usize) -> Option<Answer> {
        let of = &self.nodes[node];
        let may_get = of.is_introduced || self.leaves_out(Guard::Introduction);
        if !of.has_beaten || !of.has_links || !may_get {
            return None;
        }
        let mut others = self.others(node);
        // No node has an empty name, so its report stays missing.
        others.extend((!of.is_settled).then(String::new));
        let allow = Command::Allow { node, link, known: of.epoch, taken: of.taken[link], others };
        let answer = self.send(node, allow)?;
        if let Answer::Granted { given, taken } = answer {
            let of = &mut self.nodes[node];
            of.taken[link] = of.taken[link].max(taken);
            of.left[link] += given;
            self.granted[link] += given;
        }
        Some(answer)
    }

    fn visit(&mut self, node: usize, link: usize) {
        if !self.finds_links(node) {
            return;
        }
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

    fn report_all(&mut self, node: usize) {
        self.begin_report(node);
        while self.nodes[node].pass.is_some() {
            self.report_next(node);
        }
    }

    fn begin_report(&mut self, node: usize) {
        let Node { pass, epoch: known, has_beaten, is_settled, .. } = self.nodes[node];
        if pass.is_some() || !has_beaten {
            return;
        }
        let look = Command::Look { node, known, others: self.others(node), is_settled };
        let Some(Answer::Epoch(epoch, is_reported)) = self.send(node, look) else { return };
        if is_reported && (epoch == known || self.leaves_out(Guard::Later)) {
            return;
        }
        let now = self.number();
        let of = &mut self.nodes[node];
        if epoch != known {
            (of.epoch_at, of.is_settled) = (now, false);
        }
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
                self.nodes[node].epoch_at = self.number();
            }
            10..13 if faults.cut => self.nodes[node].is_cut ^= true,
            13..15 if faults.stop => self.stop(node),
            15 if faults.join => self.join(node),
            _ => {}
        }
    }
}
