//! The loop of a core: takes completions, mail and messages of other cores, and works on them. Then it gives each
//! touched connection what it needs from the ring, and sleeps when there is nothing to do.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use carom_ring::{Chunk, Completion, Ring, Tag};
use carom_shards::{CodeHash, CodeHasher, CoreCount, CoreId};

use super::admission::EVICTED_FOR_FILES;
use super::connection::ConnState;
use super::data::Data;
use super::executor::{self, Running};
use super::hyper_bridge::HttpService;
use super::link_memory::MemoryBudget;
use super::listen::{self, Begins, Listener};
use super::mesh::{self, Mesh};
use super::shard::Shard;
use super::tls::TlsConnections;
use super::work::{Now, TICKS_PER_SECOND, Work};
use crate::bridge::ToCore;
use crate::bridge::handle::{Codes, NodeContext, Recorders, ServiceHandle};
use carom_limits::ConnectionLimits;
use carom_model::clients::forwarded::Trust;
use carom_telemetry::clock::unix_ms;
use carom_tls::identity::TlsIdentity;

/// The first period of a drain. Connections whose TCP handshake is under way still get in, and kept-alive connections
/// may send another request. Then listeners and idle connections are closed.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Time that tasks of closed connections have to end, since their clients are gone.
const TASKS_TIME_MAX: Duration = Duration::from_secs(1);

/// The parts of a core, besides its place in the mesh. They are sent to its thread.
pub struct CoreParts {
    /// Number of the core, from 0. The core of the admin listener comes last.
    pub core: CoreId,
    /// CPU that the core is pinned to; `None` for the core of the admin listener.
    pub cpu: Option<usize>,
    /// Listeners of the core, bound and not yet listening.
    pub listeners: Vec<Listener>,
    /// Proxies that may name the client.
    pub trust: Arc<Trust>,
    /// The eventfd that wakes the core.
    pub bell: File,
    /// The core's end of its mailbox.
    pub mail: Receiver<ToCore>,
    /// Queues, mailboxes and counters that all cores share.
    pub counters: NodeContext,
    /// The share of its links that the core keeps in memory.
    pub share: MemoryBudget,
    /// Limits and timeouts of connections.
    pub limits: ConnectionLimits,
    /// Certificate and key of the service, if it speaks TLS.
    pub identity: Option<TlsIdentity>,
    /// The `max-age` of `Strict-Transport-Security`, if it is sent.
    pub hsts: Option<Duration>,
    /// The core's segment of fresh codes.
    pub codes: Box<dyn Codes + Send>,
    /// Recorders of visits and of the access log.
    pub told: Recorders,
    /// Makes the service that answers all requests but redirects on this core.
    pub service: Box<dyn FnOnce(Rc<ServiceHandle>) -> HttpService + Send>,
    /// Receives the events of the core's life.
    pub events: Sender<CoreEvent>,
}

/// An event in the life of a core, sent to the thread that started it.
#[derive(Debug)]
pub enum CoreEvent {
    /// The core has all its links.
    Loaded(CoreId),
    /// The core's listeners accept clients.
    Opened(CoreId),
    /// The core has ended: after a drain, or because its ring failed.
    Ended(CoreId, io::Result<()>),
}

/// A core that can be started.
pub struct CoreSeed {
    parts: CoreParts,
    /// `None` for the core of the admin listener.
    mesh: Option<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

/// Seeds of a node's cores, which share one mesh and one way to hash codes.
#[derive(Debug)]
pub struct Seeds {
    meshes: std::vec::IntoIter<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

impl Seeds {
    /// Returns the seeds for `cores` cores that own links, and one more for the admin listener.
    pub fn new(cores: CoreCount, hasher: CodeHasher) -> Seeds {
        Seeds { meshes: mesh::weave(cores).into_iter(), hasher, cores }
    }

    /// Returns the seed of the next core, in order. The one behind the last owns no links.
    pub fn next(&mut self, parts: CoreParts) -> CoreSeed {
        CoreSeed { parts, mesh: self.meshes.next(), hasher: self.hasher, cores: self.cores }
    }
}

/// Starts a core on a thread of its own. The core ends by itself after [`ToCore::Drain`].
///
/// # Errors
/// When its thread or its executor cannot be created. A later failure arrives as [`CoreEvent::Ended`].
pub fn start(seed: CoreSeed) -> io::Result<Running> {
    let name = if seed.mesh.is_some() { format!("core-{}", seed.parts.core) } else { "admin".to_owned() };
    let (core, events) = (seed.parts.core, seed.parts.events.clone());
    executor::spawn(&name, seed.parts.cpu, move || async move {
        let result = match Core::new(seed) {
            Ok(core) => core.run(),
            Err(error) => Err(error),
        };
        // The starter of the node may have given up by now.
        let _ = events.send(CoreEvent::Ended(core, result));
    })
}

/// The progress of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not draining.
    Serving,
    /// New clients are refused; those in the queues still get in.
    Closing { since: Instant, until: Instant },
    /// Listeners are closed; connections finish.
    Finishing { until: Instant },
    /// No connections are left. Other cores may still ask for our links, and tasks end.
    Finished { since: Instant },
}

struct Core {
    ring: Ring,
    work: Work,
    /// Each listener, until it is closed.
    listeners: Vec<Option<Listener>>,
    /// Protocol layers before HTTP on each listener.
    begins: Vec<Begins>,
    /// For each listener, true if its accept is armed.
    accepting: Vec<bool>,
    /// True if accepting pauses until the next tick.
    is_pausing: bool,
    is_open: bool,
    mail: Receiver<ToCore>,
    completions: Vec<Completion>,
    /// Hashes of the codes that the requests of this turn ask for.
    prefetched: Vec<CodeHash>,
    phase: Phase,
    events: Sender<CoreEvent>,
}

impl Core {
    fn new(CoreSeed { parts, mesh, hasher, cores }: CoreSeed) -> io::Result<Core> {
        let mut ring = Ring::new(Some(parts.bell))?;
        ring.start_timer(Duration::from_millis(1_000 / u64::from(TICKS_PER_SECOND)));
        let stats = Arc::clone(&parts.counters.cores[parts.core.index()]);
        let data = mesh.map(|mesh| {
            mesh.announce(ring.descriptor());
            let node = Arc::clone(&parts.counters.node);
            let shard = Shard::new(parts.core, cores, hasher, parts.share, Arc::clone(&stats), node);
            Box::new(Data::new(shard, mesh))
        });
        let services = Rc::new(ServiceHandle::new(parts.core, parts.counters, parts.codes, parts.told));
        let service = (parts.service)(Rc::clone(&services));
        let now = Now { instant: Instant::now(), unix_ms: unix_ms(), tick: 0 };
        Ok(Core {
            ring,
            work: Work::new(
                now,
                data,
                services,
                service,
                stats,
                (parts.limits, parts.trust),
                TlsConnections::new(parts.identity, parts.hsts),
            ),
            accepting: vec![false; parts.listeners.len()],
            begins: parts.listeners.iter().map(|listener| listener.begins).collect(),
            listeners: parts.listeners.into_iter().map(Some).collect(),
            is_pausing: false,
            is_open: false,
            mail: parts.mail,
            completions: Vec::new(),
            prefetched: Vec::new(),
            phase: Phase::Serving,
            events: parts.events,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let result = self.serve();
        // Tasks that are left hold queues whose readers wait until the last sender is dropped.
        self.work.tasks.clear();
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let worked = self.turn()?;
            if let Phase::Finished { since } = self.phase
                && self.work.conns.len() == 0
                && self.work.data.as_ref().is_none_or(|data| data.mesh.all_finished())
                && (!self.work.tasks.are_left() || since.elapsed() >= TASKS_TIME_MAX)
            {
                return Ok(());
            }
            if self.work.tasks.are_woken() {
                // Answers of this turn go out first.
                self.ring.enter()?;
                self.work.run_tasks();
            } else if worked {
                self.ring.enter()?;
            } else {
                self.sleep()?;
            }
        }
    }

    /// Runs one turn. Returns true if there was any work.
    fn turn(&mut self) -> io::Result<bool> {
        self.work.now.instant = Instant::now();
        self.work.now.unix_ms = unix_ms();
        self.work.stats.turns.add(1);
        self.ring.take_completions(&mut self.completions);
        let mut worked = !self.completions.is_empty();
        self.prefetch();
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        worked |= self.work.serve_mesh();
        worked |= self.take_mail()?;
        worked |= self.work.serve_tasks();
        worked |= self.work.serve_handshakes();
        self.settle_all();
        self.work.latencies.end_turn(self.work.now.instant);
        if let Some(data) = &mut self.work.data {
            let (ring, stats) = (&mut self.ring, &self.work.stats);
            data.mesh.hand_over(|descriptor| {
                stats.doorbells.add(1);
                ring.ring_bell(descriptor);
            });
        }
        Ok(worked)
    }

    /// Prefetches the links of all requests that have come, before they are answered one by one.
    fn prefetch(&mut self) {
        let Some(data) = &self.work.data else { return };
        if self.completions.len() < 2 {
            return;
        }
        self.prefetched.clear();
        for completion in &self.completions {
            if let Completion::Received { result: Ok(Some(chunk)), .. } = completion
                && let Some(code) = carom_http::peek(self.ring.bytes(chunk))
            {
                let places = &self.work.places;
                let code = match places.are_many() {
                    true => places.of_host(code, carom_http::peek_host(self.ring.bytes(chunk))).1,
                    false => code,
                };
                let (hash, owner) = data.shard.resolve(&code);
                if owner == data.shard.me {
                    self.prefetched.push(hash);
                }
            }
        }
        data.shard.prefetch(self.prefetched.iter().copied());
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { listener, result, more } => {
                if !more {
                    self.accepting[listener as usize] = false;
                }
                match result {
                    Ok(socket) => self.admit(socket, listener as usize),
                    // Out of file descriptors or memory: the accept is armed again with the next tick, not at once.
                    Err(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        for _ in 0..EVICTED_FOR_FILES {
                            self.work.evict(0);
                        }
                    }
                    Err(_) => self.finish_if_empty(),
                }
            }
            Completion::Received { tag, result, more } => {
                if !more && let Some(conn) = self.work.conns.of(tag) {
                    conn.in_flight.receive = false;
                    Work::touch(&mut self.work.dirty, conn);
                }
                self.received(tag, result);
            }
            Completion::Sent { tag, result, buffer } => self.sent(tag, result, buffer),
            Completion::Tick => self.tick(),
            // A core opens no connections itself.
            Completion::Bell | Completion::Connected { .. } => {}
        }
    }

    fn admit(&mut self, socket: std::os::fd::OwnedFd, listener: usize) {
        let begins = self.begins[listener];
        if !self.work.has_room() {
            // Closing it at once is the quickest answer. It tells a balancer to go elsewhere.
            drop(socket);
            return self.pause_if_crowded();
        }
        if begins.proxied {
            match peer_of(&socket) {
                Some(peer) if self.work.trust.proxies.has(peer) => {}
                // Only trusted proxies may name the client, but others can reach the listener too.
                Some(_) => return self.work.stats.untrusted.add(1),
                // The peer has left already.
                None => return,
            }
        }
        let slot = self.work.open(socket, begins);
        if let Some(conn) = self.work.conns.get(slot) {
            Work::touch(&mut self.work.dirty, conn);
        }
    }

    /// Pauses accepting until the next tick if too many new connections were closed since the last one.
    fn pause_if_crowded(&mut self) {
        if self.work.crowd.must_pause() && !std::mem::replace(&mut self.is_pausing, true) {
            for listener in (0..self.accepting.len()).filter(|&listener| self.accepting[listener]) {
                self.ring.cancel_accept(listener as u32);
            }
        }
    }

    fn received(&mut self, tag: Tag, result: Result<Option<Chunk>, i32>) {
        match result {
            Ok(Some(chunk)) => {
                if self.work.conns.of(tag).is_some() {
                    let bytes = self.ring.bytes(&chunk);
                    self.work.receive(tag.slot, bytes);
                }
                self.ring.give_back(chunk);
            }
            // A buffer may be missing (ENOBUFS), or we ended the receive ourselves. It is armed again when there is
            // room.
            Err(libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
            Ok(None) if self.work.conns.of(tag).is_some() => self.work.peer_ended(tag.slot),
            Err(_) if self.work.conns.of(tag).is_some() => self.work.break_off(tag.slot),
            _ => {}
        }
    }

    fn sent(&mut self, tag: Tag, result: Result<usize, i32>, mut buffer: Vec<u8>) {
        let tick = self.work.now.tick;
        let Some(conn) = self.work.conns.of(tag) else { return };
        conn.in_flight.send = false;
        conn.sends.since = tick;
        Work::touch(&mut self.work.dirty, conn);
        conn.sends.total += result.unwrap_or_default() as u64;
        match result {
            Ok(len) if conn.sends.sent + len < buffer.len() && !conn.state.is_closed() => {
                conn.sends.sent += len;
                conn.in_flight.send = true;
                self.ring.send(&conn.socket, tag, buffer, conn.sends.sent);
            }
            Ok(_) => {
                buffer.clear();
                if conn.out.is_empty() && buffer.capacity() <= KEPT_CAPACITY {
                    // Keeps the memory for the next answer.
                    conn.out = buffer;
                }
                self.work.drained(tag.slot);
            }
            Err(_) => self.work.break_off(tag.slot),
        }
    }

    /// Takes some of the mail. Returns true if there was any.
    ///
    /// # Errors
    /// When a listener cannot be opened.
    fn take_mail(&mut self) -> io::Result<bool> {
        let mut worked = false;
        for _ in 0..self.work.mail_per_turn() {
            let Ok(message) = self.mail.try_recv() else { break };
            worked = true;
            match message {
                ToCore::LoadDone => {
                    self.work.end_load();
                    // The starter of the node may have given up by now.
                    let _ = self.events.send(CoreEvent::Loaded(self.work.services.core()));
                }
                ToCore::Open => self.open()?,
                ToCore::Drain { within } => self.begin_drain(within),
                message => self.work.take_mail(message),
            }
        }
        Ok(worked)
    }

    fn open(&mut self) -> io::Result<()> {
        for Listener { socket, .. } in self.listeners.iter().flatten() {
            listen::open(socket)
                .map_err(|error| io::Error::new(error.kind(), format!("a listener cannot be opened: {error}")))?;
        }
        self.is_open = true;
        self.arm_accepts();
        // The starter of the node may have given up by now.
        let _ = self.events.send(CoreEvent::Opened(self.work.services.core()));
        Ok(())
    }

    fn arm_accepts(&mut self) {
        if !self.is_open || matches!(self.phase, Phase::Finishing { .. } | Phase::Finished { .. }) {
            return;
        }
        let is_closing = self.phase != Phase::Serving;
        for (index, listener) in self.listeners.iter().enumerate() {
            if let Some(Listener { socket, is_handed, .. }) = listener
                && !self.accepting[index]
                && !(*is_handed && is_closing)
            {
                self.ring.accept(socket, index as u32);
                self.accepting[index] = true;
            }
        }
    }

    /// Handles a tick of the ring's timer, [`TICKS_PER_SECOND`] times a second.
    fn tick(&mut self) {
        self.work.now.tick = self.work.now.tick.wrapping_add(1);
        if self.work.now.tick.is_multiple_of(TICKS_PER_SECOND) {
            self.work.services.expire(Instant::now());
        }
        self.work.answers.iter_mut().for_each(|answers| answers.tick(unix_ms() / 1_000));
        self.work.stats.codes_remaining.set(self.work.services.codes_remaining() as u64);
        self.work.sweep();
        self.work.crowd.tick();
        self.is_pausing = false;
        self.arm_accepts();
        self.go_on_draining();
    }

    fn begin_drain(&mut self, within: Duration) {
        if self.phase != Phase::Serving {
            return;
        }
        if self.is_open {
            for (index, Listener { socket, is_handed, .. }) in self.listeners.iter().flatten().enumerate() {
                if *is_handed {
                    // Waiting clients are left to the next process.
                    self.ring.cancel_accept(index as u32);
                } else if let Err(error) = listen::refuse_new(socket) {
                    tracing::debug!("the queue of new connections cannot be drained: {error}");
                }
            }
        }
        let since = self.work.now.instant;
        self.phase = Phase::Closing { since, until: since + within };
        self.work.drain();
    }

    fn go_on_draining(&mut self) {
        match self.phase {
            Phase::Closing { since, until } if since.elapsed() >= DRAIN_GRACE => {
                // Clients that came in last have until the next tick to send a request.
                self.close_listeners();
                self.phase = Phase::Finishing { until };
            }
            Phase::Finishing { until } if self.work.now.instant >= until => self.work.break_all(),
            Phase::Finishing { .. } => self.work.close_all_idle(),
            _ => {}
        }
        self.finish_if_empty();
    }

    /// Accepts the clients that still wait in the queues, and closes the listeners.
    fn close_listeners(&mut self) {
        for index in 0..self.listeners.len() {
            if self.accepting[index] {
                self.ring.cancel_accept(index as u32);
            }
            let Some(Listener { socket, is_handed, .. }) = self.listeners[index].take() else { continue };
            while self.is_open
                && !is_handed
                && let Ok((accepted, _)) = socket.accept()
            {
                // An accepted socket does not inherit the non-blocking mode; the ring does not need it.
                self.admit(accepted.into(), index);
            }
        }
    }

    fn finish_if_empty(&mut self) {
        // A cancelled accept may still bring one last client.
        let may_come = self.accepting.contains(&true);
        if matches!(self.phase, Phase::Finishing { .. }) && self.work.conns.len() == 0 && !may_come {
            self.phase = Phase::Finished { since: self.work.now.instant };
            // The connections that would take the answers of tasks are closed. A task that was left would keep its end
            // of every queue, and the readers of the queues wait until the last end is gone.
            self.work.services.close();
            if let Some(data) = &self.work.data
                && data.mesh.finish()
            {
                self.work.services.counters().post.all().iter().for_each(crate::bridge::Mailbox::ring);
            }
        }
    }

    fn settle_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.work.dirty);
        for slot in dirty.drain(..) {
            self.settle(slot);
        }
        // Settling ends connections but touches none.
        self.work.dirty = dirty;
    }

    /// Gives a connection what it needs from the ring.
    fn settle(&mut self, slot: u32) {
        let Some(conn) = self.work.conns.get(slot) else { return };
        conn.dirty = false;
        if conn.state.is_closed() {
            return self.remove_closed(slot);
        }
        let out = match conn.tls {
            _ if conn.in_flight.send => Vec::new(),
            None => std::mem::take(&mut conn.out),
            Some(_) => self.work.take_sendable(slot),
        };
        let Some(conn) = self.work.conns.get(slot) else { return };
        if !out.is_empty() {
            conn.sends.sent = 0;
            conn.in_flight.send = true;
            conn.sends.since = self.work.now.tick;
            self.ring.send(&conn.socket, conn.tag, out, 0);
        } else if !conn.in_flight.send && conn.out.is_empty() {
            // Keeps the memory for the next answer.
            conn.out = out;
        }
        if let ConnState::Draining { said_last } = conn.state
            && !conn.in_flight.send
        {
            let has_unread = conn.has_unread();
            if conn.peer_ended && !has_unread {
                conn.enter(ConnState::Closed { is_cut: false, is_evicted: false });
                return self.remove_closed(slot);
            }
            // Bytes behind a client's last request would make the kernel answer with a reset, which can overtake our
            // answer. So we wait for the client's end, unless it has promised to send nothing more. Unread answers keep
            // the connection too: it counts against the limit until they are read.
            if said_last && !has_unread {
                Ring::shut_down(&conn.socket);
            } else {
                Ring::shut_down_sending(&conn.socket);
            }
            conn.enter(ConnState::Lingering);
            conn.wait.since = self.work.now.tick;
            conn.slow = None;
        }
        if matches!(conn.state, ConnState::Lingering) && conn.peer_ended && !conn.has_unread() {
            conn.enter(ConnState::Closed { is_cut: false, is_evicted: false });
            return self.remove_closed(slot);
        }
        let full = conn.state.is_live() && conn.unconsumed.len() >= conn.queued_max as usize;
        if conn.in_flight.receive && full && !conn.in_flight.cancel {
            conn.in_flight.cancel = true;
            self.ring.cancel_receive(conn.tag);
        } else if !conn.in_flight.receive && !full && !conn.peer_ended {
            conn.in_flight.receive = true;
            conn.in_flight.cancel = false;
            self.ring.receive(&conn.socket, conn.tag);
        }
    }

    /// Closes a connection once no operation of it is in flight.
    fn remove_closed(&mut self, slot: u32) {
        let Some(conn) = self.work.conns.get(slot) else { return };
        if conn.in_flight.receive || conn.in_flight.send {
            if !conn.in_flight.cancel || conn.in_flight.send {
                conn.in_flight.cancel = true;
                Ring::shut_down(&conn.socket);
                if conn.in_flight.receive {
                    self.ring.cancel_receive(conn.tag);
                }
            }
            return;
        }
        if let Some(conn) = self.work.conns.remove(slot) {
            let ConnState::Closed { is_cut, .. } = conn.state else {
                unreachable!("only closed connections are removed")
            };
            if is_cut && conn.has_unread() {
                // Otherwise the kernel would keep the data of a client that does not read, outside of all limits.
                carom_ring::reset_on_close(&conn.socket);
            }
            self.work.crowd.forget(&conn);
        }
        self.work.stats.connections.set(self.work.conns.len() as u64);
        self.finish_if_empty();
    }

    /// Sleeps until there is something to do. Everything that may happen completes in the ring, because other cores and
    /// threads ring it too.
    fn sleep(&mut self) -> io::Result<()> {
        let nothing_left = self.work.data.as_ref().is_none_or(|data| data.mesh.fall_asleep());
        // From here on other cores ring when they leave a message. This last look has seen all earlier ones.
        if nothing_left && !self.work.services.has_calls() {
            self.ring.sleep()?;
        }
        if let Some(data) = &self.work.data {
            data.mesh.wake_up();
        }
        Ok(())
    }
}

/// Capacity in bytes up to which a send buffer stays with its connection between answers. Larger ones are freed, so
/// that an idle connection costs little.
const KEPT_CAPACITY: usize = 512;

/// Returns the peer of a socket, or `None` if it has left.
fn peer_of(socket: &std::os::fd::OwnedFd) -> Option<IpAddr> {
    let peer = rustix::net::getpeername(socket).ok()??;
    SocketAddr::try_from(peer).ok().map(|address| address.ip())
}
