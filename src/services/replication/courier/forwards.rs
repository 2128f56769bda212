//! The requests for snapshots that a relay forwards.
//!
//! A request that only this site has is of one of its nodes. One that both have was forwarded, by either relay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use carom_model::visits::origins::OriginId;

/// Time for which a request waits for a node of its own site.
const FORWARD_AFTER: Duration = Duration::from_secs(5);

/// A request: the origin that asks, and its text.
pub(super) type Wanted = (OriginId, String);

/// The requests of this site that its own nodes have not answered.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// Requests that only this site has, each with the time since which that is so.
    seen: HashMap<Wanted, Instant>,
    /// Forwarded requests, each with true once this relay has begun to bring its snapshot.
    pub(super) open: HashMap<Wanted, bool>,
}

impl Forwards {
    /// Returns the requests that have waited long enough, given those of both sites.
    pub(super) fn due(&mut self, ours: &[Wanted], theirs: &[Wanted]) -> Vec<Wanted> {
        let is_ours_alone = |wanted: &Wanted| ours.contains(wanted) && !theirs.contains(wanted);
        self.seen.retain(|wanted, _| is_ours_alone(wanted));
        let waiting = ours.iter().filter(|wanted| is_ours_alone(wanted) && !self.open.contains_key(*wanted));
        let mut due = Vec::new();
        for wanted in waiting {
            if self.seen.entry(wanted.clone()).or_insert_with(Instant::now).elapsed() >= FORWARD_AFTER {
                due.push(wanted.clone());
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_other_site_are_not_sent_back() {
        let mut forwards = Forwards::default();
        let wanted = |by: u64| (OriginId(by), format!("request-{by} 3 7"));
        let (ours, theirs) = ([wanted(1), wanted(2)], [wanted(2)]);
        assert_eq!(forwards.due(&ours, &theirs), [], "nodes of this site may answer");
        let long_ago = Instant::now().checked_sub(FORWARD_AFTER).unwrap();
        forwards.seen.values_mut().for_each(|since| *since = long_ago);
        assert_eq!(forwards.due(&ours, &theirs), [wanted(1)]);
        forwards.open.insert(wanted(1), false);
        assert_eq!(forwards.due(&ours, &theirs), [], "it is forwarded once");
    }
}
