//! A node under test: starts the real binary on free ports, reads its addresses from its one line of output, and stops
//! it.
//!
//! A node that a test leaves behind is killed. A warning or error in its log that the test did not announce with
//! [`Setup::expect`] fails the test, so that nothing goes wrong unseen.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::bypass::{Pair, Relay};
use crate::support::http::{HOST, Wire};
use crate::support::log::Log;

/// The binary under test.
pub(crate) const CAROM: &str = env!("CARGO_BIN_EXE_carom");

/// Longest wait for anything that should come by itself. Generous: machines that test are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Shortest interval between two checks of a condition.
const CHECK_CONDITION_EVERY: Duration = Duration::from_millis(2);

/// Longest interval between two checks of a condition. A check can be dozens of requests, which other tests would wait for.
const CHECK_CONDITION_EVERY_MAX: Duration = Duration::from_millis(100);

/// A part of the warning about more cores than CPUs, which depends on the machine.
const CROWDED: &str = "which slows redirects down";

/// A part of the alarm about frames that the kernel dropped, which a busy machine raises. Clients send them again.
pub(crate) const SLOW: &str = "a core is too slow for the frames";

/// The sum of a number over all cores; `path` is a JSON pointer.
pub(crate) fn sum(status: &Value, path: &str) -> u64 {
    let cores = status["cores"].as_array().expect("a list of cores");
    cores.iter().map(|core| core.pointer(path).and_then(Value::as_u64).expect("a number")).sum()
}

/// The warning about a write that a crash has cut off.
pub(crate) const CUT_OFF: &str = "ended in the middle of a write";

/// Waits until there is something, at most [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let elapsed = start.elapsed();
        assert!(elapsed < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(pause_after(elapsed));
    }
}

/// Returns the time until the next check of a condition that was waited for so long: an eighth of that, within bounds.
pub(crate) fn pause_after(elapsed: Duration) -> Duration {
    (elapsed / 8).clamp(CHECK_CONDITION_EVERY, CHECK_CONDITION_EVERY_MAX)
}

/// Waits until a condition holds, at most [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// An address of loopback that nobody listens at, and that no other test gets until this process ends.
///
/// The port lies below the ephemeral range of the kernel, which could give a port to another node meanwhile. As
/// listeners share their ports, each would then get connections for the other; and a client that retries a server that
/// is down could end up connected to itself. A UDP socket reserves the port, which no TCP listener notices.
pub(crate) fn free_address() -> SocketAddr {
    static TAKEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 18_000;
    const COUNT: u32 = 14_000;
    wait_for("a free port", || {
        let at = std::process::id().wrapping_mul(199).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + at % COUNT).expect("it is below 65,536");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let taken = UdpSocket::bind(address).ok()?;
        TcpListener::bind(address).ok()?;
        TAKEN.lock().expect("nobody panics here").push(taken);
        Some(address)
    })
}

/// The setup of a node. Each start of one setup uses the same data directory.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    data_dir: PathBuf,
    cores: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// A shell command that ends in `"$@"`, which stands for the node.
    shell: Option<String>,
    expected: Vec<String>,
    /// The link that the node serves over, if all tests run over bypass.
    pair: Option<Arc<Pair>>,
}

impl Setup {
    /// One core, with its data in that directory.
    pub(crate) fn new(data_dir: &Path) -> Setup {
        let pair = Pair::of_thread();
        let expected = std::iter::once(CROWDED).chain(pair.is_some().then_some(SLOW)).map(str::to_owned).collect();
        Setup {
            data_dir: data_dir.to_owned(),
            cores: "1".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            shell: None,
            expected,
            pair,
        }
    }

    /// Sets the number of cores.
    pub(crate) fn cores(mut self, cores: usize) -> Setup {
        self.cores = cores.to_string();
        self
    }

    /// Serves over the kernel's TCP, even if all tests run over bypass: this one is about the kernel, or needs
    /// loopback.
    pub(crate) fn over_kernel(mut self) -> Setup {
        self.pair = None;
        self
    }

    /// One more argument of `carom serve`.
    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Setup {
        self.arguments.push(argument.into());
        self
    }

    /// One more environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Setup {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Trusts the address from which clients connect as a proxy.
    pub(crate) fn trust_client(self) -> Setup {
        let client = self.bypass().map_or("127.0.0.1".to_owned(), |pair| pair.client_address());
        self.env("CAROM_TRUSTED_PROXIES", &client)
    }

    /// Serves the interfaces of other shorteners, too.
    pub(crate) fn all_interfaces(self) -> Setup {
        self.env("CAROM_API_COMPAT", "shlink,bitly,yourls").env("CAROM_API_YOURLS_JSONP", "true")
    }

    /// Starts the node from a shell command in which `"$@"` stands for it.
    pub(crate) fn shell(mut self, command: impl Into<String>) -> Setup {
        self.shell = Some(command.into());
        self
    }

    /// Starts the node from a shell command in a mount namespace of its own.
    pub(crate) fn unshared(self, command: &str) -> Setup {
        assert!(!command.contains('\''), "it stands in single quotes");
        let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        self.shell(format!("exec unshare {flags} sh -ec '{command}' sh \"$@\""))
    }

    /// Warnings and errors with this in them are no surprise.
    pub(crate) fn expect(mut self, text: &str) -> Setup {
        self.expected.push(text.to_owned());
        self
    }

    /// The data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The link that the node serves over, if all tests run over bypass. A test that names its own listener means one
    /// of the kernel.
    fn bypass(&self) -> Option<&Arc<Pair>> {
        self.pair.as_ref().filter(|_| !self.arguments.iter().any(|argument| argument == "--listen"))
    }

    /// Starts a node and waits until it serves.
    pub(crate) fn start(&self) -> Node {
        self.start_or_end().unwrap_or_else(|(status, log)| panic!("no announcement, {status}, log:\n{log}"))
    }

    /// Starts a node that may refuse to serve. Returns its exit code and what it said if it does.
    pub(crate) fn start_or_fail(&self) -> Result<Node, (i32, String)> {
        self.start_or_end().map_err(|(status, log)| {
            let code = status.code().unwrap_or_else(|| panic!("ended by signal {:?}:\n{log}", status.signal()));
            (code, log)
        })
    }

    fn start_or_end(&self) -> Result<Node, (ExitStatus, String)> {
        let (mut child, log) = self.spawn();
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let Ok(line) = lines.recv_timeout(PATIENCE) else {
            // The stream may be closed a moment before the process has ended; one that hangs is killed.
            let status = wait_for_end(&mut child);
            return Err((status, log.whole()));
        };
        let (public, admin) = addresses(&line);
        let relay = self.bypass().map(|pair| pair.relay(admin));
        let admin = relay.as_ref().map_or(admin, Relay::address);
        let lines = Mutex::new(lines);
        let node = Node { setup: self.clone(), child, log, lines, public, admin, relay, ended: false };
        wait_until("a node that is ready", || node.is_ready());
        Ok(node)
    }

    /// Starts a node and kills it after a while, wherever it then is.
    pub(crate) fn start_and_kill(&self, after: Duration) {
        let (mut child, log) = self.spawn();
        std::thread::sleep(after);
        child.kill().expect("it has not been waited for");
        child.wait().expect("a child can be waited for");
        log.check(&self.expected);
    }

    /// Starts a node and asks it to end after a while, wherever it then is. Returns how it ended, and whether it had
    /// announced itself before.
    pub(crate) fn start_and_ask_to_end(&self, after: Duration) -> (ExitStatus, bool) {
        let (mut child, log) = self.spawn();
        std::thread::sleep(after);
        // It has not been waited for, so its number is still its own.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM);
        let status = wait_for_end(&mut child);
        log.check(&self.expected);
        (status, lines_of(child.stdout.take().expect("it is piped")).recv().is_ok())
    }

    /// Starts a node that ends by itself at once. Returns its exit code and what it said.
    pub(crate) fn fail(&self) -> (i32, String) {
        let (mut child, log) = self.spawn();
        let status = wait_for_end(&mut child);
        let code = status.code().unwrap_or_else(|| panic!("ended by signal {:?}", status.signal()));
        (code, log.whole())
    }

    fn spawn(&self) -> (Child, Log) {
        let mut command = match &self.shell {
            Some(line) => {
                let mut shell = Command::new("sh");
                shell.args(["-ec", line, "sh", CAROM]);
                shell
            }
            None => Command::new(CAROM),
        };
        command.args(["serve", "--cores", &self.cores, "--data-dir"]).arg(&self.data_dir).args(&self.arguments);
        let loopback = "127.0.0.1:0".to_owned();
        let public = self.bypass().map_or(loopback.clone(), |pair| format!("{}:0", pair.address()));
        for (listener, address) in [("--listen", public), ("--admin-listen", loopback)] {
            if !self.arguments.iter().any(|argument| argument == listener) {
                command.args([listener, &address]);
            }
        }
        let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CAROM_"));
        ours.for_each(|name| _ = command.env_remove(name));
        // What is missing is asked for a lot here, and from one address.
        command.env("CAROM_LIMITS_MISSES_PER_SECOND", "0");
        // What requests of tests call everybody.
        command.env("CAROM_ADMIN_HOSTS", HOST);
        if self.bypass().is_some() {
            // Its addresses are not those of loopback, for which no key is needed.
            command.envs([("CAROM_BYPASS_INTERFACE", "s0"), ("CAROM_BYPASS_REQUIRED", "true"), ("CAROM_OPEN", "true")]);
        }
        command.envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut start = || command.spawn().expect("the node can be started");
        let mut child = match self.bypass() {
            Some(pair) => {
                pair.set_queues(&self.cores);
                pair.server.run(&mut start)
            }
            None => start(),
        };
        let log = Log::of(child.stderr.take().expect("it is piped"));
        (child, log)
    }
}

/// A running node.
pub(crate) struct Node {
    setup: Setup,
    child: Child,
    log: Log,
    lines: Mutex<Receiver<String>>,
    /// The address of redirects and the API.
    pub(crate) public: SocketAddr,
    /// The address of the admin listener.
    pub(crate) admin: SocketAddr,
    /// The way to the admin listener of a node that serves over bypass.
    relay: Option<Relay>,
    ended: bool,
}

impl Node {
    /// True if `/readyz` says so.
    fn is_ready(&self) -> bool {
        Wire::open(self.admin).get("/readyz").status == 200
    }

    /// True if it serves over bypass.
    pub(crate) fn is_over_bypass(&self) -> bool {
        self.relay.is_some()
    }

    /// A connection to the public listener.
    pub(crate) fn wire(&self) -> Wire {
        Wire::open(self.public)
    }

    /// The URL of a path on the public listener.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.public)
    }

    /// The JSON of `/status`.
    pub(crate) fn status(&self) -> Value {
        Wire::open(self.admin).get("/status").json()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// The process ID of the node.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Seconds of CPU that it has used.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the node runs");
        let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
        // utime and stime, in hundredths of a second.
        let fields = rest.split_whitespace().skip(11).take(2);
        fields.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / 100.0
    }

    /// The number of times that the thread of that name has slept. A thread gets its name when it begins.
    fn sleeps_of(&self, name: &str) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the node runs");
        let mut texts = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        let Some(status) = texts.find(|text| text.starts_with(&format!("Name:\t{name}\n"))) else { return 0 };
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("a count");
        count.trim().parse().expect("a number")
    }

    /// Sends a request, and checks that the thread for long documents has worked for its response.
    pub(crate) fn by_document_thread<T>(&self, request: impl FnOnce() -> T) -> T {
        let sleeps = || self.sleeps_of("documents-0");
        wait_until("a thread for documents that waits for work", || sleeps() > 0);
        let before = sleeps();
        let reply = request();
        // It sleeps again after its work.
        wait_until("a document of the thread", || sleeps() > before);
        reply
    }

    /// Resident memory in bytes, without pages of files: the kernel drops these and reads them again at any time. It is
    /// counted page by page, because `/proc/PID/status` may lag by dozens of pages for each CPU.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        let sums = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).expect("the node runs");
        let line = sums.lines().find(|line| line.starts_with("Anonymous:")).expect("a process has memory");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
        kib * 1024
    }

    /// Sends SIGTERM or SIGINT.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the node runs");
    }

    /// Stops it with SIGSTOP, and waits until it stands still: the kernel still accepts connections for it.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        wait_until("a node that stands still", || stands_still(self.pid()));
    }

    /// Lets it go on after [`Node::pause`].
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, and checks that it does so with exit code 0. Returns what is needed to start it again.
    pub(crate) fn terminate(self) -> Setup {
        self.signal(Signal::TERM);
        self.drained()
    }

    /// Terminates the node, waits for its end, and also returns its whole log.
    pub(crate) fn terminate_and_tell(mut self) -> (Setup, String) {
        self.signal(Signal::TERM);
        self.wait_until_drained();
        (self.end(), self.log.whole())
    }

    /// Waits for the end that was asked for, and checks it.
    pub(crate) fn drained(mut self) -> Setup {
        self.wait_until_drained();
        self.end()
    }

    fn wait_until_drained(&mut self) {
        let status = wait_for_end(&mut self.child);
        assert_eq!(status.code(), Some(0), "{status}, log:\n{}", self.log());
    }

    /// Waits until it has ended by itself. Returns how it ended, and its whole log.
    #[cfg(feature = "faults")]
    pub(crate) fn ends_by_itself(mut self) -> (ExitStatus, String) {
        let status = wait_for_end(&mut self.child);
        (self.ended, self.relay) = (true, None);
        (status, self.log.whole())
    }

    /// Ends it with SIGKILL, which may cut off a write. Returns what is needed to start it again.
    pub(crate) fn kill(mut self) -> Setup {
        self.child.kill().expect("it has not been waited for");
        self.child.wait().expect("a child can be waited for");
        self.end().expect(CUT_OFF)
    }

    /// Ends it gently and starts it again on the same data.
    pub(crate) fn restart(self) -> Node {
        self.terminate().start()
    }

    fn end(&mut self) -> Setup {
        self.ended = true;
        self.relay = None;
        assert_eq!(
            self.lines.lock().unwrap().try_iter().count(),
            0,
            "the announcement is all that standard output gets"
        );
        self.log.check(&self.setup.expected);
        self.setup.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the node:\n{}", self.log());
        } else {
            self.end();
        }
    }
}

/// True if a process that runs was stopped with SIGSTOP.
pub(crate) fn stands_still(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
}

/// The lines of a stream, read by a thread.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

/// Waits for the end of a process; one that does not end is killed.
fn wait_for_end(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status;
        }
        if start.elapsed() >= PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the process did not end");
        }
        std::thread::sleep(CHECK_CONDITION_EVERY);
    }
}

/// The public and the admin address in an announcement.
fn addresses(line: &str) -> (SocketAddr, SocketAddr) {
    let behind = |mark: &str| -> SocketAddr {
        let rest = line.split_once(mark).unwrap_or_else(|| panic!("`{mark}` is not in `{line}`")).1;
        let end = rest.find([' ', ',', '/']).unwrap_or(rest.len());
        rest[..end].parse().unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let public = if line.contains(" serves https://") { " serves https://" } else { " serves http://" };
    (behind(public), behind("status at http://"))
}

/// A small generator of pseudo-random numbers (SplitMix64, Steele, Lea and Flood 2014), so that a test can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A generator with a new seed, or that of `CAROM_TEST_SEED`; the seed is printed.
    pub(crate) fn new() -> Dice {
        let given = std::env::var("CAROM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(carom_telemetry::clock::unix_ms);
        println!("repeat with CAROM_TEST_SEED={seed}");
        Dice(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Puts items into a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).rev().for_each(|at| items.swap(at, self.below(at as u64 + 1) as usize));
    }
}

/// Runs a check on a node with one core, and on one with three.
pub(crate) fn with_one_and_three_cores(check: impl Fn(Setup)) {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        check(Setup::new(&dir.path().join("data")).cores(cores));
    }
}
