//! Asks Redis to remove links whose time is over. It does so only where it has the very link that this node has: with the
//! same version, and with the same fields. Whoever has moved the end of a link has changed it there, so a node that has not
//! heard of that is told no.
//!
//! Nothing is done here with a yes. It comes back through the stream, to this node as to all others; and if Redis loses it
//! before, then the link is still everywhere, and due. So there is nothing to be kept in the outbox, and without Redis
//! nothing expires.

use std::io;
use std::time::Duration;

use carom_shards::Code;

use super::{Shared, note_trouble};
use crate::services::expiry::Removed;
use crate::services::replication::redis::{Change, Changed, Redis, Trouble};
use carom_model::link::{Due, Link};
use carom_model::replication::State;
use carom_model::replication::rules::Verdict;
use carom_telemetry::clock::unix_ms;

/// How long Redis may take: nobody waits for it.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Speaks to Redis for who removes links.
pub struct FleetExpiry {
    shared: Shared,
    redis: Redis,
}

impl FleetExpiry {
    /// Makes ready to speak.
    ///
    /// # Errors
    /// If the operating system refuses something, or the certificates cannot be used.
    pub(super) fn new(shared: &Shared) -> io::Result<FleetExpiry> {
        Ok(FleetExpiry { redis: shared.redis()?, shared: shared.clone() })
    }

    /// Asks for the end of those of these links that are as their entries say.
    pub fn expire(&mut self, ends: &[Due], until_ms: u64) -> Removed {
        self.remove(ends, until_ms, Link::end)
    }

    /// Asks for the end of those of these links that are still to be deleted as their entries say.
    pub fn discard(&mut self, deletions: &[Due], until_ms: u64) -> Removed {
        self.remove(deletions, until_ms, Link::deletion)
    }

    fn remove(&mut self, ends: &[Due], until_ms: u64, due_of: fn(&Link) -> Option<Due>) -> Removed {
        if self.shared.may_change().is_err() {
            return Removed::NotNow;
        }
        let now_ms = unix_ms();
        let due = ends.iter().filter(|due| due.at_ms <= until_ms);
        let changes: Vec<(Code, Change)> = due
            .filter_map(|due| {
                let state = State::from_value(due.code, &self.shared.links.get(&due.code).ok()??)?;
                let is_due = matches!(&state, State::Link(link) if due_of(link) == Some(*due));
                is_due.then_some((due.code, Change::Expire { state, now_ms }))
            })
            .collect();
        let (mut left, mut trouble) = (changes.len() < ends.len(), None);
        for answer in self.redis.change(&changes, ANSWER_TIME) {
            match answer {
                Ok(Changed { verdict: Verdict::Accepted(_), .. }) => self.shared.stats.expiry.expired.add(1),
                // It was changed, or is gone; or Redis has yet to hear of it.
                Ok(_) => left = true,
                // What Redis refuses of one code must not keep the others waiting; the alarm names it.
                Err(refused @ Trouble::Refused(_)) => {
                    note_trouble(&self.shared.stats, &refused);
                    left = true;
                }
                Err(away) => trouble = Some(away),
            }
        }
        let Some(trouble) = trouble else { return Removed::Done { left } };
        note_trouble(&self.shared.stats, &trouble);
        Removed::NotNow
    }
}
