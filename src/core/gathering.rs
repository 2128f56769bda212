//! Waiting for more than one request before the core wakes up.
//!
//! At tens of thousands of requests a second, waking up costs several times as much as the answer. So a busy core lets
//! requests arrive for [`GATHER_TIME`] and answers them together, as NICs do with interrupts. It does so only where this
//! pays: requests must come fast, several must come in that time, and most connections must bring none. Otherwise all
//! clients may be waiting for the core while it waits for them.

use std::time::Duration;

use super::now::TICKS_PER_SECOND;

/// Time for which requests are gathered. A request waits for half of it on average. At 40,000 requests a second, four
/// come in that time.
pub(super) const GATHER_TIME: Duration = Duration::from_micros(100);

/// Lowest rate of requests at which a core tries to gather, per second: one request in each [`GATHER_TIME`].
const REQUESTS_PER_SECOND_MIN: u32 = 10_000;

/// Fewest requests that a wait must gather to be worth the delay.
const GATHERED_MIN: u32 = 2;

/// Open connections that a core must have for each gathered request. With fewer, all clients may be waiting for it.
const CONNECTIONS_PER_REQUEST: u32 = 4;

/// Waits in a row that did not pay, after which no more are tried until the next tick.
const FAILURES_MAX: u32 = 4;

/// Decides whether a core that goes to sleep gathers requests.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// Requests of this turn.
    turn: u32,
    /// Requests since the last tick.
    since_tick: u32,
    /// True if requests came fast between the last two ticks.
    is_fast: bool,
    /// True if the last sleep gathered.
    has_gathered: bool,
    /// Waits in a row that did not pay.
    failures: u32,
}

impl Gathering {
    /// Counts requests that have arrived.
    pub(super) fn count(&mut self, requests: u32) {
        self.turn += requests;
    }

    /// Ends a turn with so many open connections.
    pub(super) fn end_turn(&mut self, connections: u32) {
        // A sleep without requests did not wait for any: something else was there already, or ended it.
        if std::mem::take(&mut self.has_gathered) && self.turn > 0 {
            let pays = self.turn >= GATHERED_MIN && self.turn <= connections / CONNECTIONS_PER_REQUEST;
            self.failures = if pays { 0 } else { self.failures + 1 };
        }
        self.since_tick = self.since_tick.saturating_add(std::mem::take(&mut self.turn));
    }

    /// Begins the next interval between ticks.
    pub(super) fn tick(&mut self) {
        self.is_fast = std::mem::take(&mut self.since_tick) >= REQUESTS_PER_SECOND_MIN / TICKS_PER_SECOND;
        self.failures = 0;
    }

    /// Returns how long the core gathers requests now, before it goes to sleep; `None` if it wakes up for each.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        self.has_gathered = self.is_fast && self.failures < FAILURES_MAX;
        self.has_gathered.then_some(GATHER_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `requests` arrive in each of `sleeps`, with so many open connections. Returns the sleeps that gathered.
    fn run(gathering: &mut Gathering, sleeps: u32, requests: u32, connections: u32) -> u32 {
        let mut gathered = 0;
        for _ in 0..sleeps {
            gathered += u32::from(gathering.begin().is_some());
            gathering.count(requests);
            gathering.end_turn(connections);
        }
        gathered
    }

    /// After an interval with so many requests.
    fn after(requests: u32) -> Gathering {
        let mut gathering = Gathering::default();
        gathering.count(requests);
        gathering.end_turn(0);
        gathering.tick();
        gathering
    }

    #[test]
    fn slow_requests_wake_at_once() {
        assert_eq!(run(&mut after(REQUESTS_PER_SECOND_MIN / TICKS_PER_SECOND - 1), 100, 4, 1_000), 0);
    }

    #[test]
    fn fast_requests_of_many_connections_are_gathered() {
        assert_eq!(run(&mut after(10_000), 100, 4, 64), 100);
        assert_eq!(run(&mut after(10_000), 100, 16, 64), 100);
    }

    #[test]
    fn waits_that_do_not_pay_end_until_the_next_tick() {
        // One request in each wait, and all clients waiting for their answers.
        for (requests, connections) in [(1, 64), (4, 4), (17, 64)] {
            let mut gathering = after(10_000);
            assert_eq!(run(&mut gathering, 1_000, requests, connections), FAILURES_MAX);
            gathering.count(10_000);
            gathering.end_turn(64);
            gathering.tick();
            assert_eq!(run(&mut gathering, 1_000, requests, connections), FAILURES_MAX);
        }
    }

    #[test]
    fn sleeps_without_requests_are_no_failures() {
        assert_eq!(run(&mut after(10_000), 1_000, 0, 64), 1_000);
    }

    #[test]
    fn single_failures_are_forgotten() {
        let mut gathering = after(10_000);
        for _ in 0..100 {
            assert_eq!(run(&mut gathering, FAILURES_MAX - 1, 1, 64), FAILURES_MAX - 1);
            assert_eq!(run(&mut gathering, 1, 4, 64), 1);
        }
    }
}
