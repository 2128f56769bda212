//! Rules shared by fast and late responses: whether a connection stays open, how a look-up continues, and which address
//! a client has.

use std::task::Poll;

use carom_shards::Code;

use super::access;
use super::connection::{Conn, ConnState};
use super::late_answers::{LookupQueues, LookupTimes};
use crate::bridge::handle::ServiceHandle;
use carom_http::RedirectRequest;
use carom_model::redirect::{BorrowedLookup, Decision, Destination, Lookup, MissLimit, VisitKind};
use carom_model::visits::Visitor;

/// True if a connection may consume input: it waits for no other core and is not congested.
#[inline]
pub(super) fn may_step(conn: &Conn) -> bool {
    matches!(conn.state, ConnState::Open)
        && !conn.is_congested()
        && !conn.hyper.as_ref().is_some_and(|stream| stream.is_full())
}

/// Returns the visitor that a request's head describes; `None` if this core records no visits.
fn visitor_of(services: &ServiceHandle, request: &RedirectRequest, head: &[u8]) -> Option<Visitor> {
    services.visitor(request.user_agent.of(head), request.referer.of(head))
}

/// Records the visit that an immediate response counts as, and logs it if single visits are logged.
#[inline]
pub(super) fn record_visit(
    services: &ServiceHandle,
    conn: &mut Conn,
    (request, head): (&RedirectRequest, &[u8]),
    (decision, code): (&Decision<'_>, Code),
    at_ms: u64,
) {
    if decision.visit != VisitKind::None && services.logs_visits() {
        return access::count_and_log_visit(services, conn, (request, head), (decision, code), at_ms);
    }
    services.record_visit(decision.visit, code, || visitor_of(services, request, head));
}

/// Applies `Connection: close` after an answer. Returns true if the connection ends or must wait before its next
/// request.
#[inline]
pub(super) fn end_or_wait(conn: &mut Conn, request: &RedirectRequest, is_last: bool) -> bool {
    if request.close {
        // A TLS client still sends its closing alert, and a closed socket would answer that with a reset.
        conn.enter(ConnState::Flushing { client_is_done: request.asked_to_close && is_last && conn.tls.is_none() });
    }
    request.close || !may_step(conn)
}

/// Continues a look-up after memory, unless the link is blocked: that is answered at once, so that it uses up no visit.
#[inline]
pub(super) fn block_or_continue<'a>(
    services: &ServiceHandle,
    lookup_queues: &mut LookupQueues,
    found: BorrowedLookup<'a>,
    code: Code,
    token: u64,
    times: LookupTimes,
) -> Poll<BorrowedLookup<'a>> {
    match found {
        Lookup::Live(Destination { target, .. }) if services.blocks(target) => Poll::Ready(found),
        found => lookup_queues.continue_lookup(found, code, token, times),
    }
}

/// The client of a connection, as the miss limit of its core knows it.
pub(super) struct ConnClient<'c> {
    pub(super) conn: &'c mut Conn,
    pub(super) services: &'c ServiceHandle,
}

impl MissLimit for ConnClient<'_> {
    #[inline]
    fn is_limited(&mut self) -> bool {
        self.services.miss_limiter().is_throttling() && self.conn.is_throttled(self.services)
    }

    #[inline]
    fn misses_too_often(&mut self) -> bool {
        self.conn.misses_too_often(self.services)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::LinkChange;
    use crate::bridge::fleet_view::FollowedMark;
    use crate::bridge::handle::recording::testing::recording_handle;
    use crate::core::driver::Transport;
    use crate::core::hyper_bridge::HttpService;
    use crate::core::link_memory::MemoryBudget;
    use crate::core::link_sources::LinkSources;
    use crate::core::listen::Layers;
    use crate::core::mesh::create_meshes;
    use crate::core::now::Now;
    use crate::core::shard::Shard;
    use crate::core::tls_connections::TlsConnections;
    use crate::core::work::CoreState;
    use carom_limits::ConnectionLimits;
    use carom_model::domains::DomainIndex;
    use carom_model::link::labels::LinkLabels;
    use carom_model::link::{Link, Origin, Version};
    use carom_model::redirect::OwnedLookup;
    use carom_model::testing::redirects::{Case, TestClient, any_case, any_lookup, kind_of};
    use carom_model::testing::three_domains;
    use carom_model::visits::{VisitReceiver, ring};
    use carom_shards::{CodeHasher, CoreCount, CoreId, Policy};
    use carom_tls::identity::{Pair, Tickets, TlsIdentity};
    use proptest::prelude::*;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const NOW_MS: u64 = 1_000_000;

    /// The first of two cores, with a connection of the client of a case.
    struct World {
        work: CoreState,
        slot: u32,
        visits: VisitReceiver,
        _peer: UnixStream,
    }

    impl World {
        fn new(case: &Case) -> World {
            let (sender, visits) = ring();
            let services = recording_handle(case.domains.clone(), sender);
            services.set_blocked(Some(Arc::new(case.blocked())));
            let stats = Arc::clone(&services.context().cores[0]);
            let (count, hasher) = (CoreCount::new(2).unwrap(), CodeHasher::new(5));
            let shard = Shard::new(CoreId(0), count, hasher, MemoryBudget::All, Arc::clone(&stats), Arc::default());
            let data = LinkSources::new(shard, create_meshes(count).swap_remove(0));
            let service: HttpService = Rc::new(|_| Box::pin(std::future::pending()));
            let now = Now { instant: Instant::now(), unix_ms: NOW_MS, tick: 0, followed: FollowedMark::default() };
            let limits = (ConnectionLimits::default(), Arc::default());
            let mut work = CoreState::new(
                now,
                Some(Box::new(data)),
                services,
                service,
                stats,
                limits,
                TlsConnections::new(None, None),
            );
            let (socket, peer) = UnixStream::pair().unwrap();
            let slot = work.open(Transport::from_socket(socket.into()), Layers::default());
            work.conns.get(slot).unwrap().set_proxied_client(Some(case.client.address()));
            World { work, slot, visits, _peer: peer }
        }

        /// A code that this core owns at the domain of the case and at the default one, and its code there.
        fn code_of(&self, case: &Case, owner: CoreId) -> (Code, Code) {
            let shard = &self.work.redirects.data.as_ref().unwrap().shard;
            let domain = case.domain.and_then(|domain| case.domains.id_at(domain));
            let mut codes = (0..).map(|number| Code::parse(format!("c{number}").as_bytes()).unwrap());
            let of_owner = |code: &Code| [code.within(domain), *code].iter().all(|code| shard.resolve(code).1 == owner);
            let code = codes.find(of_owner).unwrap();
            (code, code.within(domain))
        }

        fn ask(&mut self, case: &Case, code: &Code) {
            let method = if case.is_head { "HEAD" } else { "GET" };
            let head = format!("{method} /{} HTTP/1.1\r\nHost: {}\r\n\r\n", code.as_slug(), case.host());
            self.work.receive(self.slot, head.as_bytes());
        }

        /// Hands the queued answers to the kernel, and returns their number.
        fn send(&mut self) -> usize {
            let conn = self.work.conns.get(self.slot).unwrap();
            let answers = String::from_utf8(std::mem::take(&mut conn.out)).unwrap();
            answers.matches("HTTP/1.1 ").count()
        }

        /// Status and destination of the answer, and the visit that it was.
        fn outcome(&mut self) -> (u16, String, VisitKind) {
            let conn = self.work.conns.get(self.slot).unwrap();
            let text = String::from_utf8(conn.out.clone()).unwrap();
            let location = text.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
            (text.split(' ').nth(1).unwrap().parse().unwrap(), location.to_owned(), kind_of(&mut self.visits))
        }
    }

    /// The link that a core finds as the case says; `None` where it finds none.
    fn link_of(case: &Case, code: Code) -> Option<Link> {
        let policy = match &case.lookup {
            Lookup::Live(destination) => destination.policy,
            Lookup::NotYetValid => Policy { valid_since_ms: Some(NOW_MS + 1), ..Policy::default() },
            Lookup::Expired => Policy { valid_until_ms: Some(NOW_MS), ..Policy::default() },
            _ => return None,
        };
        let (origin, version, labels) = (Origin::Custom, Version::default(), LinkLabels::default());
        let target = carom_model::testing::redirects::TARGET.to_owned();
        Some(Link { code, policy, target, created_ms: 0, origin, version, labels })
    }

    /// A request for a missing link of the default domain.
    fn missing_case() -> Case {
        let (lookup, client, domain) = (Lookup::Missing, TestClient::default(), Some(DomainIndex::default()));
        Case { lookup, is_blocked: false, is_head: false, client, domain, domains: three_domains() }
    }

    /// An event of a connection.
    #[derive(Clone, Debug)]
    enum Event {
        Bytes(&'static str),
        /// The look-up that it waits for has this result.
        Answer(OwnedLookup),
        Drained,
        PeerEnded,
        Broken,
        Evicted,
        /// A number of ticks that go by.
        Ticks(u32),
        Drain,
        CloseIdle,
        BreakAll,
        RunTasks,
        /// The queued bytes go out.
        Settle,
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let bytes = vec![
            "GET /abc HTTP/1.1\r\nHost: go.test\r\n\r\n",
            "HEAD /c7?a=b HTTP/1.1\r\nHost: s.test\r\n\r\n",
            "GET /c8 HTTP/1.1\r\nHost: go.test\r\nConnection: close\r\n\r\n",
            "GET /c1 HTTP/1.1\r\nHo",
            "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n",
            "body",
            "\0\r\n\r\n",
        ];
        prop_oneof![
            6 => proptest::sample::select(bytes).prop_map(Event::Bytes),
            4 => any_lookup().prop_map(Event::Answer),
            4 => Just(Event::Drained),
            2 => Just(Event::Settle),
            2 => Just(Event::RunTasks),
            2 => (1..400u32).prop_map(Event::Ticks),
            1 => Just(Event::PeerEnded),
            1 => Just(Event::Broken),
            1 => Just(Event::Evicted),
            1 => Just(Event::Drain),
            1 => Just(Event::CloseIdle),
            1 => Just(Event::BreakAll),
        ]
    }

    impl World {
        fn take(&mut self, event: &Event) {
            let World { work, slot, .. } = self;
            let conn = work.conns.get(*slot).expect("nobody buries it");
            match event {
                Event::Bytes(text) => work.receive(*slot, text.as_bytes()),
                Event::Answer(lookup) => {
                    let token = conn.token();
                    work.deliver_answer(token, &lookup.borrowed(), false, &mut Vec::new());
                }
                Event::Drained => work.proceed(*slot),
                Event::PeerEnded => work.peer_ended(*slot),
                Event::Broken => work.break_off(*slot),
                Event::Evicted => _ = work.evict_connection(0),
                Event::Ticks(count) => {
                    work.now.tick += count;
                    (0..4).for_each(|_| {
                        work.now.tick += 1;
                        work.sweep();
                    });
                }
                Event::Drain => work.drain(),
                Event::CloseIdle => work.close_all_idle(),
                Event::BreakAll => work.break_all(),
                Event::RunTasks => {
                    work.run_tasks();
                    work.serve_tasks();
                }
                Event::Settle => {
                    conn.out.clear();
                    if let ConnState::Flushing { .. } = conn.state {
                        conn.enter(ConnState::Lingering);
                        conn.hyper = None;
                    }
                }
            }
        }
    }

    #[test]
    fn requests_before_the_end_of_a_client_are_all_answered() {
        const REQUESTS: usize = 2_000;
        let case = missing_case();
        let mut world = World::new(&case);
        let (code, _) = world.code_of(&case, CoreId(0));
        let request = format!("GET /{} HTTP/1.1\r\nHost: {}\r\n\r\n", code.as_slug(), case.host());
        world.work.receive(world.slot, request.repeat(REQUESTS).as_bytes());
        // The kernel takes the first answers, and the client ends its side before they are sent.
        let mut answers = world.send();
        assert!(answers > 0, "{answers} answers fit into the queue");
        assert!(answers < REQUESTS, "{answers} answers fit into the queue");
        world.work.peer_ended(world.slot);
        for _ in 0..REQUESTS {
            answers += world.send();
            world.work.proceed(world.slot);
        }
        assert_eq!(answers, REQUESTS);
    }

    #[test]
    fn look_up_keeps_the_instant_of_its_request() {
        let case = missing_case();
        let mut world = World::new(&case);
        let waits_since = |world: &mut World| {
            let conn = world.work.conns.get(world.slot).unwrap();
            world.work.redirects.waits_since(conn.token(), Some(conn))
        };
        assert_eq!(waits_since(&mut world), None);
        let (code, _) = world.code_of(&case, CoreId(1));
        let asked = world.work.now.instant;
        world.ask(&case, &code);
        world.work.now.instant += Duration::from_secs(1);
        assert_eq!(waits_since(&mut world), Some(asked), "a visit would be granted after the timeout of the client");
        world.take(&Event::Answer(Lookup::Missing));
        assert_eq!(waits_since(&mut world), None, "a client with an answer would use up a visit");
    }

    #[test]
    fn bytes_of_a_handshake_reach_tls_only() {
        let mut world = World::new(&missing_case());
        let work = &mut world.work;
        let made = rcgen::generate_simple_self_signed(["go.test".to_owned()]).unwrap();
        let certificates = made.cert.pem().into_bytes();
        let pair = Pair { certificates, key: made.signing_key.serialize_pem().into_bytes() };
        work.tls.set_identity(TlsIdentity::new(&[pair], &Tickets::new().unwrap(), false).unwrap());
        let (socket, _peer) = UnixStream::pair().unwrap();
        let slot = work.open(Transport::from_socket(socket.into()), Layers { tls: true, ..Layers::default() });
        let bytes = b"\x16\x03\x01\x00\x05hello";
        work.receive(slot, bytes);
        // While the handshake waits for its turn, a send ends, and then the client ends its side.
        let events: [fn(&mut CoreState, u32); 2] = [CoreState::proceed, CoreState::peer_ended];
        for event in events {
            event(work, slot);
            let conn = work.conns.get(slot).unwrap();
            assert!(matches!(conn.state, ConnState::Handshaking { is_queued: true }), "{:?}", conn.state);
            assert!(conn.unconsumed == bytes, "HTTP has answered {:?}", conn.out);
            assert!(conn.out.is_empty(), "HTTP has answered {:?}", conn.out);
        }
        assert!(!work.serve_handshakes(), "another handshake waits");
        let conn = work.conns.get(slot).unwrap();
        assert_eq!(work.tls.take_sendable(conn).first(), Some(&21), "the client gets no alert of TLS");
    }

    fn expected(case: &Case) -> (u16, String, VisitKind) {
        let (status, location, visit, _) = case.outcome();
        (status, location, visit)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn no_order_of_events_breaks_a_rule_of_the_states(
            case in any_case(),
            events in proptest::collection::vec(any_event(), 1..40),
        ) {
            let mut world = World::new(&case);
            for event in &events {
                let was_live = world.work.conns.get(world.slot).unwrap().state.is_live();
                world.take(event);
                let conn = world.work.conns.get(world.slot).unwrap();
                prop_assert!(was_live || !conn.state.is_live(), "{event:?} takes back an end");
                prop_assert!(!matches!(conn.state, ConnState::LookingUp(_)) || conn.hyper.is_none());
                prop_assert!(!conn.state.is_closed() || conn.hyper.is_none());
            }
            world.work.tasks.clear();
        }

        #[test]
        fn a_request_that_is_answered_at_once_gets_the_response_of_the_decision(case in any_case()) {
            prop_assume!(!matches!(case.lookup, Lookup::Damaged | Lookup::NotResident | Lookup::Unconfirmed));
            let mut world = World::new(&case);
            let (code, at_domain) = world.code_of(&case, CoreId(0));
            if let Some(link) = link_of(&case, at_domain) {
                world.work.redirects.data.as_mut().unwrap().shard.apply(&LinkChange::Put(Arc::new(link)), 1);
            }
            case.client.guess(world.work.services.miss_limiter());
            world.ask(&case, &code);
            prop_assert_eq!(world.outcome(), expected(&case));
        }

        #[test]
        fn a_request_that_is_answered_late_gets_the_response_of_the_decision(case in any_case()) {
            prop_assume!(case.domain.is_some());
            let mut world = World::new(&case);
            let (code, at_domain) = world.code_of(&case, CoreId(1));
            world.ask(&case, &code);
            // Its misses are used up while it waits.
            case.client.guess(world.work.services.miss_limiter());
            let token = world.work.conns.get(world.slot).unwrap().token();
            let mut resumed = Vec::new();
            world.work.deliver_answer(token, &case.lookup.borrowed(), true, &mut resumed);
            if case.lookup.allows_fallback() && case.domains.fallback_of(&at_domain).is_some() {
                world.work.proceed(world.slot);
                world.work.deliver_answer(token, &Lookup::Missing, true, &mut resumed);
            }
            prop_assert_eq!(world.outcome(), expected(&case));
        }
    }
}
