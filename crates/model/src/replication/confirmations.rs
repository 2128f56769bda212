//! The instant before which every acknowledged link of the fleet is in Redis.
//!
//! A node creates links alone while it does not reach Redis, so that Redis cannot deny a code that may be generated.
//! But each heartbeat of a node says how many of its changes Redis may not have, and of which heartbeats of the other
//! nodes it had heard before it counted them. If none is left, the report confirms the delivery of all links that the
//! node acknowledged before it heard of those heartbeats.
//!
//! A node numbers its own heartbeats, and notes when it sends each. Once every other node has confirmed such a
//! heartbeat or a later one, Redis has every link that was acknowledged before it was sent. Then Redis can deny all
//! other codes. A silent node confirms nothing new. The rule compares no clocks: it relies only on the order of sending
//! and hearing.
//!
//! A second use of the rule tells which changes every node has passed ([`super::passing`]). There, a report names the
//! last heartbeat after which a node has read all streams to their ends.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::members::NodeId;

/// Number of own heartbeats that are remembered: several seconds of the fastest.
const REMEMBERED: usize = 64;

/// The report of another node on the delivery of its links, in its heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveryReport {
    /// Number of the node's changes that Redis may not have, counted after the node heard of `heard`.
    pub undelivered: u64,
    /// Number of the last heartbeat of this node that the other node had heard of.
    pub heard: u64,
}

/// The knowledge about another node.
#[derive(Clone, Copy, Debug)]
struct KnownPeer {
    /// The last heartbeat, and the time since which it is the last one.
    beat: u64,
    since: Duration,
    /// The instant before which all acknowledged links of the node are in Redis.
    until: Option<Duration>,
}

/// The reports of all other nodes, and what they confirm.
#[derive(Clone, Debug)]
pub struct Confirmations {
    /// The number of the next heartbeat of this node.
    next: u64,
    /// The last heartbeats of this node, and when each was sent.
    sent: VecDeque<(u64, Duration)>,
    others: HashMap<NodeId, KnownPeer>,
}

impl Confirmations {
    /// Returns the state of a node before its first heartbeat, whose number is `first`. The number must be random,
    /// since other nodes may still report on the heartbeats of an earlier process.
    pub fn new(first: u64) -> Confirmations {
        Confirmations { next: first, sent: VecDeque::new(), others: HashMap::new() }
    }

    /// Returns the number of a heartbeat that is about to be sent.
    pub fn begin(&mut self, now: Duration) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.sent.push_back((number, now));
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
        number
    }

    /// Returns the instant at which a heartbeat of this node was sent; `None` if it is not among the last ones of this process.
    pub fn sent(&self, number: u64) -> Option<Duration> {
        self.sent.iter().find(|(sent, _)| *sent == number).map(|(_, at)| *at)
    }

    /// Records the answer to a heartbeat: of each other node, its heartbeat and its report. A node that Redis has
    /// forgotten counts until it was silent for `after`, when its leases may be taken over. Returns the instant
    /// before which all acknowledged links are in Redis; `None` if a node has never confirmed any.
    pub fn observe(
        &mut self,
        number: u64,
        others: impl IntoIterator<Item = (NodeId, u64, Option<DeliveryReport>)>,
        now: Duration,
        after: Duration,
    ) -> Option<Duration> {
        let mut present = Vec::new();
        for (node, beat, report) in others {
            let until = report.filter(|report| report.undelivered == 0).and_then(|it| self.sent(it.heard));
            let other = self.others.entry(node.clone()).or_insert(KnownPeer { beat, since: now, until: None });
            if other.beat != beat {
                (other.beat, other.since) = (beat, now);
            }
            other.until = other.until.max(until);
            present.push(node);
        }
        self.others.retain(|node, other| present.contains(node) || now.saturating_sub(other.since) < after);
        let own = self.sent(number)?;
        self.others.values().map(|other| other.until).try_fold(own, |least, until| Some(least.min(until?)))
    }

    /// Returns the other nodes that have not confirmed a time after that instant, by name.
    pub fn missing(&self, at: Duration) -> Vec<NodeId> {
        let late = self.others.iter().filter(|(_, other)| other.until.is_none_or(|until| until <= at));
        let mut nodes: Vec<NodeId> = late.map(|(node, _)| node.clone()).collect();
        nodes.sort();
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn other(name: &str, beat: u64, undelivered: u64, heard: u64) -> (NodeId, u64, Option<DeliveryReport>) {
        (name.to_owned(), beat, Some(DeliveryReport { undelivered, heard }))
    }

    #[test]
    fn a_node_confirms_the_time_before_it_heard() {
        let mut confirmations = Confirmations::new(70);
        let first = confirmations.begin(at(10));
        assert_eq!(
            confirmations.observe(first, [other("b", 1, 0, 3)], at(10), AFTER),
            None,
            "an earlier process sent that"
        );
        let second = confirmations.begin(at(11));
        assert_eq!(confirmations.observe(second, [other("b", 2, 0, first)], at(11), AFTER), Some(at(10)));
        let third = confirmations.begin(at(12));
        let silent = [other("b", 2, 0, first)];
        assert_eq!(confirmations.observe(third, silent, at(12), AFTER), Some(at(10)), "a silent node says nothing new");
        let undelivered = [other("b", 3, 1, third)];
        assert_eq!(confirmations.observe(third, undelivered, at(13), AFTER), Some(at(10)), "Redis may lack a link");
        assert_eq!(confirmations.observe(third, [other("b", 4, 0, third)], at(14), AFTER), Some(at(12)));
    }

    #[test]
    fn every_node_must_confirm() {
        let mut confirmations = Confirmations::new(0);
        let number = confirmations.begin(at(10));
        assert_eq!(confirmations.observe(number, [], at(10), AFTER), Some(at(10)), "there is no other node");
        let (b, older) = (other("b", 1, 0, number), ("c".to_owned(), 1, None));
        assert_eq!(
            confirmations.observe(number, [b.clone(), older], at(10), AFTER),
            None,
            "an older version says nothing"
        );
        let next = confirmations.begin(at(11));
        assert_eq!(confirmations.observe(next, [b, other("c", 2, 0, next)], at(11), AFTER), Some(at(10)));
        assert_eq!(confirmations.missing(at(9)), Vec::<NodeId>::new());
        assert_eq!(confirmations.missing(at(10)), ["b"]);
        assert_eq!(confirmations.missing(at(11)), ["b", "c"]);
    }

    #[test]
    fn a_node_counts_until_its_leases_are_taken_over() {
        let mut confirmations = Confirmations::new(0);
        let number = confirmations.begin(at(10));
        assert_eq!(confirmations.observe(number, [other("b", 1, 2, number)], at(10), AFTER), None);
        let number = confirmations.begin(at(109));
        assert_eq!(confirmations.observe(number, [], at(109), AFTER), None, "Redis has lost its heartbeat");
        let number = confirmations.begin(at(110));
        assert_eq!(confirmations.observe(number, [], at(110), AFTER), Some(at(110)));
    }
}
