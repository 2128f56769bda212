//! The one thread that says whether a link with `maxVisits` may be followed once more.
//!
//! Every redirect of such a link, whichever core it comes to, asks here and waits, so one thread sees them all and none too
//! many gets through. Visits are given out in shares ([`crate::allowance`]), each stored and synced before the first of it is used. In
//! a fleet Redis gives the shares out, with one script for each link, and a share that Redis did not confirm is not used:
//! without Redis, and while the disk takes nothing, such links are unavailable when their share is used up. That is the
//! price of exactness; all other links go on.
//!
//! Whoever changes a link says so here before the change is acknowledged, so that nothing that was known of it stays.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::readers::{self, Read};
use super::visits::Visits;
use crate::alarms::Alarm;
use crate::allowance::{Identity, Share, Stored};
use crate::limits::{ALLOWANCE_BATCH, FETCH_TIME_MAX};
use crate::link::Link;
use crate::mail::{AllowanceOrder, AllowanceQueue, Post, ToCore, VisitAsked};
use crate::redirect::Lookup;
use crate::stats::NodeStats;
use crate::store::links::{Links, StoreError};
use crate::store::redis::{Allowance, Redis};

/// After this time without a visit a link's share is put away.
const IDLE: Duration = Duration::from_secs(10);

/// How often the links are looked at that are idle.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For how long it is believed that Redis has nothing left: a higher maximum is told of at once.
const SPENT_FOR: Duration = Duration::from_secs(1);

/// Who gives out visits for several nodes.
pub struct SharedVisits {
    /// Redis, as this thread speaks to it.
    pub redis: Redis,
    /// How long it may take to answer.
    pub answer_time: Duration,
}

/// Inputs of the thread.
pub struct AllowanceSetup {
    /// The store.
    pub links: Links,
    /// The cores' mailboxes.
    pub post: Post,
    /// Where to count.
    pub stats: Arc<NodeStats>,
    /// Who knows how often a link was followed so far.
    pub visits: Visits,
    /// Who gives out visits; this node alone where there is nobody.
    pub shared: Option<SharedVisits>,
}

/// Starts the thread. It ends when all senders are gone, and stores what is left of its shares then.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: AllowanceSetup) -> io::Result<(AllowanceQueue, JoinHandle<()>)> {
    let (queue, receiver) = AllowanceQueue::new();
    let allowances = Allowances { setup, queue_len: queue.waiting(), limited: HashMap::new(), failed: false };
    let thread = std::thread::Builder::new().name("allowances".to_owned()).spawn(move || allowances.run(&receiver))?;
    Ok((queue, thread))
}

/// A link that is followed at present.
struct Limited {
    link: Arc<Link>,
    share: Share,
    waiting: Vec<VisitAsked>,
    used: Instant,
    /// Until when it is believed that nothing is left.
    spent_until: Option<Instant>,
}

impl Limited {
    fn identity(&self) -> Identity {
        identity(&self.link)
    }
}

struct Allowances {
    setup: AllowanceSetup,
    queue_len: Arc<AtomicUsize>,
    limited: HashMap<Code, Limited>,
    /// Whether a write has failed: nobody knows what is stored then.
    failed: bool,
}

impl Allowances {
    fn run(mut self, receiver: &Receiver<AllowanceOrder>) {
        let mut looked = Instant::now();
        loop {
            match receiver.recv_timeout(LOOK_EVERY) {
                Ok(first) => self.take_turn(std::iter::once(first).chain(receiver.try_iter().take(ALLOWANCE_BATCH))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                // While the disk is full they stay: what they have left would be lost.
                if !self.setup.stats.writes_refused.load(Ordering::Acquire) {
                    self.put_away(|limited| limited.used.elapsed() >= IDLE);
                }
            }
        }
        self.put_away(|_| true);
    }

    fn take_turn(&mut self, orders: impl Iterator<Item = AllowanceOrder>) {
        let mut touched = Vec::new();
        for order in orders {
            match order {
                AllowanceOrder::Ask(visit) => {
                    self.queue_len.fetch_sub(1, Ordering::Relaxed);
                    touched.extend(self.ask(visit));
                }
                AllowanceOrder::Changed(codes) => {
                    self.give_out(&mut touched);
                    let (ended, changed): (Vec<_>, Vec<_>) = codes.into_iter().partition(|(_, ended)| *ended);
                    ended.iter().for_each(|(code, _)| _ = self.limited.remove(code));
                    if self.setup.shared.is_some() {
                        // With a lower maximum others may have taken what this node has left: it asks anew.
                        changed.iter().for_each(|(code, _)| _ = self.limited.remove(code));
                    }
                    self.put_away_these(changed.iter().map(|(code, _)| code));
                }
            }
        }
        self.give_out(&mut touched);
    }

    /// Answers a visit, or lets it wait; returns its code then.
    fn ask(&mut self, visit: VisitAsked) -> Option<Code> {
        if visit.since.elapsed() >= FETCH_TIME_MAX {
            // The client has been told; a visit that nobody makes is not to be used up.
            self.tell(&visit, Lookup::NotResident);
            return None;
        }
        if !self.limited.contains_key(&visit.code) {
            match self.load(&visit.code) {
                Ok(limited) => _ = self.limited.insert(visit.code, limited),
                Err(found) => {
                    self.tell(&visit, found);
                    return None;
                }
            }
        }
        let limited = self.limited.get_mut(&visit.code).expect("it was inserted above");
        limited.used = Instant::now();
        if limited.waiting.is_empty() && limited.share.take_one() {
            let found = Lookup::Live(Arc::clone(&limited.link));
            self.tell(&visit, found);
            return None;
        }
        let code = visit.code;
        limited.waiting.push(visit);
        Some(code)
    }

    /// Reads a link and what is stored of its visits; or says what else there is.
    fn load(&self, code: &Code) -> Result<Limited, Lookup<Arc<Link>>> {
        let AllowanceSetup { links, stats, visits, shared, .. } = &self.setup;
        let unreadable = |error: StoreError| {
            stats.store_errors.add_shared(1);
            tracing::error!(%error, %code, "the number of visits of a link cannot be read");
            Lookup::NotResident
        };
        // Before the link: a delete in between then leaves too few visits, not too many.
        let stored = links.allowance(code).map_err(unreadable)?;
        let link = match readers::read(links, stats, code) {
            Read::Link(link) => link,
            Read::Nothing => return Err(Lookup::Missing),
            Read::Damaged(_) => return Err(Lookup::Damaged),
            Read::Unreadable => return Err(Lookup::NotResident),
        };
        // It was changed since the core looked, and may be followed without end.
        let Some(max) = link.policy.max_visits else { return Err(Lookup::Live(link)) };
        let of = identity(&link);
        let stored = stored.filter(|stored| stored.of == of).unwrap_or(Stored { of, ..Stored::default() });
        let followed = visits.counts(&[*code]).map_err(unreadable)?.iter().map(|counts| counts.total).sum();
        let share = Share::resume(max, stored, followed, shared.is_some());
        Ok(Limited { link, share, waiting: Vec::new(), used: Instant::now(), spent_until: None })
    }

    /// Gives out more visits of these links until nobody waits.
    fn give_out(&mut self, touched: &mut Vec<Code>) {
        touched.sort_unstable();
        touched.dedup();
        while !touched.is_empty() {
            let may_write = !self.failed && !self.setup.stats.writes_refused.load(Ordering::Acquire);
            let given = if may_write { self.find_more(touched) } else { vec![None; touched.len()] };
            let given = self.keep(touched, given);
            let mut still = Vec::new();
            for (code, given) in touched.drain(..).zip(given) {
                if self.serve(&code, given) {
                    still.push(code);
                }
            }
            *touched = still;
        }
    }

    /// How many more visits of each of these links there are for this node, and how many are given out in all then; `None`
    /// where nobody can say. What lies parked comes first.
    fn find_more(&mut self, codes: &[Code]) -> Vec<Option<(u64, u64)>> {
        let now = Instant::now();
        let here = |limited: &Limited| {
            let taken = limited.share.taken();
            if limited.share.has_parked() || limited.spent_until.is_some_and(|until| now < until) {
                return Some((0, taken));
            }
            let wanted = limited.share.wanted(limited.waiting.len());
            (wanted == 0 || self.setup.shared.is_none()).then_some((wanted, taken + wanted))
        };
        let mut given: Vec<Option<(u64, u64)>> = codes.iter().map(|code| here(&self.limited[code])).collect();
        let Some(SharedVisits { redis, answer_time }) = &mut self.setup.shared else { return given };
        if !self.setup.stats.fleet.same_key.load(Ordering::Acquire) {
            return given;
        }
        let open: Vec<usize> = (0..codes.len()).filter(|&at| given[at].is_none()).collect();
        let asked: Vec<Allowance> = open
            .iter()
            .map(|&at| {
                let limited = &self.limited[&codes[at]];
                Allowance {
                    code: codes[at],
                    claim: limited.identity().claim,
                    max: limited.share.max(),
                    taken: limited.share.taken(),
                    waiting: limited.waiting.len() as u64,
                }
            })
            .collect();
        for (at, answer) in open.into_iter().zip(redis.allow(&asked, *answer_time)) {
            given[at] = answer.inspect_err(|_| self.setup.stats.fleet.errors.add_shared(1)).ok();
        }
        given
    }

    /// Stores what is given out, before any of it is used. Returns what may be used.
    fn keep(&mut self, codes: &[Code], given: Vec<Option<(u64, u64)>>) -> Vec<Option<(u64, u64)>> {
        let mut batch = self.setup.links.batch();
        for (code, given) in codes.iter().zip(&given) {
            let limited = &self.limited[code];
            if let Some((given, taken)) = *given
                && (given > 0 || limited.share.has_parked())
            {
                batch.set_allowance(code, &Stored { taken, ..limited.share.stored(limited.identity()) });
            }
        }
        if batch.is_empty() {
            return given;
        }
        let stored = self.setup.links.commit(batch).and_then(|()| self.setup.links.sync());
        if let Err(error) = stored {
            self.fail(&error);
            return vec![None; codes.len()];
        }
        given
    }

    /// Answers those who wait for a link, as far as there is an answer. Returns whether some still wait.
    fn serve(&mut self, code: &Code, given: Option<(u64, u64)>) -> bool {
        let Some(limited) = self.limited.get_mut(code) else { return false };
        let mut told = Vec::new();
        match given {
            None => told.extend(limited.waiting.drain(..).map(|visit| (visit, Lookup::NotResident))),
            Some((given, taken)) => {
                let was_parked = limited.share.has_parked();
                limited.share.unpark();
                limited.share.give(given, taken);
                let mut waiting = std::mem::take(&mut limited.waiting).into_iter();
                while waiting.len() > 0 && limited.share.take_one() {
                    let allowed = Lookup::Live(Arc::clone(&limited.link));
                    told.extend(waiting.next().map(|visit| (visit, allowed)));
                }
                if given == 0 && !was_parked {
                    limited.spent_until = Some(Instant::now() + SPENT_FOR);
                    told.extend(waiting.by_ref().map(|visit| (visit, Lookup::Expired)));
                }
                limited.waiting = waiting.collect();
            }
        }
        let still_wait = !limited.waiting.is_empty();
        told.into_iter().for_each(|(visit, found)| self.tell(&visit, found));
        still_wait
    }

    fn tell(&self, visit: &VisitAsked, found: Lookup<Arc<Link>>) {
        let VisitAsked { code, core, token, .. } = *visit;
        self.setup.post.to(core).post(ToCore::LookedUp { code, token, found, is_allowance: true });
    }

    /// Stores what is left of the shares of some links and forgets them. Nobody waits for any of them.
    fn put_away(&mut self, which: impl Fn(&Limited) -> bool) {
        let codes: Vec<Code> =
            self.limited.iter().filter(|(_, limited)| which(limited)).map(|(code, _)| *code).collect();
        self.put_away_these(codes.iter());
    }

    fn put_away_these<'c>(&mut self, codes: impl Iterator<Item = &'c Code>) {
        let may_write = !self.failed && !self.setup.stats.writes_refused.load(Ordering::Acquire);
        let mut batch = self.setup.links.batch();
        for code in codes {
            let Some(limited) = self.limited.remove(code) else { continue };
            if let Some(left) = limited.share.parked(limited.identity())
                && may_write
            {
                batch.set_allowance(code, &left);
            }
        }
        if !batch.is_empty()
            && let Err(error) = self.setup.links.commit(batch)
        {
            self.fail(&error);
        }
    }

    /// A write has failed: nobody knows what is stored.
    fn fail(&mut self, error: &StoreError) {
        self.failed = true;
        self.setup.stats.store_errors.add_shared(1);
        let text = format!(
            "visits of links with maxVisits cannot be stored ({error}); these links return 503; check the disk, then restart"
        );
        self.setup.stats.alarms.raise(Alarm::VisitsFailed, text);
    }
}

fn identity(link: &Link) -> Identity {
    Identity { created_ms: link.created_ms, claim: link.version.claim }
}
