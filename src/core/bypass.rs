//! The datapath past the kernel's TCP: the AF_XDP socket of one receive queue, and the TCP/IP stack on top of it.
//!
//! [`Datapath`] belongs to one core. Its connections are [`transport::StackTransport`]s, which share it: a transport sends, ends
//! and closes through it, as a socket does through the kernel. What the stack reports is collected in a [`StackInbox`], and
//! the loop delivers it while the datapath is not borrowed (`turn`).

pub(super) mod transport;
mod turn;

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carom_limits::BYPASS_FRAMES;
use carom_net::{
    CloseReason, ConnectionId, Decapsulate, DropReason, Events, FRAME_LEN, FramePool, NextHop, NextHops, Stack,
    StackConfig,
};
use carom_ring::{Ring, Tag};
use carom_telemetry::bypass::{BYPASS_DROP_REASONS, BypassStats};
use carom_xdp::config::SocketConfig;
use carom_xdp::next_hops::{RouteLookup, RouteTables};
use carom_xdp::program::SocketEntry;
use carom_xdp::socket::{Kick, ReceivedFrame, XdpSocket};

/// Frames of a core's socket.
const FRAMES: u32 = BYPASS_FRAMES;

/// Entries of each ring of a core's socket.
const RING_LEN: u32 = 1_024;

/// Frames that wait for their acknowledgement, at most: the others are with the kernel to receive into, or carry
/// segments without data.
const FRAMES_HELD_MAX: u32 = FRAMES - 2 * RING_LEN - 512;

/// Frames that are taken from the kernel at once. The links that they ask for are prefetched.
const FRAMES_PER_BATCH: usize = 32;

/// Receive window: bytes that a connection may have to keep while its requests wait.
const RECEIVE_WINDOW: u32 = 64 * 1024;

/// The tag under which the socket is polled.
const SOCKET_TAG: Tag = Tag { slot: u32::MAX, generation: 1 };

/// The tag under which the notifications of routes are polled.
const ROUTES_TAG: Tag = Tag { slot: u32::MAX, generation: 2 };

// The counters have a place for each reason.
const _: () = assert!(BYPASS_DROP_REASONS == DropReason::COUNT);

/// The least time between two visits of all connections after changes of routes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the settings of the socket of a queue.
pub fn socket_config(interface: u32, queue: u32) -> SocketConfig {
    SocketConfig { frames: FRAMES, ring_len: RING_LEN, ..SocketConfig::new(interface, queue) }
}

/// The parts of a core's datapath. They are made before the core's thread starts.
pub struct BypassParts {
    /// The socket of the core's receive queue.
    pub socket: XdpSocket,
    /// The entry by which the program sends frames to the socket.
    pub entry: SocketEntry,
    /// Routes and neighbours.
    pub routes: RouteTables,
    /// The number of the interface.
    pub interface: u32,
    /// Longest packet of the interface in bytes.
    pub mtu: u16,
    /// The tunnel header in front of packets of a balancer.
    pub decapsulate: Decapsulate,
    /// Most connections of the core.
    pub connections_max: u32,
    /// Random bytes for sequence numbers, cookies and the flow table.
    pub secret: [u8; 16],
    /// The addresses to listen on, each with the index of its listener.
    pub listeners: Vec<(SocketAddr, usize)>,
}

/// The frames of the socket, as the stack wants them.
struct Frames(XdpSocket);

impl FramePool for Frames {
    fn take(&mut self) -> Option<u32> {
        self.0.take()
    }

    fn bytes(&mut self, frame: u32) -> &mut [u8] {
        self.0.bytes_mut(frame)
    }

    fn send(&mut self, frame: u32, start: usize, len: usize) -> bool {
        self.0.send(frame, start as u32, len as u32)
    }

    fn is_queued(&self, frame: u32) -> bool {
        self.0.is_sending(frame)
    }

    fn release(&mut self, frame: u32) {
        self.0.free(frame);
    }
}

/// The kernel's routes and neighbours, as far as they lead through the interface.
struct Routes {
    tables: RouteTables,
    interface: u32,
    now: Instant,
}

impl NextHops for Routes {
    fn next_hop(&mut self, local: IpAddr, remote: IpAddr) -> Option<NextHop> {
        match self.tables.look_up(local, remote, self.now) {
            RouteLookup::Found(hop) if hop.interface == self.interface => Some(NextHop {
                mac: hop.mac,
                source_mac: hop.source_mac,
                vlan: hop.vlan,
                mtu: u16::try_from(hop.mtu).unwrap_or(u16::MAX),
            }),
            _ => None,
        }
    }

    fn is_own(&self, mac: [u8; 6]) -> bool {
        self.tables.has_mac(self.interface, mac)
    }
}

/// Something that the stack has reported.
#[derive(Clone, Copy, Debug)]
enum StackReport {
    Opened,
    /// Bytes of the received frame or of the spilled ones.
    Received {
        is_spilled: bool,
        start: u32,
        len: u32,
    },
    PeerFinished,
    Writable,
    Closed(CloseReason),
}

/// Reports of the stack about a frame or a timer, in order, and the bytes that belong to them.
struct StackInbox {
    frame: Box<[u8; FRAME_LEN]>,
    frame_len: usize,
    /// Bytes that came out of order, and whose turn has come.
    spilled: Vec<u8>,
    reports: Vec<(ConnectionId, StackReport)>,
}

impl StackInbox {
    fn new() -> StackInbox {
        StackInbox { frame: Box::new([0; FRAME_LEN]), frame_len: 0, spilled: Vec::new(), reports: Vec::new() }
    }

    fn bytes(&self, is_spilled: bool, start: u32, len: u32) -> &[u8] {
        let (start, len) = (start as usize, len as usize);
        if is_spilled { &self.spilled[start..start + len] } else { &self.frame[start..start + len] }
    }
}

/// The reports of one call of the stack.
struct Collected<'a> {
    frame: &'a [u8],
    spilled: &'a mut Vec<u8>,
    reports: &'a mut Vec<(ConnectionId, StackReport)>,
}

impl Events for Collected<'_> {
    fn opened(&mut self, id: ConnectionId) {
        self.reports.push((id, StackReport::Opened));
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        let len = bytes.len() as u32;
        let start = (bytes.as_ptr() as usize).wrapping_sub(self.frame.as_ptr() as usize);
        let report = if start <= self.frame.len() && bytes.len() <= self.frame.len() - start {
            StackReport::Received { is_spilled: false, start: start as u32, len }
        } else {
            let start = self.spilled.len() as u32;
            self.spilled.extend_from_slice(bytes);
            StackReport::Received { is_spilled: true, start, len }
        };
        self.reports.push((id, report));
    }

    fn peer_finished(&mut self, id: ConnectionId) {
        self.reports.push((id, StackReport::PeerFinished));
    }

    fn writable(&mut self, id: ConnectionId) {
        self.reports.push((id, StackReport::Writable));
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        self.reports.push((id, StackReport::Closed(reason)));
    }
}

/// The socket and the stack of a core.
pub(super) struct Datapath {
    frames: Frames,
    stack: Stack,
    routes: Routes,
    began: Instant,
    /// Microseconds since `began`, at the beginning of the turn.
    now_us: u64,
    /// Received frames that are held until the stack gets them, in order.
    arrived: Vec<ReceivedFrame>,
    /// Frames that the kernel has sent. The stack asks for the state of a frame when it needs it.
    sent: Vec<u32>,
    /// True if connections may have to look up their next hops again.
    has_new_routes: bool,
    refreshed: Instant,
}

impl Datapath {
    fn new(parts: BypassParts, began: Instant) -> (Datapath, SocketEntry) {
        let config = StackConfig {
            connections_max: parts.connections_max,
            frames_held_max: FRAMES_HELD_MAX,
            receive_window: RECEIVE_WINDOW,
            mtu: parts.mtu,
            decapsulate: parts.decapsulate,
            ..StackConfig::default()
        };
        let datapath = Datapath {
            frames: Frames(parts.socket),
            stack: Stack::new(config, &parts.secret, 0),
            routes: Routes { tables: parts.routes, interface: parts.interface, now: began },
            began,
            now_us: 0,
            arrived: Vec::with_capacity(FRAMES_PER_BATCH),
            sent: Vec::new(),
            has_new_routes: false,
            refreshed: began,
        };
        (datapath, parts.entry)
    }

    /// Begins a turn.
    fn begin(&mut self, now: Instant) {
        self.now_us = now.saturating_duration_since(self.began).as_micros() as u64;
        self.routes.now = now;
        self.frames.0.take_completions(&mut self.sent);
        self.sent.clear();
    }

    /// Takes up to [`FRAMES_PER_BATCH`] received frames from the kernel. Returns their number.
    fn take_batch(&mut self) -> usize {
        self.arrived.clear();
        self.arrived.extend(std::iter::from_fn(|| self.frames.0.receive()).take(FRAMES_PER_BATCH));
        self.arrived.len()
    }

    /// Returns the probable payload of each frame of the batch.
    fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.arrived.iter().map(|received| {
            let start = received.offset as usize;
            carom_net::peek_payload(&self.frames.0.bytes(received.frame)[start..start + received.len as usize])
        })
    }

    /// Hands frame number `at` of the batch to the stack.
    fn receive(&mut self, at: usize, inbox: &mut StackInbox) {
        let received = self.arrived[at];
        let (start, len) = (received.offset as usize, received.len as usize);
        inbox.frame[..len].copy_from_slice(&self.frames.0.bytes(received.frame)[start..start + len]);
        inbox.frame_len = len;
        self.frames.0.free(received.frame);
        inbox.spilled.clear();
        let frame = &inbox.frame[..len];
        let mut events = Collected { frame, spilled: &mut inbox.spilled, reports: &mut inbox.reports };
        self.stack.receive(self.now_us, frame, &mut self.frames, &mut self.routes, &mut events);
    }

    /// Runs the timers that are due.
    fn run_timers(&mut self, inbox: &mut StackInbox) {
        inbox.spilled.clear();
        let mut events = Collected { frame: &[], spilled: &mut inbox.spilled, reports: &mut inbox.reports };
        self.stack.poll(self.now_us, &mut self.frames, &mut events);
    }

    /// Takes in changes of routes and neighbours.
    fn update_routes(&mut self) {
        if let Err(error) = self.routes.tables.update() {
            tracing::warn!("the routes of kernel bypass cannot be updated: {error}");
        }
        self.has_new_routes = true;
    }

    /// Ends a turn: acknowledges, and gives frames to the kernel. Returns true if the kernel could not take all.
    fn end(&mut self) -> io::Result<bool> {
        if self.has_new_routes && self.routes.now.saturating_duration_since(self.refreshed) >= REFRESH_INTERVAL {
            self.stack.refresh_next_hops(&mut self.routes);
            (self.has_new_routes, self.refreshed) = (false, self.routes.now);
        }
        self.stack.flush(self.now_us, &mut self.frames);
        self.frames.0.refill();
        Ok(self.frames.0.kick()? == Kick::Again)
    }
}

/// The datapath of a core with everything that the loop needs to serve it.
pub(super) struct Bypass {
    datapath: Rc<RefCell<Datapath>>,
    /// The entry by which the XDP program sends frames to the socket; empty once the core is open.
    entry: Option<SocketEntry>,
    inbox: StackInbox,
    /// The connection of each place of the stack.
    tags: Vec<Tag>,
    listeners: Vec<(SocketAddr, usize)>,
    /// Connections whose last send was taken whole, and which continue in the next turn.
    continues: Vec<Tag>,
}

impl Bypass {
    /// Makes the datapath, and polls it with the ring of this thread.
    pub(super) fn new(mut parts: BypassParts, ring: &mut Ring, now: Instant) -> Bypass {
        let listeners = std::mem::take(&mut parts.listeners);
        let (datapath, entry) = Datapath::new(parts, now);
        ring.poll(&datapath.frames.0.as_fd(), SOCKET_TAG);
        ring.poll(&datapath.routes.tables.as_fd(), ROUTES_TAG);
        Bypass {
            datapath: Rc::new(RefCell::new(datapath)),
            entry: Some(entry),
            inbox: StackInbox::new(),
            tags: Vec::new(),
            listeners,
            continues: Vec::new(),
        }
    }

    /// Takes note of a descriptor that has become readable. Polls it again if the poll has ended.
    pub(super) fn readable(&mut self, ring: &mut Ring, tag: Tag, continues: bool) {
        let mut datapath = self.datapath.borrow_mut();
        if tag == ROUTES_TAG {
            datapath.update_routes();
            if !continues {
                ring.poll(&datapath.routes.tables.as_fd(), ROUTES_TAG);
            }
        } else if !continues {
            ring.poll(&datapath.frames.0.as_fd(), SOCKET_TAG);
        }
    }

    /// Accepts connections from now on. Until then the kernel has all frames, and refuses clients.
    pub(super) fn open(&mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        let mut datapath = self.datapath.borrow_mut();
        for (address, _) in &self.listeners {
            let ip = (!address.ip().is_unspecified()).then_some(address.ip());
            datapath.stack.listen(ip, address.port());
        }
        if let Err(error) = entry.register(&datapath.frames.0) {
            tracing::error!("a core serves over the kernel instead of kernel bypass: {error}");
        }
    }

    /// Ignores new clients from now on: they try again, at another node.
    pub(super) fn refuse_new(&mut self) {
        self.datapath.borrow_mut().stack.stop_listening();
    }

    /// True if clients have acknowledged everything that was sent, also on connections that the core has closed.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.datapath.borrow().stack.counters().frames_held == 0
    }

    /// Returns the time until a timer of the stack is due.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let datapath = self.datapath.borrow();
        let due = datapath.stack.next_deadline(datapath.now_us)?;
        Some(Duration::from_micros(due.saturating_sub(datapath.now_us)))
    }

    /// Publishes the counters. A system call; called once a tick.
    pub(super) fn publish(&self, stats: &BypassStats) {
        let datapath = self.datapath.borrow();
        let counters = datapath.stack.counters();
        stats.frames_in.set(counters.frames_in);
        stats.frames_out.set(counters.frames_out);
        stats.bytes_in.set(counters.bytes_in);
        stats.bytes_out.set(counters.bytes_out);
        stats.opened.set(counters.opened);
        stats.open.set(counters.open);
        stats.half_open.set(counters.half_open);
        stats.time_wait.set(counters.time_wait);
        stats.frames_held.set(counters.frames_held);
        stats.retransmissions.set(counters.retransmissions);
        stats.timeouts.set(counters.timeouts);
        stats.timed_out.set(counters.timed_out);
        stats.shed.set(counters.shed);
        stats.cookies_sent.set(counters.cookies_sent);
        stats.cookies_accepted.set(counters.cookies_accepted);
        stats.resets_unknown.set(counters.resets_sent_unknown);
        stats.resets_abort.set(counters.resets_sent_abort);
        stats.resets_received.set(counters.resets_received);
        stats.out_of_order.set(counters.out_of_order);
        for (stat, count) in stats.dropped.iter().zip(counters.dropped) {
            stat.set(count);
        }
        stats.no_frame.set(counters.no_frame);
        stats.ring_full.set(counters.ring_full);
        if let Ok(statistics) = datapath.frames.0.statistics() {
            stats.kernel_drops.set(statistics.all_drops());
            stats.receive_ring_full.set(statistics.rx_ring_full);
            stats.fill_ring_empty.set(statistics.fill_ring_empty);
        }
        stats.is_zero_copy.store(datapath.frames.0.is_zero_copy(), Ordering::Relaxed);
        stats.is_on.store(true, Ordering::Relaxed);
    }

    /// Lets a connection continue in the next turn, after a send that was taken whole.
    pub(super) fn continue_later(&mut self, tag: Tag) {
        self.continues.push(tag);
    }

    /// Returns the index of the listener at an address.
    fn listener(&self, address: SocketAddr) -> Option<usize> {
        let is_at = |listener: &SocketAddr| {
            listener.port() == address.port()
                && listener.is_ipv4() == address.is_ipv4()
                && (listener.ip() == address.ip() || listener.ip().is_unspecified())
        };
        self.listeners.iter().find(|(listener, _)| is_at(listener)).map(|(_, index)| *index)
    }
}
