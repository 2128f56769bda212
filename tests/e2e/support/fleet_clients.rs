//! Clients that create and delete on several nodes at once and remember every answer, while others follow links: those
//! of before, and those that another node has just acknowledged.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::Wire;
use crate::support::node::PATIENCE;
use crate::support::stop::StopOnDrop;

/// A link that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) code: String,
    pub(crate) target: String,
}

/// The observations of all clients.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Links that were acknowledged.
    pub(crate) made: Vec<Made>,
    /// The time that each of them took.
    pub(crate) times: Vec<Duration>,
    /// The beginning of each request, and the node that was asked.
    pub(crate) asked: Vec<(Instant, SocketAddr)>,
    /// Codes whose delete was acknowledged.
    pub(crate) deleted: Vec<String>,
    /// Creates that were refused, by status.
    pub(crate) refused: HashMap<u16, u64>,
    /// The longest time that a create took.
    pub(crate) slowest: Duration,
    /// Redirects that were right.
    pub(crate) right: u64,
    /// Redirects of links that another node had just acknowledged.
    pub(crate) fresh: u64,
    /// Requests for such links that got 503, because the node could not tell.
    pub(crate) unsure: u64,
    /// Redirects that were not.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    fn merge(mut self, other: Seen) -> Seen {
        self.made.extend(other.made);
        self.times.extend(other.times);
        self.asked.extend(other.asked);
        self.deleted.extend(other.deleted);
        for (status, count) in other.refused {
            *self.refused.entry(status).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
        self.right += other.right;
        self.fresh += other.fresh;
        self.unsure += other.unsure;
        self.wrong.extend(other.wrong);
        self
    }

    /// Codes that were given out more than once.
    pub(crate) fn twice(&self) -> Vec<&str> {
        let mut count: HashMap<&str, u32> = HashMap::new();
        let all = self.made.iter().map(|made| &made.code).chain(&self.deleted);
        all.for_each(|code| *count.entry(code).or_default() += 1);
        count.into_iter().filter(|(_, count)| *count > 1).map(|(code, _)| code).collect()
    }

    /// Returns each wrong response of a node, once the node has caught up.
    pub(crate) fn check_on(&self, node: SocketAddr) -> Vec<String> {
        let mut wrong = self.check_links_on(node);
        let mut wire = Wire::open(node);
        // A delete reaches the other nodes with their next reading of the streams.
        let deadline = Instant::now() + FOLLOWED_WITHIN;
        let mut is_there = |code: &&String| {
            while wire.get(&format!("/{code}")).status != 404 {
                if Instant::now() > deadline {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            false
        };
        let there: Vec<&String> = self.deleted.iter().filter(|code| is_there(code)).collect();
        let there = there.into_iter();
        wrong.extend(there.map(|code| format!("{code} is there after its delete")));
        wrong
    }

    /// Returns each wrong response of a node to a link that was not deleted, once the node has caught up.
    pub(crate) fn check_links_on(&self, node: SocketAddr) -> Vec<String> {
        check(node, &self.made)
    }
}

/// Longest wait for the deletes of other nodes, once these have nothing left to bring to Redis, and for answers of Redis.
const FOLLOWED_WITHIN: Duration = PATIENCE;

/// Links that were acknowledged lately, for the clients of other nodes.
#[derive(Default)]
struct FreshLinks {
    /// The links, each with the node that acknowledged it.
    made: Mutex<Vec<(SocketAddr, Made)>>,
    /// Codes that a client deletes, or has deleted.
    deleted: Mutex<HashSet<String>>,
}

impl FreshLinks {
    fn add(&self, node: SocketAddr, made: &Made) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push((node, made.clone()));
    }

    /// The link at that place that another node has acknowledged; `None` at the end.
    fn next(&self, node: SocketAddr, at: &mut usize) -> Option<Made> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((of, link)) = made.get(*at) {
            *at += 1;
            if *of != node {
                return Some(link.clone());
            }
        }
        None
    }

    fn begin_to_delete(&self, code: &str) {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(code.to_owned());
    }

    fn may_be_deleted(&self, code: &str) -> bool {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).contains(code)
    }
}

/// After so many creates a client deletes one of those links.
const DELETE_ONE_IN: usize = 8;

/// Targets are all different, over all crowds of a process.
static TARGETS: AtomicU64 = AtomicU64::new(0);

/// Runs clients on all of these nodes until `end` returns: so many that create on each, with a pause between two
/// creates, one on each that follows `links` all the time, and one on each that follows what the other nodes
/// acknowledge, at once.
pub(crate) fn run<R>(
    nodes: &[SocketAddr],
    creators: usize,
    pause: Duration,
    links: &[Made],
    end: impl FnOnce() -> R,
) -> (Seen, R) {
    let (is_over, fresh) = (&AtomicBool::new(false), &FreshLinks::default());
    std::thread::scope(|scope| {
        let stop = StopOnDrop(is_over);
        let mut threads = Vec::new();
        for &node in nodes {
            for _ in 0..creators {
                threads.push(scope.spawn(move || create(node, pause, fresh, is_over)));
            }
            if nodes.len() > 1 {
                threads.push(scope.spawn(move || follow_fresh(node, fresh, is_over)));
            }
            if !links.is_empty() {
                threads.push(scope.spawn(move || follow(node, links, is_over)));
            }
        }
        let result = end();
        drop(stop);
        let seen = threads.into_iter().map(|thread| thread.join().unwrap()).fold(Seen::default(), Seen::merge);
        (seen, result)
    })
}

fn create(node: SocketAddr, pause: Duration, fresh: &FreshLinks, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut created = 0;
    let mut wire = Wire::open(node);
    while !is_over.load(Ordering::Acquire) {
        let target = format!("https://example.org/{}", TARGETS.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        let reply = wire.create(&json!({"longUrl": target}));
        let took = start.elapsed();
        seen.slowest = seen.slowest.max(took);
        match reply.status {
            200 => {
                let made = Made { code: reply.code(), target };
                fresh.add(node, &made);
                seen.made.push(made);
                seen.times.push(took);
                seen.asked.push((start, node));
                created += 1;
                if created % DELETE_ONE_IN == 0 {
                    delete_one(&mut wire, &mut seen, fresh);
                }
            }
            status => *seen.refused.entry(status).or_default() += 1,
        }
        std::thread::sleep(pause);
    }
    seen
}

/// Deletes the oldest link of those that were made lately.
fn delete_one(wire: &mut Wire, seen: &mut Seen, fresh: &FreshLinks) {
    let at = seen.made.len().saturating_sub(DELETE_ONE_IN);
    let made = seen.made.remove(at);
    seen.times.remove(at);
    seen.asked.remove(at);
    fresh.begin_to_delete(&made.code);
    match wire.delete(&made.code).status {
        204 => seen.deleted.push(made.code),
        status => *seen.refused.entry(status).or_default() += 1,
    }
}

/// Follows what other nodes acknowledge, as soon as they do, and each link once more a little later. No such link may
/// be missing: 404 is wrong, and 503 says that the node cannot tell.
fn follow_fresh(node: SocketAddr, fresh: &FreshLinks, is_over: &AtomicBool) -> Seen {
    const LATER: usize = 20;
    let mut seen = Seen::default();
    let (mut first, mut second) = (0, 0);
    let mut wire = Wire::open(node);
    while !is_over.load(Ordering::Acquire) {
        let next = fresh.next(node, &mut first);
        let again = if first > second + LATER { fresh.next(node, &mut second) } else { None };
        if next.is_none() && again.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for made in next.into_iter().chain(again) {
            let reply = wire.get(&format!("/{}", made.code));
            match reply.status {
                302 if reply.location() == made.target => seen.fresh += 1,
                503 if reply.field("retry-after") == Some("1") => seen.unsure += 1,
                404 if fresh.may_be_deleted(&made.code) => {}
                _ if seen.wrong.len() < 10 => seen.wrong.push(format!("{}: {} on another node", made.code, reply.line)),
                _ => {}
            }
        }
    }
    seen
}

fn follow(node: SocketAddr, links: &[Made], is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut wire = Wire::open(node);
    for made in links.iter().cycle() {
        if is_over.load(Ordering::Acquire) {
            return seen;
        }
        let reply = wire.get(&format!("/{}", made.code));
        if reply.status == 302 && reply.location() == made.target {
            seen.right += 1;
        } else if seen.wrong.len() < 10 {
            seen.wrong.push(format!("{}: {}", made.code, reply.line));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    seen
}

/// Returns each wrong response of a node to these links.
pub(crate) fn check(node: SocketAddr, links: &[Made]) -> Vec<String> {
    let mut wire = Wire::open(node);
    let mut wrong = Vec::new();
    let deadline = Instant::now() + FOLLOWED_WITHIN;
    for made in links {
        let mut reply = wire.get(&format!("/{}", made.code));
        // The node does not have the link yet, and Redis did not answer in time.
        while reply.status == 503 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            reply = wire.get(&format!("/{}", made.code));
        }
        if reply.status != 302 || reply.location() != made.target {
            wrong.push(format!("{}: {}", made.code, reply.line));
        }
    }
    wrong
}
