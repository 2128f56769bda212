//! The reuse thread: before a code is claimed, it looks for an existing link that can answer a create.
//!
//! A create without a window is looked up in the local store. Within the window, Redis names one code for all nodes;
//! the node that names it first creates its link. Either way, a link that this node or Redis knows to be gone is never
//! the answer, so each code is looked up in both places. An entry may name a code whose link another node is about to
//! create; the search waits for that. An entry whose code has no link is replaced. While Redis does not answer, the
//! local store decides, as on a single node. If anything fails here, a new link is created, which is always correct.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::context::{FleetContext, note_error};
use super::decision::{STATE_UNKNOWN, decision_of};
use super::held_creates::HeldCreates;
use crate::bridge::{FleetDecision, StoreRequest, WriterOrder};
use crate::services::replication::redis::{CodeChange, Recent, Redis, RedisError};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::services::writer::similar_urls::{self, ReuseCandidates, ReuseQuery};
use carom_limits::{GATEWAY_BATCH, MAKING_KEPT, WRITE_QUEUE_LEN};
use carom_model::link::{Link, Origin, Reuse, UrlKey};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{State, rules};
use carom_telemetry::clock::unix_ms;

/// Number of times that Redis is asked for a code. The second time replaces a wrong entry; the third time, another node
/// has replaced it.
const ROUNDS: usize = 3;

/// First pause before looking again for a link that another node is about to create. Each further pause is twice as
/// long.
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// Codes that were sent to the writer a moment ago, and may not be in the store yet.
#[derive(Default)]
struct RecentCreates(HashMap<UrlKey, (Code, Instant)>);

impl RecentCreates {
    fn code(&self, key: UrlKey) -> Option<Code> {
        self.0.get(&key).filter(|(_, since)| since.elapsed() < MAKING_KEPT).map(|(code, _)| *code)
    }

    fn add(&mut self, key: UrlKey, code: Code) {
        self.0.insert(key, (code, Instant::now()));
    }

    fn forget(&mut self, key: UrlKey) {
        self.0.remove(&key);
    }

    fn age(&mut self) {
        self.0.retain(|_, (_, since)| since.elapsed() < MAKING_KEPT);
    }
}

/// The progress of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ReuseStep {
    /// Redis is asked for a code next.
    Ask,
    /// The code that is looked up next.
    Look(Code),
    /// The code of the link that is the answer, with its state if the store does not have it.
    Found(Code, Option<State>),
    /// No existing link can be the answer.
    Nothing,
}

/// A search for an existing link, on behalf of one request or of several like ones in a turn.
struct ReuseSearch<'r> {
    link: &'r Arc<Link>,
    reuse: Reuse,
    key: UrlKey,
    /// The requests, as indexes into the turn.
    requests: Vec<usize>,
    /// The link that this node would answer with.
    here: Option<Code>,
    /// The code that Redis has named and that is wrong.
    wrong: Vec<u8>,
    /// True if Redis has seen the code of the request.
    offered: bool,
    /// The answer of Redis to the claim of the request's own code.
    claimed: Option<FleetDecision>,
    step: ReuseStep,
}

/// True if an existing link may answer a request. Only such requests come to this thread.
pub(super) fn is_wanted(request: &StoreRequest, window: Option<Duration>) -> bool {
    match request {
        StoreRequest::Create { reuse: Reuse::Any(_) | Reuse::OfSlug(_), .. } => true,
        StoreRequest::Create { reuse: Reuse::Recent, link, .. } => window.is_some() && link.origin == Origin::Issued,
        _ => false,
    }
}

/// Starts the thread. It ends when all senders are gone. It waits for Redis in each turn, so it has a connection of its
/// own. No other thread then waits for an entry without a link, or for a slow server of a cluster.
pub(super) fn start(
    fleet: &FleetContext,
    writer: SyncSender<WriterOrder>,
) -> io::Result<(SyncSender<StoreRequest>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(WRITE_QUEUE_LEN);
    let (redis, reuser, held) = (fleet.redis()?, LinkReuse::default(), HeldCreates::default());
    let searcher = ReuseSearcher { redis, fleet: fleet.clone(), writer, reuser, held };
    let thread = threads::start(Priority::Awaited, "redis-reuse", move || searcher.run(&receiver))?;
    Ok((sender, thread))
}

struct ReuseSearcher {
    fleet: FleetContext,
    redis: Redis,
    writer: SyncSender<WriterOrder>,
    reuser: LinkReuse,
    /// The creates that Redis has accepted and that wait for other nodes.
    held: HeldCreates,
}

impl ReuseSearcher {
    fn run(mut self, receiver: &Receiver<StoreRequest>) {
        loop {
            let first = match self.held.next_in() {
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => receiver.recv_timeout(wait),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            while let Some(order) = self.held.pop_due() {
                if self.writer.send(order).is_err() {
                    return;
                }
            }
            let requests: Vec<_> = first.into_iter().chain(receiver.try_iter().take(GATEWAY_BATCH - 1)).collect();
            let decisions = self.reuser.decisions(&self.fleet, &mut self.redis, &requests);
            for (request, decision) in requests.into_iter().zip(decisions) {
                // In the order of arrival: a request that is answered with the link of another one comes after it.
                self.reuser.forget_uncreated(&self.fleet, &request, &decision);
                if HeldCreates::must_hold(&self.fleet.view, &request, &decision) {
                    self.held.push(request, decision);
                } else if self.writer.send(WriterOrder::Client(request, decision)).is_err() {
                    return;
                }
            }
        }
    }
}

/// The search for existing links, with the state that it keeps from turn to turn.
#[derive(Default)]
struct LinkReuse {
    making: RecentCreates,
}

impl LinkReuse {
    /// Returns for each request the existing link that answers it, or else the answer of Redis to the claim of its own code.
    fn decisions(&mut self, fleet: &FleetContext, redis: &mut Redis, requests: &[StoreRequest]) -> Vec<FleetDecision> {
        let mut turn = Turn { fleet, redis, now_ms: unix_ms(), begin: Instant::now() };
        self.making.age();
        let mut searches = self.begin(&turn, requests);
        // The timeout of Redis starts when it is asked, however long the store took.
        turn.begin = Instant::now();
        for _ in 0..ROUNDS {
            if fleet.has_same_code_secret() {
                turn.ask(&mut searches);
                // Claims come first: other nodes may be waiting for these links.
                turn.claim(&mut searches);
                turn.look(&mut searches, &self.making);
            } else {
                searches.iter_mut().for_each(|search| search.decide_here());
            }
        }
        for search in &mut searches {
            // A search that is still open has run out of time.
            if matches!(search.step, ReuseStep::Ask | ReuseStep::Look(_)) {
                search.decide_here();
            }
        }
        turn.claim(&mut searches);
        let mut decisions: Vec<Option<FleetDecision>> = requests.iter().map(|_| None).collect();
        searches.into_iter().for_each(|search| self.end(search, &mut decisions));
        decisions.into_iter().map(|decision| decision.expect("every request has its search")).collect()
    }

    /// Forgets the link of a create that is not stored after this decision.
    fn forget_uncreated(&mut self, fleet: &FleetContext, request: &StoreRequest, decision: &FleetDecision) {
        let is_taken = !fleet.stats.writes_refused.load(Ordering::Acquire);
        let will_be = match decision {
            FleetDecision::Accepted { .. } | FleetDecision::Existing { .. } | FleetDecision::Alone => true,
            FleetDecision::NoReply { may_decide_alone, .. } => *may_decide_alone,
            FleetDecision::Held(_) | FleetDecision::Absent => false,
        };
        if let (StoreRequest::Create { link, .. }, false) = (request, will_be && is_taken) {
            self.making.forget(link.url_key());
        }
    }

    /// Returns the searches of a turn, with what this node knows.
    fn begin<'r>(&mut self, turn: &Turn<'_>, requests: &'r [StoreRequest]) -> Vec<ReuseSearch<'r>> {
        let mut searches: Vec<ReuseSearch<'r>> = Vec::new();
        let mut known: HashMap<(UrlKey, Reuse), usize> = HashMap::new();
        for (at, request) in requests.iter().enumerate() {
            let StoreRequest::Create { link, reuse, .. } = request else { continue };
            let key = link.url_key();
            if matches!(reuse, Reuse::OfSlug(_)) {
                // Only the link with this very slug can be the answer.
                let search = ReuseSearch::new(link, *reuse, key, at);
                let stored = turn.fleet.stored_state(&link.code);
                let is_here = stored.is_some_and(|state| search.query().is_answered_by(&state, turn.now_ms));
                searches.push(if is_here {
                    ReuseSearch { step: ReuseStep::Look(link.code), here: Some(link.code), ..search }
                } else {
                    search
                });
                continue;
            }
            if let Some(&first) = known.get(&(key, *reuse)) {
                searches[first].requests.push(at);
                continue;
            }
            known.insert((key, *reuse), searches.len());
            let search = self.search(turn, ReuseSearch::new(link, *reuse, key, at));
            // The link of this request will be created, unless the search finds one.
            if search.here.is_none() {
                self.making.add(key, link.code);
            }
            searches.push(search);
        }
        searches
    }

    /// Fills in a search for a generated or random code with what this node knows.
    fn search<'r>(&self, turn: &Turn<'_>, search: ReuseSearch<'r>) -> ReuseSearch<'r> {
        let (links, stats) = (&turn.fleet.links, &turn.fleet.stats);
        // Once the code is in the store, the store decides.
        let making = self.making.code(search.key).filter(|code| turn.fleet.stored_state(code).is_none());
        let find = |which| similar_urls::find(links, stats, search.query(), which, turn.now_ms).or(making);
        if matches!(search.reuse, Reuse::Any(_))
            && let Some(code) = find(ReuseCandidates::All)
        {
            return ReuseSearch { step: ReuseStep::Look(code), here: Some(code), ..search };
        }
        match turn.window() {
            // Within a window, a URL has one generated code, whatever slugs it gets.
            Some(window) if search.link.origin == Origin::Issued => {
                let since = turn.now_ms.saturating_sub(window.as_millis() as u64).saturating_add(1);
                ReuseSearch { step: ReuseStep::Ask, here: find(ReuseCandidates::UsedSince(since)), ..search }
            }
            _ => ReuseSearch { step: ReuseStep::Nothing, ..search },
        }
    }

    /// Turns a finished search into the answers of its requests.
    fn end(&mut self, mut search: ReuseSearch<'_>, decisions: &mut [Option<FleetDecision>]) {
        let existing =
            |code: Code, found: Option<State>, spare: bool| Some(FleetDecision::Existing { code, found, spare });
        debug_assert!(search.requests.iter().all(|&at| decisions[at].is_none()), "two searches answer one request");
        let mut others = &search.requests[..];
        match &search.step {
            ReuseStep::Found(code, found) => {
                if self.making.code(search.key) == Some(search.link.code) {
                    self.making.forget(search.key);
                }
                let (first, rest) = others.split_first().expect("somebody asks");
                decisions[*first] = existing(*code, found.clone(), !search.offered);
                others = rest;
                others.iter().for_each(|&at| decisions[at] = existing(*code, found.clone(), true));
            }
            ReuseStep::Ask | ReuseStep::Look(_) | ReuseStep::Nothing => {
                if search.link.origin == Origin::Issued {
                    self.making.add(search.key, search.link.code);
                }
                // The first request creates the link, and the writer gets it before the others.
                decisions[others[0]] = search.claimed.take();
                others[1..].iter().for_each(|&at| decisions[at] = existing(search.link.code, None, true));
            }
        }
    }
}

impl<'r> ReuseSearch<'r> {
    fn query(&self) -> ReuseQuery<'r> {
        ReuseQuery { link: self.link, reuse: self.reuse }
    }

    fn new(link: &'r Arc<Link>, reuse: Reuse, key: UrlKey, at: usize) -> ReuseSearch<'r> {
        ReuseSearch {
            link,
            reuse,
            key,
            requests: vec![at],
            here: None,
            wrong: Vec::new(),
            offered: false,
            claimed: None,
            step: ReuseStep::Nothing,
        }
    }

    /// Decides without Redis.
    fn decide_here(&mut self) {
        if !matches!(self.step, ReuseStep::Found(..)) {
            self.step = self.here.map_or(ReuseStep::Nothing, |code| ReuseStep::Found(code, None));
        }
    }

    /// Rejects a code that was looked up. If Redis can name codes, it is asked for another one.
    fn reject(&mut self, code: Code, has_window: bool) {
        if self.here == Some(code) {
            self.here = None;
        }
        let may_ask = has_window && self.link.origin == Origin::Issued;
        self.step = if may_ask { ReuseStep::Ask } else { ReuseStep::Nothing };
        self.wrong = code.to_string().into_bytes();
    }
}

/// The inputs of one turn.
struct Turn<'t> {
    fleet: &'t FleetContext,
    redis: &'t mut Redis,
    now_ms: u64,
    begin: Instant,
}

impl Turn<'_> {
    fn window(&self) -> Option<Duration> {
        self.fleet.settings.dedupe
    }

    /// True if Redis may still be asked. All questions of a turn share one timeout. The last one still gets its full
    /// time, because a server that is given too little time would count as away.
    fn has_time(&self) -> bool {
        self.begin.elapsed() < self.fleet.answer_time()
    }

    /// Has Redis name a code for each search that needs one.
    fn ask(&mut self, searches: &mut [ReuseSearch<'_>]) {
        let Some(window) = self.window() else { return };
        let mut asking: Vec<&mut ReuseSearch<'_>> =
            searches.iter_mut().filter(|search| search.step == ReuseStep::Ask).collect();
        if asking.is_empty() || !self.has_time() {
            return;
        }
        let question = |search: &&mut ReuseSearch<'_>| Recent {
            key: search.key,
            code: search.here.unwrap_or(search.link.code),
            wrong: search.wrong.clone(),
        };
        let questions: Vec<Recent> = asking.iter().map(question).collect();
        let answers = self.redis.recent(&questions, window, self.fleet.answer_time());
        for ((search, question), answer) in asking.iter_mut().zip(questions).zip(answers) {
            search.offered |= question.code == search.link.code;
            match answer {
                Ok(named) => match Code::from_key(&named) {
                    Ok(code) if code == search.link.code => search.step = ReuseStep::Nothing,
                    Ok(code) => search.step = ReuseStep::Look(code),
                    Err(_) => search.wrong = named,
                },
                Err(error) => {
                    note_error(&self.fleet.stats, &error);
                    search.decide_here();
                }
            }
        }
    }

    /// Claims the codes of links that are to be created.
    fn claim(&mut self, searches: &mut [ReuseSearch<'_>]) {
        let is_open = |search: &&mut ReuseSearch<'_>| search.step == ReuseStep::Nothing && search.claimed.is_none();
        let (mut open, mut claims) = (Vec::new(), Vec::new());
        for search in searches.iter_mut().filter(is_open) {
            match self.fleet.state_for_redis(&search.link.code) {
                Ok(mine) => {
                    claims.push((search.link.code, CodeChange::Claim(State::Link(Arc::clone(search.link)), mine)));
                    open.push(search);
                }
                Err(_) => search.claimed = Some(STATE_UNKNOWN),
            }
        }
        if claims.is_empty() {
            return;
        }
        let answers = match self.fleet.may_change() {
            Ok(()) => self.redis.change(&claims, self.fleet.answer_time()),
            Err(why) => {
                claims.iter().map(|_| Err(RedisError::Unavailable { what: why.to_owned(), was_sent: false })).collect()
            }
        };
        for ((search, (_, change)), answer) in open.iter_mut().zip(&claims).zip(answers) {
            search.claimed = Some(decision_of(self.fleet, answer, Some(change)));
        }
    }

    /// Looks up the codes that may be the answer.
    fn look(&mut self, searches: &mut [ReuseSearch<'_>], making: &RecentCreates) {
        // Half of the timeout, so that the other half is left to replace entries without a link.
        let wait_max = self.fleet.answer_time() / 2;
        let mut wait = FIRST_WAIT;
        loop {
            for search in searches.iter_mut() {
                // The link is on its way to the writer, which will look it up itself.
                if let ReuseStep::Look(code) = search.step
                    && making.code(search.key) == Some(code)
                    && self.fleet.stored_state(&code).is_none()
                {
                    search.step = ReuseStep::Found(code, None);
                }
            }
            let looking =
                |search: &ReuseSearch<'_>| if let ReuseStep::Look(code) = search.step { Some(code) } else { None };
            let codes: Vec<Code> = searches.iter().filter_map(looking).collect();
            if codes.is_empty() || !self.has_time() {
                return;
            }
            let answers = self.redis.states(&codes, self.fleet.answer_time());
            let again = self.begin.elapsed() + wait < wait_max;
            let has_window = self.window().is_some();
            let looked = searches.iter_mut().filter(|search| matches!(search.step, ReuseStep::Look(_)));
            for ((search, code), answer) in looked.zip(codes).zip(answers) {
                match self.classify(search.query(), code, answer) {
                    ReuseLookup::Match(found) => search.step = ReuseStep::Found(code, found),
                    ReuseLookup::Missing if again => {}
                    ReuseLookup::Missing | ReuseLookup::Mismatch => search.reject(code, has_window),
                    ReuseLookup::NoReply => search.decide_here(),
                }
            }
            if !searches.iter().any(|search| matches!(search.step, ReuseStep::Look(_))) {
                return;
            }
            std::thread::sleep(wait);
            wait *= 2;
        }
    }

    /// Compares a create with the states that this node and Redis have for a code.
    fn classify(
        &self,
        query: ReuseQuery<'_>,
        code: Code,
        answer: Result<Option<ReceivedState>, RedisError>,
    ) -> ReuseLookup {
        let here = self.fleet.stored_state(&code);
        let is_here = here.as_ref().is_some_and(|state| query.is_answered_by(state, self.now_ms));
        if let Ok(there) = &answer {
            match self.fleet.knows_lost_marked(&code, there.as_ref()) {
                Ok(false) => {}
                // A later version may have given the link another destination.
                Ok(true) => return ReuseLookup::Mismatch,
                Err(_) => return ReuseLookup::NoReply,
            }
        }
        match answer {
            Ok(Some(ReceivedState::Known(there))) if query.is_answered_by(&there, self.now_ms) => match here {
                Some(_) if is_here => ReuseLookup::Match(None),
                // This node knows of a delete that Redis does not know, or has lost.
                Some(mine) if rules::is_over(&mine, &there) => ReuseLookup::Mismatch,
                _ => ReuseLookup::Match(Some(there)),
            },
            Ok(Some(_)) => ReuseLookup::Mismatch,
            // Redis does not know the link yet, or has lost it.
            Ok(None) if is_here => ReuseLookup::Match(None),
            Ok(None) if here.is_none() => ReuseLookup::Missing,
            Ok(None) => ReuseLookup::Mismatch,
            Err(error) => {
                note_error(&self.fleet.stats, &error);
                ReuseLookup::NoReply
            }
        }
    }
}

/// The result of looking up a code for a link that may exist already.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ReuseLookup {
    /// A link that can be the answer, with its state if this node does not have it.
    Match(Option<State>),
    /// The code has no state, here or in Redis.
    Missing,
    /// The code has another link, or a tombstone.
    Mismatch,
    /// Redis did not answer, or the store cannot tell.
    NoReply,
}

#[cfg(test)]
mod tests;
