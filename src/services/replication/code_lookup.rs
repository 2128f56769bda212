//! The look-up threads ask Redis for codes that a core does not know. The client waits for `fleet.look_up_ms` at most,
//! by default about four round trips to Redis.
//!
//! If links have a shared home, bulk requests ask for thousands of codes, too. A second thread with its own queue and
//! connection handles these. Few of their codes are on the way to Redis at once, so the look-up of a redirect waits
//! behind few of them.
//!
//! Questions that arrive meanwhile are sent together, and each is answered by itself: in a cluster, a slow server
//! delays only its own questions. A link that is found goes to the client's core and to the writer, so that the next
//! client is answered from memory. Whether a missing link is a 404 or a 503 follows from
//! [`carom_model::replication::absence`].
//!
//! A node that does not reach Redis creates links alone. So a code that may be generated, and that Redis does not have,
//! is in *doubt*. Its request waits until all other nodes have confirmed that Redis has their links
//! ([`carom_model::replication::confirmations`]). Then Redis is asked once more. That takes a heartbeat of each node,
//! so few requests may wait, and none does while a node is silent.
//!
//! `trust` decides which links of a shared home may be in memory after a failover.

mod trust;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use self::trust::MemoryTrust;
use super::context::{FleetContext, note_error};
use crate::bridge::fleet_view::since_boot;
use crate::bridge::{Absence, LinkAnswer, LookupQueue, LookupRequest, STORE_UNREADABLE, Ticket, ToCore, WriterOrder};
use crate::services::replication::redis::{Redis, RedisError, RedisReply, RequestId};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_limits::{
    BULK_LOOK_UP_QUEUE_LEN, BULK_LOOK_UP_WAIT, BULK_LOOK_UPS_MAX, DELIVERED_KEPT, DOUBT_TIME, DOUBTS_MAX,
    LOOK_UP_BATCH, LOOK_UP_QUEUE_LEN,
};
use carom_model::link::Link;
use carom_model::redirect::Lookup;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{State, rules};
use carom_store::links::StoreError;
use carom_telemetry::alarms::Alarm;

/// Shortest time in which Redis can answer. With less than that left, it is not asked.
const TIME_MIN: Duration = Duration::from_millis(2);

/// Longest delay of a new question while others wait for Redis.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Longest delay until this thread notices the confirmations of the other nodes.
const NOTICE_EVERY: Duration = Duration::from_millis(10);

/// Longest delay until this thread notices that its connection was disturbed, while it has nothing to ask.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Reason that clients of the API get for a link that another node may have.
const UNCONFIRMED: &str = "another node may have the link, and Redis cannot tell right now";

/// The queues of codes to look up, one for each look-up thread.
pub struct LookupLanes {
    /// The queue for redirects, and for requests of the API about one link.
    pub single: LookupQueue,
    /// The queue for bulk requests; `None` if this node stores all links, and so reads them from its store.
    pub bulk: Option<LookupQueue>,
}

/// Starts the threads. Each ends when all senders of its queue are gone.
pub(super) fn start(
    fleet: &FleetContext,
    writer: &SyncSender<WriterOrder>,
) -> io::Result<(LookupLanes, Vec<JoinHandle<()>>)> {
    let (single, thread) = start_lane(fleet, writer.clone(), Lane::Single)?;
    let (mut bulk, mut threads) = (None, vec![thread]);
    if !fleet.home.stores_all_links() {
        let (queue, thread) = start_lane(fleet, writer.clone(), Lane::Bulk)?;
        bulk = Some(queue);
        threads.push(thread);
    }
    Ok((LookupLanes { single, bulk }, threads))
}

fn start_lane(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
    lane: Lane,
) -> io::Result<(LookupQueue, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(lane.queue_len());
    let looker = CodeLookup {
        lane,
        redis: fleet.redis()?,
        fleet: fleet.clone(),
        writer,
        pending: HashMap::new(),
        in_flight: HashMap::new(),
        doubts: VecDeque::new(),
        doubts_counted: 0,
        trust: MemoryTrust::default(),
    };
    let thread = threads::start(Priority::Awaited, lane.thread_name(), move || looker.run(&receiver))?;
    Ok((sender, thread))
}

/// The requests of one look-up thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    /// Redirects, and requests of the API about one link.
    Single,
    /// Lines of bulk requests, in a shared home of links.
    Bulk,
}

impl Lane {
    fn thread_name(self) -> &'static str {
        match self {
            Lane::Single => "redis-look",
            Lane::Bulk => "redis-bulk",
        }
    }

    /// Returns the number of requests that may wait in the queue.
    fn queue_len(self) -> usize {
        match self {
            Lane::Single => LOOK_UP_QUEUE_LEN,
            Lane::Bulk => BULK_LOOK_UP_QUEUE_LEN,
        }
    }

    /// Returns the number of codes that Redis may be asked for at once.
    fn asked_max(self) -> usize {
        match self {
            Lane::Single => LOOK_UP_QUEUE_LEN,
            Lane::Bulk => BULK_LOOK_UPS_MAX,
        }
    }
}

/// The state of a code as Redis has it, or the reason why that is unknown.
type StateAnswer = Result<Option<ReceivedState>, RedisError>;

struct CodeLookup {
    lane: Lane,
    fleet: FleetContext,
    redis: Redis,
    writer: SyncSender<WriterOrder>,
    /// The look-ups that wait for each answer of Redis.
    pending: HashMap<RequestId, PendingQuestion>,
    /// The last question about each code, in a shared home of links.
    in_flight: HashMap<Code, RequestId>,
    /// The requests in doubt, in the order of their questions.
    doubts: VecDeque<Doubt>,
    /// The number of these requests that the heartbeat thread knows of.
    doubts_counted: usize,
    /// The trust in the links that this thread has given to memory.
    trust: MemoryTrust,
}

/// The look-ups that wait for one answer of Redis.
struct PendingQuestion {
    look_ups: Vec<LookupRequest>,
    /// Look-ups that came after the question. They may share a link that it finds, but no absence: another node may have
    /// created the link in between.
    joined: Vec<LookupRequest>,
    /// The instant at which Redis was asked.
    asked: Instant,
    /// The number of commits that had ended before Redis was asked.
    as_of: u64,
    /// True if Redis had, before it was asked, all links that were acknowledged before the questions.
    is_delivered: bool,
}

/// A look-up of a code that Redis does not have, but that another node may have created alone.
struct Doubt {
    look_up: LookupRequest,
    /// An instant since boot at which the client waited.
    asked: Duration,
}

impl CodeLookup {
    fn run(mut self, receiver: &Receiver<LookupRequest>) {
        loop {
            let first = if self.pending.is_empty() {
                let Ok(first) = self.wait_for_first(receiver) else { return };
                first
            } else {
                None
            };
            let room = self.lane.asked_max().saturating_sub(self.pending.len()).min(LOOK_UP_BATCH);
            self.ask(first.into_iter().chain(receiver.try_iter().take(room)));
            self.resolve_doubts();
            let answers = self.redis.turn(Instant::now() + LOOK_EVERY);
            self.answer(answers);
            let before = std::mem::replace(&mut self.doubts_counted, self.doubts.len());
            self.fleet.view.count_doubts(before, self.doubts_counted);
        }
    }

    /// Waits for a look-up, while none waits for Redis. Returns `None` if other work may be due.
    ///
    /// # Errors
    /// If all senders are gone.
    fn wait_for_first(&self, receiver: &Receiver<LookupRequest>) -> Result<Option<LookupRequest>, RecvError> {
        let wait = if !self.doubts.is_empty() {
            NOTICE_EVERY
        } else if self.fills_memory() {
            CHECK_EVERY
        } else {
            return receiver.recv().map(Some);
        };
        match receiver.recv_timeout(wait) {
            Ok(first) => Ok(Some(first)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        }
    }

    /// True if this thread gives links to the memory of the cores. Links of a bulk request would push those in use out.
    fn fills_memory(&self) -> bool {
        self.lane == Lane::Single && !self.fleet.home.stores_all_links()
    }

    /// Notes whether the connection to Redis was disturbed: a new master may have lost links, and the old one may have
    /// answered late. Makes the cores drop their links once that is due.
    fn check_disturbance(&mut self) {
        let Some(at) = self.redis.last_disturbance() else { return };
        let since = since_boot().saturating_sub(at.elapsed());
        self.fleet.view.note_disturbance(since);
        if !self.fills_memory() {
            return;
        }
        self.trust.note(at, since);
        // If the queue of the writer is full, the next turn tries again.
        if self.trust.must_forget(self.fleet.view.followed_at())
            && self.writer.try_send(WriterOrder::ForgetLinks).is_ok()
        {
            self.trust.forgotten();
        }
    }

    /// True if a look-up has waited for too long to ask Redis about it.
    fn is_late(&self, look_up: &LookupRequest) -> bool {
        let waited = look_up.since.elapsed();
        match self.lane {
            // The ways to this thread and back take some of the time, too.
            Lane::Single => waited + 2 * TIME_MIN > self.fleet.look_up_time(),
            Lane::Bulk => waited >= BULK_LOOK_UP_WAIT,
        }
    }

    /// Returns the instant until which Redis may answer a look-up whose client waits since then. The lines of a bulk request
    /// wait for each other, so the time of a line begins with its question.
    fn deadline(&self, since: Instant) -> Instant {
        match self.lane {
            Lane::Single => since + self.fleet.look_up_time() - TIME_MIN,
            Lane::Bulk => Instant::now() + self.fleet.look_up_time(),
        }
    }

    /// Asks Redis again for the codes in doubt, once it has all links that were acknowledged before their questions.
    /// Answers those that have waited for too long.
    fn resolve_doubts(&mut self) {
        let mut by_code: HashMap<Code, Vec<LookupRequest>> = HashMap::new();
        while let Some(doubt) = self.doubts.front() {
            let look_up = doubt.look_up;
            if self.fleet.view.is_delivered(doubt.asked) {
                by_code.entry(look_up.code).or_default().push(look_up);
            } else if look_up.since.elapsed() >= DOUBT_TIME {
                self.reply(&look_up, &Lookup::Unconfirmed, false);
            } else {
                break;
            }
            self.doubts.pop_front();
        }
        let deadline = Instant::now() + self.fleet.look_up_time();
        by_code.into_iter().for_each(|(code, look_ups)| self.ask_redis(code, look_ups, true, deadline));
    }

    fn ask_redis(&mut self, code: Code, look_ups: Vec<LookupRequest>, is_delivered: bool, deadline: Instant) {
        self.fleet.stats.fleet.look_ups.add_shared(1);
        let (asked, as_of) = (Instant::now(), self.fleet.links.commits());
        let request_id = self.redis.put_state(&code, deadline);
        if self.fleet.home.shares_questions() {
            self.in_flight.insert(code, request_id);
        }
        let question = PendingQuestion { look_ups, joined: Vec::new(), asked, as_of, is_delivered };
        let other = self.pending.insert(request_id, question);
        assert!(other.is_none(), "two codes wait for one answer, so clients would get the link of another code");
    }

    /// Lets look-ups share the question about their code that waits for Redis, if no commit has ended since: this node may
    /// have acknowledged a change by then. Returns those that need a question of their own.
    fn join(&mut self, code: &Code, look_ups: Vec<LookupRequest>) -> Vec<LookupRequest> {
        let asked = self.in_flight.get(code).and_then(|request_id| self.pending.get_mut(request_id));
        match asked {
            Some(asked) if asked.as_of == self.fleet.links.commits() && asked.joined.len() < LOOK_UP_BATCH => {
                asked.joined.extend(look_ups);
                Vec::new()
            }
            _ => look_ups,
        }
    }

    /// Returns the look-ups to answer now for a code that Redis does not have. The others wait for
    /// confirmations of the other nodes.
    fn doubt(&mut self, look_ups: Vec<LookupRequest>) -> Vec<LookupRequest> {
        let asked = since_boot();
        let mut rest = Vec::new();
        for look_up in look_ups {
            if look_up.may_be_stored || self.doubts.len() >= DOUBTS_MAX {
                rest.push(look_up);
            } else {
                self.doubts.push_back(Doubt { look_up, asked });
            }
        }
        rest
    }

    /// True if this node knows of a delete that Redis does not know, or has lost.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn is_known_to_be_gone(&self, code: &Code, theirs: &State) -> Result<bool, StoreError> {
        let Some(value) = self.fleet.links.get(code)? else { return Ok(false) };
        Ok(State::from_value(*code, &value).is_some_and(|mine| rules::is_over(&mine, theirs)))
    }

    /// True if no link can come under a code: this node has the tombstone of the only one that the code gets.
    fn is_used_up(&self, code: &Code) -> bool {
        let view = &self.fleet.view;
        let is_known_to_be_spent = || self.fleet.stored_state(code).is_some_and(|state| is_spent(&state));
        view.trusts_tombstones() && view.may_be_generated(code) && is_known_to_be_spent()
    }

    /// Returns the answer for a code after Redis has said that it has no link: this state, or none. Returns `None` if the
    /// other nodes must confirm their deliveries first.
    fn missing(&self, code: &Code, theirs: Option<&State>, is_delivered: bool) -> Option<Lookup<Arc<Link>>> {
        let view = &self.fleet.view;
        // Where codes are recycled, Redis may have lost the next link.
        let is_final = theirs.is_some_and(is_spent) && (!view.recycles() || view.trusts_redis());
        if is_final || view.is_denied(code, is_delivered) {
            return Some(Lookup::Missing);
        }
        let would_help = !is_delivered && view.confirms_within(DELIVERED_KEPT) && view.is_denied(code, true);
        (!would_help).then_some(Lookup::Unconfirmed)
    }

    /// Sends look-ups to Redis.
    fn ask(&mut self, look_ups: impl Iterator<Item = LookupRequest>) {
        let mut by_code: HashMap<Code, Vec<LookupRequest>> = HashMap::new();
        for look_up in look_ups {
            if self.is_used_up(&look_up.code) {
                self.reply(&look_up, &Lookup::Missing, true);
                continue;
            }
            if self.is_late(&look_up) || !self.fleet.has_same_code_secret() {
                self.reply(&look_up, &self.without_redis(&look_up.code), false);
            } else {
                by_code.entry(look_up.code).or_default().push(look_up);
            }
        }
        for (code, look_ups) in by_code {
            let look_ups = self.join(&code, look_ups);
            let Some(since) = look_ups.iter().map(|look_up| look_up.since).min() else { continue };
            self.ask_redis(code, look_ups, false, self.deadline(since));
        }
    }

    fn answer(&mut self, answers: Vec<(RequestId, RedisReply)>) {
        let (mut states, mut again) = (Vec::new(), Vec::new());
        // Before any answer is used.
        self.check_disturbance();
        for (request_id, answer) in answers {
            let Some(PendingQuestion { mut look_ups, joined, asked, as_of, is_delivered }) =
                self.pending.remove(&request_id)
            else {
                continue;
            };
            let Some(&LookupRequest { code, .. }) = look_ups.first() else { continue };
            if self.in_flight.get(&code) == Some(&request_id) {
                self.in_flight.remove(&code);
            }
            let answered = self.with_own(&code, answer.state(code));
            let is_spent = matches!(&answered, Ok(Some(ReceivedState::Known(gone))) if is_spent(gone));
            let found = self.result_of(&code, answered, is_delivered);
            if let Some(Lookup::Live(link)) = &found {
                if self.fills_memory() && self.trust.may_keep(asked) {
                    self.fleet.home.keep_in_memory(link, as_of, &self.fleet.mailboxes);
                }
                states.push((code, State::Link(Arc::clone(link))));
            }
            let found = found.unwrap_or_else(|| {
                look_ups = self.doubt(std::mem::take(&mut look_ups));
                Lookup::Unconfirmed
            });
            look_ups.iter().for_each(|look_up| self.reply(look_up, &found, is_spent));
            if matches!(found, Lookup::Live(_)) {
                joined.iter().for_each(|look_up| self.reply(look_up, &found, false));
            } else {
                again.extend(joined);
            }
        }
        if !again.is_empty() {
            self.ask(again.into_iter());
        }
        self.fleet.stats.fleet.look_up_hits.add_shared(states.len() as u64);
        if !states.is_empty() && self.fleet.home.stores_all_links() {
            // A busy writer will get these links from the stream.
            let _ = self.writer.try_send(WriterOrder::LookedUpStates(states));
        }
    }

    /// Returns the result for a code from its state in Redis; `None` if the other nodes must confirm their deliveries
    /// first.
    fn result_of(&self, code: &Code, answered: StateAnswer, is_delivered: bool) -> Option<Lookup<Arc<Link>>> {
        match answered {
            Ok(theirs) if self.fleet.has_lost_marked(code, theirs.as_ref()) => Some(Lookup::Unconfirmed),
            Ok(Some(ReceivedState::Known(State::Link(link)))) => {
                match self.is_known_to_be_gone(code, &State::Link(Arc::clone(&link))) {
                    Ok(false) => Some(Lookup::Live(link)),
                    // The slug may have another link, which Redis has lost.
                    Ok(true) => self.missing(code, None, is_delivered),
                    Err(_) => Some(Lookup::NotResident),
                }
            }
            // A later version knows which link that is.
            Ok(Some(ReceivedState::Unread(_))) => {
                self.report_newer();
                Some(Lookup::Unconfirmed)
            }
            Ok(Some(ReceivedState::Known(gone))) => self.missing(code, Some(&gone), is_delivered),
            Ok(None) => self.missing(code, None, is_delivered),
            Err(error) => {
                note_error(&self.fleet.stats, &error);
                Some(Lookup::Unconfirmed)
            }
        }
    }

    /// Raises the alarm about codes with a state of a later version, if links have a shared home. A node that stores all
    /// links marks such codes, and counts them.
    fn report_newer(&self) {
        if !self.fleet.home.stores_all_links() {
            let text = "codes in Redis have a state that only a newer version of carom can decode; they get 503 until this node is upgraded";
            self.fleet.stats.alarms.raise(Alarm::NewerFormat, text.to_owned());
        }
    }

    /// Returns the state of a code in a shared home of links: the newer of the state in Redis and the state that this
    /// node stores, which Redis may lack. If Redis does not answer, the state of this node counts.
    fn with_own(&self, code: &Code, answered: StateAnswer) -> StateAnswer {
        let Some(mine) = self.unsettled_state(code) else { return answered };
        match answered {
            Ok(Some(ReceivedState::Unread(text))) => Ok(Some(ReceivedState::Unread(text))),
            Ok(Some(ReceivedState::Known(theirs))) => {
                Ok(rules::newest(Some(mine), Some(theirs)).map(ReceivedState::Known))
            }
            Ok(None) => Ok(Some(ReceivedState::Known(mine))),
            // A free slug may have another link in Redis.
            Err(error) if mine.is_free() => Err(error),
            Err(error) => {
                note_error(&self.fleet.stats, &error);
                Ok(Some(ReceivedState::Known(mine)))
            }
        }
    }

    fn unsettled_state(&self, code: &Code) -> Option<State> {
        self.fleet.home.unsettled_state(code, &self.fleet.links)
    }

    /// Returns the answer for a link, with the visits that are known here.
    fn counted(&self, link: &Arc<Link>) -> LinkAnswer {
        match self.fleet.home.counts(link.code) {
            Ok(counts) => LinkAnswer::Found(Arc::clone(link), counts),
            Err(error) => {
                self.fleet.stats.store_errors.add_shared(1);
                tracing::error!(%error, code = %link.code, "the visits of a link could not be read");
                LinkAnswer::Refused(STORE_UNREADABLE)
            }
        }
    }

    /// Returns the result for a code about which Redis is not asked.
    fn without_redis(&self, code: &Code) -> Lookup<Arc<Link>> {
        match self.unsettled_state(code) {
            Some(State::Link(link)) => Lookup::Live(link),
            _ => Lookup::Unconfirmed,
        }
    }

    /// Answers a look-up. `is_spent` is true if the code has a tombstone, and so no further link unless it is recycled.
    fn reply(&self, look_up: &LookupRequest, found: &Lookup<Arc<Link>>, is_spent: bool) {
        let LookupRequest { code, core, token, may_be_stored, .. } = *look_up;
        // If the store may have the link, neither an empty answer nor none proves that it does not exist.
        let is_absent = matches!(found, Lookup::Missing | Lookup::Unconfirmed);
        let found = if may_be_stored && is_absent { &Lookup::NotResident } else { found };
        if look_up.is_for_record {
            let answer = match found {
                Lookup::Live(link) => self.counted(link),
                Lookup::Missing => LinkAnswer::NotFound,
                Lookup::NotResident => LinkAnswer::Refused(STORE_UNREADABLE),
                Lookup::Unconfirmed => LinkAnswer::Refused(UNCONFIRMED),
                Lookup::NotYetValid | Lookup::Expired | Lookup::Ruled | Lookup::Damaged => {
                    unreachable!("a state of Redis is a link with its dates, or no link")
                }
            };
            return self.fleet.mailboxes.answer(Ticket::new(core, token), answer);
        }
        let absence = match (matches!(found, Lookup::Missing), is_spent) {
            (true, true) if self.fleet.view.recycles() => Absence::Unknown,
            (true, true) => Absence::Final,
            (true, false) => Absence::Recent,
            (false, _) => Absence::Unknown,
        };
        let (found, is_allowance) = (found.clone(), false);
        self.fleet.mailboxes.to(core).post(ToCore::LookupDone { code, token, found, is_allowance, absence });
    }
}

/// True for the tombstone of a generated code, which gets no other link unless it is recycled.
fn is_spent(state: &State) -> bool {
    !state.is_link() && !state.is_free()
}
