//! A busy core gathers requests before it wakes up.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::http::{Wire, request};
use crate::support::node::{Node, Setup, sum, wait_until};
use crate::support::stop::StopOnDrop;

/// Clients of the busy core, and the connections of each. All of a client ask at once.
const CLIENTS: usize = 4;
const WIRES: usize = 32;

/// Bounds a test that goes wrong.
const ROUNDS_MAX: usize = 40_000;

fn gathered(node: &Node) -> u64 {
    sum(&node.status(), "/gathered")
}

/// Follows the link over these connections until the end, once over each in a round.
fn follow(wires: &mut [Wire], is_over: &AtomicBool) {
    let ask = request("GET", "/kept", "", b"");
    for _ in 0..ROUNDS_MAX {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        wires.iter_mut().for_each(|wire| wire.send(&ask));
        wires.iter_mut().for_each(|wire| assert_eq!(wire.reply().status, 302));
    }
}

/// True if the kernel can wait for several completions for a bounded time.
fn can_gather() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

#[test]
fn busy_core_gathers_requests() {
    if !can_gather() {
        println!("skipped: the kernel is older than 6.12");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).cores(1).start();
    node.wire().shorten_as("kept", "https://example.org/kept");
    assert_eq!(gathered(&node), 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        for _ in 0..CLIENTS {
            let mut wires: Vec<Wire> = (0..WIRES).map(|_| node.wire()).collect();
            let is_over = &is_over;
            scope.spawn(move || follow(&mut wires, is_over));
        }
        wait_until("gathered requests", || gathered(&node) > 0);
        drop(stop);
    });
    node.terminate();
}
