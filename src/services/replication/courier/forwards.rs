//! Decides which requests for snapshots a relay forwards, and which it takes back, by the requests in the Redis of each site.
//!
//! A relay adds the name of its site to each request that it forwards. The other relay never sends such a request back: it
//! would replace the next request of the node. A relay that takes over finds by the name what the earlier relay forwarded.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use carom_model::visits::origins::OriginId;

/// Time for which a request waits for a node of its own site.
const FORWARD_AFTER: Duration = Duration::from_secs(5);

/// Number of words of a request, by [`SnapshotRequest`](carom_model::visits::exchange::SnapshotRequest). A forwarded request
/// has one more: the name of the site whose node asks.
const WORDS: usize = 3;

/// A request: the origin that asks, and its text.
pub(super) type Wanted = (OriginId, String);

/// The progress of a forwarded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The other site has the request.
    Forwarded,
    /// This relay brings the chunks of the other site.
    Bringing,
    /// A node of this site answers.
    AnsweredHere,
}

/// The changes that a relay makes to the requests in the Redis of the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Steps {
    /// The origins whose forwarded requests it removes, because they were answered or given up.
    pub(super) taken_back: Vec<OriginId>,
    /// The requests of this site that it adds.
    pub(super) forwarded: Vec<Wanted>,
}

/// The requests of this site that its own nodes have not answered.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// Requests that were not forwarded, each with the time when this relay first saw it.
    seen: HashMap<Wanted, Instant>,
    /// Forwarded requests.
    pub(super) open: HashMap<Wanted, Progress>,
}

/// Returns a request of `site` as its relay writes it to the Redis of the other site.
pub(super) fn at_other_site(wanted: &Wanted, site: &str) -> Wanted {
    (wanted.0, format!("{} {site}", wanted.1))
}

/// Returns the original of a request that the relay of `site` forwarded; `None` if `wanted` is another request.
fn at_home(wanted: &Wanted, site: &str) -> Option<Wanted> {
    let text = wanted.1.strip_suffix(site)?.strip_suffix(' ')?;
    (text.split(' ').count() == WORDS).then(|| (wanted.0, text.to_owned()))
}

impl Forwards {
    /// Returns the steps that are due for the relay of `site`. `ours` are the requests in the Redis of this site, `theirs` those
    /// in the Redis of the other site.
    pub(super) fn steps(&mut self, site: &str, ours: &[Wanted], theirs: &[Wanted]) -> Steps {
        let own: Vec<&Wanted> = ours.iter().filter(|wanted| wanted.1.split(' ').count() == WORDS).collect();
        self.open.retain(|wanted, _| own.contains(&wanted));
        let mut steps = Steps::default();
        for wanted in theirs.iter().filter_map(|wanted| at_home(wanted, site)) {
            let is_wanted = own.contains(&&wanted)
                && *self.open.entry(wanted.clone()).or_insert(Progress::Forwarded) != Progress::AnsweredHere;
            if !is_wanted {
                steps.taken_back.push(wanted.0);
            }
        }
        self.seen.retain(|wanted, _| own.contains(&wanted));
        for wanted in own.into_iter().filter(|wanted| !self.open.contains_key(*wanted)) {
            if self.seen.entry(wanted.clone()).or_insert_with(Instant::now).elapsed() >= FORWARD_AFTER {
                steps.forwarded.push(wanted.clone());
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request by the origin with this number.
    fn wanted(by: u64) -> Wanted {
        (OriginId(by), format!("request-{by} 3 7"))
    }

    fn forwarded(by: u64) -> Wanted {
        at_other_site(&wanted(by), "berlin")
    }

    fn late(forwards: &mut Forwards) {
        let long_ago = Instant::now().checked_sub(FORWARD_AFTER).unwrap();
        forwards.seen.values_mut().for_each(|since| *since = long_ago);
    }

    #[test]
    fn request_waits_for_nodes_of_its_site() {
        let mut forwards = Forwards::default();
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), Steps::default());
        late(&mut forwards);
        let expected = Steps { forwarded: vec![wanted(1)], ..Steps::default() };
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), expected);
        forwards.open.insert(wanted(1), Progress::Forwarded);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), Steps::default(), "it is forwarded once");
    }

    #[test]
    fn forwarded_requests_are_never_sent_back() {
        let mut forwards = Forwards::default();
        for _ in 0..2 {
            // The origin asks for something else by now.
            let theirs = [(OriginId(1), "request-9 4 8".to_owned())];
            assert_eq!(forwards.steps("lisbon", &[forwarded(1)], &theirs), Steps::default());
            assert!(forwards.seen.is_empty());
        }
    }

    #[test]
    fn ended_requests_are_taken_back() {
        let mut forwards = Forwards::default();
        let back = Steps { taken_back: vec![OriginId(1)], ..Steps::default() };
        // An earlier relay may have forwarded it.
        assert_eq!(forwards.steps("berlin", &[], &[forwarded(1)]), back);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[forwarded(1)]), Steps::default());
        assert_eq!(forwards.open.get(&wanted(1)), Some(&Progress::Forwarded), "this relay brings its chunks");
        // A node of this site was faster.
        forwards.open.insert(wanted(1), Progress::AnsweredHere);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[forwarded(1)]), back);
        late(&mut forwards);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), Steps::default());
        assert_eq!(forwards.steps("berlin", &[], &[]), Steps::default());
        assert!(forwards.open.is_empty() && forwards.seen.is_empty());
    }
}
