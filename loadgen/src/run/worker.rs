//! One thread of the generator: its ring, sockets and clock, and the loop that drives its connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use carom_ring::{Address, Completion, Ring, Tag};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, Socket, Type};

use crate::console::live_counters::LiveCounters;
use crate::plan::Plan;
use crate::results::record::{CpuTime, Interval, RunRecord};
use crate::run::client::Stage;
use crate::run::crew::Crew;
use crate::workload::links::LinkTable;

/// Interval of the checks for timeouts, new seconds, and Ctrl-C, in nanoseconds.
const TICK_NS: u64 = 50_000_000;

/// Time within which all connections must be open before the run starts.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Ticks of the kernel's CPU times per second: `USER_HZ`, which is 100 on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Error number of a receive that found no buffer.
const NO_BUFFERS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

/// A message from a thread to the run.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    /// The thread's connections are open, or the reason why too few are.
    Ready(Result<(), String>),
    /// A second has ended.
    Interval(Interval),
    /// The thread has ended, with its results.
    Done(Box<io::Result<RunRecord>>),
}

/// Everything that a thread needs for its part of a run.
pub(crate) struct WorkerJob {
    /// Index of the thread, from 0.
    pub(crate) thread: usize,
    /// Plan of the run.
    pub(crate) plan: Arc<Plan>,
    /// Links to request.
    pub(crate) links: Arc<LinkTable>,
    /// Figures for the live view; `None` without one.
    pub(crate) counters: Option<Arc<LiveCounters>>,
    /// Channel for messages to the run.
    pub(crate) news: Sender<WorkerMessage>,
    /// Channel that delivers the start of the run.
    pub(crate) start: Receiver<Instant>,
    /// Flag that ends the run early.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Runs a thread's part of the plan, on the calling thread.
pub(crate) fn run(job: WorkerJob) {
    let news = job.news.clone();
    let result = Worker::new(job).and_then(Worker::run);
    // The receiver may have given up.
    let _ = news.send(WorkerMessage::Done(Box::new(result)));
}

/// State of a connection at the ring.
#[derive(Debug)]
struct SocketState {
    socket: Option<OwnedFd>,
    tag: Tag,
    connecting: bool,
    receiving: bool,
    sending: bool,
    /// Bytes of the send in flight that have gone out.
    sent: usize,
    shut: bool,
}

struct Worker {
    job: WorkerJob,
    ring: Ring,
    crew: Crew,
    sockets: Vec<SocketState>,
    /// Addresses by target.
    addresses: Vec<Address>,
    completions: Vec<Completion>,
    origin: Instant,
    next_tick_ns: u64,
    /// Start of the measurement: instant in nanoseconds, and CPU time.
    measured_from: Option<(u64, CpuTimes)>,
    /// End of the measurement: instant in nanoseconds, and CPU time.
    measured_to: Option<(u64, CpuTimes)>,
}

impl Worker {
    fn new(job: WorkerJob) -> io::Result<Worker> {
        let mut cpus = CpuSet::new();
        cpus.set(job.plan.cpus[job.thread]);
        rustix::thread::sched_setaffinity(None, &cpus)?;
        let mut ring = Ring::new(None)?;
        let addresses = job.plan.targets.iter().map(|target| ring.add_address(target.address)).collect();
        let crew = Crew::new(&job.plan, &job.links, job.thread, job.counters.clone());
        let socket = |slot| SocketState {
            socket: None,
            tag: Tag { slot, generation: 0 },
            connecting: false,
            receiving: false,
            sending: false,
            sent: 0,
            shut: false,
        };
        let sockets = (0..crew.clients.len() as u32).map(socket).collect();
        let origin = Instant::now();
        Ok(Worker {
            job,
            ring,
            crew,
            sockets,
            addresses,
            completions: Vec::new(),
            origin,
            next_tick_ns: 0,
            measured_from: None,
            measured_to: None,
        })
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn run(mut self) -> io::Result<RunRecord> {
        let ready = self.connect_all()?;
        let failed = ready.is_err();
        // The receiver may have given up.
        let _ = self.job.news.send(WorkerMessage::Ready(ready));
        let Ok(origin) = self.job.start.recv() else { return Ok(RunRecord::default()) };
        if failed {
            return Ok(RunRecord::default());
        }
        std::thread::sleep(origin.saturating_duration_since(Instant::now()));
        self.origin = origin;
        self.next_tick_ns = 0;
        self.crew.restart_clocks();
        self.drive()?;
        let now_ns = self.now_ns();
        self.crew.close_books(now_ns);
        self.measure_end(now_ns)?;
        self.send_interval(u64::MAX);
        Ok(self.crew.record)
    }

    /// Opens all connections before the run. The inner error is the reason why too few are open.
    fn connect_all(&mut self) -> io::Result<Result<(), String>> {
        let deadline = Instant::now() + CONNECT_TIME_MAX;
        loop {
            self.reopen_due()?;
            self.settle_all()?;
            let open = self.crew.open_connections();
            if open == self.crew.clients.len() {
                return Ok(Ok(()));
            }
            if self.job.stop.load(Ordering::Relaxed) {
                return Ok(Err("interrupted".to_owned()));
            }
            if Instant::now() >= deadline {
                let reason = self.crew.last_failure.as_deref().unwrap_or("no answer").to_owned();
                return Ok(Err(format!("only {open} of {} connections opened: {reason}", self.crew.clients.len())));
            }
            self.ring.wait(Duration::from_millis(20))?;
            self.take_completions();
        }
    }

    fn drive(&mut self) -> io::Result<()> {
        loop {
            let now_ns = self.now_ns();
            if now_ns >= self.next_tick_ns {
                self.tick(now_ns)?;
            }
            let wanted_ns = self.crew.dispatch(now_ns).unwrap_or(u64::MAX);
            self.settle_all()?;
            if self.crew.is_done(now_ns) || now_ns >= self.crew.end_ns().saturating_add(self.grace_ns()) {
                return Ok(());
            }
            // Dispatching took time, so the next request may be due by now.
            let before_ns = self.now_ns();
            let due_ns = wanted_ns.min(self.next_tick_ns).max(before_ns);
            self.ring.wait(Duration::from_nanos(due_ns - before_ns))?;
            self.crew.note_stall(due_ns, self.now_ns());
            self.take_completions();
        }
    }

    /// Returns for how long the thread waits for responses after the last request, in nanoseconds.
    fn grace_ns(&self) -> u64 {
        self.job.plan.timeout.as_nanos() as u64
    }

    /// Runs the checks that are too slow for each request.
    fn tick(&mut self, now_ns: u64) -> io::Result<()> {
        self.next_tick_ns = now_ns + TICK_NS;
        if self.job.stop.load(Ordering::Relaxed) {
            self.crew.end_early(now_ns);
        }
        self.crew.check_timeouts(now_ns);
        self.reopen_due()?;
        let begin_ns = self.crew.begin_ns();
        if now_ns < begin_ns {
            self.next_tick_ns = self.next_tick_ns.min(begin_ns);
            // The last value before the start counts, so that it includes a stall at the very start.
            self.measured_from = Some((now_ns, CpuTimes::now()?));
            return Ok(());
        }
        if self.measured_from.is_none() {
            self.measured_from = Some((now_ns, CpuTimes::now()?));
        }
        let end_ns = self.crew.end_ns();
        if now_ns < end_ns {
            self.next_tick_ns = self.next_tick_ns.min(end_ns);
        } else if self.measured_to.is_none() {
            self.measured_to = Some((now_ns, CpuTimes::now()?));
        }
        // Responses after the last request belong to the last second.
        let last = (self.job.plan.duration.as_nanos() as u64).saturating_sub(1) / 1_000_000_000;
        self.send_interval(((now_ns - begin_ns) / 1_000_000_000).min(last));
        Ok(())
    }

    /// Reports the current second once `second` has started.
    fn send_interval(&mut self, second: u64) {
        if self.crew.interval.second < second {
            let over = std::mem::replace(&mut self.crew.interval, Interval::new(second));
            // The receiver may have given up.
            let _ = self.job.news.send(WorkerMessage::Interval(over));
        }
    }

    fn measure_end(&mut self, now_ns: u64) -> io::Result<()> {
        let Some((from_ns, from)) = self.measured_from.take() else { return Ok(()) };
        let (to_ns, to) = match self.measured_to.take() {
            Some(to) => to,
            None => (now_ns, CpuTimes::now()?),
        };
        let end_ns = self.crew.end_ns().min(now_ns);
        let span = (to_ns - from_ns).max(1) as f64;
        let begin_ns = self.crew.begin_ns();
        let record = &mut self.crew.record;
        record.cpu = to.since(&from);
        record.busiest = record.cpu.total() * 1e9 / span;
        record.machine = (to.machine - from.machine) as f64 / TICKS_PER_SECOND;
        record.displaced = (to.waited_ns - from.waited_ns) as f64 / span;
        record.seconds = end_ns.saturating_sub(begin_ns) as f64 / 1e9;
        Ok(())
    }

    fn take_completions(&mut self) {
        self.ring.take_completions(&mut self.completions);
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
    }

    /// Returns the connection with that tag, unless it has ended since.
    fn socket_state(&mut self, tag: Tag) -> Option<&mut SocketState> {
        self.sockets.get_mut(tag.slot as usize).filter(|state| state.tag == tag)
    }

    fn complete(&mut self, completion: Completion) {
        let now_ns = self.now_ns();
        match completion {
            Completion::Connected { tag, result } => {
                let Some(state) = self.socket_state(tag) else { return };
                state.connecting = false;
                match result {
                    Ok(()) => self.crew.connected(tag.slot, now_ns),
                    Err(error) => {
                        let reason = io::Error::from_raw_os_error(error).to_string();
                        self.crew.connect_failed(tag.slot, &reason, now_ns);
                    }
                }
            }
            Completion::Received { tag, result, more } => {
                let Some(state) = self.socket_state(tag) else { return };
                state.receiving = more;
                match result {
                    Ok(Some(chunk)) => {
                        self.crew.receive(tag.slot, self.ring.bytes(&chunk), now_ns);
                        self.ring.give_back(chunk);
                    }
                    Ok(None) => self.crew.peer_ended(tag.slot, now_ns),
                    // Buffers may be short for a moment: the receive is armed again.
                    Err(error) if error == NO_BUFFERS => {}
                    Err(_) => self.crew.peer_ended(tag.slot, now_ns),
                }
                self.crew.touch(tag.slot);
            }
            Completion::Sent { tag, result, buffer } => self.sent(tag, result, buffer),
            Completion::Accepted { .. } | Completion::Readable { .. } | Completion::Tick | Completion::Bell => {}
        }
    }

    fn sent(&mut self, tag: Tag, result: Result<usize, i32>, mut buffer: Vec<u8>) {
        let Some(state) = self.sockets.get_mut(tag.slot as usize).filter(|state| state.tag == tag) else { return };
        state.sending = false;
        match result {
            Ok(len) if state.sent + len < buffer.len() => {
                state.sent += len;
                if let Some(socket) = state.socket.as_ref().filter(|_| !state.shut) {
                    state.sending = true;
                    self.ring.send(socket, tag, buffer, state.sent);
                }
            }
            Ok(_) => {
                // Keeps the memory for the next request.
                buffer.clear();
                let out = &mut self.crew.clients[tag.slot as usize].out;
                if out.is_empty() {
                    *out = buffer;
                }
            }
            // The receive reports this error, too.
            Err(_) => {}
        }
        self.crew.touch(tag.slot);
    }

    fn settle_all(&mut self) -> io::Result<()> {
        // Settling may touch further slots: a connection that has ended is opened again.
        while !self.crew.dirty.is_empty() {
            let mut dirty = std::mem::take(&mut self.crew.dirty);
            for slot in dirty.drain(..) {
                self.crew.clients[slot as usize].is_dirty = false;
                self.settle(slot)?;
            }
            if self.crew.dirty.is_empty() {
                self.crew.dirty = dirty;
            }
        }
        Ok(())
    }

    /// Submits the operations that a connection needs.
    fn settle(&mut self, slot: u32) -> io::Result<()> {
        let now_ns = self.now_ns();
        let (state, client) = (&mut self.sockets[slot as usize], &mut self.crew.clients[slot as usize]);
        match client.stage {
            Stage::Due { at_ns } if at_ns <= now_ns => return self.open(slot),
            Stage::Due { .. } => return Ok(()),
            Stage::Ending => {
                let Some(socket) = &state.socket else {
                    self.crew.closed(slot, now_ns);
                    return Ok(());
                };
                if !state.shut {
                    state.shut = true;
                    Ring::shut_down(socket);
                }
                if !state.connecting && !state.receiving && !state.sending {
                    state.socket = None;
                    self.crew.closed(slot, now_ns);
                }
                return Ok(());
            }
            Stage::Opening | Stage::Open => {}
        }
        let Some(socket) = &state.socket else { return Ok(()) };
        if state.connecting {
            return Ok(());
        }
        if !client.out.is_empty() && !state.sending {
            (state.sending, state.sent) = (true, 0);
            self.ring.send(socket, state.tag, std::mem::take(&mut client.out), 0);
        }
        if !state.receiving {
            state.receiving = true;
            self.ring.receive(socket, state.tag);
        }
        Ok(())
    }

    /// Opens the connections that are due.
    fn reopen_due(&mut self) -> io::Result<()> {
        for slot in 0..self.crew.clients.len() as u32 {
            if matches!(self.crew.clients[slot as usize].stage, Stage::Due { .. }) {
                self.crew.touch(slot);
            }
        }
        self.settle_all()
    }

    fn open(&mut self, slot: u32) -> io::Result<()> {
        let target = self.crew.target(slot);
        let address = self.job.plan.targets[target].address;
        let now_ns = self.now_ns();
        if let Err(reason) = self.crew.opening(slot, now_ns) {
            self.crew.connect_failed(slot, &reason, now_ns);
            return Ok(());
        }
        let socket = match new_socket(address, self.crew.client_address(slot)) {
            Ok(socket) => OwnedFd::from(socket),
            Err(error) => {
                self.crew.connect_failed(slot, &error.to_string(), now_ns);
                return Ok(());
            }
        };
        let state = &mut self.sockets[slot as usize];
        state.tag.generation = (state.tag.generation + 1) & 0x00ff_ffff;
        (state.connecting, state.sent, state.shut) = (true, 0, false);
        self.ring.connect(&socket, state.tag, self.addresses[target]);
        state.socket = Some(socket);
        Ok(())
    }
}

/// Makes a socket for a connection to `target`, at a client address if one is given.
fn new_socket(target: SocketAddr, client: Option<IpAddr>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(client) = client {
        // Connections that have ended keep their ports for a while.
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::new(client, 0).into())?;
    }
    Ok(socket)
}

/// CPU time of this thread so far.
#[derive(Clone, Copy, Debug)]
struct CpuTimes {
    /// Total CPU time in nanoseconds, exact.
    total_ns: u64,
    /// CPU time in user mode, in ticks of the kernel; used only for the ratio of the two modes.
    user: u64,
    system: u64,
    /// Time in which the thread was runnable and others ran, in nanoseconds.
    waited_ns: u64,
    /// CPU time of the whole machine, in ticks of the kernel.
    machine: u64,
}

impl CpuTimes {
    fn now() -> io::Result<CpuTimes> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let total_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        let stat = std::fs::read_to_string("/proc/thread-self/stat")?;
        // proc(5): the name in parentheses may contain anything; utime and stime are the 12th and 13th field behind
        // it.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let mut fields = behind.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
        let (user, system) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        // Time on the CPU and time in its queue. A kernel without this file leaves it at zero.
        let queue = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = queue.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
        let machine = busy_ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
        Ok(CpuTimes { total_ns, user, system, waited_ns, machine })
    }

    fn since(&self, before: &CpuTimes) -> CpuTime {
        let total = (self.total_ns - before.total_ns) as f64 / 1e9;
        let (user, system) = ((self.user - before.user) as f64, (self.system - before.system) as f64);
        let share = if user + system > 0.0 { user / (user + system) } else { 0.5 };
        CpuTime { user: total * share, system: total * (1.0 - share) }
    }
}

/// Returns the time in which CPUs were not idle, in ticks of the kernel, given the text of `/proc/stat`.
fn busy_ticks(stat: &str) -> u64 {
    let all = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = all.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // proc(5): user, nice, system, idle, iowait, irq, softirq. A hypervisor's share, which follows, is not this
    // machine's.
    ticks.iter().take(7).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_no_cpu_time_of_the_machine() {
        let stat = "cpu  1000 200 30 4000 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), 1_000 + 200 + 30 + 6 + 7);
        assert_eq!(busy_ticks(""), 0);
    }
}
