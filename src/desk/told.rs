//! What a core tells of its requests: visits to who counts them, and lines to who writes the access log.

use std::time::Duration;

use carom_shards::Code;

use super::Desk;
use crate::access_log::{AccessSender, Entry, Noted, Outcome, Request};
use crate::redirect::VisitKind;
use crate::stats::unix_ms;
use crate::visits::{Told, Visit, VisitSender, Visitor};

/// To whom a core tells of its requests.
#[derive(Debug, Default)]
pub struct Tellers {
    /// Who counts visits; nobody for the core of the admin listener.
    pub visits: Option<VisitSender>,
    /// Who writes the access log, where there is one.
    pub access: Option<AccessSender>,
}

impl Desk {
    /// Who sent a request, by two fields of its head.
    #[inline]
    pub fn visitor(&self, user_agent: &[u8], referer: &[u8]) -> Option<Visitor> {
        Some(self.told.borrow_mut().visits.as_mut()?.visitor(user_agent, referer))
    }

    /// Records the visit that a response counts as, where it does. `code` is that of the link.
    #[inline]
    pub fn record_visit(&self, kind: VisitKind, code: Code, visitor: impl FnOnce() -> Option<Visitor>) {
        match kind {
            VisitKind::None => {}
            VisitKind::Link => self.tell_visit(Some(code), visitor()),
            VisitKind::Orphan => self.tell_visit(None, visitor()),
        }
    }

    /// Tells of a visit: of the link of that code, or of no link.
    #[inline]
    fn tell_visit(&self, code: Option<Code>, visitor: Option<Visitor>) {
        if let (Some(visits), Some(visitor)) = (&mut self.told.borrow_mut().visits, visitor) {
            match visits.tell(&Visit { code, visitor }) {
                Told::Whole => {}
                Told::WithoutReferrer => self.counters.node.referrers_dropped.add_shared(1),
                Told::Nothing => self.counters.node.visits_dropped.add_shared(1),
            }
        }
    }

    /// Whether the next request is one that the access log is to have.
    #[inline]
    pub fn picks(&self) -> bool {
        self.told.borrow_mut().access.as_mut().is_some_and(AccessSender::picks)
    }

    /// Whether the access log says anything of addresses, which take a question to the kernel.
    pub fn wants_addresses(&self) -> bool {
        self.told.borrow().access.as_ref().is_some_and(|access| access.wants_addresses)
    }

    /// Tells of a request that was picked, and answered now after so long.
    pub fn tell_request(&self, request: Request<'_>, status: u16, took: Duration) {
        let entry = Entry { request, outcome: outcome(status, took) };
        let is_told = |access: &mut AccessSender| access.tell(&entry);
        self.count_told(self.told.borrow_mut().access.as_mut().is_none_or(is_told));
    }

    /// The same of one that was noted when it came.
    pub fn tell_noted(&self, noted: Noted, status: u16, took: Duration) {
        let is_told = |access: &mut AccessSender| access.tell_noted(noted, outcome(status, took));
        self.count_told(self.told.borrow_mut().access.as_mut().is_none_or(is_told));
    }

    fn count_told(&self, is_told: bool) {
        if !is_told {
            self.counters.node.access_log.dropped.add_shared(1);
        }
    }
}

fn outcome(status: u16, took: Duration) -> Outcome {
    Outcome { at_ms: unix_ms(), micros: u32::try_from(took.as_micros()).unwrap_or(u32::MAX), status }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::desk::gather::tests::{NoCodes, desk};
    use crate::desk::{Counters, Domains};
    use carom_shards::CoreId;
    use std::rc::Rc;
    use std::sync::Arc;

    /// A desk of core 0 of a service with these domains, which records visits and lets each address miss once a second.
    pub(crate) fn recording_desk(domains: Domains, visits: VisitSender) -> Rc<Desk> {
        let counters = desk(1).0.counters().clone();
        let counters = Counters { domains: Arc::new(domains), misses_per_second: 1, ..counters };
        let told = Tellers { visits: Some(visits), access: None };
        Rc::new(Desk::new(CoreId(0), counters, Box::new(NoCodes), told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::gather::tests::desk;
    use crate::visits::ring;

    #[test]
    fn referrers_and_visits_that_find_no_room_are_counted_as_dropped() {
        let (desk, _orders) = desk(1);
        let (sender, mut receiver) = ring();
        desk.told.borrow_mut().visits = Some(sender);
        let visitor = desk.visitor(b"", format!("https://{}.example/", "x".repeat(52)).as_bytes());
        let tell = |times: u64| (0..times).for_each(|_| desk.tell_visit(Code::parse(b"abc").ok(), visitor));
        let dropped = || (desk.counters.node.referrers_dropped.get(), desk.counters.node.visits_dropped.get());
        tell(12_000);
        let mut whole = 0;
        assert_eq!(receiver.drain(|visit| whole += u64::from(!visit.visitor.host().is_empty())), 12_000);
        assert_eq!(dropped(), (12_000 - whole, 0));
        // More than a ring holds.
        tell(40_000);
        let heard = receiver.drain(|_| ()) as u64;
        assert_eq!(dropped().1, 40_000 - heard);
        assert!(heard < 40_000);
    }
}
