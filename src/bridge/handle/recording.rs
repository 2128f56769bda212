//! Recording of a core's requests: visits for the visit counter and the visit log, and entries for the access log.

use std::time::Duration;

use carom_shards::Code;

use super::ServiceHandle;
use crate::bridge::access_log::{AccessEntry, AccessSender, PendingEntry, Request, RequestOutcome};
use crate::bridge::visit_log::LoggedRequest;
use carom_model::redirect::{Decision, Destination, Response, VisitKind};
use carom_model::visits::raw::RawVisit;
use carom_model::visits::record::LoggedKind;
use carom_model::visits::{RecordOutcome, Visit, Visitor};
use carom_telemetry::clock::unix_ms;

impl ServiceHandle {
    /// Returns the visitor that two fields of a request's head describe; `None` if this core records no visits.
    #[inline]
    pub fn visitor(&self, user_agent: &[u8], referer: &[u8]) -> Option<Visitor> {
        Some(self.recorders.borrow_mut().visits.as_mut()?.visitor(user_agent, referer))
    }

    /// Records the visit that a response counts as, where it does. `code` is that of the link.
    #[inline]
    pub fn record_visit(&self, kind: VisitKind, code: Code, visitor: impl FnOnce() -> Option<Visitor>) {
        match kind {
            VisitKind::None => {}
            VisitKind::Link => self.send_visit(Some(code), visitor()),
            VisitKind::Orphan => self.send_visit(None, visitor()),
        }
    }

    /// Records a visit that found no link.
    pub fn record_orphan(&self, visitor: impl FnOnce() -> Option<Visitor>) {
        self.send_visit(None, visitor());
    }

    /// Records a visit of the link of `code`, or of no link.
    #[inline]
    fn send_visit(&self, code: Option<Code>, visitor: Option<Visitor>) {
        if let (Some(visits), Some(visitor)) = (&mut self.recorders.borrow_mut().visits, visitor) {
            match visits.record(&Visit { code, visitor }) {
                RecordOutcome::Whole => {}
                RecordOutcome::WithoutReferrer => self.context.node.referrers_dropped.add_shared(1),
                RecordOutcome::Nothing => self.context.node.visits_dropped.add_shared(1),
            }
        }
    }

    /// True if single visits are logged.
    #[inline]
    pub fn logs_visits(&self) -> bool {
        self.recorders.borrow().visit_log.is_some()
    }

    /// True if the visit log has addresses, for which the kernel must be asked.
    pub fn logs_visit_addresses(&self) -> bool {
        self.recorders.borrow().visit_log.as_ref().is_some_and(|log| log.wants_addresses)
    }

    /// True if a user agent is a bot's; false if this core records no visits.
    pub fn is_bot(&self, user_agent: &[u8]) -> bool {
        self.recorders.borrow_mut().visits.as_mut().is_some_and(|visits| visits.is_known_bot(user_agent))
    }

    /// Logs the visit that a response counts as, where it does. `code` is that of the link.
    pub fn log_visit(&self, decision: &Decision<'_>, code: Code, request: &LoggedRequest<'_>) {
        let kind = match decision.visit {
            VisitKind::None => return,
            VisitKind::Link => LoggedKind::Link,
            VisitKind::Orphan => LoggedKind::InvalidShortUrl,
        };
        let (target, forwards) = match &decision.response {
            Response::Redirect(Destination { policy, target }) => (*target, policy.forward_query),
            Response::DomainRedirect(target) => (target.as_bytes(), false),
            Response::Notice(_) => (&[][..], false),
        };
        let code = (kind == LoggedKind::Link).then_some(code);
        self.send_logged(kind, (code, target, forwards), request);
    }

    /// Logs an orphan visit. `target` is the address that the client was sent to, if any.
    pub fn log_orphan(&self, kind: LoggedKind, target: Option<&str>, request: &LoggedRequest<'_>) {
        debug_assert!(kind != LoggedKind::Link, "a visit of a link has its code");
        self.send_logged(kind, (None, target.unwrap_or_default().as_bytes(), false), request);
    }

    fn send_logged(
        &self,
        kind: LoggedKind,
        (code, target, forwards): (Option<Code>, &[u8], bool),
        logged: &LoggedRequest<'_>,
    ) {
        let Some(log) = &mut self.recorders.borrow_mut().visit_log else { return };
        let LoggedRequest { at_ms, is_secure, is_bot, ref part } = *logged;
        let visit = RawVisit { at_ms, kind, is_secure, forwards, is_bot, code, target };
        if !log.send(&visit, part) {
            self.context.node.visit_log.dropped.add_shared(1);
        }
    }

    /// True if the access log wants the next request.
    #[inline]
    pub fn samples_request(&self) -> bool {
        self.recorders.borrow_mut().access.as_mut().is_some_and(AccessSender::samples_request)
    }

    /// True if the access log has addresses, for which the kernel must be asked.
    pub fn wants_addresses(&self) -> bool {
        self.recorders.borrow().access.as_ref().is_some_and(|access| access.wants_addresses)
    }

    /// Logs a request of the sample that was answered now, `took` after its beginning.
    pub fn log_request(&self, request: Request<'_>, status: u16, took: Duration) {
        let entry = AccessEntry { request, outcome: outcome(status, took) };
        let is_sent = |access: &mut AccessSender| access.send(&entry);
        self.count_recorded(self.recorders.borrow_mut().access.as_mut().is_none_or(is_sent));
    }

    /// Logs a request whose entry was kept when it came.
    pub fn log_pending(&self, noted: PendingEntry, status: u16, took: Duration) {
        let is_sent = |access: &mut AccessSender| access.send_pending(noted, outcome(status, took));
        self.count_recorded(self.recorders.borrow_mut().access.as_mut().is_none_or(is_sent));
    }

    fn count_recorded(&self, is_sent: bool) {
        if !is_sent {
            self.context.node.access_log.dropped.add_shared(1);
        }
    }
}

fn outcome(status: u16, took: Duration) -> RequestOutcome {
    RequestOutcome { at_ms: unix_ms(), micros: u32::try_from(took.as_micros()).unwrap_or(u32::MAX), status }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::bridge::handle::batches::tests::{NoCodes, services};
    use crate::bridge::handle::{Domains, NodeContext, Recorders, miss_limiter};
    use carom_model::visits::VisitSender;
    use carom_shards::CoreId;
    use std::rc::Rc;
    use std::sync::Arc;

    /// A handle of core 0 of a service with these domains, which records visits and lets each address miss once a
    /// second.
    pub(crate) fn recording_handle(domains: Domains, visits: VisitSender) -> Rc<ServiceHandle> {
        let context = services(1).0.context().clone();
        let (domains, miss_limiter) = (Arc::new(domains), miss_limiter(1));
        let context = NodeContext { domains, miss_limiter, ..context };
        let recorders = Recorders { visits: Some(visits), access: None, visit_log: None };
        Rc::new(ServiceHandle::new(CoreId(0), context, Box::new(NoCodes), recorders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::handle::batches::tests::services;
    use carom_model::visits::ring;

    #[test]
    fn referrers_and_visits_that_find_no_room_are_counted_as_dropped() {
        let (services, _orders) = services(1);
        let (sender, mut receiver) = ring();
        services.recorders.borrow_mut().visits = Some(sender);
        let visitor = services.visitor(b"", format!("https://{}.example/", "x".repeat(52)).as_bytes());
        let tell = |times: u64| (0..times).for_each(|_| services.send_visit(Code::parse(b"abc").ok(), visitor));
        let dropped = || (services.context.node.referrers_dropped.get(), services.context.node.visits_dropped.get());
        tell(12_000);
        let mut whole = 0;
        assert_eq!(receiver.drain(|visit| whole += u64::from(!visit.visitor.host().is_empty())), 12_000);
        assert_eq!(dropped(), (12_000 - whole, 0));
        // More than a ring holds.
        tell(40_000);
        let received = receiver.drain(|_| ()) as u64;
        assert_eq!(dropped().1, 40_000 - received);
        assert!(received < 40_000);
    }
}
