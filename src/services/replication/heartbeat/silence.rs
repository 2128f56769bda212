//! The alarm about a Redis that does not answer. Other threads learn of each heartbeat without an answer at once
//! (`connected`); this file only decides when the operator does.

use crate::services::replication::redis::RedisError;
use carom_telemetry::alarms::{Alarm, Alarms};

/// Heartbeats in a row without an answer after which the alarm is raised. A single answer may be late without an outage, and
/// the next heartbeat follows within a quarter of a second.
const RAISED_AFTER: u32 = 2;

/// The heartbeats since the last answer of Redis.
#[derive(Debug, Default)]
pub(super) struct UnansweredBeats(u32);

impl UnansweredBeats {
    /// Notes a heartbeat that Redis did not answer, or rejected.
    pub(super) fn note_failure(&mut self, alarms: &Alarms, error: &RedisError) {
        self.0 = self.0.saturating_add(1);
        if self.0 >= RAISED_AFTER {
            let text = format!("{error}; redirects continue, and new links are synced when Redis is back");
            alarms.raise(Alarm::RedisAway, text);
        }
    }

    /// Notes an answer of Redis.
    pub(super) fn note_answer(&mut self, alarms: &Alarms) {
        self.0 = 0;
        alarms.clear(Alarm::RedisAway);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_late_answers_raise_no_alarm() {
        let (alarms, mut beats) = (Alarms::default(), UnansweredBeats::default());
        let late = RedisError::Unavailable { what: "no answer in time".to_owned(), was_sent: true };
        for _ in 0..3 {
            beats.note_failure(&alarms, &late);
            beats.note_answer(&alarms);
        }
        assert!(alarms.list().is_empty(), "each would be two lines in the log");
        beats.note_failure(&alarms, &late);
        beats.note_failure(&alarms, &late);
        assert!(alarms.is_on(Alarm::RedisAway));
        beats.note_answer(&alarms);
        assert!(!alarms.is_on(Alarm::RedisAway));
        beats.note_failure(&alarms, &late);
        assert!(!alarms.is_on(Alarm::RedisAway), "it is the first one since that answer");
    }
}
