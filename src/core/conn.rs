//! Connections of a core: the state of each, in slots that are reused.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use carom_ring::Tag;

use super::access;
use super::slow::{Ending, Stream};
use crate::bridge::access_log::Noted;
use crate::bridge::handle::Desk;
use crate::wire::connection::Expects;
use crate::wire::tls::Session;
use crate::wire::{Ask, Connection, Rejection};
use carom_limits::UNREAD_SMALL;
use carom_model::access::miss_limiter::{Place, Source};
use carom_model::clients::forwarded::Trust;
use carom_model::visits::Visitor;

/// A stage in the life of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It accepts requests.
    Open,
    /// Queued answers go out, then it ends.
    Finishing,
    /// Our side has ended and the client's has not. The client reads our last answer before a reset can reach it.
    Lingering,
    /// It is closed as soon as no operation of it is in flight.
    Dead,
}

/// A question to another core, the store or Redis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) ask: Ask,
    pub(super) since: Instant,
    /// True if this core should keep a copy of the answer.
    pub(super) wanted: bool,
    /// True if the store or Redis is asked, which may take longer than clients should wait.
    pub(super) looked_up: bool,
    /// True if the question for the default domain is still to be sent, after the first domain had no link.
    pub(super) again: bool,
    /// True if the first code could not be confirmed missing, so that a missing second one is no 404 either.
    pub(super) unconfirmed: bool,
    /// The visitor to record with the answer.
    pub(super) visitor: Option<Visitor>,
}

impl Asking {
    /// Returns the question of a request that came at `since`. The head describes the visitor.
    pub(super) fn new(desk: &Desk, ask: Ask, since: Instant, head: &[u8]) -> Asking {
        let visitor = desk.visitor(ask.user_agent.of(head), ask.referer.of(head));
        Asking { ask, since, wanted: false, looked_up: false, again: false, unconfirmed: false, visitor }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) tag: Tag,
    pub(super) machine: Connection,
    /// The TLS session, if the connection has one.
    pub(super) tls: Option<Box<Session>>,
    pub(super) stage: Stage,
    /// Bytes received and not consumed. Takes no memory while empty.
    pub(super) unconsumed: Vec<u8>,
    /// Bytes to send next. Keeps at most 512 bytes of memory while idle.
    pub(super) out: Vec<u8>,
    /// Bytes of the send in flight that have gone out.
    pub(super) sent: usize,
    pub(super) slow: Option<Rc<Stream>>,
    pub(super) asking: Option<Asking>,
    /// The query string of the request that waits for a look-up. Takes no memory while empty.
    pub(super) query: Vec<u8>,
    /// The access-log entry of the request that waits for its answer.
    pub(super) noted: Option<Noted>,
    /// The rejection to send after hyper's last answer.
    pub(super) rejection: Option<Rejection>,
    /// Tick of the core at which the present wait began.
    pub(super) since: u32,
    /// Tick of the core at which the send in flight last made progress.
    pub(super) sent_since: u32,
    /// Complete heads seen when the present wait began.
    pub(super) heads: u32,
    /// The input that the connection waits for.
    pub(super) expects: Expects,
    /// Bytes of a body of unlimited length since the present wait began.
    pub(super) progress: usize,
    /// Bytes that the kernel has taken to send.
    pub(super) sent_total: u64,
    /// Bytes of those that the client had acknowledged at the last check.
    acknowledged: u64,
    /// Tick at which the client last acknowledged more; `None` while everything is acknowledged, as far as is known.
    unread_since: Option<u32>,
    /// True if it was broken off. Then its close is a reset if answers are unread.
    pub(super) is_cut: bool,
    pub(super) receiving: bool,
    pub(super) sending: bool,
    /// True if the client has asked for the end, and sent nothing behind that. Then closing at once loses nothing.
    pub(super) said_last: bool,
    /// True if a cancel or shutdown was sent that ends the operations in flight.
    pub(super) stopping: bool,
    /// True if the client has ended its side.
    pub(super) peer_ended: bool,
    /// True if it is in the list of connections to settle.
    pub(super) dirty: bool,
    /// True if it counts among the TLS handshakes under way.
    pub(super) is_handshaking: bool,
    /// True if it is in the queue of handshakes to continue.
    pub(super) is_waiting: bool,
    /// True if it was evicted because there are too many connections.
    pub(super) is_evicted: bool,
    /// Tick of the core at which an incomplete TLS record began to arrive.
    pub(super) part_since: u32,
    /// Bytes that may wait in either direction.
    pub(super) queued_max: u32,
    /// The address of the client, if a proxy has named another address than its own.
    client: Option<IpAddr>,
    /// The address of the peer, or of the client that its PROXY header names. Filled on first use.
    peer: Option<IpAddr>,
    /// True if the connection began with a PROXY header that names no client.
    is_nameless: bool,
    /// The client's address as the miss guard knows it. Filled on first use.
    place: Option<Place>,
    /// The address that the connection counts for, if connections per address are limited.
    pub(super) counted: Option<Place>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, tag: Tag, machine: Connection, (tick, queued_max): (u32, u32)) -> Conn {
        Conn {
            socket,
            tag,
            machine,
            tls: None,
            stage: Stage::Open,
            unconsumed: Vec::new(),
            out: Vec::new(),
            sent: 0,
            slow: None,
            asking: None,
            query: Vec::new(),
            noted: None,
            rejection: None,
            since: tick,
            sent_since: tick,
            heads: 0,
            expects: Expects::Request,
            progress: 0,
            sent_total: 0,
            acknowledged: 0,
            unread_since: None,
            is_cut: false,
            receiving: false,
            sending: false,
            said_last: false,
            stopping: false,
            peer_ended: false,
            dirty: false,
            is_handshaking: false,
            is_waiting: false,
            is_evicted: false,
            part_since: tick,
            queued_max,
            client: None,
            peer: None,
            is_nameless: false,
            place: None,
            counted: None,
        }
    }

    /// Sets the client that a PROXY header names. If it names none, header fields of requests cannot name one either,
    /// because their author is unknown.
    pub(super) fn come_from(&mut self, client: Option<IpAddr>) {
        self.is_nameless = client.is_none();
        (self.client, self.peer, self.place) = (client, client, None);
    }

    /// Returns the address that requests come from, before a header field names another.
    pub(super) fn source(&self) -> Option<Source> {
        let address = self.peer.or_else(|| self.address())?;
        Some(Source { address, is_final: self.is_nameless })
    }

    /// Sets the client of the next request to the one that the proxies name in `field`.
    pub(super) fn follow(&mut self, trust: &Trust, field: &[u8]) {
        if self.peer.is_none() {
            self.peer = self.source().map(|source| source.address);
        }
        let client = self.peer.map(|peer| if self.is_nameless { peer } else { trust.client(peer, field) });
        if client != self.client {
            (self.client, self.place) = (client, None);
        }
    }

    /// Returns the token of this connection's questions.
    pub(super) fn token(&self) -> u64 {
        u64::from(self.tag.generation) << 32 | u64::from(self.tag.slot)
    }

    /// Waits for the answer to a question of the request in `head`.
    pub(super) fn wait(&mut self, desk: &Desk, asking: Asking, head: &[u8]) {
        if desk.picks() {
            access::note(desk, self, &asking.ask, head);
        }
        self.query.extend_from_slice(asking.ask.query.of(head));
        self.asking = Some(asking);
    }

    /// Returns the address of the client. Asks the kernel for it once.
    pub(super) fn known_address(&mut self) -> Option<IpAddr> {
        self.client.or_else(|| self.known_peer())
    }

    /// Returns the address of the peer, or the one that its PROXY header names: before a header field of a request
    /// names another.
    pub(super) fn known_peer(&mut self) -> Option<IpAddr> {
        if self.peer.is_none() {
            self.peer = self.address();
        }
        self.peer
    }

    /// Returns the address of the client, or `None` if it has left.
    pub(super) fn address(&self) -> Option<IpAddr> {
        if self.client.is_some() {
            return self.client;
        }
        let address = rustix::net::getpeername(&self.socket).ok()??;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    /// True if the client is over the rate limit for misses, and gets 429 for now.
    #[cold]
    pub(super) fn is_barred(&mut self, desk: &Desk) -> bool {
        self.place(desk).is_some_and(|place| desk.guard().bars(place).is_some())
    }

    /// Counts a miss of the client. Returns true if that exceeds the rate limit.
    #[inline]
    pub(super) fn misses_too_often(&mut self, desk: &Desk) -> bool {
        desk.guard().counts_misses() && self.place(desk).is_some_and(|place| desk.guard().miss(place).is_err())
    }

    /// Returns the client's address as the miss guard knows it.
    pub(super) fn place(&mut self, desk: &Desk) -> Option<Place> {
        if self.place.is_none() {
            self.place = self.address().map(|address| desk.guard().place(address));
        }
        self.place
    }

    /// Adds `len` bytes to the progress of a body of unlimited length. Each `least` bytes restart its timeout.
    pub(super) fn note_progress(&mut self, len: usize, least: usize, tick: u32) {
        self.progress += len;
        if self.progress >= least {
            (self.progress, self.since) = (0, tick);
        }
    }

    /// True if the unconsumed bytes belong to the TLS handshake, and not to the layer above it.
    pub(super) fn holds_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) && !self.machine.awaits_proxy()
    }

    /// Hands bytes to hyper, and ends its input after the last ones.
    pub(super) fn pass(&self, bytes: &[u8]) {
        let Some(stream) = &self.slow else { return };
        stream.put(bytes, self.machine.heads());
        if self.machine.is_ended() {
            stream.end(Ending::Last);
        }
    }

    /// True if a request, an answer or a send is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.asking.is_some()
            || self.sending
            || !self.out.is_empty()
            || self.slow.as_ref().is_some_and(|slow| slow.is_busy())
    }

    /// True if the kernel holds more than a little that the client has not read.
    pub(super) fn has_unread(&self) -> bool {
        // An end that was sent counts as one byte.
        self.sent_total > UNREAD_SMALL && carom_ring::unacknowledged_len(&self.socket) > 1
    }

    /// Checks what the client has read since the last call. Returns the number of ticks since it last read any of the
    /// data that waits for it in the kernel. Asks the kernel only while data may be unread.
    pub(super) fn unread_for(&mut self, tick: u32) -> u32 {
        if self.acknowledged == self.sent_total {
            return 0;
        }
        let unread = carom_ring::unacknowledged_len(&self.socket) as u64;
        let acknowledged = if unread <= 1 { self.sent_total } else { self.sent_total.saturating_sub(unread) };
        let has_read = acknowledged > std::mem::replace(&mut self.acknowledged, acknowledged);
        if acknowledged == self.sent_total {
            self.unread_since = None;
            return 0;
        }
        let since = self.unread_since.filter(|_| !has_read).unwrap_or(tick);
        self.unread_since = Some(since);
        tick.wrapping_sub(since)
    }

    /// True if it speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.is_http2())
    }

    /// Returns the index of this connection's response writer in `Work::answers`: 0 without TLS, 1 with it.
    #[inline]
    pub(super) fn voice(&self) -> usize {
        usize::from(self.tls.is_some())
    }

    /// True if too many bytes wait to be sent.
    pub(super) fn is_congested(&self) -> bool {
        self.out.len() >= self.queued_max as usize
    }

    /// True if no part of a message is under way, as far as the state machine has seen.
    pub(super) fn awaits_nothing(&self) -> bool {
        self.machine.expects(self.unconsumed.len()) == Expects::Request
    }

    /// True if it may send a request, and no byte of one has come yet.
    pub(super) fn awaits_request(&self) -> bool {
        let expects = self.machine.expects(self.unconsumed.len());
        // Before a PROXY header the machine expects a head, although nothing has come.
        let has_begun = expects != Expects::Request && (expects != Expects::Head || !self.unconsumed.is_empty());
        let has_part = self.tls.as_ref().is_some_and(|tls| tls.has_part());
        self.stage == Stage::Open && !has_begun && !self.is_handshaking && !has_part
    }
}

/// The connections of a core by slot.
#[derive(Debug, Default)]
pub(super) struct Conns {
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
}

#[derive(Debug)]
struct Slot {
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
    pub(super) fn insert(&mut self, socket: OwnedFd, machine: Connection, (tick, queued_max): (u32, u32)) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, conn: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        // Completions of the slot's last connection carry another generation. 24 bits fit the ring's user data.
        place.generation = (place.generation + 1) & 0x00ff_ffff;
        let tag = Tag { slot, generation: place.generation };
        place.conn = Some(Box::new(Conn::new(socket, tag, machine, (tick, queued_max))));
        self.open += 1;
        slot
    }

    /// Returns the connection in a slot.
    #[inline]
    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.conn.as_deref_mut()
    }

    /// Returns the connection of a tag, unless it has ended since.
    #[inline]
    pub(super) fn of(&mut self, tag: Tag) -> Option<&mut Conn> {
        self.get(tag.slot).filter(|conn| conn.tag == tag)
    }

    /// Removes a connection and frees its slot.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(slot as usize)?.conn.take()?;
        self.free.push(slot);
        self.open -= 1;
        Some(conn)
    }
}
