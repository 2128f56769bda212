//! Clients that do not read their responses: the kernel buffers for them are bounded in size and time. Slow readers get
//! everything.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::http::{Wire, replies, request};
use crate::support::node::{Node, Setup, sum, wait_until};

/// Connections of the clients that do not read.
const DEAF: usize = 100;

/// Bytes that the kernel may keep for one of them: the bound for what is not sent, and the piece that crosses it.
const KEPT_MAX: u64 = 128 * 1024;

/// After this long without reading a connection is given up.
const SEND_TIME: Duration = Duration::from_secs(30);

/// A node whose counts stay the same for so long has nothing to do.
const SETTLED: Duration = Duration::from_millis(300);

/// A node with a link whose answer takes two kilobytes.
fn start(setup: Setup) -> (Node, String) {
    // Longer than a stall of the machine between a connection and its first request.
    let node = setup.env("CAROM_LIMITS_IDLE_SECONDS", "3").start();
    let target = format!("https://example.org/{}", "x".repeat(1_900));
    node.wire().shorten_as("long", &target);
    wait_until("an idle node", || sum(&node.status(), "/connections") == 0);
    (node, target)
}

/// A connection with a small window.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// Asks that many times for the link, and does not read.
fn deaf(node: &Node, requests: usize) -> TcpStream {
    let mut client = connect(node.public);
    client.write_all(&request("GET", "/long", "", b"").repeat(requests)).unwrap();
    client
}

/// Bytes that the kernel keeps for each client of a node, including connections that the node has closed.
fn kept(node: &Node) -> Vec<u64> {
    let port = format!(":{:04X}", node.public.port());
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let of_line = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (unsent, _) = fields.next()?.split_once(':')?;
        let is_ours = local.ends_with(&port) && state != "0A";
        is_ours.then(|| u64::from_str_radix(unsent, 16).unwrap()).filter(|unsent| *unsent > 1)
    };
    table.lines().filter_map(of_line).collect()
}

/// Pages that TCP takes on this machine.
fn tcp_pages() -> String {
    let table = std::fs::read_to_string("/proc/thread-self/net/sockstat").unwrap();
    table.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default().to_owned()
}

#[test]
fn kernel_buffers_are_bounded_and_time_out() {
    let dir = tempfile::tempdir().unwrap();
    let (node, _) = start(Setup::new(dir.path()).over_kernel());
    println!("before: {}", tcp_pages());
    let begin = Instant::now();
    // Half of them ask for more than the kernel takes; of the others it takes all there is, so that no send is pending.
    let clients: Vec<TcpStream> = (0..DEAF).map(|at| deaf(&node, if at % 2 == 0 { 240 } else { 14 })).collect();
    let asked = Instant::now();
    let mut seen = (0, 0);
    let mut changed = Instant::now();
    wait_until("a node with nothing to do", || {
        let now = (sum(&node.status(), "/redirects"), kept(&node).iter().sum::<u64>());
        if now != seen {
            (seen, changed) = (now, Instant::now());
        }
        changed.elapsed() > SETTLED
    });
    println!("asked: {}, {} answers, {} bytes unread", tcp_pages(), seen.0, seen.1);
    let most = kept(&node).into_iter().max().unwrap_or_default();
    assert!(most <= KEPT_MAX, "the kernel keeps {most} bytes for a client that does not read");
    // They are asked to go after three seconds, and still count as connections until the kernel keeps nothing for them.
    wait_until("idle clients to be told", || asked.elapsed() > Duration::from_secs(5));
    let connections = sum(&node.status(), "/connections");
    if begin.elapsed() <= SEND_TIME {
        assert_eq!(connections, DEAF as u64);
    }
    while !kept(&node).is_empty() {
        let left = kept(&node).len();
        assert!(asked.elapsed() < SEND_TIME + Duration::from_secs(20), "{left} connections are still kept");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(asked.elapsed() > SEND_TIME - Duration::from_secs(5), "they had {:?}", asked.elapsed());
    println!("after {:?}: {}", asked.elapsed(), tcp_pages());
    wait_until("all to be gone", || sum(&node.status(), "/connections") == 0);
    drop(clients);
    node.terminate();
}

#[test]
fn slow_reader_gets_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (node, target) = start(Setup::new(dir.path()));
    let ask = |count: usize| {
        let last = request("GET", "/long", "Connection: close\r\n", b"");
        [request("GET", "/long", "", b"").repeat(count - 1), last].concat()
    };
    let read = |client: &mut TcpStream, answers: &mut Vec<u8>| {
        let mut piece = [0; 4_096];
        let len = client.read(&mut piece).unwrap();
        answers.extend_from_slice(&piece[..len]);
        len > 0
    };
    for end_sending in [false, true] {
        let mut client = connect(node.public);
        client.write_all(&ask(150)).unwrap();
        if end_sending {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut answers = Vec::new();
        while answers.len() < 250_000 && read(&mut client, &mut answers) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Longer than the node waits for the end of a client, and for one that is idle.
        std::thread::sleep(Duration::from_secs(4));
        while read(&mut client, &mut answers) {}
        let answers = replies(&answers);
        assert_eq!(answers.len(), 150, "{}", answers.len());
        assert!(answers.iter().all(|answer| answer.location() == target), "{}", answers.len());
    }
    let mut wire = Wire::open(node.public);
    assert_eq!(wire.get("/long").location(), target);
    drop(wire);
    wait_until("all to be gone", || sum(&node.status(), "/connections") == 0);
    node.terminate();
}
