//! Looks codes up in Redis that a core does not know, for a client that waits: 20 milliseconds at most.
//!
//! Questions that came meanwhile are put together. What is found goes to the client, and to the writer as well, so that
//! the next client is answered from memory.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::{Shared, note_trouble};
use crate::fleet::State;
use crate::limits::{LOOK_UP_BATCH, LOOK_UP_QUEUE_LEN, LOOK_UP_TIME};
use crate::link::{Link, Version};
use crate::mail::{LookUp, LookedUp, Order, ToCore};
use crate::store::redis::Redis;

/// Less than this is not enough for a question.
const TIME_MIN: Duration = Duration::from_millis(2);

/// Starts the thread; it ends when all senders are gone.
pub(super) fn start(shared: &Shared, writer: SyncSender<Order>) -> io::Result<(SyncSender<LookUp>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(LOOK_UP_QUEUE_LEN);
    let looker = Looker { redis: shared.redis()?, shared: shared.clone(), writer };
    let thread = std::thread::Builder::new().name("redis-look".to_owned()).spawn(move || looker.run(&receiver))?;
    Ok((sender, thread))
}

struct Looker {
    shared: Shared,
    redis: Redis,
    writer: SyncSender<Order>,
}

impl Looker {
    fn run(mut self, receiver: &Receiver<LookUp>) {
        while let Ok(first) = receiver.recv() {
            let asked: Vec<LookUp> =
                std::iter::once(first).chain(receiver.try_iter().take(LOOK_UP_BATCH - 1)).collect();
            let found = self.look_up(&asked);
            for LookUp { code, core, token, in_doubt, .. } in asked {
                let found = match found.get(&code) {
                    Some(link) => LookedUp::Link(Arc::clone(link)),
                    None if in_doubt => LookedUp::Unknown,
                    None => LookedUp::Missing,
                };
                self.shared.post.to(core).post(ToCore::LookedUp { code, token, found });
            }
        }
    }

    /// Whether this node knows of a delete that Redis does not, or not any more.
    fn is_known_to_be_gone(&self, code: &Code, theirs: Version) -> bool {
        let Ok(Some(value)) = self.shared.links.get(code) else { return false };
        let mine = State::from_value(*code, &value).filter(|mine| !mine.is_link());
        mine.is_some_and(|gone| gone.version().claim == theirs.claim || gone.version().rev >= theirs.rev)
    }

    /// The links of these codes, as far as Redis has them and says so in time.
    fn look_up(&mut self, asked: &[LookUp]) -> HashMap<Code, Arc<Link>> {
        let waited =
            asked.iter().map(|look_up| look_up.since).min().map_or(Duration::ZERO, |since: Instant| since.elapsed());
        // The way to this thread and back takes some of it, too.
        let within = LOOK_UP_TIME.saturating_sub(waited + TIME_MIN);
        if within < TIME_MIN || !self.shared.has_same_key() {
            return HashMap::new();
        }
        let mut codes: Vec<Code> = asked.iter().map(|look_up| look_up.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let stats = &self.shared.stats.fleet;
        stats.look_ups.add(codes.len() as u64);
        let (mut found, mut states) = (HashMap::new(), Vec::new());
        for (code, answer) in codes.iter().zip(self.redis.states(&codes, within)) {
            match answer {
                Ok(Some(State::Link(link))) if !self.is_known_to_be_gone(code, link.version) => {
                    states.push((*code, State::Link(Arc::clone(&link))));
                    found.insert(*code, link);
                }
                Ok(_) => {}
                Err(trouble) => note_trouble(&self.shared.stats, &trouble),
            }
        }
        stats.look_up_hits.add(found.len() as u64);
        if !states.is_empty() {
            // A writer that is busy will hear of them from the stream.
            let _ = self.writer.try_send(Order::LookedUp(states));
        }
        found
    }
}
