//! The loop of a core: takes completions, mail and messages of other cores, does the work, settles what each touched
//! connection needs from the ring, and sleeps when there is nothing to do.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use carom_ring::{Chunk, Completion, Ring, Tag};
use carom_shards::{CodeHash, CodeHasher, CoreCount, CoreId};

use super::conn::ConnState;
use super::crowd::EVICTED_FOR_FILES;
use super::data::Data;
use super::executor::{self, Running};
use super::listen::{self, Begins, Listener};
use super::mesh::{self, Mesh};
use super::residents::Share;
use super::secure::Secure;
use super::shard::Shard;
use super::slow::Service;
use super::work::{Now, TICKS_PER_SECOND, Work};
use crate::desk::{Codes, Counters, Desk, Tellers};
use crate::forwarded::Trust;
use crate::limits::ConnectionLimits;
use crate::mail::ToCore;
use crate::stats::unix_ms;
use crate::tls::Identity;

/// In a drain: how long connections whose handshake is under way may still come in, and how long kept-alive connections
/// may still ask, before listeners and idle connections are closed.
const DRAIN_GRACE: Duration = Duration::from_millis(250);

/// How long the tasks of connections that are gone may take to end: they wait for nothing any more.
const TASKS_TIME_MAX: Duration = Duration::from_secs(1);

/// What a core is made from, besides its place in the mesh. Sent to its thread.
pub struct CoreParts {
    /// Its number. The core of the admin listener has the number behind the last one.
    pub core: CoreId,
    /// The CPU it is pinned to; `None` for the core of the admin listener.
    pub cpu: Option<usize>,
    /// Its listeners, bound but not open.
    pub listeners: Vec<Listener>,
    /// Whom it believes about clients.
    pub trust: Arc<Trust>,
    /// The eventfd that wakes it.
    pub bell: File,
    /// Its mail.
    pub mail: Receiver<ToCore>,
    /// Queues, mailboxes and counters.
    pub counters: Counters,
    /// How much of its links it keeps in memory.
    pub share: Share,
    /// Its limits.
    pub limits: ConnectionLimits,
    /// Who the service is where it speaks TLS.
    pub identity: Option<Identity>,
    /// For how long browsers are told not to come without TLS.
    pub hsts: Option<Duration>,
    /// Its segment of fresh codes.
    pub codes: Box<dyn Codes + Send>,
    /// To whom it tells of requests.
    pub told: Tellers,
    /// Makes what answers the slow requests of this core.
    pub service: Box<dyn FnOnce(Rc<Desk>) -> Service + Send>,
    /// Told of the core's life.
    pub events: Sender<CoreEvent>,
}

/// What whoever started a core hears of it.
#[derive(Debug)]
pub enum CoreEvent {
    /// It has all its links.
    Loaded(CoreId),
    /// Its listeners let clients in.
    Opened(CoreId),
    /// It has ended: after a drain, or because its ring failed.
    Ended(CoreId, io::Result<()>),
}

/// A core that can be started.
pub struct CoreSeed {
    parts: CoreParts,
    /// None for the core of the admin listener.
    mesh: Option<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

/// Makes the cores of a node share one mesh and one way to hash codes.
#[derive(Debug)]
pub struct Seeds {
    meshes: std::vec::IntoIter<Mesh>,
    hasher: CodeHasher,
    cores: CoreCount,
}

impl Seeds {
    /// Seeds for `cores` cores that own links, and one more for the admin listener.
    pub fn new(cores: CoreCount, hasher: CodeHasher) -> Seeds {
        Seeds { meshes: mesh::weave(cores).into_iter(), hasher, cores }
    }

    /// The seed of the next core, in order. The one behind the last owns no links.
    pub fn next(&mut self, parts: CoreParts) -> CoreSeed {
        CoreSeed { parts, mesh: self.meshes.next(), hasher: self.hasher, cores: self.cores }
    }
}

/// Starts a core on a thread of its own. It ends by itself after [`ToCore::Drain`].
///
/// # Errors
/// When its thread or its executor cannot be made. What goes wrong later is the result of its thread.
pub fn start(seed: CoreSeed) -> io::Result<Running> {
    let name = if seed.mesh.is_some() { format!("core-{}", seed.parts.core) } else { "admin".to_owned() };
    let (core, events) = (seed.parts.core, seed.parts.events.clone());
    executor::spawn(&name, seed.parts.cpu, move || async move {
        let result = match Core::new(seed) {
            Ok(core) => core.run(),
            Err(error) => Err(error),
        };
        // Whoever started the node may have given up by now.
        let _ = events.send(CoreEvent::Ended(core, result));
    })
}

/// How far a drain is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not draining.
    Serving,
    /// New clients are kept out; those on their way come in.
    Closing { since: Instant, until: Instant },
    /// Listeners are closed; connections finish.
    Finishing { until: Instant },
    /// No connections are left; other cores may still ask for our links, and tasks end.
    Finished { since: Instant },
}

struct Core {
    ring: Ring,
    work: Work,
    /// Each listener, until it is closed.
    listeners: Vec<Option<Listener>>,
    /// What comes before HTTP on each of them.
    begins: Vec<Begins>,
    /// Whether the accept of each listener is armed.
    accepting: Vec<bool>,
    /// Accepting pauses until the next tick.
    is_pausing: bool,
    is_open: bool,
    mail: Receiver<ToCore>,
    completions: Vec<Completion>,
    /// Hashes of the codes that the requests of this turn ask for.
    foreseen: Vec<CodeHash>,
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
        let desk = Rc::new(Desk::new(parts.core, parts.counters, parts.codes, parts.told));
        let service = (parts.service)(Rc::clone(&desk));
        let now = Now { instant: Instant::now(), unix_ms: unix_ms(), tick: 0 };
        Ok(Core {
            ring,
            work: Work::new(
                now,
                data,
                desk,
                service,
                stats,
                (parts.limits, parts.trust),
                Secure::new(parts.identity, parts.hsts),
            ),
            accepting: vec![false; parts.listeners.len()],
            begins: parts.listeners.iter().map(|listener| listener.begins).collect(),
            listeners: parts.listeners.into_iter().map(Some).collect(),
            is_pausing: false,
            is_open: false,
            mail: parts.mail,
            completions: Vec::new(),
            foreseen: Vec::new(),
            phase: Phase::Serving,
            events: parts.events,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let result = self.serve();
        // Tasks that are left hold queues whose readers wait for the last holder.
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

    /// Does everything there is to do once. Returns whether there was anything.
    fn turn(&mut self) -> io::Result<bool> {
        self.work.now.instant = Instant::now();
        self.work.now.unix_ms = unix_ms();
        self.work.stats.turns.add(1);
        self.ring.take_completions(&mut self.completions);
        let mut worked = !self.completions.is_empty();
        self.foresee();
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        worked |= self.work.serve_mesh();
        worked |= self.take_mail()?;
        worked |= self.work.serve_desk();
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

    /// Looks at the requests that have come, before they are answered one after the other.
    fn foresee(&mut self) {
        let Some(data) = &self.work.data else { return };
        if self.completions.len() < 2 {
            return;
        }
        self.foreseen.clear();
        for completion in &self.completions {
            if let Completion::Received { result: Ok(Some(chunk)), .. } = completion
                && let Some(code) = crate::wire::peek(self.ring.bytes(chunk))
            {
                let places = &self.work.places;
                let code = match places.are_many() {
                    true => places.of_host(code, crate::wire::peek_host(self.ring.bytes(chunk))).1,
                    false => code,
                };
                let (hash, owner) = data.shard.locate(&code);
                if owner == data.shard.me {
                    self.foreseen.push(hash);
                }
            }
        }
        data.shard.foresee(self.foreseen.iter().copied());
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { listener, result, more } => {
                if !more {
                    self.accepting[listener as usize] = false;
                }
                match result {
                    Ok(socket) => self.admit(socket, listener as usize),
                    // Out of descriptors or memory. Armed again with the next tick, not at once.
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
            // A core connects to nobody.
            Completion::Bell | Completion::Connected { .. } => {}
        }
    }

    fn admit(&mut self, socket: std::os::fd::OwnedFd, listener: usize) {
        let begins = self.begins[listener];
        if !self.work.has_room() {
            // Closing it at once is the quickest answer, and the balancer's sign to go elsewhere.
            drop(socket);
            return self.pause_if_crowded();
        }
        if begins.proxied {
            match peer_of(&socket) {
                Some(peer) if self.work.trust.proxies.has(peer) => {}
                // Whoever else can reach the listener must not say who the client is.
                Some(_) => return self.work.stats.untrusted.add(1),
                // It has left again.
                None => return,
            }
        }
        let slot = self.work.open(socket, begins);
        if let Some(conn) = self.work.conns.get(slot) {
            Work::touch(&mut self.work.dirty, conn);
        }
    }

    /// Leaves those who come in the queues until the next tick, if too many of them were turned away since the last one.
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
            // A buffer may be missing (ENOBUFS), or we ended the receive ourselves: it is armed again when there is room.
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

    /// Takes some of the mail.
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
                    // Whoever starts the node may have given up by now.
                    let _ = self.events.send(CoreEvent::Loaded(self.work.desk.core()));
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
        // Whoever starts the node may have given up by now.
        let _ = self.events.send(CoreEvent::Opened(self.work.desk.core()));
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

    /// Four times a second.
    fn tick(&mut self) {
        self.work.now.tick = self.work.now.tick.wrapping_add(1);
        if self.work.now.tick.is_multiple_of(TICKS_PER_SECOND) {
            self.work.desk.expire(Instant::now());
        }
        self.work.answers.iter_mut().for_each(|answers| answers.tick(unix_ms() / 1_000));
        self.work.stats.codes_remaining.set(self.work.desk.codes_remaining() as u64);
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
                    // Whoever waits is for the next process.
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
                // Whoever came in just now has until the next tick to ask.
                self.close_listeners();
                self.phase = Phase::Finishing { until };
            }
            Phase::Finishing { until } if self.work.now.instant >= until => self.work.break_all(),
            Phase::Finishing { .. } => self.work.close_all_idle(),
            _ => {}
        }
        self.finish_if_empty();
    }

    /// Takes whoever still waits in the queues, and closes the listeners.
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
                // An accepted socket does not inherit the non-blocking mode; the ring does not mind.
                self.admit(accepted.into(), index);
            }
        }
    }

    fn finish_if_empty(&mut self) {
        // A cancelled accept may still bring one last client.
        let may_come = self.accepting.contains(&true);
        if matches!(self.phase, Phase::Finishing { .. }) && self.work.conns.len() == 0 && !may_come {
            self.phase = Phase::Finished { since: self.work.now.instant };
            // Nobody takes their answers any more. A task that was left would keep its end of every queue, and whoever reads those
            // waits until the last end is gone.
            self.work.desk.close();
            if let Some(data) = &self.work.data
                && data.mesh.finish()
            {
                self.work.desk.counters().post.all().iter().for_each(crate::mail::Mailbox::ring);
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
            return self.bury(slot);
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
                return self.bury(slot);
            }
            // What a client sends behind its last request would make the kernel answer with a reset, which can overtake our
            // answer. So we wait for its end, unless it has promised to send nothing. What the client has not read
            // keeps the connection, too: it counts as one until then.
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
            return self.bury(slot);
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

    /// Ends a connection for good once nothing of it is in flight.
    fn bury(&mut self, slot: u32) {
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
                unreachable!("only closed connections are buried")
            };
            if is_cut && conn.has_unread() {
                // Otherwise the kernel would keep it for a client that does not read, outside of all limits.
                carom_ring::reset_on_close(&conn.socket);
            }
            self.work.crowd.forget(&conn);
        }
        self.work.stats.connections.set(self.work.conns.len() as u64);
        self.finish_if_empty();
    }

    /// Sleeps until there is something to do. Everything that may happen completes in the ring: other cores and threads
    /// ring it, too.
    fn sleep(&mut self) -> io::Result<()> {
        let nothing_left = self.work.data.as_ref().is_none_or(|data| data.mesh.fall_asleep());
        // From here on other cores ring when they leave something; what came before was seen by this last look.
        if nothing_left && !self.work.desk.has_calls() {
            self.ring.sleep()?;
        }
        if let Some(data) = &self.work.data {
            data.mesh.wake_up();
        }
        Ok(())
    }
}

/// Send buffers up to this size stay with their connection between answers. Larger ones are freed: an idle connection is
/// to cost little.
const KEPT_CAPACITY: usize = 512;

/// Where a connection comes from; `None` where nobody is there any more.
fn peer_of(socket: &std::os::fd::OwnedFd) -> Option<IpAddr> {
    let peer = rustix::net::getpeername(socket).ok()??;
    SocketAddr::try_from(peer).ok().map(|address| address.ip())
}
