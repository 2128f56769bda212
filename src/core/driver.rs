//! The driver of a core: listeners, sockets, and every operation on them, over the ring of the core's thread.
//!
//! Only this part and `bypass` know how bytes travel. The driver hands [`TransportEvent`]s to the loop, and takes what a
//! connection has to send. The connections know their [`Transport`] and nothing below it: a socket of the kernel, or a
//! connection of the core's own TCP/IP stack (`bypass`).

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(super) use carom_ring::{Chunk, Completion, Tag};
use carom_ring::{Ring, reset_on_close, unacknowledged_len};
use carom_telemetry::bypass::BypassStats;

use super::bypass::transport::StackTransport;
use super::bypass::{Bypass, BypassParts};
use super::listen::{self, Layers, Listener, Socket};

/// Something that has happened to a listener or a connection.
pub(super) enum TransportEvent {
    /// A client has connected.
    Accepted {
        /// The connection of the client.
        transport: Transport,
        /// The index of the listener.
        listener: usize,
        /// True if the listener keeps accepting without being armed again.
        continues: bool,
    },
    /// A listener has stopped accepting, for example because that was cancelled.
    AcceptEnded {
        /// The index of the listener.
        listener: usize,
        /// True if file descriptors or memory are short.
        is_exhausted: bool,
        /// True if the listener keeps accepting without being armed again.
        continues: bool,
    },
    /// A receive has brought something.
    Received {
        /// The connection.
        tag: Tag,
        /// The bytes, or the end.
        received: Received,
        /// True if the receive continues without being armed again.
        continues: bool,
    },
    /// A send has ended.
    Sent {
        /// The connection.
        tag: Tag,
        /// The number of bytes that the kernel took, or the number of the error.
        result: Result<usize, i32>,
        /// The buffer that was sent.
        buffer: Vec<u8>,
    },
    /// A descriptor of bypass has become readable.
    Readable {
        /// The descriptor.
        tag: Tag,
        /// True if the poll continues without being armed again.
        continues: bool,
    },
    /// The timer has ticked.
    Tick,
    /// The core was woken: it has mail, or another core has a message for it.
    Woken,
}

/// The result of a receive.
pub(super) enum Received {
    /// Bytes, in a buffer that must be given back with [`Driver::give_back`].
    Bytes(Chunk),
    /// No bytes: the receive was cancelled, or no buffer was free. It is armed again when there is room.
    Nothing,
    /// The client has ended its side.
    Ended,
    /// The connection is broken.
    Broken,
}

impl From<Completion> for TransportEvent {
    #[inline]
    fn from(completion: Completion) -> TransportEvent {
        match completion {
            Completion::Received { tag, result, more } => {
                let received = match result {
                    Ok(Some(chunk)) => Received::Bytes(chunk),
                    Ok(None) => Received::Ended,
                    Err(libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN) => Received::Nothing,
                    Err(_) => Received::Broken,
                };
                TransportEvent::Received { tag, received, continues: more }
            }
            Completion::Sent { tag, result, buffer } => TransportEvent::Sent { tag, result, buffer },
            Completion::Accepted { listener, result, more: continues } => {
                let listener = listener as usize;
                match result {
                    Ok(socket) => {
                        TransportEvent::Accepted { transport: Transport::from_socket(socket), listener, continues }
                    }
                    Err(error) => {
                        let is_exhausted = matches!(error, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM);
                        TransportEvent::AcceptEnded { listener, is_exhausted, continues }
                    }
                }
            }
            Completion::Tick => TransportEvent::Tick,
            // A core opens no connections itself.
            Completion::Bell | Completion::Connected { .. } => TransportEvent::Woken,
            Completion::Readable { tag, more: continues, .. } => TransportEvent::Readable { tag, continues },
        }
    }
}

/// The operations of a connection that the kernel has in hand.
#[derive(Clone, Copy, Default, Debug)]
struct InFlight {
    /// A receive is armed.
    receive: bool,
    /// A send is in flight.
    send: bool,
    /// A cancel or shutdown that ends what is in flight was sent.
    cancel: bool,
}

/// The lower end of a connection.
#[derive(Debug)]
pub(super) enum Transport {
    /// A socket of the kernel.
    Socket(SocketTransport),
    /// A connection of the core's own stack.
    Stack(StackTransport),
}

/// A socket, and the operations on it that are in flight.
#[derive(Debug)]
pub(super) struct SocketTransport {
    socket: OwnedFd,
    in_flight: InFlight,
    /// Bytes of the send in flight that have gone out.
    sent: usize,
    /// Bytes that the kernel has taken to send.
    total: u64,
}

impl Transport {
    /// Wraps the socket of a new connection.
    pub(super) fn from_socket(socket: OwnedFd) -> Transport {
        Transport::Socket(SocketTransport { socket, in_flight: InFlight::default(), sent: 0, total: 0 })
    }

    /// Returns the address of the peer, or `None` if it has left.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        match self {
            Transport::Socket(transport) => {
                let peer = rustix::net::getpeername(&transport.socket).ok()??;
                SocketAddr::try_from(peer).ok().map(|address| address.ip())
            }
            Transport::Stack(transport) => Some(transport.peer()),
        }
    }

    /// True if a send is in flight.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        match self {
            Transport::Socket(transport) => transport.in_flight.send,
            Transport::Stack(transport) => transport.is_sending(),
        }
    }

    /// Returns the number of bytes that the kernel or the stack has taken to send.
    #[inline]
    pub(super) fn taken_len(&self) -> u64 {
        match self {
            Transport::Socket(transport) => transport.total,
            Transport::Stack(transport) => transport.taken_len(),
        }
    }

    /// Returns how many bytes the client has not acknowledged. An end that was sent counts as one byte.
    pub(super) fn unread_len(&self) -> u64 {
        match self {
            Transport::Socket(transport) => unacknowledged_len(&transport.socket) as u64,
            Transport::Stack(transport) => transport.unread_len(),
        }
    }

    /// Notes that the receive has ended by itself.
    pub(super) fn receive_ended(&mut self) {
        let Transport::Socket(transport) = self else { return };
        debug_assert!(transport.in_flight.receive, "only an armed receive ends");
        transport.in_flight.receive = false;
    }

    /// Sends the end after all bytes, and keeps receiving.
    pub(super) fn end_sending(&self) {
        match self {
            Transport::Socket(transport) => Ring::shut_down_sending(&transport.socket),
            Transport::Stack(transport) => transport.end_sending(),
        }
    }

    /// Ends both directions. Every operation in flight completes. Returns true if nothing follows, not even the end of
    /// the receive.
    pub(super) fn shut_down(&self) -> bool {
        match self {
            Transport::Socket(transport) => Ring::shut_down(&transport.socket),
            Transport::Stack(transport) => transport.end_sending(),
        }
        matches!(self, Transport::Stack(_))
    }

    /// Makes the close a reset, so that the kernel frees the bytes that the client has not read.
    pub(super) fn reset_on_close(&mut self) {
        match self {
            Transport::Socket(transport) => reset_on_close(&transport.socket),
            Transport::Stack(transport) => transport.reset_on_close(),
        }
    }
}

/// The outcome of a send.
pub(super) enum SendOutcome {
    /// The rest is being sent.
    Continues,
    /// Everything has gone out. The buffer is returned, empty.
    Done(Vec<u8>),
    /// The connection is broken.
    Broken,
}

/// A listener that accepts no more, and may have clients in its queue.
pub(super) struct ClosingListener(Socket);

impl ClosingListener {
    /// Accepts a client that waits in the queue.
    pub(super) fn accept(&self) -> Option<Transport> {
        // An accepted socket does not inherit the non-blocking mode; the ring does not need it.
        self.0.accept().ok().map(|(socket, _)| Transport::from_socket(socket.into()))
    }
}

/// Longest sleep after requests were gathered. The ring's timer ends it earlier.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The ring of a core with its listeners, and its datapath past the kernel's TCP.
pub(super) struct Driver {
    ring: Ring,
    /// `None` without bypass, and while the loop serves it.
    pub(super) bypass: Option<Box<Bypass>>,
    /// Each listener, until it is closed.
    listeners: Vec<Option<Listener>>,
    /// Protocol layers before HTTP on each listener.
    layers: Vec<Layers>,
    /// For each listener, true if its accept is armed.
    accepting: Vec<bool>,
    is_open: bool,
    completions: Vec<Completion>,
}

impl Driver {
    /// Creates the ring of this thread. It is woken by `bell`, and ticks each `tick`. `now` begins the time of bypass.
    ///
    /// # Errors
    /// If the kernel refuses the ring.
    pub(super) fn new(
        bell: File,
        listeners: Vec<Listener>,
        bypass: Option<BypassParts>,
        (now, tick): (Instant, Duration),
    ) -> io::Result<Driver> {
        let mut ring = Ring::new(Some(bell))?;
        ring.start_timer(tick);
        let bypass = bypass.map(|parts| Box::new(Bypass::new(parts, &mut ring, now)));
        Ok(Driver {
            ring,
            bypass,
            accepting: vec![false; listeners.len()],
            layers: listeners.iter().map(|listener| listener.layers).collect(),
            listeners: listeners.into_iter().map(Some).collect(),
            is_open: false,
            completions: Vec::new(),
        })
    }

    /// Returns the descriptor by which other cores ring this one.
    pub(super) fn descriptor(&self) -> RawFd {
        self.ring.descriptor()
    }

    /// Wakes the core with that descriptor.
    pub(super) fn ring_bell(&mut self, descriptor: RawFd) {
        self.ring.ring_bell(descriptor);
    }

    /// Hands all operations to the kernel, without waiting.
    ///
    /// # Errors
    /// If the ring fails.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.ring.enter()
    }

    /// True if a sleep can gather requests.
    pub(super) fn can_gather(&self) -> bool {
        self.ring.can_gather()
    }

    /// Hands all operations to the kernel, and sleeps until something has happened or a timer of bypass is due. With
    /// `gather_for`, what happens in that time is gathered.
    ///
    /// # Errors
    /// If the ring fails.
    pub(super) fn sleep(&mut self, gather_for: Option<Duration>) -> io::Result<()> {
        let at_most = self.bypass.as_ref().and_then(|bypass| bypass.time_left());
        if let Some(gather_for) = gather_for {
            return self.ring.gather(gather_for, at_most.unwrap_or(SLEEP_MAX));
        }
        match at_most {
            Some(at_most) => self.ring.wait(at_most),
            None => self.ring.sleep(),
        }
    }

    /// Handles a descriptor of bypass that has become readable.
    pub(super) fn readable(&mut self, tag: Tag, continues: bool) {
        if let Some(bypass) = &mut self.bypass {
            bypass.readable(&mut self.ring, tag, continues);
        }
    }

    /// True unless clients of bypass have not acknowledged everything that was sent to them.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.bypass.as_ref().is_none_or(|bypass| bypass.is_acknowledged())
    }

    /// Publishes the counters of bypass.
    pub(super) fn publish(&self, stats: &BypassStats) {
        if let Some(bypass) = &self.bypass {
            bypass.publish(stats);
        }
    }

    /// Lets a connection continue in the next turn, after a send that was taken whole at once.
    pub(super) fn continue_later(&mut self, tag: Tag) {
        if let Some(bypass) = &mut self.bypass {
            bypass.continue_later(tag);
        }
    }

    // Events.

    /// Collects what has happened. Returns true if there is anything.
    pub(super) fn collect(&mut self) -> bool {
        self.ring.take_completions(&mut self.completions);
        !self.completions.is_empty()
    }

    /// Returns the received bytes of each collected event.
    pub(super) fn received(&self) -> impl Iterator<Item = &[u8]> {
        self.completions.iter().filter_map(|completion| match completion {
            Completion::Received { result: Ok(Some(chunk)), .. } => Some(self.ring.bytes(chunk)),
            _ => None,
        })
    }

    /// Returns the number of collected events.
    pub(super) fn collected(&self) -> usize {
        self.completions.len()
    }

    /// Takes the collected events, each of which becomes a [`TransportEvent`].
    pub(super) fn take_collected(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }

    /// Takes the empty list back for its memory.
    pub(super) fn reuse(&mut self, completions: Vec<Completion>) {
        debug_assert!(completions.is_empty() && self.completions.is_empty(), "every event is handled");
        self.completions = completions;
    }

    /// Returns received bytes.
    #[inline]
    pub(super) fn bytes(&self, chunk: &Chunk) -> &[u8] {
        self.ring.bytes(chunk)
    }

    /// Gives a buffer back to the ring.
    #[inline]
    pub(super) fn give_back(&mut self, chunk: Chunk) {
        self.ring.give_back(chunk);
    }

    // Listeners.

    /// Returns the protocol layers before HTTP on a listener.
    pub(super) fn layers(&self, listener: usize) -> Layers {
        self.layers[listener]
    }

    /// Listens on all sockets, and accepts clients.
    ///
    /// # Errors
    /// If a listener cannot be opened.
    pub(super) fn open(&mut self) -> io::Result<()> {
        // Before the kernel has a client whose frames would then go past it.
        if let Some(bypass) = &mut self.bypass {
            bypass.open();
        }
        for Listener { socket, .. } in self.listeners.iter().flatten() {
            listen::open(socket)
                .map_err(|error| io::Error::new(error.kind(), format!("a listener cannot be opened: {error}")))?;
        }
        self.is_open = true;
        Ok(())
    }

    /// Arms the accept of each open listener where it is not armed. While the core drains, the listeners that the next
    /// process has as well stay unarmed.
    pub(super) fn arm_accepts(&mut self, is_draining: bool) {
        if !self.is_open {
            return;
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            if let Some(Listener { socket, is_inherited, .. }) = listener
                && !self.accepting[index]
                && !(*is_inherited && is_draining)
            {
                self.ring.accept(socket, index as u32);
                self.accepting[index] = true;
            }
        }
    }

    /// Notes that the accept of a listener has ended.
    pub(super) fn accept_ended(&mut self, listener: usize) {
        debug_assert!(self.accepting[listener], "only an armed accept ends");
        self.accepting[listener] = false;
    }

    /// Stops all accepts until they are armed again.
    pub(super) fn pause_accepts(&mut self) {
        for listener in (0..self.accepting.len()).filter(|&listener| self.accepting[listener]) {
            self.ring.cancel_accept(listener as u32);
        }
    }

    /// True if an accept is armed, so that one more client may come. That holds for a cancelled one, too.
    pub(super) fn may_accept(&self) -> bool {
        self.accepting.contains(&true)
    }

    /// Refuses new clients. Those in the queues can still be accepted, except on listeners that the next process
    /// shares: that process accepts them.
    pub(super) fn refuse_new(&mut self) {
        if !self.is_open {
            return;
        }
        if let Some(bypass) = &mut self.bypass {
            bypass.refuse_new();
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let Some(Listener { socket, is_inherited, .. }) = listener else { continue };
            if *is_inherited {
                self.ring.cancel_accept(index as u32);
            } else if let Err(error) = listen::refuse_new(socket) {
                tracing::debug!("the queue of new connections cannot be drained: {error}");
            }
        }
    }

    /// Returns the number of listeners, including closed ones.
    pub(super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// Closes a listener. Returns it if clients may wait in its queue.
    pub(super) fn close_listener(&mut self, index: usize) -> Option<ClosingListener> {
        if self.accepting[index] {
            self.ring.cancel_accept(index as u32);
        }
        let Listener { socket, is_inherited, .. } = self.listeners[index].take()?;
        (self.is_open && !is_inherited).then_some(ClosingListener(socket))
    }

    // Connections.

    /// Sends bytes on a connection that sends nothing yet. Returns the buffer, empty, if all of them were taken at
    /// once: then no [`TransportEvent::Sent`] follows. After the last bytes of a connection, the stack sends the end with them;
    /// on a socket it follows later.
    #[inline]
    pub(super) fn send(
        &mut self,
        tag: Tag,
        transport: &mut Transport,
        bytes: Vec<u8>,
        is_last: bool,
    ) -> Option<Vec<u8>> {
        debug_assert!(!transport.is_sending() && !bytes.is_empty(), "a second send would overtake the first");
        match transport {
            Transport::Socket(transport) => {
                transport.sent = 0;
                transport.in_flight.send = true;
                self.ring.send(&transport.socket, tag, bytes, 0);
                None
            }
            Transport::Stack(transport) => transport.send(bytes, is_last),
        }
    }

    /// Takes the result of a send. Sends what is left of its bytes, unless the connection is `closed`.
    #[inline]
    pub(super) fn sent(
        &mut self,
        (tag, transport): (Tag, &mut Transport),
        result: Result<usize, i32>,
        mut buffer: Vec<u8>,
        closed: bool,
    ) -> SendOutcome {
        let Transport::Socket(transport) = transport else { return SendOutcome::Broken };
        debug_assert!(transport.in_flight.send, "only a send in flight ends");
        transport.in_flight.send = false;
        let Ok(len) = result else { return SendOutcome::Broken };
        transport.total += len as u64;
        if transport.sent + len < buffer.len() && !closed {
            transport.sent += len;
            transport.in_flight.send = true;
            self.ring.send(&transport.socket, tag, buffer, transport.sent);
            return SendOutcome::Continues;
        }
        buffer.clear();
        SendOutcome::Done(buffer)
    }

    /// Receives from now on, if `wanted`, and stops otherwise.
    #[inline]
    pub(super) fn set_receiving(&mut self, tag: Tag, transport: &mut Transport, wanted: bool) {
        let SocketTransport { socket, in_flight, .. } = match transport {
            Transport::Socket(transport) => transport,
            Transport::Stack(transport) => return transport.set_receiving(wanted),
        };
        if in_flight.receive && !wanted && !in_flight.cancel {
            in_flight.cancel = true;
            self.ring.cancel_receive(tag);
        } else if !in_flight.receive && wanted {
            in_flight.receive = true;
            in_flight.cancel = false;
            self.ring.receive(socket, tag);
        }
    }

    /// Ends all operations of a connection. Returns true once none is in flight, so that it can be closed.
    pub(super) fn end(&mut self, tag: Tag, transport: &mut Transport) -> bool {
        let SocketTransport { socket, in_flight, .. } = match transport {
            Transport::Socket(transport) => transport,
            Transport::Stack(transport) => {
                transport.abort_send();
                return true;
            }
        };
        if !in_flight.receive && !in_flight.send {
            return true;
        }
        if !in_flight.cancel || in_flight.send {
            in_flight.cancel = true;
            Ring::shut_down(socket);
            if in_flight.receive {
                self.ring.cancel_receive(tag);
            }
        }
        false
    }
}
