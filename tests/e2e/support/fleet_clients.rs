//! Clients that create and delete on several nodes at once and remember every answer, while others follow links.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::http::Wire;

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
    /// How long each of them took.
    pub(crate) times: Vec<Duration>,
    /// Codes whose delete was acknowledged.
    pub(crate) deleted: Vec<String>,
    /// Creates that were refused, by status.
    pub(crate) refused: HashMap<u16, u64>,
    /// The longest time that a create took.
    pub(crate) slowest: Duration,
    /// Redirects that were right.
    pub(crate) right: u64,
    /// Redirects that were not.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    fn merge(mut self, other: Seen) -> Seen {
        self.made.extend(other.made);
        self.times.extend(other.times);
        self.deleted.extend(other.deleted);
        for (status, count) in other.refused {
            *self.refused.entry(status).or_default() += count;
        }
        self.slowest = self.slowest.max(other.slowest);
        self.right += other.right;
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
        let there = self.deleted.iter().filter(|code| wire.get(&format!("/{code}")).status != 404);
        wrong.extend(there.map(|code| format!("{code} is there after its delete")));
        wrong
    }

    /// Returns each wrong response of a node to a link that was not deleted, once the node has caught up.
    pub(crate) fn check_links_on(&self, node: SocketAddr) -> Vec<String> {
        check(node, &self.made)
    }
}

/// After so many creates a client deletes one of those links.
const DELETE_ONE_IN: usize = 8;

/// Targets are all different, over all crowds of a process.
static TARGETS: AtomicU64 = AtomicU64::new(0);

/// Runs clients on all of these nodes until `end` returns: so many that create on each, with a pause between two creates,
/// and one on each that follows `links` all the time.
pub(crate) fn run<R>(
    nodes: &[SocketAddr],
    creators: usize,
    pause: Duration,
    links: &[Made],
    end: impl FnOnce() -> R,
) -> (Seen, R) {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for &node in nodes {
            for _ in 0..creators {
                threads.push(scope.spawn(move || create(node, pause, stop)));
            }
            if !links.is_empty() {
                threads.push(scope.spawn(move || follow(node, links, stop)));
            }
        }
        let result = end();
        stop.store(true, Ordering::Release);
        let seen = threads.into_iter().map(|thread| thread.join().unwrap()).fold(Seen::default(), Seen::merge);
        (seen, result)
    })
}

fn create(node: SocketAddr, pause: Duration, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut created = 0;
    let mut wire = Wire::open(node);
    while !stop.load(Ordering::Acquire) {
        let target = format!("https://example.org/{}", TARGETS.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        let reply = wire.create(&json!({"longUrl": target}));
        let took = start.elapsed();
        seen.slowest = seen.slowest.max(took);
        match reply.status {
            200 => {
                seen.made.push(Made { code: reply.code(), target });
                seen.times.push(took);
                created += 1;
                if created % DELETE_ONE_IN == 0 {
                    delete_one(&mut wire, &mut seen);
                }
            }
            status => *seen.refused.entry(status).or_default() += 1,
        }
        std::thread::sleep(pause);
    }
    seen
}

/// Deletes the oldest link of those that were made lately.
fn delete_one(wire: &mut Wire, seen: &mut Seen) {
    let at = seen.made.len().saturating_sub(DELETE_ONE_IN);
    let made = seen.made.remove(at);
    seen.times.remove(at);
    match wire.delete(&made.code).status {
        204 => seen.deleted.push(made.code),
        status => *seen.refused.entry(status).or_default() += 1,
    }
}

fn follow(node: SocketAddr, links: &[Made], stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut wire = Wire::open(node);
    for made in links.iter().cycle() {
        if stop.load(Ordering::Acquire) {
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
    for made in links {
        let reply = wire.get(&format!("/{}", made.code));
        if reply.status != 302 || reply.location() != made.target {
            wrong.push(format!("{}: {}", made.code, reply.line));
        }
    }
    wrong
}
