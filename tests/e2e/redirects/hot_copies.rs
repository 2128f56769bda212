//! Cores keep copies of each other's hot links. No copy may outlive the acknowledgement of a change.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::http::{Reply, Wire, request};
use crate::support::node::{Node, Setup, sum, wait_until};

/// Lives of one slug: made, followed everywhere, deleted.
const LIVES: usize = 60;

/// Clients that follow it all the time.
const READERS: usize = 4;

/// Connections of each, which the kernel deals out over the cores. They all ask at once, so that a core is busy with
/// sending for long enough to hear of a change late.
const WIRES: usize = 48;

/// Bounds a test that goes wrong.
const ROUNDS_MAX: usize = 100_000;

fn target(life: usize) -> String {
    format!("https://example.org/life/{life}")
}

/// The last acknowledged step. Life `n` begins at step `2 n + 1` and ends at step `2 n + 2`.
struct Steps(AtomicUsize);

impl Steps {
    fn acknowledge(&self, step: usize) {
        self.0.store(step, Ordering::SeqCst);
    }

    fn acknowledged(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn are_over(&self) -> bool {
        self.acknowledged() >= 2 * LIVES
    }
}

/// The state that an answer shows, as the steps at which it begins.
fn shown(location: Option<&str>) -> Option<usize> {
    let life: usize = location?.rsplit('/').next()?.parse().ok()?;
    Some(2 * life + 1)
}

/// True if an answer is of a state that was not over at a step.
fn is_right(reply: &Reply, before: usize, steps: &Steps) -> bool {
    match reply.status {
        302 => shown(reply.field("location")).is_some_and(|begun| begun >= before),
        404 if before.is_multiple_of(2) => true,
        // A delete shows before it is acknowledged: that will follow.
        404 => {
            wait_until("the acknowledgement of what was seen", || steps.acknowledged() != before);
            true
        }
        _ => false,
    }
}

/// Follows the slug until all its lives are over. Returns how often, and the first wrong answer.
fn follow(address: SocketAddr, steps: &Steps) -> (usize, Option<String>) {
    let mut wires: Vec<Wire> = (0..WIRES).map(|_| Wire::open(address)).collect();
    let request = request("GET", "/hot", "", b"");
    for round in 0..ROUNDS_MAX {
        let before = steps.acknowledged();
        if steps.are_over() {
            return (round, None);
        }
        wires.iter_mut().for_each(|wire| wire.send(&request));
        for wire in &mut wires {
            let reply = wire.reply();
            if !is_right(&reply, before, steps) {
                // Ends the test for the others.
                steps.acknowledge(2 * LIVES);
                return (round, Some(format!("after step {before}: {} {:?}", reply.status, reply.field("location"))));
            }
        }
    }
    (ROUNDS_MAX, Some("there was no end".to_owned()))
}

/// Makes and deletes the slug again and again, each time when cores have copies of it.
fn live(node: &Node, steps: &Steps) {
    let mut wire = node.wire();
    for life in 0..LIVES {
        let hits = sum(&node.status(), "/hotHits");
        wire.shorten_as("hot", &target(life));
        if steps.are_over() {
            return;
        }
        steps.acknowledge(2 * life + 1);
        wait_until("copies in use", || steps.are_over() || sum(&node.status(), "/hotHits") > hits + 500);
        assert_eq!(wire.delete("hot").status, 204);
        steps.0.fetch_max(2 * life + 2, Ordering::SeqCst);
    }
}

#[test]
fn copies_end_with_the_delete() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(3).start();
    let steps = Steps(AtomicUsize::new(0));
    let address = node.public;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| follow(address, &steps))).collect();
        live(&node, &steps);
        for reader in readers {
            let (rounds, wrong) = reader.join().unwrap();
            assert_eq!(wrong, None, "in round {rounds}");
            assert!(rounds > LIVES, "a client asked only {rounds} times");
        }
    });
    node.terminate();
}
