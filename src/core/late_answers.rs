//! Look-ups of codes that this core does not have in memory. Other threads do them while the client waits.
//!
//! A node that keeps only the links in use reads the others from the store. In a fleet, a code that this node does not
//! know may belong to a link that another node has just created. The core answers 404 by itself if no node can have the
//! code, which most guesses show ([`FleetView::is_absent`]). Otherwise it asks Redis. Requests for codes that exist
//! nowhere must not keep Redis busy: the queue is bounded, and the core remembers for half a second that a generated
//! code is gone. A chosen slug may get a link at any time, so it is not remembered.
//!
//! Requests to visit a link with `maxVisits` use the same mechanism.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use carom_shards::{Code, CodeHash, CodeHasher, CoreId};

use super::now::{Now, TICKS_PER_SECOND};
use crate::bridge::fleet_view::{FleetView, FollowedMark};
use crate::bridge::handle::NodeContext;
use crate::bridge::{Absence, AllowanceQueue, LookupQueue, LookupRequest, VisitRequest};
use carom_model::redirect::{BorrowedLookup, Destination, Lookup};
use carom_telemetry::stats::{CoreStats, NodeStats};

/// Size of the table of missing codes. Each code has one slot, which its hash gives it.
const MISSING_SLOTS: usize = 8_192;

/// The bit of a tag that is set if the code can get no further link.
const FINAL_BIT: u32 = 1;

/// The bit of a tag that is set if the code was missing, and clear if the code has changed.
const MISSING_BIT: u32 = 2;

/// Ticks for which a missing code is remembered.
const MISSING_TTL_TICKS: u32 = TICKS_PER_SECOND / 2;

/// Ticks for which a change of a code is remembered. Answers to the questions before it arrive earlier.
const CHANGE_TTL_TICKS: u32 = 2 * TICKS_PER_SECOND;

/// The instants that matter for a look-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupTimes {
    pub(super) tick: u32,
    /// The instant up to which the streams of the fleet were followed before the code was looked up in memory.
    pub(super) followed: FollowedMark,
    /// The instant at which the client began to wait.
    pub(super) since: Instant,
}

impl LookupTimes {
    /// Returns the time of a look-up in memory in the present turn.
    #[inline]
    pub(super) fn this_turn(now: &Now) -> LookupTimes {
        LookupTimes { tick: now.tick, followed: now.followed, since: now.instant }
    }
}

/// The queues for look-ups that a core cannot answer from memory.
#[derive(Debug)]
pub(super) struct LookupQueues {
    me: CoreId,
    hasher: CodeHasher,
    /// Queue to the store; `None` if every link is in memory.
    store: Option<LookupQueue>,
    /// Queue to Redis; `None` if the node is not in a fleet.
    redis: Option<LookupQueue>,
    /// Queue to the thread that grants the visits of limited links.
    allowances: AllowanceQueue,
    /// The knowledge about the fleet; `None` if the node is not in one.
    view: Option<Arc<FleetView>>,
    /// True if the store of the links is a shared home, which needs no question about a code that certainly has no link.
    is_shared: bool,
    /// For each slot, the tag of a code and the tick until which it is remembered. The tag has [`MISSING_BIT`] if the
    /// code was missing, also [`FINAL_BIT`] if it can get no further link, and neither bit if the code has changed.
    missing: Box<[(u32, u32)]>,
    stats: Arc<CoreStats>,
    node: Arc<NodeStats>,
}

impl LookupQueues {
    pub(super) fn new(me: CoreId, hasher: CodeHasher, context: &NodeContext) -> LookupQueues {
        let (store, redis) = (context.store_look_ups.clone(), context.redis_look_ups.clone());
        let remembers = store.is_some() || redis.is_some();
        LookupQueues {
            me,
            hasher,
            store,
            redis,
            allowances: context.allowances.clone(),
            view: context.fleet_view.clone(),
            is_shared: context.fleet_view.as_ref().is_some_and(|view| !view.stores_all_links()),
            missing: vec![(0, 0); if remembers { MISSING_SLOTS } else { 0 }].into(),
            stats: Arc::clone(&context.cores[me.index()]),
            node: Arc::clone(&context.node),
        }
    }

    /// Continues a look-up after memory. Returns `Pending` if another thread was asked: its answer carries `token`.
    ///
    /// For [`Lookup::Ruled`], `Pending` means that no thread was asked and no answer will come. The caller has the
    /// link: it must apply the rules to the request, and continue with their result. Only `Redirects::redirect` passes
    /// this result; the other callers take a link with rules before, and assert that.
    #[inline]
    pub(super) fn continue_lookup<'a>(
        &mut self,
        found: BorrowedLookup<'a>,
        code: Code,
        token: u64,
        times: LookupTimes,
    ) -> Poll<BorrowedLookup<'a>> {
        match found {
            Lookup::Live(Destination { policy, .. }) if policy.max_visits.is_none() => Poll::Ready(found),
            Lookup::NotYetValid | Lookup::Expired => Poll::Ready(found),
            _ => self.ask(found, code, token, times),
        }
    }

    fn ask<'a>(
        &mut self,
        found: BorrowedLookup<'a>,
        code: Code,
        token: u64,
        times: LookupTimes,
    ) -> Poll<BorrowedLookup<'a>> {
        let LookupTimes { tick, followed, since } = times;
        if self.is_shared
            && found == Lookup::NotResident
            && let Some(absent) = self.absence_in_shared_home(&code, tick, followed)
        {
            return Poll::Ready(absent);
        }
        let is_asked = match found {
            Lookup::Ruled => return Poll::Pending,
            Lookup::Live(_) if self.ask_allowance(code, token, since) => return Poll::Pending,
            // Without an allowance, it is unknown whether the link may be visited once more.
            Lookup::Live(_) => return Poll::Ready(Lookup::NotResident),
            Lookup::NotResident if self.store.is_some() => self.ask_store(code, token, tick),
            Lookup::Missing if self.view.as_ref().is_some_and(|view| view.is_absent(&code, followed)) => false,
            Lookup::Missing if self.recent_absence(&code, tick) == Some(Absence::Recent) => {
                return Poll::Ready(Lookup::Unconfirmed);
            }
            Lookup::Missing => match self.ask_redis(self.question(code, token), tick) {
                Some(false) => return Poll::Ready(Lookup::Unconfirmed),
                was_sent => was_sent.is_some(),
            },
            // Redis may have a link that the disk has lost, or that finds no room in memory. It cannot confirm that
            // there is no such link.
            Lookup::Damaged | Lookup::NotResident => {
                self.ask_redis(LookupRequest { may_be_stored: true, ..self.question(code, token) }, tick) == Some(true)
            }
            Lookup::NotYetValid | Lookup::Expired | Lookup::Unconfirmed => false,
        };
        if is_asked { Poll::Pending } else { Poll::Ready(found) }
    }

    /// Asks whether a limited link may be visited once more, for a client that waits since that instant. Returns false
    /// if the queue is full. Also returns false if links have a shared home: the thread that grants visits reads the
    /// store of this node, which keeps such a link for some seconds at most.
    pub(super) fn ask_allowance(&self, code: Code, token: u64, since: Instant) -> bool {
        let was_sent = !self.is_shared && self.allowances.ask(VisitRequest { code, core: self.me, token, since });
        if !was_sent {
            self.node.fetches_left_out.add_shared(1);
        }
        was_sent
    }

    /// Returns the result for a code about which the shared home of the links need not be asked.
    fn absence_in_shared_home(
        &self,
        code: &Code,
        tick: u32,
        followed: FollowedMark,
    ) -> Option<BorrowedLookup<'static>> {
        if self.view.as_ref().is_some_and(|view| view.is_absent(code, followed)) {
            return Some(Lookup::Missing);
        }
        match self.recent_absence(code, tick)? {
            Absence::Final => Some(Lookup::Missing),
            Absence::Recent => Some(Lookup::Unconfirmed),
            Absence::Unknown => None,
        }
    }

    fn ask_store(&self, code: Code, token: u64, tick: u32) -> bool {
        let absence_is_final = self.recent_absence(&code, tick) == Some(Absence::Final);
        let question = LookupRequest { absence_is_final, ..self.question(code, token) };
        let was_sent = self.store.as_ref().is_some_and(|queue| queue.try_send(question).is_ok());
        if was_sent {
            self.stats.fetches.add(1);
        } else {
            self.node.fetches_left_out.add_shared(1);
        }
        was_sent
    }

    fn question(&self, code: Code, token: u64) -> LookupRequest {
        LookupRequest::new(code, self.me, token, Instant::now())
    }

    /// Asks Redis for a code. Returns true if the queue had room. Returns `None` if there is nothing to ask: the node
    /// is not in a fleet, or the code was found to be used up a moment ago.
    fn ask_redis(&self, question: LookupRequest, tick: u32) -> Option<bool> {
        let queue = self.redis.as_ref()?;
        if self.recent_absence(&question.code, tick) == Some(Absence::Final) {
            return None;
        }
        let was_sent = queue.try_send(question).is_ok();
        if was_sent {
            self.stats.looked_up.add(1);
        } else {
            self.node.fleet.look_ups_left_out.add_shared(1);
        }
        Some(was_sent)
    }

    /// Returns the kind of absence of a code that was missing a moment ago; `None` if that is not known.
    fn recent_absence(&self, code: &Code, tick: u32) -> Option<Absence> {
        let (slot, tag) = slot_of(self.hasher.hash(code));
        let &(missing, until) = self.missing.get(slot)?;
        let is_same = missing & !FINAL_BIT == tag && tick < until;
        is_same.then_some(if missing & FINAL_BIT == 0 { Absence::Recent } else { Absence::Final })
    }

    /// Forgets that the code with that hash was missing, because it has changed, and remembers the change: an answer from
    /// before it may come later. Without a shared home, the change itself is in memory.
    pub(super) fn forget_missing(&mut self, hash: CodeHash, tick: u32) {
        let (slot, tag) = slot_of(hash);
        if self.is_shared
            && let Some(missing) = self.missing.get_mut(slot)
        {
            *missing = (tag & !MISSING_BIT, tick + CHANGE_TTL_TICKS);
        }
    }

    /// Forgets that a code was missing, because it has changed ([`LookupQueues::forget_missing`]).
    pub(super) fn forget_missing_code(&mut self, code: &Code, tick: u32) {
        if self.is_shared {
            self.forget_missing(self.hasher.hash(code), tick);
        }
    }

    /// Remembers that Redis has no link for a code. [`Absence::Recent`] proves nothing: at any moment a slug may get a
    /// link, and so may a generated code from the node that leased it. The caller tries the default domain meanwhile.
    pub(super) fn remember_missing(&mut self, code: &Code, absence: Absence, tick: u32) {
        let may_be_generated = self.view.as_ref().is_none_or(|view| view.may_be_generated(code));
        let mark = match absence {
            Absence::Unknown => return,
            Absence::Final if !may_be_generated => return,
            Absence::Recent => 0,
            Absence::Final => FINAL_BIT,
        };
        let (slot, tag) = slot_of(self.hasher.hash(code));
        let Some(missing) = self.missing.get_mut(slot) else { return };
        let (held, until) = *missing;
        // The question may be older than a change that the slot remembers.
        if held & MISSING_BIT != 0 || tick >= until {
            *missing = (tag | mark, tick + MISSING_TTL_TICKS);
        }
    }
}

/// Returns the slot and the tag of a hash. The tag has the bit [`MISSING_BIT`], and not [`FINAL_BIT`].
fn slot_of(hash: CodeHash) -> (usize, u32) {
    (hash.0 as usize % MISSING_SLOTS, (hash.0 >> 20) as u32 & !FINAL_BIT | MISSING_BIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::AllowanceOrder;
    use crate::bridge::fleet_view::since_boot;
    use carom_shards::{CodeLength, CodeSecret, CodeSpace, CounterValue, Policy};
    use std::num::NonZeroU32;
    use std::sync::mpsc::sync_channel;

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    fn lookup_queues(redis: Option<LookupQueue>) -> (LookupQueues, std::sync::mpsc::Receiver<AllowanceOrder>) {
        let (allowances, asked) = AllowanceQueue::new();
        let missing = vec![(0, 0); MISSING_SLOTS].into();
        let (me, hasher, store) = (CoreId(0), CodeHasher::new(1), None);
        let (stats, node) = (Arc::default(), Arc::default());
        let view = redis.as_ref().map(|_| Arc::new(FleetView::new(space())));
        let is_shared = false;
        (LookupQueues { me, hasher, store, redis, allowances, view, is_shared, missing, stats, node }, asked)
    }

    fn space() -> CodeSpace {
        CodeSpace::new(&CodeSecret::from_bytes([7; 32]))
    }

    fn generated(value: u64) -> Code {
        space().code(CodeLength::DEFAULT, CounterValue(value)).to_code()
    }

    /// The time of a look-up in that tick, before which the streams were not followed.
    fn at(tick: u32) -> LookupTimes {
        LookupTimes { tick, followed: FollowedMark::default(), since: Instant::now() }
    }

    #[test]
    fn a_generated_code_that_is_gone_is_not_asked_for_again_at_once() {
        let (queue, asked) = sync_channel(2);
        let (mut lookup_queues, _allowances) = lookup_queues(Some(queue));
        let [a, b, c] = [1, 2, 3].map(generated);
        let ask = |lookup_queues: &mut LookupQueues, code: Code, tick: u32| {
            lookup_queues.continue_lookup(Lookup::Missing, code, 7, at(tick)).is_pending()
        };
        assert!(ask(&mut lookup_queues, a, 10));
        assert_eq!(asked.recv().unwrap().code, a);
        lookup_queues.remember_missing(&a, Absence::Final, 10);
        assert!(!ask(&mut lookup_queues, a, 11));
        assert!(ask(&mut lookup_queues, b, 11), "another code is");
        assert!(ask(&mut lookup_queues, a, 10 + MISSING_TTL_TICKS));
        assert_eq!(
            lookup_queues.continue_lookup(Lookup::Missing, c, 7, at(11)),
            Poll::Ready(Lookup::Unconfirmed),
            "the queue is full: another node may have the link"
        );
        assert_eq!(lookup_queues.continue_lookup(Lookup::Missing, b, 7, at(11)), Poll::Ready(Lookup::Unconfirmed));
        lookup_queues.remember_missing(&b, Absence::Final, 11);
        assert_eq!(
            lookup_queues.continue_lookup(Lookup::Missing, b, 7, at(12)),
            Poll::Ready(Lookup::Missing),
            "it is gone for good"
        );
        assert_eq!((lookup_queues.stats.looked_up.get(), lookup_queues.node.fleet.look_ups_left_out.get()), (3, 2));
    }

    #[test]
    fn a_missing_slug_is_asked_for_each_time() {
        let (queue, _asked) = sync_channel(8);
        let (mut lookup_queues, _allowances) = lookup_queues(Some(queue));
        for tick in 10..13 {
            assert!(lookup_queues.continue_lookup(Lookup::Missing, code("slug"), 7, at(tick)).is_pending());
            lookup_queues.remember_missing(&code("slug"), Absence::Final, tick);
        }
    }

    #[test]
    fn a_code_that_was_missing_a_moment_ago_is_neither_asked_for_nor_missing() {
        let (queue, asked) = sync_channel(2);
        let (mut lookup_queues, _allowances) = lookup_queues(Some(queue));
        let mut ask = |code: Code, tick: u32| {
            lookup_queues.remember_missing(&code, Absence::Recent, 10);
            lookup_queues.remember_missing(&generated(9), Absence::Unknown, 10);
            lookup_queues.continue_lookup(Lookup::Missing, code, 7, at(tick))
        };
        assert_eq!(ask(code("slug"), 11), Poll::Ready(Lookup::Unconfirmed), "it may have a link by now");
        assert_eq!(ask(generated(1), 11), Poll::Ready(Lookup::Unconfirmed));
        assert!(asked.try_recv().is_err());
        assert!(ask(generated(1), 10 + MISSING_TTL_TICKS).is_pending(), "it is asked for again");
        assert!(
            lookup_queues.continue_lookup(Lookup::Missing, generated(9), 7, at(11)).is_pending(),
            "nothing is known"
        );
    }

    #[test]
    fn a_guess_beyond_the_counter_reaches_no_queue() {
        let (queue, asked) = sync_channel(2);
        let (mut lookup_queues, _allowances) = lookup_queues(Some(queue));
        let view = lookup_queues.view.clone().unwrap();
        view.note_heartbeat([(CodeLength::DEFAULT, 1_000)], false, since_boot());
        view.note_followed(since_boot());
        let guess = generated(CodeLength::DEFAULT.codes() - 1);
        let followed = LookupTimes { followed: view.followed(), ..at(10) };
        assert_eq!(lookup_queues.continue_lookup(Lookup::Missing, guess, 7, followed), Poll::Ready(Lookup::Missing));
        assert!(asked.try_recv().is_err());
        assert!(
            lookup_queues.continue_lookup(Lookup::Missing, guess, 7, at(10)).is_pending(),
            "a new slug may look like this"
        );
        assert!(
            lookup_queues.continue_lookup(Lookup::Missing, generated(500), 7, followed).is_pending(),
            "it may be leased"
        );
    }

    #[test]
    fn a_shared_home_is_asked_for_what_may_exist() {
        let (store, asked) = sync_channel(8);
        let (mut lookup_queues, _allowances) = lookup_queues(None);
        let view = Arc::new(FleetView::new(space()).with_shared_home());
        (lookup_queues.store, lookup_queues.view, lookup_queues.is_shared) =
            (Some(store), Some(Arc::clone(&view)), true);
        view.note_heartbeat([(CodeLength::DEFAULT, 1_000)], false, since_boot());
        view.note_followed(since_boot());
        let guess = generated(CodeLength::DEFAULT.codes() - 1);
        let at_now = |tick| LookupTimes { followed: view.followed(), ..at(tick) };
        let mut ask = |code: Code| lookup_queues.continue_lookup(Lookup::NotResident, code, 7, at_now(10));
        assert!(ask(guess).is_pending(), "the slugs of the fleet are not known yet");
        view.slugs().unwrap().set_whole(true);
        assert_eq!(ask(guess), Poll::Ready(Lookup::Missing));
        assert!(ask(generated(500)).is_pending(), "it may be leased");
        view.slugs().unwrap().add(&guess);
        assert!(ask(guess).is_pending(), "it may be a chosen slug");
        assert_eq!(asked.try_iter().count(), 3);
        lookup_queues.remember_missing(&generated(500), Absence::Final, 10);
        let again = lookup_queues.continue_lookup(Lookup::NotResident, generated(500), 7, at_now(11));
        assert_eq!(again, Poll::Ready(Lookup::Missing), "it had its only link");
    }

    #[test]
    fn a_shared_home_forgets_that_a_changed_code_was_missing() {
        let (store, asked) = sync_channel(8);
        let (mut lookup_queues, _allowances) = lookup_queues(None);
        (lookup_queues.store, lookup_queues.is_shared) = (Some(store), true);
        let slug = code("slug");
        let ask = |lookup_queues: &mut LookupQueues, tick: u32| {
            lookup_queues.continue_lookup(Lookup::NotResident, slug, 7, at(tick)).is_pending()
        };
        let (hash, other) = (lookup_queues.hasher.hash(&slug), lookup_queues.hasher.hash(&code("other")));
        lookup_queues.remember_missing(&slug, Absence::Recent, 10);
        assert!(!ask(&mut lookup_queues, 11), "it was missing a moment ago");
        lookup_queues.forget_missing(other, 11);
        assert!(!ask(&mut lookup_queues, 11), "another code has changed");
        lookup_queues.forget_missing(hash, 11);
        assert!(ask(&mut lookup_queues, 11), "its client may have heard that it exists");
        lookup_queues.remember_missing(&slug, Absence::Recent, 12);
        assert!(ask(&mut lookup_queues, 12), "Redis was asked before the change");
        let later = 11 + CHANGE_TTL_TICKS;
        lookup_queues.remember_missing(&slug, Absence::Recent, later);
        assert!(!ask(&mut lookup_queues, later), "Redis was asked after it");
        lookup_queues.forget_missing_code(&slug, later);
        assert!(ask(&mut lookup_queues, later), "this core owns it");
        assert_eq!(asked.try_iter().count(), 3);
    }

    #[test]
    fn a_limited_link_is_never_answered_without_being_asked_about() {
        let (mut lookup_queues, allowances) = lookup_queues(None);
        let link = |max_visits| {
            let policy = Policy { max_visits: NonZeroU32::new(max_visits), ..Policy::default() };
            Lookup::Live(Destination { policy, target: &b"https://example.org/"[..] })
        };
        assert_eq!(lookup_queues.continue_lookup(link(0), code("a"), 1, at(0)), Poll::Ready(link(0)));
        let times = at(0);
        assert_eq!(lookup_queues.continue_lookup(link(1), code("a"), 1, times), Poll::Pending);
        let AllowanceOrder::Ask(visit) = allowances.recv().unwrap() else { panic!("no visit was asked for") };
        assert_eq!((visit.token, visit.since), (1, times.since), "a client that left would use up a visit");
        let shared = LookupQueues { is_shared: true, ..self::lookup_queues(None).0 };
        assert!(!shared.ask_allowance(code("a"), 1, Instant::now()), "the store has no such link");
        drop(allowances);
        assert_eq!(
            lookup_queues.continue_lookup(link(1), code("a"), 1, at(0)),
            Poll::Ready(Lookup::NotResident),
            "nobody can say"
        );
    }
}
