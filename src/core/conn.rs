//! Connections of a core: what is known of each, in slots that are used again.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use carom_ring::Tag;
use carom_shards::Code;

use super::access;
use super::slow::{Ending, Stream};
use crate::access_log::Noted;
use crate::desk::Desk;
use crate::domains;
use crate::forwarded::Trust;
use crate::guard::{Place, Source};
use crate::limits::UNREAD_SMALL;
use crate::visits::Visitor;
use crate::wire::connection::Expects;
use crate::wire::tls::Session;
use crate::wire::{Connection, RedirectRequest, Rejection};

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It may ask.
    Open,
    /// What is queued goes out, then it ends.
    Finishing,
    /// We have said goodbye and wait for the client's, so that it reads our last answer before a reset reaches it.
    Lingering,
    /// It ends as soon as nothing of it is in flight.
    Dead,
}

/// A request for a short code that waits for another core, the store or Redis.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLookup {
    pub(super) request: RedirectRequest,
    /// The domain that it means.
    pub(super) domain: domains::Place,
    /// The code that is looked up: that of the domain, or that of the default domain which stands in.
    pub(super) code: Code,
    pub(super) since: Instant,
    /// Whether its answer should be kept for others who ask.
    pub(super) wanted: bool,
    /// Whether the store or Redis is asked, which may take longer than clients should wait.
    pub(super) looked_up: bool,
    /// Whether it is to be asked, since there was no answer to the one before.
    pub(super) again: bool,
    /// Whether the code before could not be confirmed missing, so that this one's absence is no 404 either.
    pub(super) unconfirmed: bool,
    /// Who asked.
    pub(super) visitor: Option<Visitor>,
}

impl PendingLookup {
    /// The look-up of a code of that domain, for a request that came at that instant with that head.
    pub(super) fn new(
        desk: &Desk,
        request: &RedirectRequest,
        head: &[u8],
        (domain, code): (domains::Place, Code),
        since: Instant,
    ) -> PendingLookup {
        let visitor = desk.visitor(request.user_agent.of(head), request.referer.of(head));
        let request = *request;
        PendingLookup {
            request,
            domain,
            code,
            since,
            wanted: false,
            looked_up: false,
            again: false,
            unconfirmed: false,
            visitor,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    pub(super) tag: Tag,
    pub(super) machine: Connection,
    /// What is between it and the wire, where that is TLS.
    pub(super) tls: Option<Box<Session>>,
    pub(super) stage: Stage,
    /// Received, not consumed. Without memory while empty.
    pub(super) unconsumed: Vec<u8>,
    /// To be sent next. Without memory while idle.
    pub(super) out: Vec<u8>,
    /// Bytes of the send in flight that have gone out.
    pub(super) sent: usize,
    pub(super) slow: Option<Rc<Stream>>,
    pub(super) pending: Option<PendingLookup>,
    /// The query of the request that is asked about. Without memory while there is none.
    pub(super) query: Vec<u8>,
    /// What the access log is told of the request that is asked about.
    pub(super) noted: Option<Noted>,
    /// To be said after hyper's last answer.
    pub(super) rejection: Option<Rejection>,
    /// When the present wait began, in ticks of the core.
    pub(super) since: u32,
    /// When the send in flight last made progress, in ticks of the core.
    pub(super) sent_since: u32,
    /// Whole heads seen when the present wait began.
    pub(super) heads: u32,
    /// What it is waiting for.
    pub(super) expects: Expects,
    /// Bytes of a body without end since the present wait began.
    pub(super) progress: usize,
    /// Bytes that the kernel has taken to send.
    pub(super) sent_total: u64,
    /// Bytes of them that the client had acknowledged at the last look.
    acknowledged: u64,
    /// When it had last acknowledged more, in ticks of the core; `None` while nothing is known to be unread.
    unread_since: Option<u32>,
    /// It was broken off: its close is a reset where answers are unread.
    pub(super) is_cut: bool,
    pub(super) receiving: bool,
    pub(super) sending: bool,
    /// The client has asked for the end, and sent nothing behind that: nothing can be lost by closing at once.
    pub(super) said_last: bool,
    /// A cancel or shutdown that ends what is in flight was sent.
    pub(super) stopping: bool,
    /// The client has ended its side.
    pub(super) peer_ended: bool,
    /// It is in the list of those to settle.
    pub(super) dirty: bool,
    /// It is counted among the TLS handshakes under way.
    pub(super) is_handshaking: bool,
    /// It is in the list of those whose handshake is to go on.
    pub(super) is_waiting: bool,
    /// It has to go because there are too many.
    pub(super) is_evicted: bool,
    /// When the part of a TLS record began to come whose rest has not, in ticks of the core.
    pub(super) part_since: u32,
    /// How much of it may wait in either direction, in bytes.
    pub(super) queued_max: u32,
    /// The address of the client, where the one who connected has told of another than its own.
    client: Option<IpAddr>,
    /// That of the one who connected, or of the client whom that one has told of, once somebody wanted to know.
    peer: Option<IpAddr>,
    /// It began with a PROXY header that names nobody.
    is_nameless: bool,
    /// Where the client is, once somebody wanted to know.
    place: Option<Place>,
    /// The address that it is counted for, where connections of addresses are.
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
            pending: None,
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

    /// The client is there, and not where the connection comes from; where nobody is named, fields of requests say nothing
    /// either: nobody knows who has written them.
    pub(super) fn come_from(&mut self, client: Option<IpAddr>) {
        self.is_nameless = client.is_none();
        (self.client, self.peer, self.place) = (client, client, None);
    }

    /// The address that requests come from, before a field of theirs says more.
    pub(super) fn source(&self) -> Option<Source> {
        let address = self.peer.or_else(|| self.address())?;
        Some(Source { address, is_final: self.is_nameless })
    }

    /// The client of the next request is who the proxies say in that field.
    pub(super) fn follow(&mut self, trust: &Trust, field: &[u8]) {
        if self.peer.is_none() {
            self.peer = self.source().map(|source| source.address);
        }
        let client = self.peer.map(|peer| if self.is_nameless { peer } else { trust.client(peer, field) });
        if client != self.client {
            (self.client, self.place) = (client, None);
        }
    }

    /// What its questions are known by.
    pub(super) fn token(&self) -> u64 {
        u64::from(self.tag.generation) << 32 | u64::from(self.tag.slot)
    }

    /// Waits for the answer to a question that came in that head.
    pub(super) fn wait(&mut self, desk: &Desk, pending: PendingLookup, head: &[u8]) {
        if desk.picks() {
            access::note(desk, self, &pending.request, head);
        }
        self.query.extend_from_slice(pending.request.query.of(head));
        self.pending = Some(pending);
    }

    /// The address of the client, which is asked for once.
    pub(super) fn known_address(&mut self) -> Option<IpAddr> {
        self.client.or_else(|| self.known_peer())
    }

    /// That of the one who connected, or whom that one has told of: before a field of a request says more.
    pub(super) fn known_peer(&mut self) -> Option<IpAddr> {
        if self.peer.is_none() {
            self.peer = self.address();
        }
        self.peer
    }

    /// The address of the client; `None` where it is gone already.
    pub(super) fn address(&self) -> Option<IpAddr> {
        if self.client.is_some() {
            return self.client;
        }
        let address = rustix::net::getpeername(&self.socket).ok()??;
        SocketAddr::try_from(address).ok().map(|address| address.ip())
    }

    /// Whether the client has asked for too much that is not there, and is told nothing for now.
    #[cold]
    pub(super) fn is_barred(&mut self, desk: &Desk) -> bool {
        self.place(desk).is_some_and(|place| desk.guard().bars(place).is_some())
    }

    /// Counts that the client has asked for something that is not there. Returns whether that was once too often.
    #[inline]
    pub(super) fn misses_too_often(&mut self, desk: &Desk) -> bool {
        desk.guard().counts_misses() && self.place(desk).is_some_and(|place| desk.guard().miss(place).is_err())
    }

    /// Where the client is.
    pub(super) fn place(&mut self, desk: &Desk) -> Option<Place> {
        if self.place.is_none() {
            self.place = self.address().map(|address| desk.guard().place(address));
        }
        self.place
    }

    /// Notes that so many bytes have come where only their number counts. With each `least` of them its time begins anew.
    pub(super) fn note_progress(&mut self, len: usize, least: usize, tick: u32) {
        self.progress += len;
        if self.progress >= least {
            (self.progress, self.since) = (0, tick);
        }
    }

    /// Whether the bytes that are not consumed belong to the TLS handshake, and not to the layer above it.
    pub(super) fn holds_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) && !self.machine.awaits_proxy()
    }

    /// Hands bytes to hyper, and says so where they are the last.
    pub(super) fn pass(&self, bytes: &[u8]) {
        let Some(stream) = &self.slow else { return };
        stream.put(bytes, self.machine.heads());
        if self.machine.is_ended() {
            stream.end(Ending::Last);
        }
    }

    /// Whether anything is under way for the client.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.is_some()
            || self.sending
            || !self.out.is_empty()
            || self.slow.as_ref().is_some_and(|slow| slow.is_busy())
    }

    /// Whether the client has left unread what the kernel keeps for it, and that is not little.
    pub(super) fn has_unread(&self) -> bool {
        // An end that was sent counts as one byte.
        self.sent_total > UNREAD_SMALL && carom_ring::unacknowledged_len(&self.socket) > 1
    }

    /// Looks at what the client has read since the last look. Returns for how many ticks it has read nothing of what waits for it
    /// in the kernel. Asks the kernel only while something may be unread.
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

    /// Whether it speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.slow.as_ref().is_some_and(|slow| slow.is_http2())
    }

    /// Which of the core's answers are for it.
    #[inline]
    pub(super) fn voice(&self) -> usize {
        usize::from(self.tls.is_some())
    }

    /// Whether more of it waits to be sent than is good.
    pub(super) fn is_congested(&self) -> bool {
        self.out.len() >= self.queued_max as usize
    }

    /// Whether no part of a message is under way, as far as the machine has seen.
    pub(super) fn awaits_nothing(&self) -> bool {
        self.machine.expects(self.unconsumed.len()) == Expects::Request
    }

    /// Whether it may send a request, none of which has come yet.
    pub(super) fn awaits_request(&self) -> bool {
        let expects = self.machine.expects(self.unconsumed.len());
        // Before a PROXY header it is waited for as for a head, although nothing has come.
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
    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// How many slots there are, free ones included.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Puts a connection into a free slot.
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

    /// The connection in a slot.
    #[inline]
    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Conn> {
        self.slots.get_mut(slot as usize)?.conn.as_deref_mut()
    }

    /// The connection of a tag, unless it has ended since.
    #[inline]
    pub(super) fn of(&mut self, tag: Tag) -> Option<&mut Conn> {
        self.get(tag.slot).filter(|conn| conn.tag == tag)
    }

    /// Takes a connection out; its slot is free again.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Conn>> {
        let conn = self.slots.get_mut(slot as usize)?.conn.take()?;
        self.free.push(slot);
        self.open -= 1;
        Some(conn)
    }
}
