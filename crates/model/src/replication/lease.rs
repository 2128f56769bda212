//! Runs of counter values that nobody else gets, from a counter that may be set back.
//!
//! The counter is one number in Redis for each length of code. Redis can lose the newest increments in a failover, come
//! back empty or from an old dump, or somebody sets it back by hand. What keeps a run from being given out twice:
//!
//! * Beside the counter lies the highest value that any node has told of, the floor. Every node tells its own with each
//!   heartbeat and with each lease, and keeps the floor that it hears of on its disk: a counter below the floor is raised.
//! * The server's own name (its `run_id`) is kept there, too. When another server answers than at the last lease, one
//!   was restarted or took over, and some last leases may be unknown to everybody who asks: the counter is raised by a
//!   [`margin`] that is far beyond them.
//! * A lease counts only when a replica has it, where there are replicas (`WAIT`).
//! * And what is never relied on: a code is inserted only if nobody has it.

use carom_shards::CodeLength;

/// What is in Redis for one length of codes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counter {
    /// The next value.
    pub next: u64,
    /// The highest value that anybody has told of.
    pub floor: u64,
    /// The server that gave the last lease; empty before the first.
    pub server: String,
}

/// What Redis has given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The first value.
    pub start: u64,
    /// By how much the counter was below what somebody has seen: it was set back, and was raised again.
    pub mended: u64,
    /// Whether another server answered than at the last lease, so that the margin was left out.
    pub moved: bool,
}

/// What the counter is raised by when another server answers: far more than could be leased between two heartbeats, and
/// so little that tens of thousands of restarts do not use up a length.
pub fn margin(length: CodeLength) -> u64 {
    (length.codes() >> 16).clamp(1, 1 << 26)
}

/// Takes `want` values for a node that has seen values up to `seen`. What the script in Redis does.
pub fn lease(counter: &mut Counter, seen: u64, want: u64, margin: u64, server: &str) -> Granted {
    let known = counter.floor.max(seen);
    let mended = known.saturating_sub(counter.next);
    let mut next = counter.next.max(known);
    let moved = !counter.server.is_empty() && counter.server != server;
    // An empty server that comes back knows no name, but whoever has seen anything tells of it.
    if moved || (counter.server.is_empty() && known > 0) {
        next += margin;
    }
    *counter = Counter { next: next + want, floor: next + want, server: server.to_owned() };
    Granted { start: next, mended, moved }
}

/// Whether a lease may be used: where the server has replicas, one of them has confirmed it.
pub fn is_replicated(confirmed: u64, replicas: u64) -> bool {
    replicas == 0 || confirmed > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: u64 = 1_000;

    #[test]
    fn leases_follow_each_other() {
        let mut counter = Counter::default();
        let starts = [10, 5, 7].map(|want| lease(&mut counter, 0, want, MARGIN, "a").start);
        assert_eq!(starts, [0, 10, 15]);
    }

    #[test]
    fn a_counter_that_was_set_back_is_raised() {
        let mut counter = Counter::default();
        lease(&mut counter, 0, 10, MARGIN, "a");
        counter.next = 0;
        assert_eq!(lease(&mut counter, 0, 10, MARGIN, "a"), Granted { start: 10, mended: 10, moved: false });
        // The floor was set back as well: a node knows better.
        counter = Counter { next: 3, floor: 3, server: "a".to_owned() };
        assert_eq!(lease(&mut counter, 20, 10, MARGIN, "a"), Granted { start: 20, mended: 17, moved: false });
    }

    #[test]
    fn another_server_leaves_a_margin() {
        let mut counter = Counter::default();
        lease(&mut counter, 0, 10, MARGIN, "a");
        let before_the_failover = counter.clone();
        let lost = lease(&mut counter, 0, 10, MARGIN, "a");
        let mut counter = before_the_failover;
        let granted = lease(&mut counter, 10, 10, MARGIN, "b");
        assert!(granted.moved && granted.start >= lost.start + 10, "{granted:?}");
        let mut empty = Counter::default();
        assert!(lease(&mut empty, 20, 10, MARGIN, "c").start >= 20 + MARGIN);
    }

    #[test]
    fn the_margin_is_large_and_leaves_enough() {
        for length in CodeLength::MIN.and_longer() {
            let times = length.codes() / margin(length);
            assert!(times >= 1 << 16 || length.codes() < 1 << 16, "{length}: {times}");
        }
        assert_eq!(margin(CodeLength::DEFAULT), 53_735_574);
    }

    #[test]
    fn a_lease_without_a_replica_is_thrown_away_where_there_are_some() {
        assert!(is_replicated(0, 0) && is_replicated(1, 2) && !is_replicated(0, 2));
    }
}
