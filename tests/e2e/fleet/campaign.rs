//! Three nodes and their Redis are killed and paused at random, while clients create, change, delete and visit links on
//! every node: no code is given twice, no acknowledged change is lost, and no acknowledged link is missing anywhere.
//!
//! Each link belongs to one client, which sends its requests to any node. A change that was not acknowledged may be carried
//! out later, so it is the last one of its link.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::fleet::{Fleet, settle, with_usual_timeouts};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Dice, Node, PATIENCE, Setup, free_address, wait_until};
use crate::support::redis::{Server, Setup as RedisSetup};
use crate::support::stop::StopOnDrop;

const NODES: usize = 3;

/// Number of clients that create, change and delete links.
const WRITERS: usize = 3;

/// Pause of a client between two requests, which leaves the CPUs to the nodes that start.
const PAUSE: Duration = Duration::from_millis(3);

/// Shortest time for which a process is away, in milliseconds, and the longest time beyond that.
const AWAY_MS: (u64, u64) = (100, 900);

/// Shortest time before a fault, in milliseconds, and the longest time beyond that. Several faults may be at work.
const CALM_MS: (u64, u64) = (200, 600);

/// The faults in their order, each with true if it hits Redis rather than a node: so even a short run has all.
const TURNS: [(Fault, bool); 4] =
    [(Fault::Kill, false), (Fault::Pause, true), (Fault::Pause, false), (Fault::Kill, true)];

/// Number of the latest links that every second visit chooses from: other nodes may not have read them yet.
const FRESH: u64 = 10;

/// Warnings that such faults cause.
const EXPECTED: [&str; 5] = ["redis_away", "redis_refuses", "codes_failed", "counter_regressed", "visits_missing"];

/// Number of faults; `make soak` causes ten times as many.
fn faults() -> u64 {
    std::env::var("CAROM_FLEET_FAULTS").ok().and_then(|faults| faults.parse().ok()).unwrap_or(6)
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL, and a start later.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Pause,
}

/// A node, as the faults have left it, and the instant at which its fault ends.
enum Member {
    Running(Node),
    Paused(Node, Instant),
    Killed(Setup, Instant),
}

impl Member {
    fn hit(self, fault: Fault, until: Instant) -> Member {
        match (self, fault) {
            (Member::Running(node), Fault::Kill) => Member::Killed(node.kill(), until),
            (Member::Running(node), Fault::Pause) => {
                node.pause();
                Member::Paused(node, until)
            }
            (other, _) => other,
        }
    }

    fn recover(self, now: Instant) -> Member {
        match self {
            Member::Paused(node, until) if until <= now => {
                node.resume();
                Member::Running(node)
            }
            Member::Killed(setup, until) if until <= now => Member::Running(setup.start()),
            other => other,
        }
    }
}

/// The nodes and their Redis, as the faults have left them.
struct World {
    members: Vec<Member>,
    server: Server,
    /// The fault of Redis, and the instant at which it ends.
    away: Option<(Fault, Instant)>,
}

impl World {
    /// Causes so many faults, and waits until all processes are back.
    fn suffer(&mut self, dice: &mut Dice, faults: u64) {
        for &(fault, hits_redis) in TURNS.iter().cycle().take(faults as usize) {
            std::thread::sleep(Duration::from_millis(CALM_MS.0 + dice.below(CALM_MS.1)));
            self.recover(Instant::now());
            self.hit(fault, hits_redis, dice);
        }
        self.recover(Instant::now() + PATIENCE);
        wait_until("nodes that have heard of Redis", || {
            self.nodes().iter().all(|node| node.status()["redis"]["connected"] == true)
        });
    }

    /// Hits Redis or one of the nodes, if it runs.
    fn hit(&mut self, fault: Fault, hits_redis: bool, dice: &mut Dice) {
        let time = Duration::from_millis(AWAY_MS.0 + dice.below(AWAY_MS.1));
        let until = Instant::now() + time;
        if hits_redis {
            if self.away.is_none() {
                println!("{fault:?} Redis for {time:?}");
                match fault {
                    Fault::Kill => self.server.kill(),
                    Fault::Pause => self.server.pause(),
                }
                self.away = Some((fault, until));
            }
            return;
        }
        let victim = dice.below(NODES as u64) as usize;
        println!("{fault:?} node {victim} for {time:?}");
        let member = self.members.remove(victim);
        self.members.insert(victim, member.hit(fault, until));
    }

    /// Ends the faults that are over.
    fn recover(&mut self, now: Instant) {
        // Before the nodes: a start asks Redis.
        if let Some((fault, _)) = self.away.take_if(|(_, until)| *until <= now) {
            match fault {
                Fault::Kill => self.server.start_again(),
                Fault::Pause => self.server.resume(),
            }
        }
        self.members = self.members.drain(..).map(|member| member.recover(now)).collect();
    }

    /// The nodes that run.
    fn nodes(&self) -> Vec<&Node> {
        let members = self.members.iter();
        members.filter_map(|member| if let Member::Running(node) = member { Some(node) } else { None }).collect()
    }
}

/// A link of a client.
#[derive(Clone, Debug)]
struct OwnLink {
    code: String,
    /// The beginning of all destinations that it may have.
    start: String,
    changes: u64,
    /// The possible states, one after an acknowledged change: a destination, or none once the link is deleted.
    states: Vec<Option<String>>,
}

/// The acknowledged links, for the visitors of all nodes.
#[derive(Default)]
struct Board {
    /// Codes, each with the beginning of the destinations.
    links: Mutex<Vec<(String, String)>>,
    /// Codes whose delete has begun.
    deleting: Mutex<HashSet<String>>,
}

impl Board {
    fn publish(&self, link: &OwnLink) {
        locked(&self.links).push((link.code.clone(), link.start.clone()));
    }

    fn begin_to_delete(&self, code: &str) {
        locked(&self.deleting).insert(code.to_owned());
    }

    fn may_be_deleted(&self, code: &str) -> bool {
        locked(&self.deleting).contains(code)
    }

    /// A link, half of the time one of the latest.
    fn pick(&self, dice: &mut Dice) -> Option<(String, String)> {
        let links = locked(&self.links);
        let len = links.len() as u64;
        let first = if dice.below(2) == 0 { len.saturating_sub(FRESH) } else { 0 };
        (len > 0).then(|| links[(first + dice.below(len - first)) as usize].clone())
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to each node, opened again after an error.
struct Wires {
    addresses: Vec<SocketAddr>,
    open: Vec<Option<Wire>>,
}

impl Wires {
    fn new(addresses: &[SocketAddr]) -> Wires {
        Wires { addresses: addresses.to_vec(), open: addresses.iter().map(|_| None).collect() }
    }

    /// Sends a request to a node. Returns `None` if nothing was sent, because the node is away.
    fn ask(&mut self, node: usize, method: &str, path: &str, body: &str) -> Option<io::Result<Reply>> {
        if self.open[node].is_none() {
            self.open[node] = Wire::try_open(self.addresses[node]).ok();
        }
        let wire = self.open[node].as_mut()?;
        let fields = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let answer = wire.try_ask(method, path, fields, body.as_bytes());
        if answer.is_err() {
            self.open[node] = None;
        }
        Some(answer)
    }
}

/// A client that creates, changes and deletes links.
struct Writer<'a> {
    name: usize,
    dice: Dice,
    wires: Wires,
    board: &'a Board,
    /// Number of links that it wanted to create.
    wanted: u64,
    /// Links that it may change.
    live: Vec<OwnLink>,
    /// Links that are deleted, or whose state is unknown.
    done: Vec<OwnLink>,
    acknowledged: u64,
    broken: Vec<String>,
}

impl<'a> Writer<'a> {
    fn new(name: usize, dice: Dice, addresses: &[SocketAddr], board: &'a Board) -> Writer<'a> {
        let (live, done, broken) = (Vec::new(), Vec::new(), Vec::new());
        Writer { name, dice, wires: Wires::new(addresses), board, wanted: 0, live, done, acknowledged: 0, broken }
    }

    fn run(mut self, is_over: &AtomicBool) -> Writer<'a> {
        while !is_over.load(Ordering::Acquire) {
            let node = self.dice.below(NODES as u64) as usize;
            match self.dice.below(10) {
                6..9 if !self.live.is_empty() => self.change(node),
                9 if !self.live.is_empty() => self.delete(node),
                choice => self.create(node, choice % 2 == 0),
            }
            std::thread::sleep(PAUSE);
        }
        self
    }

    fn create(&mut self, node: usize, has_slug: bool) {
        self.wanted += 1;
        let start = format!("https://example.org/{}/{}/", self.name, self.wanted);
        let target = format!("{start}0");
        let mut body = json!({"longUrl": target});
        if has_slug {
            body["customSlug"] = json!(format!("slug-{}-{}", self.name, self.wanted));
        }
        // Without an answer nothing was promised.
        let Some(Ok(reply)) = self.wires.ask(node, "POST", SHORT_URLS, &body.to_string()) else { return };
        match reply.status {
            200 => {
                let link = OwnLink { code: reply.code(), start, changes: 0, states: vec![Some(target)] };
                self.board.publish(&link);
                self.live.push(link);
                self.acknowledged += 1;
            }
            503 => {}
            _ => self.broken.push(format!("create of {body} on node {node}: {} {}", reply.line, reply.text())),
        }
    }

    fn change(&mut self, node: usize) {
        let mut link = self.take_one();
        link.changes += 1;
        let target = format!("{}{}", link.start, link.changes);
        let (path, body) = (format!("{SHORT_URLS}/{}", link.code), json!({"longUrl": target}).to_string());
        let answer = self.wires.ask(node, "PATCH", &path, &body);
        self.take_answer(link, Some(target), answer, 200);
    }

    fn delete(&mut self, node: usize) {
        let link = self.take_one();
        self.board.begin_to_delete(&link.code);
        let answer = self.wires.ask(node, "DELETE", &format!("{SHORT_URLS}/{}", link.code), "");
        self.take_answer(link, None, answer, 204);
    }

    fn take_one(&mut self) -> OwnLink {
        let at = self.dice.below(self.live.len() as u64) as usize;
        self.live.swap_remove(at)
    }

    /// Notes the state of a link after a request that wanted another one. `done` is the status of success.
    fn take_answer(&mut self, mut link: OwnLink, state: Option<String>, answer: Option<io::Result<Reply>>, done: u16) {
        match answer {
            None => {}
            Some(Ok(reply)) if reply.status == done => {
                link.states = vec![state];
                self.acknowledged += 1;
            }
            Some(answer) => {
                link.states.push(state);
                if let Ok(reply) = answer.as_ref()
                    && reply.status != 503
                {
                    self.broken.push(format!("{} to {:?}: {} {}", link.code, link.states, reply.line, reply.text()));
                }
            }
        }
        let is_known = matches!(&link.states[..], [Some(_)]);
        if is_known { self.live.push(link) } else { self.done.push(link) }
    }
}

/// The observations of a visitor of one node.
#[derive(Default)]
struct Visits {
    right: u64,
    unsure: u64,
    broken: Vec<String>,
}

/// Visits links on one node. An acknowledged link may be unknown there for a while (503), and is never missing.
fn visit(address: SocketAddr, board: &Board, mut dice: Dice, is_over: &AtomicBool) -> Visits {
    let (mut wires, mut seen) = (Wires::new(&[address]), Visits::default());
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(PAUSE);
        let Some((code, start)) = board.pick(&mut dice) else { continue };
        let Some(Ok(reply)) = wires.ask(0, "GET", &format!("/{code}"), "") else { continue };
        match reply.status {
            302 if reply.location().starts_with(&start) => seen.right += 1,
            503 => seen.unsure += 1,
            404 if board.may_be_deleted(&code) => {}
            _ => seen.broken.push(format!("visit of {code} at {address}: {}", reply.line)),
        }
    }
    seen
}

/// Runs the clients until the world has suffered. Returns all links and the broken promises.
fn run(world: &mut World, addresses: &[SocketAddr], dice: &mut Dice) -> (Vec<OwnLink>, Vec<String>) {
    let (board, is_over) = (&Board::default(), &AtomicBool::new(false));
    let (writers, visits): (Vec<Writer<'_>>, Vec<Visits>) = std::thread::scope(|scope| {
        let stop = StopOnDrop(is_over);
        let (mut writers, mut visitors) = (Vec::new(), Vec::new());
        for name in 0..WRITERS {
            let writer = Writer::new(name, Dice(dice.next()), addresses, board);
            writers.push(scope.spawn(move || writer.run(is_over)));
        }
        for &address in addresses {
            let dice = Dice(dice.next());
            visitors.push(scope.spawn(move || visit(address, board, dice, is_over)));
        }
        world.suffer(dice, faults());
        drop(stop);
        let writers = writers.into_iter().map(|thread| thread.join().unwrap()).collect();
        (writers, visitors.into_iter().map(|thread| thread.join().unwrap()).collect())
    });
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    let (right, unsure) =
        visits.iter().fold((0, 0), |(right, unsure), seen| (right + seen.right, unsure + seen.unsure));
    println!("{acknowledged} changes acknowledged, {right} visits right, {unsure} unsure");
    assert!(acknowledged > 20, "the clients stood still");
    assert!(right > 100, "the clients stood still");
    let broken = writers.iter().flat_map(|writer| &writer.broken).chain(visits.iter().flat_map(|seen| &seen.broken));
    let broken = broken.cloned().collect();
    let links = writers.into_iter().flat_map(|writer| writer.live.into_iter().chain(writer.done)).collect();
    (links, broken)
}

/// Waits until all nodes show the same possible state of each link. Returns those that do not agree.
fn disagreements(nodes: &[&Node], links: &[OwnLink]) -> Vec<String> {
    let mut wires: Vec<Wire> = nodes.iter().map(|node| node.wire()).collect();
    let mut state_on = |node: usize, code: &str| {
        let reply = wires[node].get(&format!("/{code}"));
        match reply.status {
            302 => Ok(Some(reply.location().to_owned())),
            404 => Ok(None),
            _ => Err(reply.line),
        }
    };
    let mut left: Vec<&OwnLink> = links.iter().collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut wrong = Vec::new();
        left.retain(|link| {
            let shown: Vec<_> = (0..NODES).map(|node| state_on(node, &link.code)).collect();
            let is_possible = shown[0].as_ref().is_ok_and(|state| link.states.contains(state));
            if is_possible && shown.iter().all(|state| *state == shown[0]) {
                return false;
            }
            wrong.push(format!("{link:?} is shown as {shown:?}"));
            true
        });
        if left.is_empty() || Instant::now() > deadline {
            return wrong;
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn three_nodes_agree_after_random_faults() {
    let mut dice = Dice::new();
    let server = RedisSetup::new().append_only(true).start();
    let fleet = Fleet::new(NODES, &server.url());
    let addresses: Vec<SocketAddr> = (0..NODES).map(|_| free_address()).collect();
    let start = |(number, address): (usize, &SocketAddr)| {
        let setup = with_usual_timeouts(fleet.setup(number)).argument("--listen").argument(address.to_string());
        EXPECTED.into_iter().fold(setup, Setup::expect).start()
    };
    let nodes: Vec<Node> = addresses.iter().enumerate().map(start).collect();
    nodes.iter().for_each(settle);
    let mut world = World { members: nodes.into_iter().map(Member::Running).collect(), server, away: None };
    let (links, broken) = run(&mut world, &addresses, &mut dice);
    assert_eq!(broken, Vec::<String>::new());
    let codes: HashSet<&str> = links.iter().map(|link| link.code.as_str()).collect();
    assert_eq!(codes.len(), links.len(), "a code was given twice");
    let nodes = world.nodes();
    nodes.iter().for_each(|node| settle(node));
    assert_eq!(disagreements(&nodes, &links), Vec::<String>::new());
    for node in nodes {
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
}
