//! The times at which the source of a list is read: every two seconds, or once a minute while notifications report its
//! changes.

use std::time::{Duration, Instant};

/// Interval between two reads without notifications. Together with the longest read, a change takes effect within five
/// seconds.
const READ_EVERY: Duration = Duration::from_secs(2);

/// Interval between two reads with notifications. These reads repair a lost notification; Apollo's own clients read
/// every five minutes.
const READ_EVERY_NOTIFIED: Duration = Duration::from_secs(60);

/// Time after a notification for which the reads are as frequent as without notifications. Each instance of Apollo
/// looks for releases once a second, so another instance may still return the old list.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// The schedule of the reads of a list. Due at once until the first read.
#[derive(Debug, Default)]
pub(super) struct ReadSchedule {
    /// The end of the last read.
    read_at: Option<Instant>,
    /// True if the last read returned a valid list that is saved.
    is_current: bool,
    /// Number of notifications that caused a read.
    changes: u64,
    /// The time of the last notification.
    changed_at: Option<Instant>,
}

impl ReadSchedule {
    /// Records the end of a read. `is_current` is true if it returned a valid list that is saved.
    pub(super) fn record_read(&mut self, is_current: bool, now: Instant) {
        (self.read_at, self.is_current) = (Some(now), is_current);
    }

    /// Returns the time until the next read; zero if it is due. `changes` is the number of notifications so far.
    /// `is_notified` is true if notifications report every change.
    pub(super) fn wait(&mut self, changes: u64, is_notified: bool, now: Instant) -> Duration {
        let Some(read_at) = self.read_at else {
            self.changes = changes;
            return Duration::ZERO;
        };
        if changes != self.changes {
            (self.changes, self.changed_at) = (changes, Some(now));
            return Duration::ZERO;
        }
        let settles = self.changed_at.is_some_and(|at| now.saturating_duration_since(at) < SETTLE_TIME);
        let every = if is_notified && self.is_current && !settles { READ_EVERY_NOTIFIED } else { READ_EVERY };
        (read_at + every).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn reads_come_every_two_seconds_without_notifications() {
        let (mut schedule, start) = (ReadSchedule::default(), Instant::now());
        assert_eq!(schedule.wait(0, false, start), Duration::ZERO);
        schedule.record_read(true, start);
        assert_eq!(schedule.wait(0, false, start), 2 * SECOND);
        assert_eq!(schedule.wait(0, false, start + SECOND), SECOND);
        assert_eq!(schedule.wait(0, false, start + 3 * SECOND), Duration::ZERO);
    }

    #[test]
    fn reads_are_rare_while_notifications_report_changes() {
        let (mut schedule, start) = (ReadSchedule::default(), Instant::now());
        schedule.record_read(true, start);
        assert_eq!(schedule.wait(0, true, start), 60 * SECOND);
        assert_eq!(schedule.wait(0, true, start + 60 * SECOND), Duration::ZERO);
        // The poll has failed.
        assert_eq!(schedule.wait(0, false, start + SECOND), SECOND);
        // An unreadable, malformed or unsaved list.
        schedule.record_read(false, start);
        assert_eq!(schedule.wait(0, true, start), 2 * SECOND);
    }

    #[test]
    fn notification_causes_reads_until_the_list_settles() {
        let (mut schedule, start) = (ReadSchedule::default(), Instant::now());
        schedule.record_read(true, start);
        let notified = start + 10 * SECOND;
        assert_eq!(schedule.wait(1, true, notified), Duration::ZERO);
        schedule.record_read(true, notified);
        assert_eq!(schedule.wait(1, true, notified), 2 * SECOND);
        schedule.record_read(true, notified + 4 * SECOND);
        assert_eq!(schedule.wait(1, true, notified + 4 * SECOND), 2 * SECOND);
        assert_eq!(schedule.wait(1, true, notified + 6 * SECOND), 58 * SECOND);
        // Two notifications during one read cause one more read.
        assert_eq!(schedule.wait(3, true, notified + 7 * SECOND), Duration::ZERO);
        schedule.record_read(true, notified + 7 * SECOND);
        assert_eq!(schedule.wait(3, true, notified + 12 * SECOND), 55 * SECOND);
    }
}
