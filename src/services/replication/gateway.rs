//! The gateway thread: it asks Redis about each create, change and delete of a client, before the writer decides. For a
//! create, it claims the code. For a change or delete, it first reads the link in Redis.
//!
//! Requests that arrive while others wait are sent to Redis as soon as it has answered anything, so that one round trip
//! serves many. Each request continues with its own answer: in a cluster, a stalled server delays only requests to that
//! server. After [`super::context::FleetSetup::answer_time`], a request continues without Redis, and the gateway does
//! not ask that server again until it answers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::context::{FleetContext, ShuttingDown};
use super::decision::{STATE_UNKNOWN, decision_of};
use super::held_creates::HeldCreates;
use super::reuse;
use crate::bridge::{FleetDecision, StoreRequest, ToCore, WriteFailure, WriterOrder, WriterQueue};
use crate::services::replication::redis::{Changed, CodeChange, Redis, RedisError, RedisReply, RequestId};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{GATEWAY_BATCH, WRITE_QUEUE_LEN};
use carom_model::link::{Link, Origin, Version};
use carom_model::replication::State;
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::ReceivedState;
use carom_telemetry::clock::unix_ms;

/// Longest delay of a new request while others wait for Redis.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Starts the thread. It ends when all senders are gone.
pub(super) fn start(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
) -> io::Result<(WriterQueue, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(WRITE_QUEUE_LEN);
    let (redis, claims) = (fleet.redis()?, Claims::new()?);
    let (reuse, searching) = reuse::start(fleet, writer.clone())?;
    let (waiting, held) = (HashMap::new(), HeldCreates::default());
    let gateway = Gateway { redis, fleet: fleet.clone(), writer, claims, reuse, waiting, held };
    let run = move || {
        gateway.run(&receiver);
        searching.join().expect("panics abort");
    };
    let thread = threads::start(Priority::Awaited, "redis-ask", run)?;
    Ok((sender, thread))
}

/// A source of random claim numbers. Two links of a fleet share one with a probability of one in 10^19.
struct Claims(Pcg64);

impl Claims {
    fn new() -> io::Result<Claims> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        Ok(Claims(Pcg64::from_seed(seed)))
    }

    /// Returns the next claim, which is never zero: links from before the fleet have zero.
    fn next(&mut self) -> u64 {
        self.0.next_u64().max(1)
    }
}

struct Gateway {
    fleet: FleetContext,
    redis: Redis,
    writer: SyncSender<WriterOrder>,
    claims: Claims,
    /// The queue of the thread that looks for existing links.
    reuse: SyncSender<StoreRequest>,
    /// The requests that wait for Redis.
    waiting: HashMap<RequestId, WaitingRequest>,
    /// The creates that Redis has accepted and that wait for other nodes.
    held: HeldCreates,
}

/// A request that waits for Redis.
struct WaitingRequest {
    request: StoreRequest,
    /// The time at which the request continues without Redis.
    deadline: Instant,
    /// The change that Redis was asked for; `None` while Redis is asked for the link to change or delete.
    change: Option<(Code, CodeChange)>,
}

impl Gateway {
    fn run(mut self, receiver: &Receiver<WriterOrder>) {
        while self.turn(receiver).is_ok() {}
    }

    /// Handles requests and answers that have arrived. Sleeps until a request comes if none waits for Redis.
    fn turn(&mut self, receiver: &Receiver<WriterOrder>) -> Result<(), ShuttingDown> {
        let is_idle = self.waiting.is_empty() && self.held.len() == 0;
        let first = if is_idle { Some(receiver.recv().map_err(|_| ShuttingDown)?) } else { None };
        let room = WRITE_QUEUE_LEN.saturating_sub(self.waiting.len() + self.held.len()).min(GATEWAY_BATCH);
        for order in first.into_iter().chain(receiver.try_iter().take(room)) {
            let Some(request) = self.prepare(order) else { continue };
            if self.is_repeated(&request) {
                // The writer has the link. If its idempotency key is forgotten just now, the create fails.
                self.send_to_writer(request, FleetDecision::NoReply { was_sent: false, may_decide_alone: false })?;
            } else if self.has_marked_code(&request) {
                self.send_to_writer(request, STATE_UNKNOWN)?;
            } else if let Some(why) = self.fleet.refusal() {
                self.refuse(&request, why);
            } else if let Some(request) = self.send_to_reuse(request) {
                self.ask(request)?;
            }
        }
        assert!(self.waiting.len() <= WRITE_QUEUE_LEN, "requests that wait for Redis have no bound");
        for (id, answer) in self.redis.turn(Instant::now() + LOOK_EVERY) {
            if let Some(waiting) = self.waiting.remove(&id) {
                self.take_answer(waiting, answer)?;
            }
        }
        while let Some(order) = self.held.pop_due() {
            self.writer.send(order).map_err(|_| ShuttingDown)?;
        }
        Ok(())
    }

    /// Refuses a request of a client while this node accepts no writes, for the reason `why`.
    fn refuse(&self, request: &StoreRequest, why: &'static str) {
        let (core, token, reply) = request.failed(WriteFailure::Refused(why)).into_parts();
        self.fleet.mailboxes.to(core).post(ToCore::Reply { token, reply });
    }

    /// Gives a new link its first version. Sends orders that are no requests of clients to the writer.
    fn prepare(&mut self, order: WriterOrder) -> Option<StoreRequest> {
        match order {
            WriterOrder::Client(StoreRequest::Create { link, reuse, ticket }, _) => {
                let version = Version { rev: 1, claim: self.claims.next(), edit: 0 };
                let link = Link { version, ..Arc::unwrap_or_clone(link) };
                #[cfg(feature = "next-format")]
                let link = {
                    let mut link = link;
                    carom_model::replication::formats::next::extend(&mut link);
                    link
                };
                let link = Arc::new(link);
                Some(StoreRequest::Create { link, reuse, ticket })
            }
            WriterOrder::Client(request, _) => Some(request),
            other => {
                // Only clients use this queue, so this does not happen; the writer handles any order.
                let _ = self.writer.send(other);
                None
            }
        }
    }

    /// True if the idempotency key of a create has created a link that this node knows.
    fn is_repeated(&self, request: &StoreRequest) -> bool {
        let StoreRequest::Create { link, .. } = request else { return false };
        let made = link.labels.idempotency.map(|asked| self.fleet.links.created_with(&asked.key, unix_ms()));
        made.is_some_and(|made| !matches!(made, Ok(None)))
    }

    /// True for a create with the code of a state that only a later version can decode. If Redis has lost that state,
    /// it would give the code to another link.
    fn has_marked_code(&self, request: &StoreRequest) -> bool {
        let StoreRequest::Create { link, .. } = request else { return false };
        self.fleet.has_lost_marked(&link.code, None)
    }

    /// Hands a request that an existing link may answer to the thread that looks for one. If its queue is full, a new
    /// link is created.
    fn send_to_reuse(&self, request: StoreRequest) -> Option<StoreRequest> {
        if !reuse::is_wanted(&request, self.fleet.settings.dedupe) {
            return Some(request);
        }
        match self.reuse.try_send(request) {
            Ok(()) => None,
            Err(TrySendError::Full(request) | TrySendError::Disconnected(request)) => Some(request),
        }
    }

    /// Sends the first question about a request to Redis.
    fn ask(&mut self, request: StoreRequest) -> Result<(), ShuttingDown> {
        let deadline = Instant::now() + self.fleet.answer_time();
        if let Some(theirs) = self.of_another_app(&request) {
            // Redis may have lost the link. A request of another app must not replace or end it there.
            return self.send_to_writer(request, FleetDecision::Held(theirs));
        }
        if let Err(why) = self.fleet.may_change() {
            return self.give_up_on_redis(request, why);
        }
        match &request {
            StoreRequest::Create { link, .. } => {
                let Ok(mine) = self.fleet.state_for_redis(&link.code) else {
                    return self.send_to_writer(request, STATE_UNKNOWN);
                };
                let change = (link.code, CodeChange::Claim(State::Link(Arc::clone(link)), mine));
                self.ask_for_change(request, deadline, change);
            }
            StoreRequest::Change { code, .. } | StoreRequest::Delete { code, .. } => {
                // First the current state: a change or delete concerns the link as it is now, not a later one.
                let id = self.redis.put_state(code, deadline);
                self.note_waiting(id, WaitingRequest { request, deadline, change: None });
            }
        }
        Ok(())
    }

    /// Returns the link of the code of a request, if this node has it and the request may not change it.
    fn of_another_app(&self, request: &StoreRequest) -> Option<State> {
        let (code, by) = match request {
            StoreRequest::Create { link, .. } if link.origin == Origin::Custom => (&link.code, None),
            StoreRequest::Change { code, by, .. } | StoreRequest::Delete { code, by, .. } if !by.is_all() => {
                (code, Some(by))
            }
            _ => return None,
        };
        let Some(State::Link(mine)) = self.fleet.stored_state(code) else { return None };
        let may = match (by, request) {
            (Some(by), _) => by.has(&mine),
            (None, StoreRequest::Create { link, .. }) => link.labels.app == mine.labels.app,
            (None, _) => true,
        };
        (!may).then_some(State::Link(mine))
    }

    /// Asks Redis for a change, on behalf of a request.
    fn ask_for_change(&mut self, request: StoreRequest, deadline: Instant, change: (Code, CodeChange)) {
        let id = self.redis.put_change(&change.0, &change.1, deadline);
        self.note_waiting(id, WaitingRequest { request, deadline, change: Some(change) });
    }

    /// Notes a request that waits for an answer of Redis.
    fn note_waiting(&mut self, id: RequestId, waiting: WaitingRequest) {
        let other = self.waiting.insert(id, waiting);
        assert!(other.is_none(), "two requests wait for one answer, so one of them would wait forever");
    }

    /// Takes an answer of Redis: passes the request to the writer, or asks the next question.
    fn take_answer(&mut self, waiting: WaitingRequest, answer: RedisReply) -> Result<(), ShuttingDown> {
        let WaitingRequest { request, deadline, change } = waiting;
        match (change, &request) {
            (Some((code, change)), StoreRequest::Change { .. }) => match answer.changed(code, &change) {
                // Another change came first: this one applies to the link as it is now.
                Ok(Changed { verdict: Verdict::Held(state), .. }) if Instant::now() < deadline => {
                    self.change(request, deadline, Some(state))
                }
                answer => self.decide(request, answer, Some(&change)),
            },
            (Some((code, change)), _) => self.decide(request, answer.changed(code, &change), Some(&change)),
            (None, StoreRequest::Change { code, .. }) => match answer.state(*code) {
                Ok(Some(ReceivedState::Unread(_))) => self.send_to_writer(request, STATE_UNKNOWN),
                Ok(theirs) if self.fleet.has_lost_marked(code, theirs.as_ref()) => {
                    self.send_to_writer(request, STATE_UNKNOWN)
                }
                // The timeout of the offer starts here, however long the store takes.
                Ok(state) => self.change(request, Instant::now() + self.fleet.answer_time(), known(state)),
                Err(error @ RedisError::Refused(_)) => self.decide(request, Err(error), None),
                Err(_) => self.give_up_on_redis(request, "the link to change could not be looked up in Redis"),
            },
            (None, StoreRequest::Delete { code, .. }) => match answer.state(*code) {
                Ok(Some(ReceivedState::Unread(_))) => self.send_to_writer(request, STATE_UNKNOWN),
                Ok(theirs) if self.fleet.has_lost_marked(code, theirs.as_ref()) => {
                    self.send_to_writer(request, STATE_UNKNOWN)
                }
                Ok(state) => self.delete(request, deadline, known(state)),
                Err(error @ RedisError::Refused(_)) => self.decide(request, Err(error), None),
                Err(_) => self.give_up_on_redis(request, "the link to delete could not be looked up in Redis"),
            },
            // A create claims its code at once and never asks for the state first.
            (None, StoreRequest::Create { .. }) => {
                self.give_up_on_redis(request, "the code could not be claimed in Redis")
            }
        }
    }

    /// Offers the changed link to Redis, as the next state after the newer one of Redis and this node.
    fn change(&mut self, request: StoreRequest, deadline: Instant, theirs: Option<State>) -> Result<(), ShuttingDown> {
        let StoreRequest::Change { code, patch, by, .. } = &request else { return Ok(()) };
        let is_absent = theirs.is_none();
        let now = rules::newest(self.fleet.stored_state(code), theirs);
        let changed = match &now {
            Some(State::Link(link)) if !by.has(link) => None,
            Some(State::Link(link)) => patch.apply(link).ok(),
            Some(State::Gone(_)) | None => None,
        };
        match (now, changed) {
            (Some(_), Some(link)) if is_absent && self.must_hold_back(&link) => {
                self.send_to_writer(request, STATE_UNKNOWN)
            }
            (Some(_), Some(link)) => {
                let version = link.version.edited();
                assert_eq!(link.code, *code, "a change of one link would be offered as the state of another");
                let change = (*code, CodeChange::Offer(State::Link(Arc::new(Link { version, ..link }))));
                self.ask_for_change(request, deadline, change);
                Ok(())
            }
            // The link is gone or the change does not apply: the writer tells the client why.
            (Some(state), None) => self.send_to_writer(request, FleetDecision::Held(state)),
            (None, _) if !self.fleet.view.is_denied(code, false) => self.send_to_writer(request, STATE_UNKNOWN),
            (None, _) => self.send_to_writer(request, FleetDecision::Absent),
        }
    }

    /// True if this node must not bring a link to a Redis that lacks it: a limited link, while partitions are compared. Redis may
    /// have been emptied, and other nodes be granted visits of the link without the report of this node.
    fn must_hold_back(&self, link: &Link) -> bool {
        link.policy.max_visits.is_some() && self.fleet.stats.fleet.comparing.get() > 0
    }

    /// Asks Redis to remove the link that a delete names, if the request may delete this link.
    fn delete(&mut self, request: StoreRequest, deadline: Instant, theirs: Option<State>) -> Result<(), ShuttingDown> {
        let StoreRequest::Delete { code, by, .. } = &request else { return Ok(()) };
        match state_to_remove(theirs, || self.fleet.stored_state(code)) {
            // The link of this node may have come after the first check of the request.
            Some(State::Link(link)) if by.has(&link) => {
                // If this node cannot read its record of the code, it sends no state.
                let mine = self.fleet.state_for_redis(code).unwrap_or_default();
                let now_ms = link.deletion_ms(unix_ms(), self.fleet.keep_expired_ms());
                let change = (*code, CodeChange::Remove { claim: link.version.claim, now_ms, mine });
                self.ask_for_change(request, deadline, change);
                Ok(())
            }
            // The link is gone or of another app: the writer tells the client so.
            Some(state) => self.send_to_writer(request, FleetDecision::Held(state)),
            None if !self.fleet.view.is_denied(code, false) => self.send_to_writer(request, STATE_UNKNOWN),
            // Redis is asked to remove nothing: it may get another link of the code by then. The writer deletes a record that
            // this node cannot read, and a node that has the link sends it to Redis again.
            None => self.send_to_writer(request, FleetDecision::Absent),
        }
    }

    fn send_to_writer(&self, request: StoreRequest, decision: FleetDecision) -> Result<(), ShuttingDown> {
        self.writer.send(WriterOrder::Client(request, decision)).map_err(|_| ShuttingDown)
    }

    /// Decides on a request without Redis, for the reason `why`.
    fn give_up_on_redis(&mut self, request: StoreRequest, why: &str) -> Result<(), ShuttingDown> {
        self.decide(request, Err(RedisError::Unavailable { what: why.to_owned(), was_sent: false }), None)
    }

    fn decide(
        &mut self,
        request: StoreRequest,
        answer: Result<Changed, RedisError>,
        change: Option<&CodeChange>,
    ) -> Result<(), ShuttingDown> {
        let decision = decision_of(&self.fleet, answer, change);
        if HeldCreates::must_hold(&self.fleet.view, &request, &decision) {
            self.held.push(request, decision);
            return Ok(());
        }
        self.send_to_writer(request, decision)
    }
}

/// Returns the state whose link a delete names: the state in Redis or, if Redis has none, the state of this node. The
/// outbox may deliver that link between the two questions to Redis, and a delete without its claim would not remove it.
fn state_to_remove(theirs: Option<State>, mine: impl FnOnce() -> Option<State>) -> Option<State> {
    theirs.or_else(mine)
}

/// Returns the state, if this version can decode it.
fn known(received: Option<ReceivedState>) -> Option<State> {
    received.and_then(|received| if let ReceivedState::Known(state) = received { Some(state) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Ticket;
    use crate::services::replication::testing::context;
    use carom_model::access::{AppName, Scope};
    use carom_model::link::history::Author;
    use carom_model::link::patch::Patch;
    use carom_model::link::record;
    use carom_shards::CoreId;
    use carom_telemetry::alarms::Alarm;
    use std::collections::HashSet;
    use std::num::NonZeroU32;

    /// Returns a gateway, and the orders that it sends to the writer.
    fn gateway(fleet: &FleetContext) -> (Gateway, Receiver<WriterOrder>) {
        let ((writer, orders), (redis, claims)) = (sync_channel(8), (fleet.redis().unwrap(), Claims::new().unwrap()));
        let (reuse, waiting, held) = (sync_channel(1).0, HashMap::new(), HeldCreates::default());
        (Gateway { fleet: fleet.clone(), redis, writer, claims, reuse, waiting, held }, orders)
    }

    #[test]
    fn a_delete_that_redis_refuses_raises_an_alarm() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let (mut gateway, orders) = gateway(&fleet);
        let code = Code::parse(b"abc").unwrap();
        let (by, author, ticket) = (Scope::ALL, Author::default(), Ticket::new(CoreId(0), 1));
        let request = StoreRequest::Delete { code, by, author, ticket };
        let waiting = WaitingRequest { request, deadline: Instant::now() + Duration::from_secs(1), change: None };
        assert!(gateway.take_answer(waiting, RedisReply::refusal("WRONGTYPE")).is_ok());
        let order = orders.try_recv();
        assert!(matches!(order, Ok(WriterOrder::Client(_, FleetDecision::NoReply { was_sent: false, .. }))));
        assert!(fleet.stats.alarms.is_on(Alarm::RedisRefuses), "nothing would name the error");
    }

    #[test]
    fn a_delete_spares_a_link_of_another_app_that_has_just_come() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let (mut gateway, orders) = gateway(&fleet);
        let app = |name: &str| AppName::parse(name).unwrap();
        let mut stored = carom_model::testing::link("abc", Origin::Custom);
        stored.labels.app = Some(app("theirs"));
        let (mut batch, mut text) = (fleet.links.batch(), Vec::new());
        record::encode_link(b"abc", &stored, &mut text);
        batch.put(&stored.code, &text);
        fleet.links.commit(batch).unwrap();
        for (name, is_asked) in [("other", false), ("theirs", true)] {
            let (by, author) = (Scope::of_app(app(name)), Author::default());
            let request = StoreRequest::Delete { code: stored.code, by, author, ticket: Ticket::new(CoreId(0), 1) };
            // Redis had no link when it was asked.
            assert!(gateway.delete(request, Instant::now() + Duration::from_secs(1), None).is_ok());
            let is_held = matches!(orders.try_recv(), Ok(WriterOrder::Client(_, FleetDecision::Held(_))));
            assert_eq!((is_held, gateway.waiting.len()), (!is_asked, usize::from(is_asked)), "{name}");
        }
    }

    #[test]
    fn a_change_brings_back_no_limited_link_during_a_comparison() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = context(dir.path());
        let (mut gateway, orders) = gateway(&fleet);
        let mut limited = carom_model::testing::link("abc", Origin::Custom);
        limited.policy.max_visits = NonZeroU32::new(5);
        let (mut batch, mut text) = (fleet.links.batch(), Vec::new());
        record::encode_link(b"abc", &limited, &mut text);
        batch.put(&limited.code, &text);
        fleet.links.commit(batch).unwrap();
        let stored = State::Link(Arc::new(limited.clone()));
        let title = || Box::new(Patch { title: Some(Some("title".to_owned())), ..Patch::default() });
        let unlimited = || Box::new(Patch { max_visits: Some(None), ..Patch::default() });
        for (comparing, theirs, patch, is_asked) in [
            (0, None, title(), true),
            (1, Some(stored), title(), true),
            (1, None, unlimited(), true),
            (1, None, title(), false),
        ] {
            fleet.stats.fleet.comparing.set(comparing);
            gateway.waiting.clear();
            let (by, author, ticket) = (Scope::ALL, Author::default(), Ticket::new(CoreId(0), 1));
            let request = StoreRequest::Change { code: limited.code, patch, by, author, ticket };
            assert!(gateway.change(request, Instant::now() + Duration::from_secs(1), theirs).is_ok());
            let is_failed = matches!(orders.try_recv(), Ok(WriterOrder::Client(_, FleetDecision::NoReply { .. })));
            assert_eq!((is_failed, gateway.waiting.len()), (!is_asked, usize::from(is_asked)));
        }
    }

    #[test]
    fn a_delete_names_the_link_that_redis_has_yet_to_hear_of() {
        let state = |claim| {
            let version = Version { rev: 1, claim, edit: 0 };
            State::Link(Arc::new(Link { version, ..carom_model::testing::link("abc", Origin::Issued) }))
        };
        assert_eq!(state_to_remove(Some(state(7)), || panic!("the store is not asked")), Some(state(7)));
        assert_eq!(state_to_remove(None, || Some(state(9))), Some(state(9)));
        assert_eq!(state_to_remove(None, || None), None);
    }

    #[test]
    fn claims_are_all_different() {
        let mut claims = Claims::new().unwrap();
        let drawn: HashSet<u64> = (0..100_000).map(|_| claims.next()).collect();
        assert_eq!(drawn.len(), 100_000);
    }
}
