//! Leases of counter values that no other node gets, from a counter that may be set back.
//!
//! The counter is one number in Redis for each length of code. Redis can lose the newest increments in a failover, or
//! come back empty or from an old dump. An operator can also set the counter back by hand. These rules keep a run from
//! being issued twice:
//!
//! * Beside the counter is the floor: the highest value that any node has reported. Every node reports its own with
//!   each heartbeat and each lease, and stores the floor that it reads on its disk. A counter below the floor is
//!   raised.
//! * The server's own name (its `run_id`) is stored there too. If another server answers than at the last lease, one
//!   was restarted or took over. Then some of the last leases may be unknown to all nodes that ask, so the counter is
//!   raised by a [`margin`] that is far beyond them.
//! * A lease counts only when a replica has it, if there are replicas (`WAIT`).
//! * As the last defence, which the others never rely on: a code is inserted only if it is free.

use carom_shards::CodeLength;

use super::sites::SiteShare;

/// The values in Redis for one length of codes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CodeCounter {
    /// The next value.
    pub next: u64,
    /// The highest value that any node has reported.
    pub floor: u64,
    /// The server that gave the last lease; empty before the first.
    pub server: String,
}

/// A lease that Redis has granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The first value.
    pub start: u64,
    /// The difference by which the counter was below a reported value: it was set back, and was raised again.
    pub mended: u64,
    /// True if another server answered than at the last lease, so that the margin was skipped.
    pub moved: bool,
}

/// Returns the number of values that are skipped when another server answers. It is far more than could be leased
/// between two heartbeats, and so small that tens of thousands of restarts do not use up a length.
pub fn margin(length: CodeLength) -> u64 {
    (length.codes() >> 16).clamp(1, 1 << 26)
}

/// Leases `want` values for a node that has seen values up to `seen`. The script in Redis does the same.
pub fn lease(counter: &mut CodeCounter, seen: u64, want: u64, margin: u64, server: &str) -> Granted {
    grant(counter, seen, 0, want, margin, server, None)
}

/// Leases values like [`lease`] at one of two sites. `start` is the counter of the other site when this one first heard
/// of it. Before there were two sites, the other one may have leased any values below `start`, also some that a copy of
/// one of its nodes has not seen. Returns `None` if `start` is not known, and this Redis has leased nothing yet.
pub fn lease_of_site(
    counter: &mut CodeCounter,
    seen: u64,
    start: Option<u64>,
    want: u64,
    margin: u64,
    server: &str,
    share: SiteShare,
) -> Option<Granted> {
    let is_known = !counter.server.is_empty() || start.is_some();
    is_known.then(|| grant(counter, seen, start.unwrap_or(0), want, margin, server, Some(share)))
}

fn grant(
    counter: &mut CodeCounter,
    seen: u64,
    start: u64,
    want: u64,
    margin: u64,
    server: &str,
    share: Option<SiteShare>,
) -> Granted {
    let known = counter.floor.max(seen);
    let mended = known.saturating_sub(counter.next);
    let mut next = counter.next.max(known).max(start);
    let moved = !counter.server.is_empty() && counter.server != server;
    // An empty server that comes back has no name, but any node that has seen a value reports it.
    if moved || (counter.server.is_empty() && known > 0) {
        next += margin;
    }
    next = share.map_or(next, |share| share.first_run(next, want));
    assert!(next >= known, "values that a node has seen would be leased again");
    *counter = CodeCounter { next: next + want, floor: next + want, server: server.to_owned() };
    Granted { start: next, mended, moved }
}

/// True if a lease may be used: if the server has replicas, one of them has confirmed it.
pub fn is_replicated(confirmed: u64, replicas: u64) -> bool {
    replicas == 0 || confirmed > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::sites::BLOCK;

    const MARGIN: u64 = 1_000;

    #[test]
    fn leases_follow_each_other() {
        let mut counter = CodeCounter::default();
        let starts = [10, 5, 7].map(|want| lease(&mut counter, 0, want, MARGIN, "a").start);
        assert_eq!(starts, [0, 10, 15]);
    }

    #[test]
    fn a_counter_that_was_set_back_is_raised() {
        let mut counter = CodeCounter::default();
        lease(&mut counter, 0, 10, MARGIN, "a");
        counter.next = 0;
        assert_eq!(lease(&mut counter, 0, 10, MARGIN, "a"), Granted { start: 10, mended: 10, moved: false });
        // The floor was set back as well: a node knows better.
        counter = CodeCounter { next: 3, floor: 3, server: "a".to_owned() };
        assert_eq!(lease(&mut counter, 20, 10, MARGIN, "a"), Granted { start: 20, mended: 17, moved: false });
    }

    #[test]
    fn another_server_leaves_a_margin() {
        let mut counter = CodeCounter::default();
        lease(&mut counter, 0, 10, MARGIN, "a");
        let before_the_failover = counter.clone();
        let lost = lease(&mut counter, 0, 10, MARGIN, "a");
        let mut counter = before_the_failover;
        let granted = lease(&mut counter, 10, 10, MARGIN, "b");
        assert!(granted.moved, "{granted:?}");
        assert!(granted.start >= lost.start + 10, "{granted:?}");
        let mut empty = CodeCounter::default();
        assert!(lease(&mut empty, 20, 10, MARGIN, "c").start >= 20 + MARGIN);
    }

    #[test]
    fn a_site_leases_above_what_both_had() {
        let (mut counter, share) = (CodeCounter::default(), SiteShare::of("b", "a"));
        let mut lease = |seen, start, want| lease_of_site(&mut counter, seen, start, want, MARGIN, "a", share);
        assert_eq!(lease(0, None, 10), None, "the other site may have leased anything");
        assert_eq!(lease(BLOCK + 5, None, 10), None, "it may have leased more since the node was copied");
        let first = lease(0, Some(BLOCK + 7), 10).unwrap();
        assert_eq!((first.start, first.mended), (BLOCK + 7, 0), "that counter was not set back");
        assert_eq!(lease(0, None, 10).unwrap().start, BLOCK + 17);
        assert_eq!(lease(0, None, BLOCK).unwrap().start, 3 * BLOCK, "the block in between is the other site's");
        assert_eq!(lease(4 * BLOCK + 2, None, 1).unwrap().start, 5 * BLOCK);
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
        assert!(is_replicated(0, 0));
        assert!(is_replicated(1, 2));
        assert!(!is_replicated(0, 2));
    }
}
