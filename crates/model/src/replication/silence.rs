//! The clock of silence: it tells the silence of other nodes from that of Redis.
//!
//! A node hears of the others through Redis. While Redis is away, or the process of the node is suspended, all of them seem
//! silent. After such an outage, their silence is measured from now, not from their last heartbeats.

use std::time::Duration;

/// The clock by which a node measures the silence of other nodes. It includes the time that the machine sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SilenceClock {
    /// The time at which this node sent the last request whose reply it has observed.
    heard: Option<Duration>,
}

impl SilenceClock {
    /// Records a reply with heartbeats, which arrived at `now` to a request that was sent at `sent`. `after` is the time
    /// after which a silent node counts as gone. Returns true if the reply ends an outage, so that the caller must measure
    /// the silence of all nodes from `now`.
    ///
    /// An outage is a quarter of `after` without a reply. It begins when the last answered request was sent: the process may
    /// have been suspended before it read the reply.
    #[must_use]
    pub fn record_reply(&mut self, (sent, now): (Duration, Duration), after: Duration) -> bool {
        let ends_outage = self.heard.is_some_and(|heard| now.saturating_sub(heard) >= after / 4);
        self.heard = Some(sent);
        ends_outage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn record(clock: &mut SilenceClock, sent: u64, now: u64) -> bool {
        clock.record_reply((Duration::from_secs(sent), Duration::from_secs(now)), AFTER)
    }

    #[test]
    fn quarter_without_a_reply_is_an_outage() {
        let mut clock = SilenceClock::default();
        assert!(!record(&mut clock, 500, 500), "nothing was measured before the first reply");
        assert!(!record(&mut clock, 524, 524));
        assert!(record(&mut clock, 549, 549));
        assert!(!record(&mut clock, 550, 550), "the outage has ended");
    }

    #[test]
    fn outage_begins_when_the_last_answered_request_was_sent() {
        let mut clock = SilenceClock::default();
        assert!(!record(&mut clock, 10, 10));
        // The process is suspended between the request and its reply.
        assert!(record(&mut clock, 11, 80));
        assert!(record(&mut clock, 81, 81), "the reply at 80 shows the state of 11");
        assert!(!record(&mut clock, 82, 105));
    }
}
