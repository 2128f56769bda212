//! The loop of a core: takes completions, mail and messages of other cores, and works on them. Then it submits
//! the pending I/O of each connection that changed, and sleeps when there is nothing to do.

use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use carom_shards::{CodeHash, CodeHasher, CoreCount, CoreId};

use super::admission::DESCRIPTOR_EVICTIONS;
use super::bypass::BypassParts;
use super::drain::{DrainRemainder, may_close_idle};
use super::driver::{Driver, Received, SendOutcome, Tag, Transport, TransportEvent};
use super::executor::{self, CoreHandle};
use super::gathering::Gathering;
use super::hyper_bridge::HttpService;
use super::link_memory::MemoryBudget;
use super::link_sources::LinkSources;
use super::listen::Listener;
use super::mesh::{self, Mesh};
use super::now::{Now, TICKS_PER_SECOND};
use super::shard::Shard;
use super::tls_connections::TlsConnections;
use super::work::CoreState;
use crate::bridge::ToCore;
use crate::bridge::fleet_view::FollowedMark;
use crate::bridge::handle::{FreshCodes, NodeContext, Recorders, ServiceHandle};
use carom_limits::ConnectionLimits;
use carom_model::clients::forwarded::Trust;
use carom_telemetry::clock::unix_ms;
use carom_tls::identity::TlsIdentity;

/// The first period of a drain. Connections whose TCP handshake is in progress still get in, and kept-alive connections
/// may send another request. Then listeners and idle connections are closed. The core of the admin listener drains after
/// all others and skips this period: no balancer sends it clients.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// Time that tasks of closed connections have to end, since their clients are gone.
const TASKS_TIME_MAX: Duration = Duration::from_secs(1);

/// Least number of events in a turn, or of frames in a batch, with which the links of their requests are prefetched.
pub(super) const REQUESTS_PREFETCHED_MIN: usize = 2;

/// The parts of a core, besides its place in the mesh. They are sent to its thread.
pub struct CoreParts {
    /// Number of the core, from 0. The core of the admin listener comes last.
    pub core: CoreId,
    /// CPU that the core is pinned to; `None` for the core of the admin listener.
    pub cpu: Option<usize>,
    /// Listeners of the core, bound and not yet listening.
    pub listeners: Vec<Listener>,
    /// The datapath past the kernel's TCP, if the core has one.
    pub bypass: Option<BypassParts>,
    /// Proxies that may name the client.
    pub trust: Arc<Trust>,
    /// The eventfd that wakes the core.
    pub bell: File,
    /// The core's end of its mailbox.
    pub mail: Receiver<ToCore>,
    /// Queues, mailboxes and counters that all cores share.
    pub context: NodeContext,
    /// The memory that the core has for links.
    pub memory_budget: MemoryBudget,
    /// Limits and timeouts of connections.
    pub limits: ConnectionLimits,
    /// Certificate and key of the service, if it speaks TLS.
    pub identity: Option<TlsIdentity>,
    /// The `max-age` of `Strict-Transport-Security`, if it is sent.
    pub hsts: Option<Duration>,
    /// The core's queue of fresh codes.
    pub codes: Box<dyn FreshCodes + Send>,
    /// Recorders of visits and of the access log.
    pub recorders: Recorders,
    /// Makes the service that answers all requests but redirects on this core.
    pub service: Box<dyn FnOnce(Rc<ServiceHandle>) -> HttpService + Send>,
    /// Receives the events of the core.
    pub events: Sender<CoreEvent>,
    /// The path of a file. The core stalls as long as the file exists.
    #[cfg(feature = "faults")]
    pub stall_file: Option<std::path::PathBuf>,
}

/// An event of a core, sent to the thread that started it.
#[derive(Debug)]
pub enum CoreEvent {
    /// The core has all its links.
    Loaded(CoreId),
    /// The core's listeners accept clients.
    Opened(CoreId),
    /// The core has ended: after a drain, or because its ring failed.
    Ended(CoreId, io::Result<()>),
}

/// A core that is not started yet.
pub struct UnstartedCore {
    parts: CoreParts,
    /// `None` for the core of the admin listener.
    mesh: Option<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

/// The cores of a node before their start. They share one mesh and one hasher of codes.
#[derive(Debug)]
pub struct UnstartedCores {
    meshes: std::vec::IntoIter<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

impl UnstartedCores {
    /// Prepares `cores` cores that own links, and one more for the admin listener.
    pub fn new(cores: CoreCount, hasher: CodeHasher) -> UnstartedCores {
        UnstartedCores { meshes: mesh::create_meshes(cores).into_iter(), hasher, cores }
    }

    /// Returns the next core, in order. The one after the last that owns links is the admin core.
    pub fn next(&mut self, parts: CoreParts) -> UnstartedCore {
        UnstartedCore { parts, mesh: self.meshes.next(), hasher: self.hasher, cores: self.cores }
    }
}

/// Starts a core on a thread of its own. The core ends by itself after [`ToCore::Drain`].
///
/// # Errors
/// If its thread or its executor cannot be created. A later failure arrives as [`CoreEvent::Ended`].
pub fn start(core: UnstartedCore) -> io::Result<CoreHandle> {
    let name = if core.mesh.is_some() { format!("core-{}", core.parts.core) } else { "admin".to_owned() };
    let (id, events) = (core.parts.core, core.parts.events.clone());
    let stats = Arc::clone(&core.parts.context.cores[id.index()]);
    executor::spawn(&name, core.parts.cpu, move || async move {
        let result = match Core::new(core) {
            Ok(core) => core.run(),
            Err(error) => Err(error),
        };
        stats.has_ended.store(result.is_ok(), Ordering::Release);
        // The starter of the node may have given up by now.
        let _ = events.send(CoreEvent::Ended(id, result));
    })
}

/// The progress of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DrainPhase {
    /// The core serves, and no drain has begun.
    Serving,
    /// New clients are refused; those in the queues still get in.
    Closing { since: Instant, until: Instant },
    /// Listeners are closed since then; connections finish.
    Finishing { since: Instant, until: Instant },
    /// No connections are left. Other cores may still ask for links of this one, and tasks end.
    Finished { since: Instant },
}

/// A core at work: its driver, its connections and redirects, and its mail.
pub(super) struct Core {
    pub(super) driver: Driver,
    pub(super) work: CoreState,
    /// True if accepting pauses until the next tick.
    is_pausing: bool,
    pub(super) mail: Receiver<ToCore>,
    /// Hashes of the codes that the requests of this turn ask for.
    pub(super) prefetched: Vec<CodeHash>,
    /// `None` if the kernel cannot gather.
    pub(super) gathering: Option<Gathering>,
    phase: DrainPhase,
    pub(super) events: Sender<CoreEvent>,
    #[cfg(feature = "faults")]
    stall_file: Option<std::path::PathBuf>,
}

impl Core {
    fn new(UnstartedCore { parts, mesh, hasher, cores }: UnstartedCore) -> io::Result<Core> {
        let tick = Duration::from_millis(1_000 / u64::from(TICKS_PER_SECOND));
        let now = Now { instant: Instant::now(), unix_ms: unix_ms(), tick: 0, followed: FollowedMark::default() };
        let driver = Driver::new(parts.bell, parts.listeners, parts.bypass, (now.instant, tick))?;
        let gathering = driver.can_gather().then(Gathering::default);
        let stats = Arc::clone(&parts.context.cores[parts.core.index()]);
        driver.publish(&stats.bypass);
        let data = mesh.map(|mesh| {
            mesh.announce(driver.descriptor());
            let node = Arc::clone(&parts.context.node);
            let shard = Shard::new(parts.core, cores, hasher, parts.memory_budget, Arc::clone(&stats), node);
            Box::new(LinkSources::new(shard, mesh))
        });
        let services = Rc::new(ServiceHandle::new(parts.core, parts.context, parts.codes, parts.recorders));
        let service = (parts.service)(Rc::clone(&services));
        Ok(Core {
            driver,
            work: CoreState::new(
                now,
                data,
                services,
                service,
                stats,
                (parts.limits, parts.trust),
                TlsConnections::new(parts.identity, parts.hsts),
            ),
            is_pausing: false,
            mail: parts.mail,
            prefetched: Vec::new(),
            gathering,
            phase: DrainPhase::Serving,
            events: parts.events,
            #[cfg(feature = "faults")]
            stall_file: parts.stall_file,
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
            if let DrainPhase::Finished { since } = self.phase
                && self.work.conns.len() == 0
                && self.work.redirects.data.as_ref().is_none_or(|data| data.mesh.all_finished())
                && (!self.work.tasks.has_tasks() || since.elapsed() >= TASKS_TIME_MAX)
            {
                return Ok(());
            }
            if self.work.tasks.has_woken() {
                // Answers of this turn go out first.
                self.driver.submit()?;
                self.work.run_tasks();
            } else if worked {
                self.driver.submit()?;
            } else {
                self.sleep()?;
            }
        }
    }

    /// Runs one turn. Returns true if there was any work.
    fn turn(&mut self) -> io::Result<bool> {
        self.work.now.instant = Instant::now();
        self.work.now.unix_ms = unix_ms();
        if let Some(view) = &self.work.services.context().fleet_view {
            self.work.now.followed = view.followed();
        }
        self.work.stats.turns.add(1);
        let mut worked = self.driver.collect();
        if self.driver.collected() >= REQUESTS_PREFETCHED_MIN {
            prefetch(&self.work, &mut self.prefetched, self.driver.received());
        }
        let mut collected = self.driver.take_collected();
        for completion in collected.drain(..) {
            self.take_event(TransportEvent::from(completion));
        }
        self.driver.reuse(collected);
        worked |= self.begin_bypass();
        worked |= self.work.serve_mesh();
        worked |= self.take_mail(Instant::now)?;
        worked |= self.work.serve_tasks();
        worked |= self.work.serve_handshakes();
        self.settle_all();
        worked |= self.end_bypass()?;
        if let Some(gathering) = &mut self.gathering {
            gathering.end_turn(self.work.conns.len() as u32);
        }
        self.work.redirects.latencies.end_turn(self.work.now.instant);
        if let Some(data) = &mut self.work.redirects.data {
            let (driver, stats) = (&mut self.driver, &self.work.stats);
            data.mesh.flush_to_peers(|descriptor| {
                stats.doorbells.add(1);
                driver.ring_bell(descriptor);
            });
        }
        Ok(worked)
    }

    fn take_event(&mut self, event: TransportEvent) {
        match event {
            TransportEvent::Received { tag, received, continues } => {
                if !continues && let Some(conn) = self.work.conns.find(tag) {
                    conn.transport.receive_ended();
                    CoreState::mark_dirty(&mut self.work.dirty, conn);
                }
                self.received(tag, received);
            }
            TransportEvent::Sent { tag, result, buffer } => self.sent(tag, result, buffer),
            TransportEvent::Accepted { transport, listener, continues } => {
                if !continues {
                    self.driver.accept_ended(listener);
                }
                self.admit(transport, listener);
            }
            TransportEvent::Readable { tag, continues } => self.driver.readable(tag, continues),
            TransportEvent::AcceptEnded { listener, is_exhausted, continues } => {
                if !continues {
                    self.driver.accept_ended(listener);
                }
                if is_exhausted {
                    // The accept is armed again with the next tick, not at once.
                    (0..DESCRIPTOR_EVICTIONS).for_each(|_| _ = self.work.evict_connection(0));
                } else {
                    self.finish_if_empty();
                }
            }
            TransportEvent::Tick => self.tick(),
            TransportEvent::Woken => {}
        }
    }

    /// Takes a new connection in. Returns its slot, unless it was closed at once.
    pub(super) fn admit(&mut self, transport: Transport, listener: usize) -> Option<u32> {
        let layers = self.driver.layers(listener);
        if !self.work.has_room() {
            // Closing it at once is the quickest answer. It tells a balancer to go elsewhere.
            drop(transport);
            self.pause_if_overloaded();
            return None;
        }
        if layers.proxied {
            match transport.peer() {
                Some(peer) if self.work.trust.proxies.has(peer) => {}
                // Only trusted proxies may name the client, but others can reach the listener too.
                Some(_) => {
                    self.work.stats.untrusted.add(1);
                    return None;
                }
                // The peer has left already.
                None => return None,
            }
        }
        let slot = self.work.open(transport, layers);
        // Nothing receives from the connection yet. The mark leads to `settle` in this turn, which arms the receive.
        if let Some(conn) = self.work.conns.get(slot) {
            CoreState::mark_dirty(&mut self.work.dirty, conn);
        }
        Some(slot)
    }

    /// True unless the core has finished its drain, and serves no client any more.
    pub(super) fn may_admit(&self) -> bool {
        !matches!(self.phase, DrainPhase::Finished { .. })
    }

    /// Pauses accepting until the next tick if too many new connections were closed since the last one.
    fn pause_if_overloaded(&mut self) {
        if self.work.admission.must_pause() && !std::mem::replace(&mut self.is_pausing, true) {
            self.driver.pause_accepts();
        }
    }

    #[inline]
    fn received(&mut self, tag: Tag, received: Received) {
        let is_there = self.work.conns.find(tag).is_some();
        match received {
            Received::Bytes(chunk) => {
                self.count_arrivals(1);
                if is_there {
                    self.work.receive(tag.slot, self.driver.bytes(&chunk));
                }
                self.driver.give_back(chunk);
            }
            Received::Ended if is_there => self.work.peer_ended(tag.slot),
            Received::Broken if is_there => self.work.break_off(tag.slot),
            Received::Nothing | Received::Ended | Received::Broken => {}
        }
    }

    /// Counts the reads or frames that have arrived from clients in this turn, each as one request.
    pub(super) fn count_arrivals(&mut self, arrivals: u32) {
        if let Some(gathering) = &mut self.gathering {
            gathering.count(arrivals);
        }
    }

    fn sent(&mut self, tag: Tag, result: Result<usize, i32>, buffer: Vec<u8>) {
        let Some(conn) = self.work.conns.find(tag) else { return };
        conn.sends.since = self.work.now.tick;
        CoreState::mark_dirty(&mut self.work.dirty, conn);
        match self.driver.sent((tag, &mut conn.transport), result, buffer, conn.state.is_closed()) {
            SendOutcome::Continues => {}
            SendOutcome::Done(buffer) => self.finish_send(tag, buffer),
            SendOutcome::Broken => self.work.break_off(tag.slot),
        }
    }

    /// Continues a connection whose send was taken whole.
    pub(super) fn finish_send(&mut self, tag: Tag, buffer: Vec<u8>) {
        if let Some(conn) = self.work.conns.find(tag) {
            conn.keep_buffer(buffer);
            self.work.proceed(tag.slot);
        }
    }

    /// Opens the listeners.
    pub(super) fn open(&mut self) -> io::Result<()> {
        self.driver.open()?;
        self.arm_accepts();
        // The starter of the node may have given up by now.
        let _ = self.events.send(CoreEvent::Opened(self.work.services.core()));
        Ok(())
    }

    fn arm_accepts(&mut self) {
        match self.phase {
            DrainPhase::Serving => self.driver.arm_accepts(false),
            DrainPhase::Closing { .. } => self.driver.arm_accepts(true),
            DrainPhase::Finishing { .. } | DrainPhase::Finished { .. } => {}
        }
    }

    /// Handles a tick of the ring's timer, [`TICKS_PER_SECOND`] times a second.
    fn tick(&mut self) {
        #[cfg(feature = "faults")]
        while self.stall_file.as_ref().is_some_and(|file| file.exists()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.work.now.tick = self.work.now.tick.wrapping_add(1);
        if self.work.now.tick.is_multiple_of(TICKS_PER_SECOND) {
            self.work.services.expire(self.work.now.instant);
        }
        let unix_seconds = self.work.now.unix_ms / 1_000;
        self.work.redirects.answers.iter_mut().for_each(|answers| answers.tick(unix_seconds));
        self.work.stats.codes_remaining.set(self.work.services.codes_remaining() as u64);
        self.driver.publish(&self.work.stats.bypass);
        self.work.sweep();
        if let Some(gathering) = &mut self.gathering {
            gathering.tick();
        }
        self.work.admission.tick();
        self.is_pausing = false;
        self.arm_accepts();
        self.continue_drain();
    }

    /// Begins a drain, if none has begun. It ends within that time.
    pub(super) fn begin_drain(&mut self, within: Duration) {
        if self.phase != DrainPhase::Serving {
            return;
        }
        self.driver.refuse_new();
        let since = self.work.now.instant;
        self.phase = DrainPhase::Closing { since, until: since + within };
        self.work.drain();
    }

    /// Returns true for the core of the admin listener, which has no links.
    fn is_admin(&self) -> bool {
        self.work.redirects.data.is_none()
    }

    fn continue_drain(&mut self) {
        match self.phase {
            DrainPhase::Closing { since, until } if self.is_admin() || since.elapsed() >= DRAIN_GRACE => {
                // Clients that came in last have until the next tick to send a request.
                self.close_listeners();
                // The clock of the turn may be from before a stall, in which they came.
                self.phase = DrainPhase::Finishing { since: Instant::now(), until };
            }
            DrainPhase::Finishing { until, .. } if self.work.now.instant >= until => self.work.break_all(),
            DrainPhase::Finishing { since, .. } if may_close_idle(since, self.work.now.instant) => {
                self.work.close_all_idle();
            }
            DrainPhase::Serving
            | DrainPhase::Closing { .. }
            | DrainPhase::Finishing { .. }
            | DrainPhase::Finished { .. } => {}
        }
        self.finish_if_empty();
    }

    /// Accepts the clients that still wait in the queues, and closes the listeners.
    fn close_listeners(&mut self) {
        for index in 0..self.driver.listeners() {
            let Some(listener) = self.driver.close_listener(index) else { continue };
            while let Some(transport) = listener.accept() {
                self.admit(transport, index);
            }
        }
    }

    /// Ends the drain once no connection is left.
    pub(super) fn finish_if_empty(&mut self) {
        let DrainPhase::Finishing { until, .. } = self.phase else { return };
        let remainder = DrainRemainder {
            connections: self.work.conns.len(),
            may_accept: self.driver.may_accept(),
            is_acknowledged: self.driver.is_acknowledged(),
        };
        if remainder.may_end(self.work.now.instant >= until) {
            self.phase = DrainPhase::Finished { since: self.work.now.instant };
            // The connections that would take the answers of tasks are closed. A task that was left would keep its end
            // of every queue, and the readers of the queues wait until the last end is gone.
            self.work.services.close();
            if let Some(data) = &self.work.redirects.data
                && data.mesh.finish()
            {
                self.work.services.context().mailboxes.all().iter().for_each(crate::bridge::Mailbox::ring);
            }
        }
    }

    /// Sleeps until there is something to do. Everything that may happen completes in the ring, because other cores and
    /// threads ring it too.
    fn sleep(&mut self) -> io::Result<()> {
        let nothing_left = self.work.redirects.data.as_ref().is_none_or(|data| data.mesh.fall_asleep());
        // From here on other cores ring when they leave a message. This last look has seen all earlier ones.
        if nothing_left && !self.work.services.has_loop_work() {
            let gather_for = self.gathering.as_mut().and_then(Gathering::begin);
            if gather_for.is_some() {
                self.work.stats.gathered.add(1);
            }
            self.driver.sleep(gather_for)?;
        }
        if let Some(data) = &self.work.redirects.data {
            data.mesh.wake_up();
        }
        Ok(())
    }
}

/// Prefetches the links that these bytes of clients ask for, before they are answered one by one. `hashes` is memory for
/// the hashes of their codes.
pub(super) fn prefetch<'a>(work: &CoreState, hashes: &mut Vec<CodeHash>, requests: impl Iterator<Item = &'a [u8]>) {
    let Some(data) = &work.redirects.data else { return };
    hashes.clear();
    let hosts = &work.redirects.hosts;
    for bytes in requests {
        let Some(code) = carom_http::peek(bytes) else { continue };
        let code =
            if hosts.has_several_domains() { hosts.resolve_host(code, carom_http::peek_host(bytes)).1 } else { code };
        let (hash, owner) = data.shard.resolve(&code);
        if owner == data.shard.me {
            hashes.push(hash);
        }
    }
    data.shard.prefetch(hashes.iter().copied());
}
