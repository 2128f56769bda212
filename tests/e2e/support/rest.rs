//! Rest: the CPU time of a node that has nothing to do.

use std::time::{Duration, Instant};

use crate::support::node::Node;

/// The CPU time is measured for so long at once.
const WINDOW: Duration = Duration::from_secs(2);

/// Windows after which a node has to rest: enough for what clients have left behind on a busy machine.
const WINDOWS: usize = 5;

/// Largest share of a CPU that a node uses at rest.
const SHARE_MAX: f64 = 0.25;

/// Checks that a node comes to rest. One that turns in circles does not.
pub(crate) fn comes_to_rest(node: &Node) {
    let mut shares: Vec<f64> = Vec::new();
    while shares.last().is_none_or(|share| *share >= SHARE_MAX) {
        assert!(shares.len() < WINDOWS, "{shares:?} of a CPU, although there is nothing to do");
        let (before, since) = (node.cpu_seconds(), Instant::now());
        std::thread::sleep(WINDOW);
        shares.push((node.cpu_seconds() - before) / since.elapsed().as_secs_f64());
    }
}
