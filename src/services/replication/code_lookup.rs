//! The look-up thread: it asks Redis for codes that a core does not know, while a client waits for at most 20
//! milliseconds.
//!
//! Questions that arrive meanwhile are sent together, and each is answered by itself: in a cluster, a slow server
//! delays only its own questions. A link that is found goes to the client's core and to the writer, so that the next
//! client is answered from memory. Whether a missing link is a 404 or a 503 follows from
//! [`carom_model::replication::absence`].

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{FleetContext, note_error};
use crate::bridge::fleet_view::since_boot;
use crate::bridge::{LinkAnswer, LookupRequest, Ticket, ToCore, WriterOrder};
use crate::services::replication::redis::{Redis, RedisReply, RequestId};
use carom_limits::{LOOK_UP_BATCH, LOOK_UP_QUEUE_LEN, LOOK_UP_TIME};
use carom_model::link::Link;
use carom_model::redirect::Lookup;
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{State, rules};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::StoreError;

/// Shortest time in which Redis can answer. With less than that left, it is not asked.
const TIME_MIN: Duration = Duration::from_millis(2);

/// Longest delay of a new question while others wait for Redis.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Reason that clients of the API get for a link that another node may have.
const UNCONFIRMED: &str = "another node may have the link, and Redis cannot tell right now";

/// Starts the thread. It ends when all senders are gone.
pub(super) fn start(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
) -> io::Result<(SyncSender<LookupRequest>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(LOOK_UP_QUEUE_LEN);
    let looker = CodeLookup { redis: fleet.redis()?, fleet: fleet.clone(), writer, asked: HashMap::new() };
    let thread = std::thread::Builder::new().name("redis-look".to_owned()).spawn(move || looker.run(&receiver))?;
    Ok((sender, thread))
}

struct CodeLookup {
    fleet: FleetContext,
    redis: Redis,
    writer: SyncSender<WriterOrder>,
    /// The look-ups that wait for each answer of Redis.
    asked: HashMap<RequestId, Vec<LookupRequest>>,
}

impl CodeLookup {
    fn run(mut self, receiver: &Receiver<LookupRequest>) {
        loop {
            let first = if self.asked.is_empty() {
                let Ok(first) = receiver.recv() else { return };
                Some(first)
            } else {
                None
            };
            let room = LOOK_UP_QUEUE_LEN.saturating_sub(self.asked.len()).min(LOOK_UP_BATCH);
            self.ask(first.into_iter().chain(receiver.try_iter().take(room)));
            let answers = self.redis.turn(Instant::now() + LOOK_EVERY);
            self.answer(answers);
        }
    }

    /// True if this node knows of a delete that Redis does not know, or has lost.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn is_known_to_be_gone(&self, code: &Code, theirs: &State) -> Result<bool, StoreError> {
        let Some(value) = self.fleet.links.get(code)? else { return Ok(false) };
        Ok(State::from_value(*code, &value).is_some_and(|mine| rules::is_over(&mine, theirs)))
    }

    /// True if this node knows that the code had its only link: a generated code is used once.
    fn is_used_up(&self, code: &Code) -> bool {
        let state = || State::from_value(*code, &self.fleet.links.get(code).ok()??);
        self.fleet.view.may_be_generated(code) && state().is_some_and(|state| is_final(&state))
    }

    /// Returns the answer for a code after Redis has said that it has no link: this state, or none.
    fn missing(&self, code: &Code, theirs: Option<&State>) -> Lookup<Arc<Link>> {
        let is_known = theirs.is_some_and(is_final) || self.fleet.view.is_denied(code);
        if is_known { Lookup::Missing } else { Lookup::Unconfirmed }
    }

    /// Sends look-ups to Redis.
    fn ask(&mut self, look_ups: impl Iterator<Item = LookupRequest>) {
        let mut by_code: HashMap<Code, Vec<LookupRequest>> = HashMap::new();
        for look_up in look_ups {
            if self.is_used_up(&look_up.code) {
                self.reply(&look_up, &Lookup::Missing);
                continue;
            }
            // The ways to this thread and back take some of the time, too.
            let is_late = look_up.since.elapsed() + 2 * TIME_MIN > LOOK_UP_TIME;
            if is_late || !self.fleet.has_same_key() {
                self.reply(&look_up, &Lookup::Unconfirmed);
            } else {
                by_code.entry(look_up.code).or_default().push(look_up);
            }
        }
        self.fleet.stats.fleet.look_ups.add(by_code.len() as u64);
        for (code, look_ups) in by_code {
            let since = look_ups.iter().map(|look_up| look_up.since).min().unwrap_or_else(Instant::now);
            let ticket = self.redis.put_state(&code, since + LOOK_UP_TIME - TIME_MIN);
            let others = self.asked.insert(ticket, look_ups);
            assert!(others.is_none(), "two codes wait for one answer, so clients would get the link of another code");
        }
    }

    fn answer(&mut self, answers: Vec<(RequestId, RedisReply)>) {
        let mut states = Vec::new();
        // Before any answer is judged: a new master may have lost links.
        if let Some(at) = self.redis.disturbed() {
            self.fleet.view.disturb(since_boot().saturating_sub(at.elapsed()));
        }
        for (ticket, answer) in answers {
            let Some(look_ups) = self.asked.remove(&ticket) else { continue };
            let Some(&LookupRequest { code, .. }) = look_ups.first() else { continue };
            let found = match answer.state(code) {
                Ok(Some(ReceivedState::Known(State::Link(link)))) => {
                    let theirs = State::Link(Arc::clone(&link));
                    match self.is_known_to_be_gone(&code, &theirs) {
                        Ok(false) => {
                            states.push((code, theirs));
                            Lookup::Live(link)
                        }
                        // The slug may have another link, which Redis has lost.
                        Ok(true) => self.missing(&code, None),
                        Err(_) => Lookup::NotResident,
                    }
                }
                // A later version knows which link that is.
                Ok(Some(ReceivedState::Unread(_))) => Lookup::Unconfirmed,
                Ok(Some(ReceivedState::Known(gone))) => self.missing(&code, Some(&gone)),
                Ok(None) => self.missing(&code, None),
                Err(error) => {
                    note_error(&self.fleet.stats, &error);
                    Lookup::Unconfirmed
                }
            };
            look_ups.iter().for_each(|look_up| self.reply(look_up, &found));
        }
        self.fleet.stats.fleet.look_up_hits.add(states.len() as u64);
        if !states.is_empty() {
            // A busy writer will get these links from the stream.
            let _ = self.writer.try_send(WriterOrder::LookedUpStates(states));
        }
    }

    fn reply(&self, look_up: &LookupRequest, found: &Lookup<Arc<Link>>) {
        let LookupRequest { code, core, token, in_doubt, .. } = *look_up;
        // If the store may have the link, neither an empty answer nor none proves that it does not exist.
        let is_absent = matches!(found, Lookup::Missing | Lookup::Unconfirmed);
        let found = if in_doubt && is_absent { &Lookup::NotResident } else { found };
        if look_up.is_for_record {
            let answer = match found {
                Lookup::Live(link) => LinkAnswer::Found(Arc::clone(link), VisitCounts::default()),
                Lookup::Missing => LinkAnswer::NotFound,
                _ => LinkAnswer::Refused(UNCONFIRMED),
            };
            return self.fleet.mailboxes.answer(Ticket::new(core, token), answer);
        }
        self.fleet.mailboxes.to(core).post(ToCore::LookedUp { code, token, found: found.clone(), is_allowance: false });
    }
}

/// True for the tombstone of a generated code, which gets no other link.
fn is_final(state: &State) -> bool {
    !state.is_link() && !state.is_free()
}
