//! The trust in links that a look-up thread gives to memory, if links have a shared home.
//!
//! The look-up thread and the follower of the streams have a connection each. After a failover, the follower may read from
//! the new master while the look-up thread still asks the old one. Such an answer may lack changes that the follower has
//! passed on, and no later stream entry would drop its link from memory. Only the end of that connection shows that the old
//! master may have answered. So the links in memory are dropped after each disturbance of the connection.
//!
//! While Redis is away, links in memory are all that the node can serve. So they are dropped once the streams of all masters
//! have been read since the disturbance.

use std::time::{Duration, Instant};

/// The last disturbance of the connection of a look-up thread, and whether memory has links from before it.
#[derive(Debug, Default)]
pub(super) struct MemoryTrust {
    /// The instant of the last disturbance; `None` before the first.
    disturbed: Option<Instant>,
    /// The instant since boot of the last disturbance, until the links from before it are dropped.
    outdated_since: Option<Duration>,
}

impl MemoryTrust {
    /// Notes the last disturbance of the connection, which the caller may report several times: its instant, on the clock
    /// of questions and since boot.
    pub(super) fn note(&mut self, at: Instant, since_boot: Duration) {
        if self.disturbed.is_none_or(|known| known < at) {
            self.disturbed = Some(at);
            self.outdated_since = Some(since_boot);
        }
    }

    /// True if memory may keep the answer to a question of that instant. The old master may have answered earlier ones.
    pub(super) fn may_keep(&self, asked: Instant) -> bool {
        self.disturbed.is_none_or(|at| at < asked)
    }

    /// True if the links in memory must be dropped now. `followed` is the instant since boot before which every change in
    /// the streams is in memory.
    pub(super) fn must_forget(&self, followed: Option<Duration>) -> bool {
        self.outdated_since.is_some_and(|since| followed.is_some_and(|followed| since < followed))
    }

    /// Notes that the links in memory are being dropped.
    pub(super) fn forgotten(&mut self) {
        self.outdated_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the trust after a disturbance ten milliseconds after `begin`, which is a second after the boot.
    fn disturbed(begin: Instant) -> MemoryTrust {
        let mut trust = MemoryTrust::default();
        trust.note(begin + 10 * MS, 1_010 * MS);
        trust
    }

    #[test]
    fn answer_of_the_old_master_is_not_kept() {
        let begin = Instant::now();
        assert!(MemoryTrust::default().may_keep(begin), "this is the first connection");
        let trust = disturbed(begin);
        assert!(!trust.may_keep(begin), "the question was on its way");
        assert!(!trust.may_keep(begin + 10 * MS));
        assert!(trust.may_keep(begin + 11 * MS));
    }

    #[test]
    fn links_stay_in_memory_while_redis_is_away() {
        let begin = Instant::now();
        assert!(!MemoryTrust::default().must_forget(Some(1_000 * MS)), "nothing was disturbed");
        let mut trust = disturbed(begin);
        assert!(!trust.must_forget(None));
        assert!(!trust.must_forget(Some(1_009 * MS)));
        assert!(!trust.must_forget(Some(1_010 * MS)), "these reads may have begun before the disturbance");
        assert!(trust.must_forget(Some(1_011 * MS)));
        trust.forgotten();
        assert!(!trust.must_forget(Some(1_012 * MS)));
    }

    #[test]
    fn each_disturbance_counts_once() {
        let begin = Instant::now();
        let mut trust = disturbed(begin);
        trust.forgotten();
        // The client reports the last disturbance in each turn.
        trust.note(begin + 10 * MS, 1_011 * MS);
        assert!(!trust.must_forget(Some(1_100 * MS)));
        // It connects to a server again.
        trust.note(begin + 20 * MS, 1_020 * MS);
        assert!(!trust.may_keep(begin + 15 * MS));
        assert!(!trust.must_forget(Some(1_015 * MS)));
        assert!(trust.must_forget(Some(1_100 * MS)));
    }
}
