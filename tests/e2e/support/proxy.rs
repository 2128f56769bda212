//! A TCP proxy between a node and Redis or RabbitMQ, which makes the network slow, silent, broken or wrong.
//!
//! One thread reads what comes in on one side of a connection and notes when, another one does with it what the mode of
//! that moment says. So a delay is one of each piece, not one more for each piece before it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Scope};
use std::time::{Duration, Instant};

/// Longest wait for the server to accept a connection. The end of a proxy may take as long.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Interval between two checks for new connections.
const CHECK_CONNECTIONS_EVERY: Duration = Duration::from_millis(2);

/// Interval between two looks at the mode while a reply is held back. A change of the mode ends it early.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Pieces that may be on their way in one direction of a connection; then the sender has to wait.
const PIECES_MAX: usize = 1024;

/// Length of a piece from which `Mode::Flip` changes it: longer than the head of a response.
const FLIPPED_LEN_MIN: usize = 2 * 1024;

/// The reply of `Mode::Garbage`: no reply of Redis begins like that.
const GARBAGE: &[u8] = b"\xde\xad\xbe\xefno reply\0\r\n";

/// The behaviour of the proxy for all present and future connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Passes everything on.
    Pass,
    /// Passes everything on that much later, in each direction.
    Delay(Duration),
    /// Accepts connections and takes what they send, and neither passes it on nor answers. A connection of which
    /// something was swallowed is closed when the mode changes, as what follows would not make sense.
    BlackHole,
    /// Closes all connections, and new ones as soon as they are accepted.
    Cut,
    /// Passes requests on, and answers bytes that are not RESP in place of replies. A connection that got such bytes is
    /// closed when the mode changes.
    Garbage,
    /// Passes everything on, and changes a byte of each long piece of a reply.
    Flip,
    /// Passes everything on one byte at a time, each in a write of its own.
    OneByte,
    /// Passes requests on, and replies one byte at a time with so much between two of them.
    Drip(Duration),
    /// Passes requests on, and keeps replies until the mode changes.
    Late,
}

/// A running proxy on a free loopback port. When it is dropped, all its connections are closed and its threads end.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in front of a server. It passes everything on at first.
    pub(crate) fn start(upstream: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
        listener.set_nonblocking(true).expect("a listener can be made not to block");
        let address = listener.local_addr().expect("it is bound");
        let state = State { mode: Mode::Pass, has_ended: false, accepted: 0, open: HashMap::new() };
        let shared = Arc::new(Shared { upstream, state: Mutex::new(state), changed: Condvar::new() });
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Proxy { address, shared, thread: Some(thread) }
    }

    /// The address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the mode. What is sent after this returns is treated accordingly.
    pub(crate) fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        if state.mode != mode {
            state.mode = mode;
            state.close(|_, ends| ends.is_spoilt || mode == Mode::Cut);
            self.shared.changed.notify_all();
        }
    }

    /// Closes all connections and changes the mode in one step, so that no client meets a mode in between.
    pub(crate) fn reconnect_as(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        state.close(|_, _| true);
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.has_ended = true;
            state.close(|_, _| true);
            self.shared.changed.notify_all();
        }
        let ended = self.thread.take().expect("it ends once").join();
        if !std::thread::panicking() {
            ended.expect("no thread of the proxy panics");
        }
    }
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    /// Tells of a new mode, and of connections that were closed.
    changed: Condvar,
}

struct State {
    mode: Mode,
    has_ended: bool,
    accepted: u64,
    open: HashMap<u64, Ends>,
}

impl State {
    /// Closes some of the connections.
    fn close(&mut self, which: impl Fn(u64, &Ends) -> bool) {
        for (_, ends) in self.open.extract_if(|number, ends| which(*number, ends)) {
            for end in [Some(ends.client), ends.server].iter().flatten() {
                // One that the other side has closed is closed.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Both ends of an open connection.
struct Ends {
    client: TcpStream,
    server: Option<TcpStream>,
    /// True if something was swallowed or made up.
    is_spoilt: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Request,
    Reply,
}

/// The fate of a piece.
enum Fate {
    Whole,
    Flipped,
    ByBytes,
    Dripping(Duration),
    Replaced,
    Swallowed,
    /// The connection has been closed.
    Lost,
}

/// Some bytes, or none for the end of them, and when they came.
struct Piece {
    bytes: Vec<u8>,
    came: Instant,
}

/// Reads the pieces of a connection in a thread.
fn pieces<'s>(scope: &'s Scope<'s, '_>, mut from: TcpStream) -> Receiver<Piece> {
    let (sender, receiver) = sync_channel(PIECES_MAX);
    scope.spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            // For the other side a connection that broke is one that was closed.
            let len = from.read(&mut buffer).unwrap_or(0);
            let piece = Piece { bytes: buffer[..len].to_vec(), came: Instant::now() };
            if sender.send(piece).is_err() || len == 0 {
                break;
            }
        }
    });
    receiver
}

impl Shared {
    /// The state, also after a panic: a proxy that ends with a test that failed must not panic once more.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of the state, at most so long.
    fn change<'a>(&self, state: MutexGuard<'a, State>, within: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, within).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Accepts connections until the end, and waits for the end of their threads.
    fn accept(&self, listener: &TcpListener) {
        std::thread::scope(|scope| {
            while !self.state().has_ended {
                match listener.accept().and_then(|(client, _)| self.admit(client)) {
                    Ok(Some(connection)) => _ = scope.spawn(move || connection.run()),
                    Ok(None) => {}
                    Err(_) => std::thread::sleep(CHECK_CONNECTIONS_EVERY),
                }
            }
        });
    }

    /// A new connection, if the mode allows any.
    fn admit(&self, client: TcpStream) -> Result<Option<Connection<'_>>> {
        client.set_nonblocking(false)?;
        client.set_nodelay(true)?;
        let mut state = self.state();
        if state.mode == Mode::Cut || state.has_ended {
            return Ok(None);
        }
        let number = state.accepted;
        state.accepted += 1;
        state.open.insert(number, Ends { client: client.try_clone()?, server: None, is_spoilt: false });
        Ok(Some(Connection { shared: self, number, client }))
    }
}

/// A connection of a client.
struct Connection<'a> {
    shared: &'a Shared,
    number: u64,
    client: TcpStream,
}

impl Connection<'_> {
    /// Serves it until it is closed.
    fn run(&self) {
        std::thread::scope(|scope| {
            if !self.pass_requests(scope).is_ok_and(|is_answered| is_answered) {
                self.close();
            }
        });
    }

    /// Passes requests on until the client sends no more. Returns whether there may still be replies. The server hears
    /// of the client with the first bytes only, so that there need be none while nothing is passed on.
    fn pass_requests<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<bool> {
        let mut server: Option<TcpStream> = None;
        for piece in pieces(scope, self.client.try_clone()?) {
            let fate = self.fate(&piece, Way::Request);
            if matches!(fate, Fate::Swallowed) {
                continue;
            }
            let server = match &server {
                Some(server) => server,
                None if piece.bytes.is_empty() => break,
                None => server.insert(self.connect(scope)?),
            };
            deliver(&piece, &fate, server)?;
        }
        Ok(server.is_some())
    }

    /// Passes replies on until the server sends no more.
    fn pass_replies<'s>(&'s self, scope: &'s Scope<'s, '_>, server: TcpStream) {
        for piece in pieces(scope, server) {
            let fate = self.fate(&piece, Way::Reply);
            let is_swallowed = matches!(fate, Fate::Swallowed);
            if piece.bytes.is_empty() && is_swallowed {
                // The client does not learn of the end either. The next mode closes what is left.
                return;
            }
            let is_passed = match fate {
                _ if piece.bytes.is_empty() => false,
                Fate::Swallowed => true,
                Fate::Dripping(gap) => self.drip(&piece, gap).is_ok(),
                fate => deliver(&piece, &fate, &self.client).is_ok(),
            };
            if !is_passed {
                break;
            }
        }
        self.close();
    }

    /// Writes a piece byte by byte, and what is left at once when the mode changes.
    fn drip(&self, piece: &Piece, gap: Duration) -> Result<()> {
        for (at, byte) in piece.bytes.chunks(1).enumerate() {
            (&self.client).write_all(byte)?;
            let state = self.shared.change(self.shared.state(), gap);
            if state.mode != Mode::Drip(gap) {
                drop(state);
                return (&self.client).write_all(&piece.bytes[at + 1..]);
            }
        }
        Ok(())
    }

    fn connect<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<TcpStream> {
        let server = TcpStream::connect_timeout(&self.shared.upstream, CONNECT_WITHIN)?;
        server.set_nodelay(true)?;
        let (reader, handle) = (server.try_clone()?, server.try_clone()?);
        let mut state = self.shared.state();
        state.open.get_mut(&self.number).ok_or(ErrorKind::ConnectionAborted)?.server = Some(handle);
        scope.spawn(move || self.pass_replies(scope, reader));
        Ok(server)
    }

    /// Decides on a piece, after as long as the mode says.
    fn fate(&self, piece: &Piece, way: Way) -> Fate {
        let mut state = self.shared.state();
        loop {
            let mode = state.mode;
            let Some(ends) = state.open.get_mut(&self.number) else { return Fate::Lost };
            let left = match mode {
                Mode::OneByte => return Fate::ByBytes,
                Mode::Drip(gap) if way == Way::Reply => return Fate::Dripping(gap),
                Mode::Flip if way == Way::Reply && piece.bytes.len() >= FLIPPED_LEN_MIN => return Fate::Flipped,
                Mode::BlackHole => {
                    ends.is_spoilt = true;
                    return Fate::Swallowed;
                }
                Mode::Garbage if way == Way::Reply => {
                    ends.is_spoilt = true;
                    return Fate::Replaced;
                }
                Mode::Delay(delay) => delay.saturating_sub(piece.came.elapsed()),
                Mode::Late if way == Way::Reply => LOOK_AGAIN,
                Mode::Pass | Mode::Garbage | Mode::Drip(_) | Mode::Late | Mode::Flip => Duration::ZERO,
                Mode::Cut => return Fate::Lost,
            };
            if left.is_zero() {
                return Fate::Whole;
            }
            state = self.shared.change(state, left);
        }
    }

    fn close(&self) {
        self.shared.state().close(|number, _| number == self.number);
        self.shared.changed.notify_all();
    }
}

/// Writes a piece to where it goes.
fn deliver(piece: &Piece, fate: &Fate, mut to: &TcpStream) -> Result<()> {
    match fate {
        _ if piece.bytes.is_empty() => to.shutdown(Shutdown::Write),
        Fate::Whole | Fate::Dripping(_) => to.write_all(&piece.bytes),
        Fate::Flipped => {
            // The last one, which is behind the head of a response.
            let (last, others) = piece.bytes.split_last().expect("a long piece");
            to.write_all(&[others, &[last ^ 1]].concat())
        }
        Fate::ByBytes => piece.bytes.chunks(1).try_for_each(|byte| to.write_all(byte)),
        Fate::Replaced => to.write_all(GARBAGE),
        Fate::Swallowed => Ok(()),
        Fate::Lost => Err(ErrorKind::ConnectionAborted.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;
    use crate::support::node::wait_until;
    use crate::support::redis::{Client, Reply, Server};

    const SHORT: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn client(proxy: &Proxy) -> Client {
        Client::open(proxy.address(), PATIENCE).expect("the proxy accepts")
    }

    /// Returns the time that a PING takes.
    fn ping(client: &mut Client) -> Duration {
        let start = Instant::now();
        assert_eq!(client.ask(&["PING"]).unwrap(), "PONG");
        start.elapsed()
    }

    /// Returns the error with which a PING fails.
    fn failure(client: &mut Client) -> ErrorKind {
        client.ask(&["PING"]).expect_err("there is no reply").kind()
    }

    fn is_closed(kind: ErrorKind) -> bool {
        matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    }

    #[test]
    fn both_directions_pass() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut client = client(&proxy);
        ping(&mut client);
        let value = "0123456789abcdef".repeat(1 << 18);
        assert_eq!(client.ask(&["SET", "a", &value]).unwrap(), "OK");
        assert!(client.ask(&["GET", "a"]).unwrap() == value.as_str());
        // What the server does is passed on, too.
        server.kill();
        assert!(is_closed(failure(&mut client)));
        let mut next = self::client(&proxy);
        assert!(is_closed(failure(&mut next)));
        server.start_again();
        ping(&mut self::client(&proxy));
    }

    #[test]
    fn client_close_reaches_the_server() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut clients: Vec<Client> = (0..5).map(|_| client(&proxy)).collect();
        clients.iter_mut().for_each(|client| _ = ping(client));
        // One more for the look. The server notices late that earlier looks are over.
        wait_until("five connections", || server.info("connected_clients").as_deref() == Some("6"));
        clients.truncate(2);
        wait_until("connections that are closed", || server.info("connected_clients").as_deref() == Some("3"));
        wait_until("the same in the proxy", || proxy.shared.state().open.len() == 2);
    }

    #[test]
    fn each_piece_has_the_same_delay() {
        const DELAY: Duration = Duration::from_millis(100);
        // Both ways, and not each way of all twenty that are on their way together.
        const TAKES: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_millis(3_500);
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut client = client(&proxy);
        proxy.set(Mode::Delay(DELAY));
        let took = ping(&mut client);
        assert!(TAKES.contains(&took), "{took:?}");
        let start = Instant::now();
        for _ in 0..20 {
            client.send(&["PING"]).unwrap();
            std::thread::sleep(CHECK_CONNECTIONS_EVERY);
        }
        (0..20).for_each(|_| assert_eq!(client.read().unwrap(), "PONG"));
        assert!(TAKES.contains(&start.elapsed()), "{:?}", start.elapsed());
        // A new mode applies to data in flight.
        proxy.set(Mode::Delay(PATIENCE * 2));
        client.send(&["PING"]).unwrap();
        proxy.set(Mode::Pass);
        assert_eq!(client.read().unwrap(), "PONG");
    }

    #[test]
    fn black_hole_swallows_everything() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let (mut old, mut idle) = (client(&proxy), client(&proxy));
        ping(&mut old);
        ping(&mut idle);
        proxy.set(Mode::BlackHole);
        let mut new = client(&proxy);
        for client in [&mut old, &mut new] {
            client.send(&["SET", "a", "1"]).unwrap();
            assert!(client.is_silent(SHORT).unwrap());
        }
        // The end of the server is no news either.
        server.kill();
        assert!(old.is_silent(SHORT).unwrap());
        server.start_again();
        let mut fresh = client(&proxy);
        proxy.set(Mode::Pass);
        assert!(is_closed(failure(&mut old)));
        assert!(is_closed(failure(&mut new)));
        assert!(is_closed(failure(&mut idle)));
        assert_eq!(fresh.ask(&["GET", "a"]).unwrap(), Reply::Nil);
    }

    #[test]
    fn cut_closes_old_and_new_connections() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut old = client(&proxy);
        ping(&mut old);
        proxy.set(Mode::Cut);
        assert!(is_closed(failure(&mut old)));
        for _ in 0..5 {
            assert!(is_closed(failure(&mut client(&proxy))));
        }
        proxy.set(Mode::Pass);
        ping(&mut client(&proxy));
    }

    #[test]
    fn garbage_replaces_replies() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let (mut old, mut idle) = (client(&proxy), client(&proxy));
        ping(&mut old);
        ping(&mut idle);
        proxy.set(Mode::Garbage);
        for mut client in [old, client(&proxy)] {
            assert_eq!(client.ask(&["INCR", "a"]).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        proxy.set(Mode::Pass);
        assert_eq!(idle.ask(&["GET", "a"]).unwrap(), "2");
    }

    #[test]
    fn bytes_arrive_one_at_a_time() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut client = client(&proxy);
        proxy.set(Mode::OneByte);
        let reads = || server.info("total_reads_processed").unwrap().parse::<u64>().unwrap();
        let value = "x".repeat(2_000);
        // The kernel may join them again, if the server is slow to read.
        wait_until("bytes that come alone", || {
            let before = reads();
            assert_eq!(client.ask(&["SET", "a", &value]).unwrap(), "OK");
            assert_eq!(client.ask(&["GET", "a"]).unwrap(), value.as_str());
            reads() - before > 100
        });
    }

    #[test]
    fn late_replies_come_with_the_next_mode() {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let mut client = client(&proxy);
        proxy.set(Mode::Late);
        client.send(&["INCR", "a"]).unwrap();
        assert!(client.is_silent(SHORT).unwrap());
        wait_until("the first request", || server.command(&["GET", "a"]) == "1");
        client.send(&["INCR", "a"]).unwrap();
        wait_until("the second request", || server.command(&["GET", "a"]) == "2");
        proxy.set(Mode::Pass);
        assert_eq!((client.read().unwrap(), client.read().unwrap()), (Reply::Int(1), Reply::Int(2)));
    }

    #[test]
    fn stop_is_quick_in_every_mode() {
        let server = Server::start();
        let modes = [Mode::Pass, Mode::Delay(PATIENCE), Mode::BlackHole, Mode::Garbage, Mode::OneByte, Mode::Late];
        for mode in modes {
            let proxy = Proxy::start(server.address());
            proxy.set(mode);
            let mut clients: Vec<Client> = (0..20).map(|_| client(&proxy)).collect();
            clients.iter_mut().for_each(|client| client.send(&["PING"]).unwrap());
            std::thread::sleep(CHECK_CONNECTIONS_EVERY * 5);
            let start = Instant::now();
            drop(proxy);
            assert!(start.elapsed() < PATIENCE / 3, "{mode:?}: {:?}", start.elapsed());
        }
    }
}
