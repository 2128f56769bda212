//! Asks Redis about every change that a client wants: whether a code is free, what there is to delete.
//!
//! Requests that arrive while one question is out go into the next, so that one round trip serves many. Redis may take
//! [`super::FleetSettings::answer_time`]; after that the request goes on without it, and for a moment nobody asks again:
//! so a Redis that does not answer costs one request that time, and not all of them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use carom_shards::Code;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::reuse::Reuser;
use super::{Shared, note_trouble};
use crate::fleet::State;
use crate::fleet::rules::Verdict;
use crate::limits::{GATEWAY_BATCH, WRITE_QUEUE_LEN};
use crate::link::{Link, Origin, Version};
use crate::mail::{Ground, Order, StoreRequest, WriterQueue};
use crate::stats::unix_ms;
use crate::store::redis::{Change, Changed, Redis, Trouble};

/// Starts the thread; it ends when all senders are gone.
pub(super) fn start(shared: &Shared, writer: SyncSender<Order>) -> io::Result<(WriterQueue, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(WRITE_QUEUE_LEN);
    let (redis, claims) = (shared.redis()?, Claims::new()?);
    let gateway = Gateway { redis, shared: shared.clone(), writer, claims, reuser: Reuser::default() };
    let thread = std::thread::Builder::new().name("redis-ask".to_owned()).spawn(move || gateway.run(&receiver))?;
    Ok((sender, thread))
}

/// Numbers that no other link of the fleet has, but by a chance of one in 10^19 for each pair.
struct Claims(Pcg64);

impl Claims {
    fn new() -> io::Result<Claims> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        Ok(Claims(Pcg64::from_seed(seed)))
    }

    /// Never zero, which stands for links from before the fleet.
    fn next(&mut self) -> u64 {
        self.0.next_u64().max(1)
    }
}

struct Gateway {
    shared: Shared,
    redis: Redis,
    writer: SyncSender<Order>,
    claims: Claims,
    reuser: Reuser,
}

impl Gateway {
    fn run(mut self, receiver: &Receiver<Order>) {
        while let Ok(first) = receiver.recv() {
            let orders = std::iter::once(first).chain(receiver.try_iter().take(GATEWAY_BATCH - 1));
            let requests: Vec<StoreRequest> = orders.filter_map(|order| self.prepare(order)).collect();
            let existing = self.reuser.existing(&self.shared, &mut self.redis, &requests);
            let open = requests.iter().zip(&existing).filter(|(_, existing)| existing.is_none());
            let open: Vec<&StoreRequest> = open.map(|(request, _)| request).collect();
            let mut grounds = self.ask(&open).into_iter();
            for (request, existing) in requests.into_iter().zip(existing) {
                let ground = existing.or_else(|| grounds.next()).expect("whatever is open is asked about");
                if self.writer.send(Order::Client(request, ground)).is_err() {
                    return;
                }
            }
        }
    }

    /// Gives a new link its first version. Whatever is no request of a client goes on as it is.
    fn prepare(&mut self, order: Order) -> Option<StoreRequest> {
        match order {
            Order::Client(StoreRequest::Create { link, reuse, ticket }, _) => {
                let version = Version { rev: 1, claim: self.claims.next() };
                let link = Arc::new(Link { version, ..Arc::unwrap_or_clone(link) });
                Some(StoreRequest::Create { link, reuse, ticket })
            }
            Order::Client(request, _) => Some(request),
            other => {
                // Nobody but clients sends here; the writer knows what to do with the rest.
                let _ = self.writer.send(other);
                None
            }
        }
    }

    /// What Redis says to each.
    fn ask(&mut self, requests: &[&StoreRequest]) -> Vec<Ground> {
        let now_ms = unix_ms();
        let has_same_key = self.shared.has_same_key();
        let doomed = |request: &&StoreRequest| match request {
            StoreRequest::Create { .. } => None,
            StoreRequest::Delete { code, .. } | StoreRequest::Read { code, .. } => Some(*code),
        };
        // A delete is of the link that is there now, and of no later one.
        let codes: Vec<Code> = requests.iter().filter_map(doomed).filter(|_| has_same_key).collect();
        let states = self.redis.states(&codes, self.shared.settings.answer_time);
        let claim_of = |state: Option<State>| state.map_or(0, |state| state.version().claim);
        let claims: HashMap<Code, u64> =
            codes.into_iter().zip(states).filter_map(|(code, state)| Some((code, claim_of(state.ok()?)))).collect();
        let changes: Vec<(Code, Change)> = requests
            .iter()
            .map(|request| match request {
                StoreRequest::Create { link, .. } => (link.code, Change::Claim(State::Link(Arc::clone(link)))),
                StoreRequest::Delete { code, .. } | StoreRequest::Read { code, .. } => {
                    (*code, Change::Remove { claim: claims.get(code).copied().unwrap_or(0), now_ms })
                }
            })
            .collect();
        let away = |what: &str| Err(Trouble::Away { what: what.to_owned(), asked: false });
        let mut answers: Vec<Result<Changed, Trouble>> = if has_same_key {
            self.redis.change(&changes, self.shared.settings.answer_time)
        } else {
            changes.iter().map(|_| away("it is not known whether the fleet has the same key")).collect()
        };
        for ((code, change), answer) in changes.iter().zip(&mut answers) {
            if matches!(change, Change::Remove { .. }) && !claims.contains_key(code) {
                *answer = away("it is not known which link there is to delete");
            }
        }
        let alone = self.shared.settings.accept_without_redis && self.shared.lease_holds();
        answers.into_iter().zip(&changes).map(|(answer, (_, change))| self.ground(answer, change, alone)).collect()
    }

    fn ground(&self, answer: Result<Changed, Trouble>, change: &Change, alone: bool) -> Ground {
        match answer {
            Ok(Changed { verdict: Verdict::Accepted(state), echo: Some(echo) }) => Ground::Accepted { state, echo },
            Ok(Changed { verdict: Verdict::Same, echo: Some(echo) }) => match change {
                Change::Claim(state) | Change::Offer(state) => Ground::Accepted { state: state.clone(), echo },
                Change::Remove { .. } => Ground::Unheard { asked: true, alone },
            },
            Ok(Changed { verdict: Verdict::Held(state), .. }) => {
                if matches!(change, Change::Claim(mine) if mine.origin() == Origin::Issued) {
                    self.shared.stats.fleet.collisions.add(1);
                }
                Ground::Held(state)
            }
            Ok(Changed { verdict: Verdict::Absent, .. }) => Ground::Absent,
            Ok(Changed { echo: None, .. }) => Ground::Unheard { asked: true, alone },
            Err(trouble) => {
                note_trouble(&self.shared.stats, &trouble);
                Ground::Unheard { asked: trouble.may_be_done(), alone }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn claims_are_all_different() {
        let mut claims = Claims::new().unwrap();
        let drawn: HashSet<u64> = (0..100_000).map(|_| claims.next()).collect();
        assert_eq!(drawn.len(), 100_000);
    }
}
