//! Decides which requests for snapshots a relay forwards, and which it takes back, by the requests in the Redis of each site.
//!
//! A relay adds the name of its site to each request that it forwards. The other relay never sends such a request back: it
//! would replace the next request of the node. A relay that takes over finds by the name what the earlier relay forwarded.
//!
//! A node that has waited without an answer repeats its request under another name. A repeated request is forwarded at
//! once. Otherwise a relay with many other duties could be too late each time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use carom_model::visits::count_exchange::{STALE_AFTER, SnapshotRequest};
use carom_model::visits::origins::OriginId;

/// Time for which a request waits for a node of its own site.
const FORWARD_AFTER: Duration = Duration::from_secs(5);

/// The progress of a forwarded request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ForwardState {
    /// The other site has the request.
    Forwarded,
    /// The relay of this node brings the chunks of the other site.
    Bringing,
    /// A node of this site answers, or the node that asked is gone.
    Ended,
}

/// A forwarded request.
#[derive(Clone, Copy, Debug)]
struct Forward {
    progress: ForwardState,
    /// The time at which it was forwarded, or the last chunk came.
    since: Instant,
}

impl Forward {
    fn now(progress: ForwardState) -> Forward {
        Forward { progress, since: Instant::now() }
    }
}

/// The changes that a relay makes to the requests in the Redis of the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ForwardChanges {
    /// The origins whose forwarded requests it removes, because they were answered or given up.
    pub(super) taken_back: Vec<OriginId>,
    /// The requests of this site that it adds.
    pub(super) forwarded: Vec<SnapshotRequest>,
}

/// The requests of this site that its own nodes have not answered.
#[derive(Debug, Default)]
pub(super) struct Forwards {
    /// The time at which this relay first saw a request of an origin for the counts of another one, whatever its name.
    seen: HashMap<(OriginId, OriginId), Instant>,
    /// Forwarded requests.
    open: HashMap<SnapshotRequest, Forward>,
}

/// Returns a request of `site` as its relay writes it to the Redis of the other site.
pub(super) fn at_other_site(wanted: &SnapshotRequest, site: &str) -> SnapshotRequest {
    SnapshotRequest { site: Some(site.to_owned()), ..wanted.clone() }
}

/// Returns the original of a request that the relay of `site` forwarded; `None` if `wanted` is another request.
fn at_home(wanted: &SnapshotRequest, site: &str) -> Option<SnapshotRequest> {
    (wanted.site.as_deref() == Some(site)).then(|| SnapshotRequest { site: None, ..wanted.clone() })
}

/// Returns the origin that asks, and the one whose counts it wants.
fn subject_of(wanted: &SnapshotRequest) -> (OriginId, OriginId) {
    (wanted.by, wanted.of)
}

impl Forwards {
    /// Returns the steps that are due for the relay of `site`. `ours` are the requests in the Redis of this site, `theirs` those
    /// in the Redis of the other site.
    pub(super) fn steps(&mut self, site: &str, ours: &[SnapshotRequest], theirs: &[SnapshotRequest]) -> ForwardChanges {
        let own: Vec<&SnapshotRequest> = ours.iter().filter(|wanted| wanted.site.is_none()).collect();
        let there: Vec<SnapshotRequest> = theirs.iter().filter_map(|wanted| at_home(wanted, site)).collect();
        self.open.retain(|wanted, _| own.contains(&wanted));
        self.seen.retain(|subject, _| own.iter().any(|wanted| subject_of(wanted) == *subject));
        for wanted in there.iter().filter(|wanted| own.contains(wanted)) {
            self.open.entry(wanted.clone()).or_insert_with(|| Forward::now(ForwardState::Forwarded));
        }
        // A node that still waits has repeated its request by now. Nobody takes back the request of one that is gone.
        let stale = self.open.values_mut().filter(|forward| forward.since.elapsed() >= STALE_AFTER);
        stale.for_each(|forward| forward.progress = ForwardState::Ended);
        let mut steps = ForwardChanges::default();
        for wanted in &there {
            if self.open.get(wanted).is_none_or(|forward| forward.progress == ForwardState::Ended) {
                steps.taken_back.push(wanted.by);
            }
        }
        for wanted in own {
            let since = *self.seen.entry(subject_of(wanted)).or_insert_with(Instant::now);
            let is_due = match self.open.get(wanted) {
                // The other site has lost it.
                Some(forward) => forward.progress == ForwardState::Forwarded && !there.contains(wanted),
                None => since.elapsed() >= FORWARD_AFTER,
            };
            if is_due {
                steps.forwarded.push(wanted.clone());
            }
        }
        steps
    }

    /// Notes that the other site has a request.
    pub(super) fn note_forwarded(&mut self, wanted: SnapshotRequest) {
        self.open.insert(wanted, Forward::now(ForwardState::Forwarded));
    }

    /// Returns the requests whose chunks this relay may bring.
    pub(super) fn awaited(&self) -> Vec<SnapshotRequest> {
        let open = self.open.iter().filter(|(_, forward)| forward.progress != ForwardState::Ended);
        open.map(|(wanted, _)| wanted.clone()).collect()
    }

    /// Notes that a chunk of the other site has come. Returns true if this relay brings it. Before the first chunk, it must
    /// `claim` the request, because a node of this site may have begun to answer: chunks of two snapshots would mix.
    ///
    /// # Errors
    /// The error of `claim`. The next chunk tries again.
    pub(super) fn take<E>(
        &mut self,
        wanted: &SnapshotRequest,
        claim: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let brings = match self.open.get(wanted).map(|forward| forward.progress) {
            Some(ForwardState::Bringing) => true,
            Some(ForwardState::Forwarded) => claim()?,
            Some(ForwardState::Ended) | None => return Ok(false),
        };
        let progress = if brings { ForwardState::Bringing } else { ForwardState::Ended };
        self.open.insert(wanted.clone(), Forward::now(progress));
        Ok(brings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request by the origin with this number.
    fn wanted(by: u64) -> SnapshotRequest {
        named(&format!("request-{by}"), by)
    }

    /// A request with this name by the origin with this number.
    fn named(request: &str, by: u64) -> SnapshotRequest {
        SnapshotRequest { by: OriginId(by), request: request.to_owned(), of: OriginId(3), after: 7, site: None }
    }

    fn forwarded(by: u64) -> SnapshotRequest {
        at_other_site(&wanted(by), "berlin")
    }

    /// Moves everything that was noted into the past.
    fn age(forwards: &mut Forwards, by: Duration) {
        let long_ago = Instant::now().checked_sub(by).unwrap();
        forwards.seen.values_mut().for_each(|since| *since = long_ago);
        forwards.open.values_mut().for_each(|forward| forward.since = long_ago);
    }

    fn progress(forwards: &Forwards, by: u64) -> Option<ForwardState> {
        forwards.open.get(&wanted(by)).map(|forward| forward.progress)
    }

    #[test]
    fn request_waits_for_nodes_of_its_site() {
        let mut forwards = Forwards::default();
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), ForwardChanges::default());
        age(&mut forwards, FORWARD_AFTER);
        let expected = ForwardChanges { forwarded: vec![wanted(1)], ..ForwardChanges::default() };
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), expected);
        forwards.note_forwarded(wanted(1));
        assert_eq!(
            forwards.steps("berlin", &[wanted(1)], &[forwarded(1)]),
            ForwardChanges::default(),
            "it is forwarded once"
        );
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), expected, "the other site has lost it");
    }

    #[test]
    fn repeated_request_is_forwarded_at_once() {
        let mut forwards = Forwards::default();
        forwards.steps("berlin", &[wanted(1)], &[]);
        age(&mut forwards, FORWARD_AFTER);
        forwards.steps("berlin", &[wanted(1)], &[]);
        forwards.note_forwarded(wanted(1));
        let repeated = named("request-2", 1);
        let expected = ForwardChanges { taken_back: vec![OriginId(1)], forwarded: vec![repeated.clone()] };
        assert_eq!(forwards.steps("berlin", std::slice::from_ref(&repeated), &[forwarded(1)]), expected);
        let of_another = SnapshotRequest { of: OriginId(4), ..named("request-3", 1) };
        let steps = forwards.steps("berlin", &[of_another], &[at_other_site(&repeated, "berlin")]);
        assert_eq!(steps.forwarded, [], "nodes of this site may have the counts of that origin");
    }

    #[test]
    fn forwarded_requests_are_never_sent_back() {
        let mut forwards = Forwards::default();
        for _ in 0..2 {
            // The origin asks for something else by now.
            let theirs = [SnapshotRequest { of: OriginId(4), after: 8, ..named("request-9", 1) }];
            assert_eq!(forwards.steps("lisbon", &[forwarded(1)], &theirs), ForwardChanges::default());
            assert!(forwards.seen.is_empty());
        }
    }

    #[test]
    fn ended_requests_are_taken_back() {
        let mut forwards = Forwards::default();
        let back = ForwardChanges { taken_back: vec![OriginId(1)], ..ForwardChanges::default() };
        // An earlier relay may have forwarded it.
        assert_eq!(forwards.steps("berlin", &[], &[forwarded(1)]), back);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[forwarded(1)]), ForwardChanges::default());
        assert_eq!(progress(&forwards, 1), Some(ForwardState::Forwarded), "this relay brings its chunks");
        // A node of this site was faster.
        assert_eq!(forwards.take(&wanted(1), || Ok::<_, ()>(false)), Ok(false));
        assert_eq!(forwards.awaited(), []);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[forwarded(1)]), back);
        age(&mut forwards, FORWARD_AFTER);
        assert_eq!(forwards.steps("berlin", &[wanted(1)], &[]), ForwardChanges::default());
        assert_eq!(forwards.steps("berlin", &[], &[]), ForwardChanges::default());
        assert!(forwards.open.is_empty());
        assert!(forwards.seen.is_empty());
    }

    #[test]
    fn request_of_a_lost_node_ends() {
        let mut forwards = Forwards::default();
        forwards.note_forwarded(wanted(1));
        forwards.note_forwarded(wanted(2));
        age(&mut forwards, STALE_AFTER);
        // One of two transfers goes on.
        assert_eq!(forwards.take(&wanted(2), || Ok::<_, ()>(true)), Ok(true));
        let (ours, theirs) = ([wanted(1), wanted(2)], [forwarded(1), forwarded(2)]);
        assert_eq!(forwards.steps("berlin", &ours, &theirs).taken_back, [OriginId(1)]);
        assert_eq!(forwards.awaited(), [wanted(2)]);
        age(&mut forwards, FORWARD_AFTER);
        assert_eq!(
            forwards.steps("berlin", &ours, &theirs[1..]),
            ForwardChanges::default(),
            "it is not forwarded again"
        );
    }

    #[test]
    fn chunks_are_brought_under_a_claim() {
        let mut forwards = Forwards::default();
        forwards.note_forwarded(wanted(1));
        assert_eq!(forwards.take(&wanted(1), || Err("no answer")), Err("no answer"));
        assert_eq!(progress(&forwards, 1), Some(ForwardState::Forwarded), "a node of this site may claim it");
        assert_eq!(forwards.take(&wanted(1), || Ok::<_, ()>(true)), Ok(true));
        let claimed_once = || -> Result<bool, ()> { panic!("it is claimed") };
        assert_eq!(forwards.take(&wanted(1), claimed_once), Ok(true));
        assert_eq!(forwards.take(&wanted(2), claimed_once), Ok(false), "it was taken back");
    }
}
