//! Grants of visits by a Redis that may have lost some of them: pure rules, which the scripts in Redis repeat.
//!
//! Redis counts the visits of a limited link that it has granted, and each node stores this total with its own last
//! grant. Redis gives grants one after another, so the highest total that any node knows is the true one. A Redis that may
//! have lost writes therefore grants nothing until all nodes have reported their totals to it.
//!
//! The grants of a partition belong to an *epoch* ([`GrantLedger`]). Another one begins once the ledger is gone, another
//! server answers, or a node knows a later epoch. A node stores the epoch before it reports to it, and from then on takes
//! no grant of an earlier one. So a server that was replaced, and still answers some nodes, grants nothing to them that the
//! new server does not know.
//!
//! New nodes may begin and complete an epoch of an emptied Redis while all nodes with grants are away. They still get no
//! visits of the links of these nodes. A node that comes back begins another epoch ([`GrantEpoch::rival`]) before Redis
//! gets its links.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::replication::silence::SilenceClock;

/// The span of grants for which Redis has lost none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GrantEpoch {
    /// The number, from 1; 0 if no epoch is known.
    pub number: u64,
    /// A random number, since two servers may begin epochs with the same number.
    pub nonce: u64,
}

impl GrantEpoch {
    /// Parses the text of an epoch in Redis ([`fmt::Display`]); `None` if it is malformed.
    pub fn parse(text: &str) -> Option<GrantEpoch> {
        let (number, nonce) = text.split_once('.')?;
        Some(GrantEpoch { number: number.parse().ok()?, nonce: nonce.parse().ok()? })
    }

    /// Returns an epoch that no server has. A node shows it to the server of this epoch, which ends this one. The node has
    /// lost its position in a stream, and its last epoch is `known`; `None` if that cannot be read. It may have grants of which
    /// the nodes of this epoch have not heard. Returns `None` if the node has no grants, has reported all of them to this epoch
    /// (`has_reported`), or has just begun it with this `nonce`.
    pub fn rival(self, known: Option<GrantEpoch>, has_reported: bool, nonce: u64) -> Option<GrantEpoch> {
        let is_own = (known == Some(self) && has_reported) || self.nonce == nonce;
        let may_have_grants = known.is_none_or(|known| known.number > 0);
        (!is_own && may_have_grants).then_some(GrantEpoch { number: self.number, nonce })
    }
}

impl fmt::Display for GrantEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.nonce)
    }
}

/// The answer of Redis to a node that requests visits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantAdmission {
    /// The node may get visits.
    Open,
    /// The report of this node is missing. It may be the one that asks.
    Missing(String),
}

/// The grants of a partition in Redis, without the totals of its links.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GrantLedger {
    epoch: GrantEpoch,
    /// The server that began the epoch.
    server: String,
    /// The nodes that have reported their totals in this epoch, each with the other nodes that it knows to hold grants.
    reported: BTreeMap<String, Vec<String>>,
    /// True if all nodes had reported when a node asked or reported.
    is_complete: bool,
}

impl GrantLedger {
    /// Returns the epoch of the grants of a server, for a node that knows `known` as its last one. Begins another epoch if
    /// the server may lack grants, or if this ledger is older than the last one of the node.
    pub fn enter(&mut self, known: GrantEpoch, nonce: u64, server: &str) -> GrantEpoch {
        let is_latest = self.epoch == known || self.epoch.number > known.number;
        if self.epoch.number == 0 || self.server != server || !is_latest {
            let number = self.epoch.number.max(known.number) + 1;
            let epoch = GrantEpoch { number, nonce };
            *self = GrantLedger { epoch, server: server.to_owned(), ..GrantLedger::default() };
        }
        self.epoch
    }

    /// Records that a node has reported all its totals in the present epoch, and the other nodes that it knows to hold
    /// grants. The node must have stored this epoch. Another report replaces the names of the others.
    pub fn report(&mut self, node: &str, others: &[String]) {
        self.reported.insert(node.to_owned(), others.to_vec());
    }

    /// True if a node has reported its totals in the present epoch.
    pub fn has_report(&self, node: &str) -> bool {
        self.reported.contains_key(node)
    }

    /// Decides whether a node may get visits. `known` is its last epoch, and `others` are the other nodes that it knows
    /// to hold grants. All of them must have reported, and so must all nodes that their reports name. A node that
    /// joined after the loss may not have heard of one that has been away since before it. From then on, no name
    /// matters: a new node has no earlier grants.
    pub fn admit(&mut self, node: &str, known: GrantEpoch, others: &[String]) -> GrantAdmission {
        if self.epoch != known || !self.has_report(node) {
            return GrantAdmission::Missing(node.to_owned());
        }
        if !self.is_complete
            && let Some(missing) = self.missing(others)
        {
            return GrantAdmission::Missing(missing);
        }
        self.is_complete = true;
        GrantAdmission::Open
    }

    /// Completes the present epoch if [`GrantLedger::admit`] would admit this node, which reports and requests no visits. So a
    /// process that starts later need not wait until it has heard of all live nodes.
    pub fn complete(&mut self, node: &str, others: &[String]) {
        self.is_complete |= self.has_report(node) && self.missing(others).is_none();
    }

    /// Returns a node whose report is missing, among these and those that their reports name.
    fn missing(&self, others: &[String]) -> Option<String> {
        let named = |other: &String| self.reported.get(other).into_iter().flatten();
        let mut awaited = others.iter().flat_map(|other| std::iter::once(other).chain(named(other)));
        awaited.find(|other| !self.has_report(other)).cloned()
    }
}

/// Returns the visits that Redis grants to a node, of `rest` visits that are left, while `waiting` clients wait there. A
/// small part of the rest, so that idle nodes do not hold the last visits; more if clients wait.
pub fn share_of(rest: u64, waiting: u64, most: u64) -> u64 {
    (rest / 8).max(waiting.min(rest / 2)).max(1).min(most).min(rest)
}

/// The other nodes that may hold grants: all that were heard of, until they count as lost. A node stores their names,
/// because Redis may lose them together with the grants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GrantHolders {
    /// Each node with the time of its last heartbeat by the clock of Redis, and since when it is the last one.
    seen: BTreeMap<String, (u64, Duration)>,
    /// The stored names, in order.
    stored: Vec<String>,
    clock: SilenceClock,
}

impl GrantHolders {
    /// Returns the nodes that an earlier process has stored. They count as heard of at `now`.
    pub fn resume(names: impl IntoIterator<Item = String>, now: Duration) -> GrantHolders {
        let seen: BTreeMap<String, (u64, Duration)> = names.into_iter().map(|name| (name, (0, now))).collect();
        GrantHolders { stored: seen.keys().cloned().collect(), seen, clock: SilenceClock::default() }
    }

    /// Records the nodes that Redis has, each with the time of its last heartbeat, and true if its version reports grants.
    /// The request for them was sent at `sent` and answered at `now`. Leaves out nodes of versions that report nothing, and
    /// those that Redis lacks after they were silent for `after`. Returns true if the names are not those that are stored.
    /// After an outage ([`SilenceClock`]), the silence of all nodes is measured from now.
    pub fn observe(
        &mut self,
        present: impl IntoIterator<Item = (String, u64, bool)>,
        (sent, now): (Duration, Duration),
        after: Duration,
    ) -> bool {
        if self.clock.record_reply((sent, now), after) {
            self.seen.values_mut().for_each(|(_, since)| *since = now);
        }
        let mut absent: BTreeSet<String> = self.names().cloned().collect();
        for (node, beat, reports) in present {
            absent.remove(&node);
            if !reports {
                self.seen.remove(&node);
            } else if self.seen.get(&node).is_none_or(|(last, _)| *last != beat) {
                self.seen.insert(node, (beat, now));
            }
        }
        self.seen.retain(|node, (_, since)| !absent.contains(node) || now.saturating_sub(*since) < after);
        !self.names().eq(&self.stored)
    }

    /// Notes that the present names are stored.
    pub fn note_stored(&mut self) {
        self.stored = self.names().cloned().collect();
    }

    /// Returns the names of the nodes, in order.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.seen.keys()
    }
}

/// Longest time for which a process waits until another node has heard of it: by then, all nodes that reach Redis have.
const INTRODUCED_AFTER: Duration = Duration::from_secs(3);

/// The introduction of a process to the other nodes. They no longer count a node that has left its grants to them. So a
/// process takes grants only once the others have heard that it runs. Otherwise Redis could lose these grants after a
/// kill, and nobody would wait for the report of the node.
///
/// The introduction begins again with each further node that the process hears of. A node that has joined an emptied Redis
/// may know of nobody yet. If another server took over before it hears of this process, it would get grants there without
/// the report of this process, which may still take grants from the first server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GrantIntroduction {
    /// The instant at which it began. Heartbeats that the process sent earlier do not count.
    begun: Duration,
    /// The other nodes that may hold grants, each with the time of the first answer of Redis that named it, and true once it
    /// has heard of this process.
    others: BTreeMap<String, (Duration, bool)>,
    is_over: bool,
}

impl GrantIntroduction {
    /// Returns an introduction that begins at `now`. A process begins another introduction while it gives way to a
    /// second process of its name. The second process may leave the grants of the name to the other nodes, which then
    /// count neither of the two.
    pub fn begin(now: Duration) -> GrantIntroduction {
        GrantIntroduction { begun: now, ..GrantIntroduction::default() }
    }

    /// Takes an answer of Redis at `now`. `heard` has each of the other nodes that may hold grants, with the instant at
    /// which this process sent the last heartbeat that the other node has heard, or `None`. The process waits for each of
    /// them for at most three seconds. A node that has heard of this process need not hear of it again until it no longer
    /// counts.
    pub fn observe(&mut self, heard: impl IntoIterator<Item = (String, Option<Duration>)>, now: Duration) {
        let before = std::mem::take(&mut self.others);
        for (node, sent) in heard {
            let (since, has_heard) = before.get(&node).copied().unwrap_or((now, false));
            let hears = sent.is_some_and(|sent| sent >= self.begun);
            self.others.insert(node, (since, has_heard || hears));
        }
        let awaits =
            |(since, has_heard): &(Duration, bool)| !has_heard && now.saturating_sub(*since) < INTRODUCED_AFTER;
        self.is_over = !self.others.values().any(awaits);
    }

    /// True while the process may take grants.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(100);

    fn others(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn missing(node: &str) -> GrantAdmission {
        GrantAdmission::Missing(node.to_owned())
    }

    #[test]
    fn nothing_is_granted_until_all_have_reported() {
        let mut ledger = GrantLedger::default();
        let epoch = ledger.enter(GrantEpoch::default(), 7, "s1");
        assert_eq!(epoch, GrantEpoch { number: 1, nonce: 7 });
        assert_eq!(ledger.admit("a", epoch, &[]), missing("a"));
        ledger.report("a", &[]);
        assert_eq!(ledger.admit("a", epoch, &others(&["b"])), missing("b"));
        ledger.report("b", &[]);
        assert_eq!(
            ledger.admit("a", GrantEpoch::default(), &others(&["b"])),
            missing("a"),
            "it knows an earlier epoch"
        );
        assert_eq!(ledger.admit("a", epoch, &others(&["b"])), GrantAdmission::Open);
        assert_eq!(ledger.admit("a", epoch, &others(&["b", "c"])), GrantAdmission::Open, "c came later");
        assert_eq!(ledger.admit("c", epoch, &others(&["a", "b"])), missing("c"));
    }

    #[test]
    fn epoch_ends_with_its_server_and_with_a_later_one() {
        let mut ledger = GrantLedger::default();
        let first = ledger.enter(GrantEpoch::default(), 1, "s1");
        ledger.report("a", &[]);
        assert_eq!(ledger.enter(first, 2, "s1"), first);
        assert_eq!(ledger.enter(GrantEpoch::default(), 2, "s1"), first, "a node may know nothing");
        let mut replica = ledger.clone();
        let second = replica.enter(first, 3, "s2");
        assert!(second.number == 2, "another server may lack grants");
        assert!(!replica.has_report("a"), "another server may lack grants");
        let third = ledger.enter(second, 4, "s1");
        assert_eq!(third, GrantEpoch { number: 3, nonce: 4 }, "the old server does not know of the second epoch");
        let other = GrantEpoch { number: 3, nonce: 5 };
        assert_eq!(ledger.enter(other, 6, "s1").number, 4, "two epochs with one number are of different servers");
        assert_eq!(GrantLedger::default().enter(other, 6, "s1").number, 4, "Redis came back empty");
    }

    #[test]
    fn returned_node_ends_an_epoch_that_others_have_completed() {
        // New nodes have completed the epochs of a Redis that was emptied, and restarted.
        let (known, mut ledger) = (GrantEpoch { number: 1, nonce: 9 }, GrantLedger::default());
        let first = ledger.enter(GrantEpoch::default(), 1, "s1");
        let second = ledger.enter(first, 2, "s2");
        ledger.report("new", &[]);
        assert_eq!(ledger.admit("new", second, &[]), GrantAdmission::Open);
        let found = ledger.enter(known, 3, "s2");
        assert_eq!(found, second);
        let third = ledger.enter(found.rival(Some(known), false, 3).unwrap(), 3, "s2");
        assert_eq!(third, GrantEpoch { number: 3, nonce: 3 });
        assert_eq!(ledger.admit("new", second, &[]), missing("new"), "it has to hear of the other one");
        assert_eq!(third.rival(Some(known), false, 3), None, "the node has begun it");
        assert_eq!(third.rival(Some(third), true, 4), None, "Redis has lost nothing");
        assert_eq!(third.rival(Some(GrantEpoch::default()), false, 4), None, "a new node has no earlier grants");
        let unread = third.rival(None, true, 4);
        assert_eq!(unread, Some(GrantEpoch { number: 3, nonce: 4 }), "a damaged epoch may have had grants");
        assert_eq!(third.rival(None, false, 3), None, "the node has begun it");
    }

    #[test]
    fn returned_node_ends_an_epoch_that_lacks_its_report() {
        let mut ledger = GrantLedger::default();
        let epoch = ledger.enter(GrantEpoch::default(), 1, "s1");
        ledger.report("new", &[]);
        assert_eq!(ledger.admit("new", epoch, &[]), GrantAdmission::Open);
        // The node that was away has stored this epoch, and is about to send its grants.
        let next = ledger.enter(epoch.rival(Some(epoch), ledger.has_report("back"), 2).unwrap(), 2, "s1");
        assert_eq!(next, GrantEpoch { number: 2, nonce: 2 });
        assert_eq!(ledger.admit("new", epoch, &[]), missing("new"));
        ledger.report("back", &[]);
        assert_eq!(next.rival(Some(next), ledger.has_report("back"), 3), None);
    }

    #[test]
    fn nodes_named_by_reports_must_report() {
        let mut ledger = GrantLedger::default();
        let epoch = ledger.enter(GrantEpoch::default(), 1, "s1");
        // The second node joined after the loss, and has never heard of the one that is away.
        ledger.report("a", &others(&["away"]));
        ledger.report("late", &others(&["a"]));
        assert_eq!(ledger.admit("late", epoch, &others(&["a"])), missing("away"));
        let mut back = ledger.clone();
        back.report("away", &[]);
        assert_eq!(back.admit("late", epoch, &others(&["a"])), GrantAdmission::Open);
        ledger.report("a", &[]);
        assert_eq!(ledger.admit("late", epoch, &others(&["a"])), GrantAdmission::Open, "it counts as lost");
    }

    #[test]
    fn reports_complete_an_epoch_without_visits() {
        let mut ledger = GrantLedger::default();
        let epoch = ledger.enter(GrantEpoch::default(), 1, "s1");
        ledger.report("a", &[]);
        ledger.complete("a", &others(&["b"]));
        assert_eq!(ledger.admit("a", epoch, &others(&["b"])), missing("b"));
        ledger.complete("b", &[]);
        assert_eq!(ledger.admit("a", epoch, &others(&["b"])), missing("b"), "it has not reported");
        ledger.report("b", &others(&["a"]));
        ledger.complete("b", &others(&["a"]));
        assert_eq!(ledger.admit("a", epoch, &others(&["b", "c"])), GrantAdmission::Open, "c came later");
    }

    #[test]
    fn text_of_an_epoch_is_read_back() {
        let epoch = GrantEpoch { number: 12, nonce: u64::MAX };
        assert_eq!(GrantEpoch::parse(&epoch.to_string()), Some(epoch));
        assert!(["", "1", "1.", ".1", "a.1"].iter().all(|text| GrantEpoch::parse(text).is_none()));
    }

    /// Takes a reply with these nodes, each with its last heartbeat. Returns true if the names have changed, and stores them.
    fn hear(holders: &mut GrantHolders, beats: &[(&str, u64)], seconds: u64) -> bool {
        let now = Duration::from_secs(seconds);
        let present = beats.iter().map(|(node, beat)| ((*node).to_owned(), *beat, true));
        let has_changed = holders.observe(present, (now, now), AFTER);
        holders.note_stored();
        has_changed
    }

    #[test]
    fn silent_node_counts_until_it_is_lost() {
        let mut holders = GrantHolders::resume(others(&["b", "c"]), Duration::from_secs(5));
        for second in (10..=100).step_by(10) {
            assert!(!hear(&mut holders, &[("b", 1)], second), "Redis may have lost c");
        }
        assert!(hear(&mut holders, &[("d", 7), ("b", 1)], 104));
        assert!(holders.names().eq(&others(&["b", "c", "d"])));
        assert!(hear(&mut holders, &[("d", 8), ("b", 1)], 105), "c counts as lost");
        for second in (115..=195).step_by(10) {
            let has_changed = hear(&mut holders, &[("d", second), ("b", 1)], second);
            assert!(!has_changed, "b is silent, and its leases are its own");
        }
        assert!(hear(&mut holders, &[("d", 205)], 205), "another node took over the leases of b");
        assert!(holders.names().eq(&others(&["d"])));
        let at = Duration::from_secs(206);
        assert!(holders.observe([("d".to_owned(), 11, false)], (at, at), AFTER), "an earlier version runs there");
        assert_eq!(holders.names().next(), None);
    }

    #[test]
    fn silence_of_redis_is_nobodys_silence() {
        let mut holders = GrantHolders::default();
        assert!(hear(&mut holders, &[("b", 1)], 1));
        // Redis is away for longer than a silent node counts, and comes back empty.
        for second in (200..300).step_by(20) {
            assert!(!hear(&mut holders, &[], second), "b may not have come back yet");
        }
        assert!(hear(&mut holders, &[], 300), "it counts as lost");
    }

    /// Takes a reply at `now_ms`. Each of the other nodes has heard of the heartbeat of that millisecond, or of none.
    fn observe(introduction: &mut GrantIntroduction, heard: &[(&str, Option<u64>)], now_ms: u64) -> bool {
        let heard = heard.iter().map(|(node, sent)| ((*node).to_owned(), sent.map(Duration::from_millis)));
        introduction.observe(heard, Duration::from_millis(now_ms));
        introduction.is_over()
    }

    #[test]
    fn introduction_waits_for_all_but_silent_nodes() {
        let mut introduction = GrantIntroduction::begin(Duration::from_millis(400));
        assert!(!observe(&mut introduction, &[("b", Some(410)), ("c", None)], 500));
        assert!(observe(&mut introduction, &[("b", Some(510)), ("c", Some(410))], 600));
        assert!(observe(&mut introduction, &[("b", None), ("c", None)], 9_000), "both have heard of this process");
        let mut introduction = GrantIntroduction::default();
        assert!(!introduction.is_over(), "Redis has not answered");
        for (now_ms, is_over) in [(10_000, false), (12_999, false), (13_000, true), (99_000, true)] {
            assert_eq!(observe(&mut introduction, &[("b", None)], now_ms), is_over, "{now_ms}");
        }
        assert!(observe(&mut GrantIntroduction::default(), &[], 10_000), "there is no other node");
    }

    #[test]
    fn further_node_must_hear_of_a_process() {
        let mut introduction = GrantIntroduction::default();
        assert!(observe(&mut introduction, &[("b", Some(100))], 200));
        assert!(!observe(&mut introduction, &[("b", Some(200)), ("c", None)], 300), "c joined just now");
        assert!(observe(&mut introduction, &[("b", Some(300)), ("c", Some(300))], 400));
        // A node that has left its grants no longer counts this one, and must hear of it once more.
        assert!(observe(&mut introduction, &[("b", Some(400))], 500));
        assert!(!observe(&mut introduction, &[("b", Some(500)), ("c", None)], 600));
        assert!(!observe(&mut introduction, &[("b", Some(3_400)), ("c", None), ("d", None)], 3_500));
        assert!(!observe(&mut introduction, &[("b", Some(3_500)), ("c", None), ("d", None)], 3_600), "d came later");
        assert!(observe(&mut introduction, &[("b", Some(6_400)), ("c", None), ("d", None)], 6_500), "both are silent");
    }

    #[test]
    fn earlier_heartbeats_introduce_no_process() {
        let mut introduction = GrantIntroduction::default();
        assert!(observe(&mut introduction, &[("b", Some(1_000))], 2_000));
        // It gives way until its twin, which leaves the grants of the name, is silent.
        introduction = GrantIntroduction::begin(Duration::from_secs(60));
        let is_over = observe(&mut introduction, &[("b", Some(1_000))], 61_000);
        assert!(!is_over, "the others have heard that a process of the name was stopped since");
        assert!(observe(&mut introduction, &[("b", Some(60_000))], 62_000));
    }

    #[test]
    fn unstored_names_are_stored_later() {
        let (mut holders, at) = (GrantHolders::default(), Duration::from_secs);
        let mut observe =
            |second: u64| holders.observe([("b".to_owned(), second, true)], (at(second), at(second)), AFTER);
        assert!(observe(1), "the disk was full");
        assert!(observe(2), "the disk was full");
        holders.note_stored();
        assert!(!holders.observe([("b".to_owned(), 3, true)], (at(3), at(3)), AFTER));
    }
}
