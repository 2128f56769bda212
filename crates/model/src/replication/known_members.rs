//! The members of the fleet that a node knows, and those of which Redis may have lost links.
//!
//! A Redis that came back empty has lost the heartbeats of all nodes together with their links. The nodes that are there
//! restore both, but a node that is away may have links that only it has. So Redis has an *epoch*: a text that the first
//! heartbeat gives to an empty Redis, and that is lost together with the links. A node stores the epoch in which Redis had
//! the links of all members, and the names of the members.
//!
//! * Within that epoch, Redis loses no heartbeat. A member without one has left the fleet: another node has taken over its
//!   leases ([`super::members`]).
//! * In another epoch, each member is *awaited*: Redis may lack its links. That ends once the member has passed
//!   ([`super::passing`]) a heartbeat of this epoch, because it has then restored what Redis had lost. It also ends once
//!   the member has been silent for the time after which a node counts as gone.
//!
//! While a member is awaited, Redis cannot deny a code, and no code is recycled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::members::NodeId;
use super::silence::SilenceClock;

/// The knowledge about the members that outlives the process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberRecord {
    /// The epoch in which Redis had the links of all members; `None` before the first heartbeat.
    pub epoch: Option<String>,
    /// The names of the members, this node among them.
    pub nodes: BTreeSet<NodeId>,
}

/// A member with a heartbeat in Redis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMember {
    /// The name of the node.
    pub node: NodeId,
    /// A mark of its last heartbeat, which differs from those of its earlier ones.
    pub mark: u64,
    /// The instant at which this node sent its last heartbeat that the member has passed; `None` if that is unknown.
    pub passed: Option<Duration>,
}

/// The knowledge about one member.
#[derive(Clone, Copy, Debug)]
struct KnownMember {
    /// The mark of the last heartbeat; `None` before this process has seen one.
    mark: Option<u64>,
    /// The instant since which that is the last one.
    since: Duration,
    /// The instant since which the member is awaited; `None` if Redis has its links.
    awaited: Option<Duration>,
}

/// The members that a node knows.
#[derive(Clone, Debug)]
pub struct KnownMembers {
    me: NodeId,
    /// The epoch in which Redis had the links of all members.
    settled: Option<String>,
    /// The epoch of the last reply.
    current: Option<String>,
    members: BTreeMap<NodeId, KnownMember>,
    clock: SilenceClock,
}

impl KnownMembers {
    /// Returns what the node `me` knows at its start, from the record of an earlier process.
    pub fn new(me: NodeId, record: MemberRecord, now: Duration) -> KnownMembers {
        let known = KnownMember { mark: None, since: now, awaited: None };
        let members = record.nodes.into_iter().map(|node| (node, known)).collect();
        KnownMembers { me, settled: record.epoch, current: None, members, clock: SilenceClock::default() }
    }

    /// Records the reply to a heartbeat that was sent at `sent` and answered at `now`: the epoch of Redis, and all members
    /// that it lists. An awaited member that is silent for `after` counts as gone. After an outage ([`SilenceClock`]), the
    /// silence of all members is measured from now.
    pub fn observe(
        &mut self,
        epoch: &str,
        listed: impl IntoIterator<Item = ListedMember>,
        (sent, now): (Duration, Duration),
        after: Duration,
    ) {
        if self.clock.record_reply((sent, now), after) {
            self.members.values_mut().for_each(|member| member.since = now);
        }
        let is_settled = self.settled.as_deref().is_none_or(|settled| settled == epoch);
        if self.current.as_deref() != Some(epoch) {
            let awaited = (!is_settled).then_some(sent);
            let others = self.members.iter_mut().filter(|(node, _)| **node != self.me);
            others.for_each(|(_, member)| member.awaited = awaited);
            self.current = Some(epoch.to_owned());
        }
        let mut present = BTreeSet::new();
        for ListedMember { node, mark, passed } in listed {
            let new = KnownMember { mark: Some(mark), since: now, awaited: None };
            let member = self.members.entry(node.clone()).or_insert(new);
            if member.mark != Some(mark) {
                (member.mark, member.since) = (Some(mark), now);
            }
            member.awaited = member.awaited.filter(|since| passed.is_none_or(|passed| passed < *since));
            present.insert(node);
        }
        let may_return = |member: &KnownMember| member.awaited.is_some() && now.saturating_sub(member.since) < after;
        self.members.retain(|node, member| present.contains(node) || may_return(member));
        // What a member restores from now on, it must have passed after it was last missing.
        let missing = self.members.iter_mut().filter(|(node, _)| !present.contains(*node));
        missing.for_each(|(_, member)| member.awaited = Some(sent));
        if self.members.values().all(|member| member.awaited.is_none()) {
            self.settled = Some(epoch.to_owned());
        }
    }

    /// Returns the members of which Redis may lack links.
    pub fn awaited(&self) -> BTreeSet<NodeId> {
        let awaited = self.members.iter().filter(|(_, member)| member.awaited.is_some());
        awaited.map(|(node, _)| node.clone()).collect()
    }

    /// Returns what the next process must know.
    pub fn record(&self) -> MemberRecord {
        MemberRecord { epoch: self.settled.clone(), nodes: self.members.keys().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Names of nodes.
    fn names(all: &[&str]) -> BTreeSet<NodeId> {
        all.iter().map(|node| (*node).to_owned()).collect()
    }

    /// Members with the marks of their heartbeats, and the second whose heartbeat they have passed.
    fn listed(all: &[(&str, u64, Option<u64>)]) -> Vec<ListedMember> {
        let of = |(node, mark, passed): &(&str, u64, Option<u64>)| ListedMember {
            node: (*node).to_owned(),
            mark: *mark,
            passed: passed.map(at),
        };
        all.iter().map(of).collect()
    }

    fn hear(known: &mut KnownMembers, epoch: &str, all: &[(&str, u64, Option<u64>)], seconds: u64) {
        known.observe(epoch, listed(all), (at(seconds), at(seconds)), AFTER);
    }

    /// The node `a` at a start, which knows these members from an earlier process.
    fn started(epoch: Option<&str>, nodes: &[&str], seconds: u64) -> KnownMembers {
        let record = MemberRecord { epoch: epoch.map(str::to_owned), nodes: names(nodes) };
        KnownMembers::new("a".to_owned(), record, at(seconds))
    }

    #[test]
    fn intact_redis_lets_nobody_wait() {
        let mut fresh = started(None, &[], 0);
        hear(&mut fresh, "e1", &[("a", 1, None), ("b", 1, None)], 1);
        assert_eq!(fresh.awaited(), names(&[]), "a new node has nothing to compare with");
        let record = fresh.record();
        assert_eq!((record.epoch.as_deref(), &record.nodes), (Some("e1"), &names(&["a", "b"])));
        // A silent member of an intact Redis has no links that Redis lacks.
        let mut again = started(Some("e1"), &["a", "b", "c"], 10);
        hear(&mut again, "e1", &[("a", 2, None), ("b", 1, None)], 11);
        assert_eq!(again.awaited(), names(&[]));
        assert_eq!(again.record().nodes, names(&["a", "b"]), "the leases of the third were taken over");
    }

    #[test]
    fn member_is_awaited_until_it_has_passed_a_heartbeat() {
        let mut known = started(Some("e1"), &["a", "b"], 10);
        hear(&mut known, "e2", &[("a", 1, None)], 11);
        assert_eq!(known.awaited(), names(&["b"]), "Redis has lost it");
        hear(&mut known, "e2", &[("a", 2, None)], 12);
        hear(&mut known, "e2", &[("a", 3, None), ("b", 1, None)], 13);
        assert_eq!(known.awaited(), names(&["b"]), "it may not have noticed the loss");
        hear(&mut known, "e2", &[("a", 4, None), ("b", 2, Some(11))], 14);
        assert_eq!(known.awaited(), names(&["b"]), "it was missing after that");
        assert_eq!(known.record().epoch.as_deref(), Some("e1"), "the next process waits as well");
        hear(&mut known, "e2", &[("a", 5, None), ("b", 3, Some(13))], 15);
        assert_eq!(known.awaited(), names(&[]));
        assert_eq!(known.record().epoch.as_deref(), Some("e2"));
    }

    #[test]
    fn members_that_are_there_must_pass_the_new_epoch() {
        let mut known = started(None, &[], 0);
        hear(&mut known, "e1", &[("a", 1, None), ("b", 1, None)], 1);
        hear(&mut known, "e2", &[("a", 2, None), ("b", 2, Some(1))], 2);
        assert_eq!(known.awaited(), names(&["b"]), "it has passed the heartbeat in the former Redis");
        hear(&mut known, "e2", &[("a", 3, None), ("b", 3, Some(2))], 3);
        assert_eq!(known.awaited(), names(&[]));
        hear(&mut known, "e3", &[("a", 4, None), ("b", 4, Some(2))], 4);
        assert_eq!(known.awaited(), names(&["b"]), "each loss counts");
        hear(&mut known, "e2", &[("a", 5, None), ("b", 4, Some(2))], 5);
        assert_eq!(known.awaited(), names(&[]), "the former Redis has the links of all");
    }

    #[test]
    fn silent_member_is_gone_after_the_time_for_all() {
        let mut known = started(Some("e1"), &["a", "b"], 10);
        for second in (11..110).step_by(10) {
            hear(&mut known, "e2", &[("a", second, None)], second);
            assert_eq!(known.awaited(), names(&["b"]));
        }
        hear(&mut known, "e2", &[("a", 110, None)], 110);
        let record = known.record();
        assert_eq!((record.epoch.as_deref(), record.nodes), (Some("e2"), names(&["a"])));
    }

    #[test]
    fn silence_of_redis_is_nobodys_silence() {
        let mut known = started(None, &[], 0);
        hear(&mut known, "e1", &[("a", 1, None), ("b", 1, None)], 1);
        // Redis is away for longer than a silent node counts, and comes back empty.
        hear(&mut known, "e2", &[("a", 2, None)], 200);
        assert_eq!(known.awaited(), names(&["b"]));
        hear(&mut known, "e2", &[("a", 3, None)], 220);
        assert_eq!(known.awaited(), names(&["b"]));
    }
}
