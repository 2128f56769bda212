//! Connections of a core: the state of each, in slots that are reused.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use carom_shards::Code;

use super::driver::{Tag, Transport};
use super::hyper_bridge::stream::{InputEnd, Stream};
use super::now::Now;
use crate::bridge::access_log::PendingEntry;
use crate::bridge::fleet_view::FollowedMark;
use crate::bridge::handle::ServiceHandle;
use crate::bridge::visit_log::PendingVisit;
use carom_http::connection::Expects;
use carom_http::tls::TlsSession;
use carom_http::{Connection, RedirectRequest, Rejection};
use carom_limits::UNREAD_SMALL;
use carom_model::access::miss_limiter::{ClientKey, RequestOrigin};
use carom_model::clients::forwarded::Trust;
use carom_model::domains;
use carom_model::redirect::{BorrowedLookup, Lookup};
use carom_model::visits::Visitor;

/// Capacity in bytes up to which a send buffer stays with its connection between answers. Larger ones are freed, so
/// that an idle connection costs little.
const KEPT_CAPACITY: usize = 512;

/// The state of a connection, with what only that state needs.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "connections are boxed, and half of all requests may look up")]
pub(super) enum ConnState {
    /// Is in its TLS handshake, of which a part has come, and counts among the handshakes in progress.
    Handshaking {
        /// True if received bytes wait for their turn.
        is_queued: bool,
    },
    /// Takes requests.
    Open,
    /// Takes no input until the look-up for the last request has an answer.
    LookingUp(PendingLookup),
    /// Takes no input. The client gets the answers that hyper still has, and then a rejection.
    Rejecting(PendingRejection),
    /// Sends what is queued, then ends.
    Flushing {
        /// True if the client has asked to close the connection and sent nothing after that, so that the core may close
        /// it at once.
        client_is_done: bool,
    },
    /// Waits for the client to end its side, so that the client reads the last answer before a reset reaches it.
    Lingering,
    /// Ends as soon as nothing is in flight.
    Closed(CloseKind),
}

/// The way in which a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CloseKind {
    /// Everything was sent. The client may still read its last answer.
    Finished,
    /// Broken off: ends with a reset if the client has not read its answers.
    BrokenOff,
    /// Broken off, because there are too many connections. Counts among those that leave until it is removed.
    Evicted,
}

impl ConnState {
    /// True until the end of the connection has begun.
    pub(super) fn is_live(&self) -> bool {
        matches!(
            self,
            ConnState::Handshaking { .. } | ConnState::Open | ConnState::LookingUp(_) | ConnState::Rejecting(_)
        )
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self, ConnState::Closed(_))
    }
}

/// The party that a look-up waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaits {
    /// The core that owns the code.
    Owner {
        /// True if the answer should be kept as a copy for later requests.
        keeps_copy: bool,
    },
    /// The store, Redis or the visit allowance, which may take longer than clients should wait.
    Storage,
    /// The next look-up: this code has no link, so the core looks up another one.
    Fallback,
}

/// A rejection that waits for the answers before it.
#[derive(Debug)]
pub(super) struct PendingRejection {
    pub(super) rejection: Rejection,
    /// The entry of the request for the access log.
    pub(super) log_entry: Option<PendingEntry>,
}

/// The present wait of a connection for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// The tick of the core at which the wait began.
    pub(super) since: u32,
    /// Whole heads seen by then.
    pub(super) heads: u32,
    /// The part of a message that is awaited.
    pub(super) expects: Expects,
    /// Bytes of a body without end that have come since.
    pub(super) progress: usize,
}

/// The progress of the bytes for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendProgress {
    /// The tick of the core at which the send in flight last made progress.
    pub(super) since: u32,
    /// Bytes that the client had acknowledged at the last look.
    acknowledged: u64,
    /// The tick of the core at which the client last acknowledged more; `None` while nothing is known to be unread.
    unread_since: Option<u32>,
}

/// The address of a client. Each part is determined when it is first needed.
#[derive(Clone, Copy, Default, Debug)]
struct ClientAddress {
    /// The client that a proxy has named; `None` if the peer itself is the client.
    named_client: Option<IpAddr>,
    /// The peer of the socket, or the client that a PROXY header has named.
    peer: Option<IpAddr>,
    /// True if the connection began with a PROXY header that names no client.
    is_nameless: bool,
    /// The key of the address in the miss limit.
    client_key: Option<ClientKey>,
}

/// A request for a short code that waits for another core, the store or Redis.
#[derive(Debug)]
pub(super) struct PendingLookup {
    pub(super) request: RedirectRequest,
    /// The domain of the request.
    pub(super) domain: domains::DomainIndex,
    /// The code that is looked up: that of the request, or the code of a fallback.
    pub(super) code: Code,
    pub(super) since: Instant,
    /// The instant up to which the streams of the fleet were followed before the code was looked up.
    pub(super) followed: FollowedMark,
    /// The party that the look-up waits for. A new look-up waits for none yet, and has [`Awaits::Fallback`].
    pub(super) awaits: Awaits,
    /// True if an earlier code could not be confirmed missing. If this code is missing, too, the answer is 503.
    pub(super) unconfirmed: bool,
    /// True once the store or Redis was asked.
    pub(super) asked_storage: bool,
    /// The visitor to record with the answer.
    pub(super) visitor: Option<Visitor>,
    /// The query of the request, or the whole head if the link may have redirect rules. Takes no memory while it is
    /// empty.
    pub(super) head_or_query: Vec<u8>,
    /// The entry of the request for the access log.
    pub(super) log_entry: Option<PendingEntry>,
    /// The request part of the visit, if single visits are logged.
    pub(super) visit: Option<PendingVisit>,
}

impl PendingLookup {
    /// Returns the look-up of a code of that domain, for a request that came in this turn with that head. The caller
    /// sets what it awaits.
    pub(super) fn new(
        services: &ServiceHandle,
        request: &RedirectRequest,
        head: &[u8],
        (domain, code): (domains::DomainIndex, Code),
        now: &Now,
    ) -> PendingLookup {
        let visitor = services.visitor(request.user_agent.of(head), request.referer.of(head));
        let request = *request;
        PendingLookup {
            request,
            domain,
            code,
            since: now.instant,
            followed: now.followed,
            awaits: Awaits::Fallback,
            unconfirmed: false,
            asked_storage: false,
            visitor,
            head_or_query: request.query.of(head).to_vec(),
            log_entry: None,
            visit: None,
        }
    }

    /// Returns the same look-up with the whole head of the request, if the link may have redirect rules.
    #[inline]
    pub(super) fn with_head_if(self, may_have_rules: bool, head: &[u8]) -> PendingLookup {
        if may_have_rules { PendingLookup { head_or_query: head.to_vec(), ..self } } else { self }
    }

    /// Returns the same look-up for the store, Redis or the visit allowances after this result of memory. They may bring
    /// a link with redirect rules, unless memory has a link without rules.
    #[cold]
    pub(super) fn for_storage(self, found: &BorrowedLookup<'_>, head: &[u8]) -> PendingLookup {
        let pending = PendingLookup { awaits: Awaits::Storage, asked_storage: true, ..self };
        pending.with_head_if(!matches!(found, Lookup::Live(_)), head)
    }

    /// Returns the head of the request, if it was kept.
    pub(super) fn head(&self) -> Option<&[u8]> {
        (self.head_or_query.len() > self.request.query.len()).then_some(&self.head_or_query)
    }

    /// Returns the query of the request.
    pub(super) fn query(&self) -> &[u8] {
        if self.head().is_some() { self.request.query.of(&self.head_or_query) } else { &self.head_or_query }
    }

    /// Returns the same look-up without query and head, which a refusal does not need.
    pub(super) fn without_query(self) -> PendingLookup {
        let request = RedirectRequest { query: carom_http::redirect::Span::default(), ..self.request };
        PendingLookup { request, head_or_query: Vec::new(), ..self }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) transport: Transport,
    pub(super) tag: Tag,
    pub(super) machine: Connection,
    /// The TLS session, if the connection has one.
    pub(super) tls: Option<Box<TlsSession>>,
    pub(super) state: ConnState,
    /// Bytes received and not consumed. Takes no memory while empty.
    pub(super) unconsumed: Vec<u8>,
    /// Bytes to send next. Keeps at most 512 bytes of memory while idle.
    pub(super) out: Vec<u8>,
    pub(super) hyper: Option<Rc<Stream>>,
    pub(super) wait: Wait,
    pub(super) sends: SendProgress,
    /// True if the client has ended its side.
    pub(super) peer_ended: bool,
    /// True if the connection is in the list of connections to settle in this turn.
    pub(super) dirty: bool,
    /// The tick of the core at which an incomplete TLS record began to arrive.
    pub(super) tls_record_since: u32,
    /// Bytes that may wait in either direction.
    pub(super) queued_max: u32,
    client: ClientAddress,
    /// The address that the connection counts for, if connections per address are limited.
    pub(super) counted_address: Option<ClientKey>,
}

impl Conn {
    /// Keeps the memory of a send for the next answer, unless it is large.
    #[inline]
    pub(super) fn keep_buffer(&mut self, buffer: Vec<u8>) {
        if self.out.is_empty() && buffer.capacity() <= KEPT_CAPACITY {
            self.out = buffer;
        }
    }

    pub(super) fn new(transport: Transport, tag: Tag, machine: Connection, tick: u32, queued_max: u32) -> Conn {
        Conn {
            transport,
            tag,
            machine,
            tls: None,
            state: ConnState::Open,
            unconsumed: Vec::new(),
            out: Vec::new(),
            hyper: None,
            wait: Wait { since: tick, heads: 0, expects: Expects::Request, progress: 0 },
            sends: SendProgress { since: tick, acknowledged: 0, unread_since: None },
            peer_ended: false,
            dirty: false,
            tls_record_since: tick,
            queued_max,
            client: ClientAddress::default(),
            counted_address: None,
        }
    }

    /// Enters another state.
    pub(super) fn enter(&mut self, next: ConnState) {
        match &next {
            ConnState::Handshaking { .. } => {
                assert!(
                    matches!(self.state, ConnState::Open) && self.tls.is_some(),
                    "a handshake comes before all requests"
                );
            }
            ConnState::Open => assert!(self.state.is_live(), "a connection that is ending would take requests again"),
            ConnState::LookingUp(_) => {
                assert!(
                    matches!(self.state, ConnState::Open) && self.hyper.is_none(),
                    "one look-up at a time, on the fast path"
                );
            }
            ConnState::Rejecting(_) => {
                assert!(
                    matches!(self.state, ConnState::Open) && self.hyper.is_some(),
                    "without hyper, no earlier answer is pending"
                );
            }
            ConnState::Flushing { .. } => {
                assert!(
                    self.state.is_live() || matches!(self.state, ConnState::Flushing { .. }),
                    "a closed connection would send again"
                );
            }
            ConnState::Lingering => {
                assert!(matches!(self.state, ConnState::Flushing { .. }), "queued bytes would be lost");
                assert!(!self.transport.is_sending() && self.out.is_empty(), "unsent bytes would be lost");
            }
            ConnState::Closed(_) => assert!(!self.state.is_closed(), "a connection ends once"),
        }
        self.state = next;
    }

    /// Returns the look-up that the connection waits for, and ends the wait: the connection is open again.
    pub(super) fn take_look_up(&mut self) -> Option<PendingLookup> {
        let ConnState::LookingUp(_) = self.state else { return None };
        let ConnState::LookingUp(pending) = std::mem::replace(&mut self.state, ConnState::Open) else { return None };
        Some(pending)
    }

    /// Returns the rejection that waits for earlier answers, and ends the wait: the connection is open again.
    pub(super) fn take_rejection(&mut self) -> Option<PendingRejection> {
        let ConnState::Rejecting(_) = self.state else { return None };
        let ConnState::Rejecting(pending) = std::mem::replace(&mut self.state, ConnState::Open) else { return None };
        Some(pending)
    }

    /// True if the TLS handshake of the connection counts among those in progress.
    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self.state, ConnState::Handshaking { .. })
    }

    /// Sets the client that a PROXY header names. If it names none, header fields of requests cannot name one either,
    /// because their author is unknown.
    pub(super) fn set_proxied_client(&mut self, client: Option<IpAddr>) {
        self.client =
            ClientAddress { named_client: client, peer: client, is_nameless: client.is_none(), client_key: None };
    }

    /// Returns the address that requests come from, unless a header field names another.
    pub(super) fn source(&self) -> Option<RequestOrigin> {
        let address = self.client.peer.or_else(|| self.address())?;
        Some(RequestOrigin { address, is_final: self.client.is_nameless })
    }

    /// Sets the client of the next request to the one that the proxies name in `field`.
    pub(super) fn apply_forwarded(&mut self, trust: &Trust, field: &[u8]) {
        if self.client.peer.is_none() {
            self.client.peer = self.source().map(|source| source.address);
        }
        let client =
            self.client.peer.map(|peer| if self.client.is_nameless { peer } else { trust.client(peer, field) });
        if client != self.client.named_client {
            (self.client.named_client, self.client.client_key) = (client, None);
        }
    }

    /// Returns the token of this connection's questions.
    pub(super) fn token(&self) -> u64 {
        u64::from(self.tag.generation) << 32 | u64::from(self.tag.slot)
    }

    /// Returns the address of the client. Asks the kernel for it once.
    pub(super) fn cached_address(&mut self) -> Option<IpAddr> {
        self.client.named_client.or_else(|| self.cached_peer())
    }

    /// Returns the address of the peer, or the one that its PROXY header names. Header fields of requests do not count.
    /// Asks the kernel for it once.
    pub(super) fn cached_peer(&mut self) -> Option<IpAddr> {
        if self.client.peer.is_none() {
            self.client.peer = self.address();
        }
        self.client.peer
    }

    /// Returns the address of the client, or `None` if it has left.
    pub(super) fn address(&self) -> Option<IpAddr> {
        if self.client.named_client.is_some() {
            return self.client.named_client;
        }
        self.transport.peer()
    }

    /// True if the client is over the rate limit for misses, and gets 429 for now.
    #[cold]
    pub(super) fn is_throttled(&mut self, services: &ServiceHandle) -> bool {
        self.client_key(services).is_some_and(|client_key| services.miss_limiter().retry_after(client_key).is_some())
    }

    /// Counts a miss of the client. Returns true if that exceeds the rate limit.
    #[inline]
    pub(super) fn misses_too_often(&mut self, services: &ServiceHandle) -> bool {
        services.miss_limiter().counts_misses()
            && self.client_key(services).is_some_and(|client_key| services.miss_limiter().miss(client_key).is_err())
    }

    /// Returns the key of the client's address in the miss limiter.
    pub(super) fn client_key(&mut self, services: &ServiceHandle) -> Option<ClientKey> {
        if self.client.client_key.is_none() {
            self.client.client_key = self.address().map(|address| services.miss_limiter().client_key(address));
        }
        self.client.client_key
    }

    /// Adds `len` bytes to the progress of a body of unlimited length. Each `least` bytes restart its timeout.
    pub(super) fn note_progress(&mut self, len: usize, least: usize, tick: u32) {
        self.wait.progress += len;
        if self.wait.progress >= least {
            (self.wait.progress, self.wait.since) = (0, tick);
        }
    }

    /// True if the unconsumed bytes belong to the TLS handshake, and not to the layer above it.
    pub(super) fn holds_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) && !self.machine.awaits_proxy()
    }

    /// Hands bytes to hyper, and ends its input after the last ones.
    pub(super) fn pass_to_hyper(&self, bytes: &[u8]) {
        debug_assert!(self.state.is_live() || self.hyper.is_none(), "hyper would get bytes after the end");
        let Some(stream) = &self.hyper else { return };
        stream.put(bytes, self.machine.heads());
        if self.machine.is_ended() {
            stream.end(InputEnd::Last);
        }
    }

    /// True if a request, an answer or a send is in progress.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state, ConnState::LookingUp(_))
            || self.transport.is_sending()
            || !self.out.is_empty()
            || self.hyper.as_ref().is_some_and(|stream| stream.is_busy())
    }

    /// True if the connection may have waited for its send, which was taken whole at once, so that it must continue.
    #[inline]
    pub(super) fn may_resume_after_send(&self) -> bool {
        let is_plain = matches!(self.state, ConnState::Open) && self.hyper.is_none();
        !is_plain || !self.unconsumed.is_empty() || self.peer_ended
    }

    /// True if the kernel holds more than a little that the client has not read.
    pub(super) fn has_unread(&self) -> bool {
        // An end that was sent counts as one byte.
        self.transport.taken_len() > UNREAD_SMALL && self.transport.unread_len() > 1
    }

    /// Checks what the client has read since the last call. Returns the number of ticks since it last read any of the
    /// data that waits for it in the kernel. Asks the kernel only while data may be unread.
    pub(super) fn unread_for(&mut self, tick: u32) -> u32 {
        let total = self.transport.taken_len();
        if self.sends.acknowledged == total {
            return 0;
        }
        let unread = self.transport.unread_len();
        let acknowledged = if unread <= 1 { total } else { total.saturating_sub(unread) };
        let has_read = acknowledged > std::mem::replace(&mut self.sends.acknowledged, acknowledged);
        if acknowledged == total {
            self.sends.unread_since = None;
            return 0;
        }
        let since = self.sends.unread_since.filter(|_| !has_read).unwrap_or(tick);
        self.sends.unread_since = Some(since);
        tick.wrapping_sub(since)
    }

    /// True if the connection speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.hyper.as_ref().is_some_and(|stream| stream.is_http2())
    }

    /// Returns the index of this connection's response writer in `Redirects::answers`: 0 without TLS, 1 with it.
    #[inline]
    pub(super) fn scheme_index(&self) -> usize {
        usize::from(self.tls.is_some())
    }

    /// True if too many bytes wait to be sent.
    pub(super) fn is_congested(&self) -> bool {
        self.out.len() >= self.queued_max as usize
    }

    /// True if the HTTP machine is between two messages.
    pub(super) fn awaits_nothing(&self) -> bool {
        self.machine.expects(self.unconsumed.len()) == Expects::Request
    }

    /// True if the client may send a request, and no byte of one has come yet.
    pub(super) fn awaits_request(&self) -> bool {
        let expects = self.machine.expects(self.unconsumed.len());
        // Before a PROXY header the machine expects a head, although nothing has come.
        let has_begun = expects != Expects::Request && (expects != Expects::Head || !self.unconsumed.is_empty());
        let has_part = self.tls.as_ref().is_some_and(|tls| tls.has_part());
        self.state.is_live() && !has_begun && !self.is_handshaking() && !has_part
    }
}

/// The connections of a core by slot.
#[derive(Debug, Default)]
pub(super) struct Conns {
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
    open: usize,
}

#[derive(Debug)]
struct ConnectionSlot {
    generation: u32,
    conn: Option<Box<Conn>>,
}

impl Conns {
    /// Returns the number of open connections.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// Returns the number of slots, including free ones.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Puts a connection into a free slot. Returns the slot.
    pub(super) fn insert(&mut self, transport: Transport, machine: Connection, tick: u32, queued_max: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot { generation: 0, conn: None });
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        assert!(entry.conn.is_none(), "the slot has a connection, whose descriptor would be closed");
        // Completions of the slot's last connection carry another generation. 24 bits fit the ring's user data.
        entry.generation = (entry.generation + 1) & 0x00ff_ffff;
        let tag = Tag { slot, generation: entry.generation };
        debug_assert!(entry.conn.is_none(), "a slot has one connection");
        entry.conn = Some(Box::new(Conn::new(transport, tag, machine, tick, queued_max)));
        self.open += 1;
        assert_eq!(self.open + self.free.len(), self.slots.len(), "a slot is neither free nor in use");
        slot
    }

    /// Returns the connection in a slot.
    #[inline]
    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.conn.as_deref_mut()
    }

    /// Returns the connection of a tag, unless it has ended since.
    #[inline]
    pub(super) fn find(&mut self, tag: Tag) -> Option<&mut Conn> {
        self.get(tag.slot).filter(|conn| conn.tag == tag)
    }

    /// Removes a connection and frees its slot.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(slot as usize)?.conn.take()?;
        debug_assert!(
            !conn.transport.is_sending(),
            "the kernel still uses the descriptor, whose number another connection would get"
        );
        debug_assert!(self.open > 0, "a slot is freed once");
        self.free.push(slot);
        self.open -= 1;
        assert_eq!(self.open + self.free.len(), self.slots.len(), "a slot is neither free nor in use");
        Some(conn)
    }
}
