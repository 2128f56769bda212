//! Requests of clients, their responses, and the promises that follow from them.

use carom_model::link::Version;
use carom_model::replication::State;

use crate::codes::{Index, PARTS, is_slug, part_of};
use crate::redis::Redis;

/// The response to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The request has no result yet.
    Open,
    /// The request has no result and gets none: the node went down.
    Doubt,
    /// The request was carried out.
    Done,
    /// The request was not carried out, and will not be.
    Refused,
    /// The request was not carried out, because another link is there.
    Taken,
}

/// The request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A link with this claim.
    Create(u64),
    /// A delete; with the claims of the links that it removed, as far as is known: by Redis, and on the node.
    Delete(Option<u64>, Option<u64>),
    /// A change to a title with this number; with the claim of the link that was changed, as far as is known.
    Change(u64, Option<u64>),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The node that was asked.
    pub(crate) node: usize,
    /// The code.
    pub(crate) code: Index,
    /// The request.
    pub(crate) what: What,
    /// The event of the ledger at which it came.
    pub(crate) start: usize,
    /// The event of the ledger at which it was answered.
    pub(crate) end: usize,
    /// The answer.
    pub(crate) fate: Fate,
    /// True if the node went down after the answer.
    forgotten: bool,
}

impl Request {
    /// True if this delete may have removed the link of that create.
    fn may_remove(&self, create: &Request, claim: u64) -> bool {
        let What::Delete(by_redis, here) = self.what else { return false };
        if self.code != create.code {
            return false;
        }
        let at_once = self.fate == Fate::Doubt || self.fate == Fate::Open || self.end > create.start;
        // A request that takes its effect while the create is on its way, or a known effect.
        at_once || by_redis == Some(claim) || here == Some(claim)
    }
}

/// A conflict that a node has reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reported {
    /// The code.
    pub(crate) code: Index,
    /// The claim of the link that was given up.
    pub(crate) ours: u64,
}

/// Everything that a client may appeal to.
#[derive(Default, Debug)]
pub(crate) struct Ledger {
    /// All requests; a ticket is a place in this list.
    pub(crate) requests: Vec<Request>,
    /// Conflicts between links.
    pub(crate) reported: Vec<Reported>,
    /// Conflicts between changes of one link.
    pub(crate) changes_reported: Vec<Reported>,
    /// The claims of links that some node found to be over.
    pub(crate) expiries: Vec<u64>,
    /// Number of times that Redis has lost what it had acknowledged, by partition.
    pub(crate) losses: [usize; PARTS],
    /// Counts what is written down.
    clock: usize,
    /// Ranges of counter values that may be used, by node.
    pub(crate) leases: Vec<(usize, u64, u64)>,
}

impl Ledger {
    /// A request begins; its place is its ticket.
    pub(crate) fn begin(&mut self, node: usize, code: Index, what: What) -> u64 {
        self.clock += 1;
        self.requests.push(Request {
            node,
            code,
            what,
            start: self.clock,
            end: usize::MAX,
            fate: Fate::Open,
            forgotten: false,
        });
        self.requests.len() as u64 - 1
    }

    /// A request is answered.
    pub(crate) fn end(&mut self, ticket: u64, fate: Fate) {
        self.clock += 1;
        let request = &mut self.requests[ticket as usize];
        (request.end, request.fate) = (self.clock, fate);
    }

    /// A node went down: whatever it had not answered stays in doubt.
    pub(crate) fn crash(&mut self, node: usize) {
        for request in self.requests.iter_mut().filter(|request| request.node == node) {
            match request.fate {
                Fate::Open => request.fate = Fate::Doubt,
                _ => request.forgotten = true,
            }
        }
    }

    /// A node may use these values.
    pub(crate) fn lease(&mut self, node: usize, start: u64, end: u64) -> Result<(), String> {
        let twice = self.leases.iter().find(|(_, other, other_end)| start < *other_end && *other < end);
        if let Some((other, ..)) = twice {
            return Err(format!("values {start}..{end} of node {node} were given to node {other} before"));
        }
        self.leases.push((node, start, end));
        Ok(())
    }

    /// A node has reported a conflict.
    pub(crate) fn report(&mut self, code: Index, ours: Version, theirs: Version) -> Result<(), String> {
        if ours.claim == theirs.claim {
            self.changes_reported.push(Reported { code, ours: ours.claim });
            return Ok(());
        }
        if !is_slug(code) {
            return Err(format!("a conflict about an issued code: {code}, claim {:x}", ours.claim));
        }
        self.reported.push(Reported { code, ours: ours.claim });
        Ok(())
    }

    /// True if a node must never show this link again: it has acknowledged its delete.
    pub(crate) fn has_deleted(&self, node: usize, code: Index, claim: u64) -> bool {
        let made = self.requests.iter().find(|request| request.what == What::Create(claim));
        self.requests.iter().any(|request| {
            let What::Delete(by_redis, here) = request.what else { return false };
            let it = request.node == node && request.code == code && request.fate == Fate::Done;
            // A link whose create is still on its way may as well be made after that delete.
            let before = made.is_some_and(|made| made.end < request.end);
            it && (by_redis == Some(claim) || (here == Some(claim) && before))
        })
    }

    /// The number of events so far.
    pub(crate) fn now(&self) -> usize {
        self.clock
    }

    /// A node has answered 404 for a code: no link may have been acknowledged there up to that event, unless somebody may
    /// have ended it.
    pub(crate) fn check_missing(&self, node: usize, code: Index, event: usize) -> Result<(), String> {
        let of_code = || self.requests.iter().filter(|request| request.code == code);
        // A delete that was refused may still have been carried out.
        let may_delete = |request: &Request| matches!(request.what, What::Delete(..));
        let is_over = |claim: &u64| self.expiries.contains(claim);
        let created = |request: &Request| match request.what {
            What::Create(claim) if request.fate == Fate::Done && request.end <= event => Some(claim),
            _ => None,
        };
        if of_code().any(may_delete) || self.reported.iter().any(|reported| reported.code == code) {
            return Ok(());
        }
        match of_code().filter_map(created).find(|claim| !is_over(claim)) {
            Some(claim) => Err(format!("node {node} answers 404 for code {code}, claim {claim:x}, which exists")),
            None => Ok(()),
        }
    }

    /// The promises about what there is when everything has come to rest; all nodes have what Redis has by then.
    pub(crate) fn check(&self, redis: &Redis) -> Result<(), String> {
        for (ticket, request) in self.requests.iter().enumerate() {
            let last = redis.state(request.code);
            let lives = |claim: u64| last.is_some_and(|state| state.is_link() && state.version().claim == claim);
            match (request.what, request.fate) {
                (What::Create(claim), Fate::Done) if !lives(claim) => self.lost(ticket, request, claim, last)?,
                (What::Create(claim), Fate::Done)
                    if self.losses[part_of(request.code)] == 0
                        && self.reported.contains(&Reported { code: request.code, ours: claim }) =>
                {
                    return Err(format!("a conflict about request {ticket}, and Redis lost nothing: {request:?}"));
                }
                (What::Create(claim), Fate::Refused | Fate::Taken) if lives(claim) && !request.forgotten => {
                    return Err(format!("request {ticket} was refused, and its link is there: {request:?}"));
                }
                (What::Delete(by_redis, here), Fate::Done)
                    if by_redis
                        .or(here)
                        .is_some_and(|claim| lives(claim) && self.has_deleted(request.node, request.code, claim)) =>
                {
                    return Err(format!("the link that request {ticket} deleted is there again: {request:?}"));
                }
                (What::Change(number, Some(claim)), Fate::Done) if lives(claim) => {
                    self.check_change((ticket, request), (number, claim), last)?;
                }
                (What::Delete(..), Fate::Done) if !is_slug(request.code) && last.is_none_or(State::is_link) => {
                    return Err(format!("an issued code that request {ticket} deleted is {last:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A change that was acknowledged shows, or a later one does, unless that was reported.
    fn check_change(
        &self,
        (ticket, change): (usize, &Request),
        (number, claim): (u64, u64),
        last: Option<&State>,
    ) -> Result<(), String> {
        let shown = number_of(last);
        let may_be_later = |other: &&Request| {
            matches!(other.what, What::Change(theirs, _) if Some(theirs) == shown) && other.end > change.start
        };
        let is_shown = shown == Some(number) || self.requests.iter().any(|other| may_be_later(&other));
        let is_reported = self.changes_reported.contains(&Reported { code: change.code, ours: claim });
        // What the design cannot tell: Redis has lost the change, and others have changed the link twice before anybody
        // who knew of it came by.
        let looks_later = self.losses[part_of(change.code)] > 0;
        if is_shown || is_reported || looks_later {
            return Ok(());
        }
        Err(format!("the change of request {ticket} is lost: {change:x?}; there is {last:?}"))
    }

    /// A link that was acknowledged is not there: somebody must have deleted it, or it is a conflict that was reported.
    fn lost(&self, ticket: usize, create: &Request, claim: u64, last: Option<&State>) -> Result<(), String> {
        if self.requests.iter().any(|request| request.may_remove(create, claim)) {
            return Ok(());
        }
        let losses = self.losses[part_of(create.code)];
        if self.expiries.contains(&claim) {
            let change = |request: &&Request| {
                matches!(request.what, What::Change(_, Some(of)) if of == claim) && request.fate == Fate::Done
            };
            // What Redis has forgotten may have been the change.
            return match self.requests.iter().find(change).filter(|_| losses == 0) {
                Some(change) => Err(format!("a link has expired that was changed: {create:x?}, {change:x?}")),
                None => Ok(()),
            };
        }
        if losses > 0 && self.reported.contains(&Reported { code: create.code, ours: claim }) {
            return Ok(());
        }
        // What the design cannot tell: after a loss the slug was claimed, deleted and claimed once more before anybody
        // who knew of this link came by, so that its revision looks like that of a later link; or a second loss brought
        // back what was there before the first.
        let looks_later = last.is_some_and(|state| state.version().rev > 2);
        if is_slug(create.code) && (losses > 1 || (losses > 0 && looks_later)) {
            return Ok(());
        }
        Err(format!("the link of request {ticket} is lost: {create:x?}; there is {last:?}"))
    }
}

/// The number of the change that a state shows.
pub(crate) fn number_of(state: Option<&State>) -> Option<u64> {
    match state {
        Some(State::Link(link)) => link.labels.title.as_deref()?.parse().ok(),
        _ => None,
    }
}
