//! Looks codes up in Redis that a core does not know, for a client that waits: 20 milliseconds at most.
//!
//! Questions that came meanwhile are put together, and each is answered by itself: whoever asks a server of a cluster does
//! not wait for another one. What is found goes to the client, and to the writer as well, so that the next client is
//! answered from memory.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{Shared, note_trouble};
use crate::fleet::{State, rules};
use crate::limits::{LOOK_UP_BATCH, LOOK_UP_QUEUE_LEN, LOOK_UP_TIME};
use crate::link::Link;
use crate::mail::{LookUp, Order, ToCore};
use crate::redirect::Lookup;
use crate::store::links::StoreError;
use crate::store::redis::{Answer, Redis, Ticket};

/// Less than this is not enough for a question.
const TIME_MIN: Duration = Duration::from_millis(2);

/// How long a new question waits at most while others wait for Redis.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Starts the thread; it ends when all senders are gone.
pub(super) fn start(shared: &Shared, writer: SyncSender<Order>) -> io::Result<(SyncSender<LookUp>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(LOOK_UP_QUEUE_LEN);
    let looker = Looker { redis: shared.redis()?, shared: shared.clone(), writer, asked: HashMap::new() };
    let thread = std::thread::Builder::new().name("redis-look".to_owned()).spawn(move || looker.run(&receiver))?;
    Ok((sender, thread))
}

struct Looker {
    shared: Shared,
    redis: Redis,
    writer: SyncSender<Order>,
    /// Who waits for what Redis has yet to answer.
    asked: HashMap<Ticket, Vec<LookUp>>,
}

impl Looker {
    fn run(mut self, receiver: &Receiver<LookUp>) {
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

    /// Whether this node knows of a delete that Redis does not, or not any more.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn is_known_to_be_gone(&self, code: &Code, theirs: &State) -> Result<bool, StoreError> {
        let Some(value) = self.shared.links.get(code)? else { return Ok(false) };
        Ok(State::from_value(*code, &value).is_some_and(|mine| rules::is_over(&mine, theirs)))
    }

    /// Begins to look these up.
    fn ask(&mut self, look_ups: impl Iterator<Item = LookUp>) {
        let mut by_code: HashMap<Code, Vec<LookUp>> = HashMap::new();
        for look_up in look_ups {
            // The way to this thread and back takes some of the time, too.
            let is_late = look_up.since.elapsed() + 2 * TIME_MIN > LOOK_UP_TIME;
            if is_late || !self.shared.has_same_key() {
                self.tell(&look_up, &Lookup::Unconfirmed);
            } else {
                by_code.entry(look_up.code).or_default().push(look_up);
            }
        }
        self.shared.stats.fleet.look_ups.add(by_code.len() as u64);
        for (code, look_ups) in by_code {
            let since = look_ups.iter().map(|look_up| look_up.since).min().unwrap_or_else(Instant::now);
            let ticket = self.redis.put_state(&code, since + LOOK_UP_TIME - TIME_MIN);
            self.asked.insert(ticket, look_ups);
        }
    }

    fn answer(&mut self, answers: Vec<(Ticket, Answer)>) {
        let mut states = Vec::new();
        for (ticket, answer) in answers {
            let Some(look_ups) = self.asked.remove(&ticket) else { continue };
            let Some(&LookUp { code, .. }) = look_ups.first() else { continue };
            let found = match answer.state(code) {
                Ok(Some(State::Link(link))) => {
                    let theirs = State::Link(Arc::clone(&link));
                    match self.is_known_to_be_gone(&code, &theirs) {
                        Ok(false) => {
                            states.push((code, theirs));
                            Lookup::Live(link)
                        }
                        Ok(true) => Lookup::Missing,
                        Err(_) => Lookup::NotResident,
                    }
                }
                Ok(_) => Lookup::Missing,
                Err(trouble) => {
                    note_trouble(&self.shared.stats, &trouble);
                    Lookup::Unconfirmed
                }
            };
            look_ups.iter().for_each(|look_up| self.tell(look_up, &found));
        }
        self.shared.stats.fleet.look_up_hits.add(states.len() as u64);
        if !states.is_empty() {
            // A writer that is busy will hear of them from the stream.
            let _ = self.writer.try_send(Order::LookedUp(states));
        }
    }

    fn tell(&self, look_up: &LookUp, found: &Lookup<Arc<Link>>) {
        let LookUp { code, core, token, in_doubt, .. } = *look_up;
        // Where the store may have it, nobody else can say that there is none.
        let is_absent = matches!(found, Lookup::Missing | Lookup::Unconfirmed);
        let found = if in_doubt && is_absent { &Lookup::NotResident } else { found };
        self.shared.post.to(core).post(ToCore::LookedUp { code, token, found: found.clone(), is_allowance: false });
    }
}
