//! Tests of the client with fake servers.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::cmd;

use super::*;

/// A server of a cluster: it has the slots of a range, until it sends requests on to the other one.
struct FakeServer {
    address: ServerAddress,
    listener: TcpListener,
    /// True if it redirects, and does not say where the slots are.
    has_moved: AtomicBool,
    /// The names of all commands that it got.
    asked: Mutex<Vec<String>>,
}

impl FakeServer {
    fn new() -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ServerAddress { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        FakeServer { address, listener, has_moved: AtomicBool::new(false), asked: Mutex::default() }
    }

    /// Answers everything on each connection.
    fn serve(self: &Arc<FakeServer>, ports: [u16; 2]) {
        let server = Arc::clone(self);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = server.listener.accept() {
                let server = Arc::clone(&server);
                std::thread::spawn(move || server.converse(&stream, ports));
            }
        });
    }

    fn converse(&self, stream: &TcpStream, ports: [u16; 2]) {
        let mut reader = BufReader::new(stream);
        while let Some(command) = read_command(&mut reader) {
            let has_moved = self.has_moved.load(Ordering::Acquire);
            let [a, b] = ports;
            let range = |first: u16, last: u16, port: u16| {
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            };
            let answer = match &*command {
                "QUIT" => return,
                "INFO" => "$17\r\ncluster_enabled:1\r\n".to_owned(),
                "ROLE" => "*1\r\n$6\r\nmaster\r\n".to_owned(),
                "CLUSTER" if has_moved => String::new(),
                "CLUSTER" => format!("*2\r\n{}{}", range(0, 8_191, a), range(8_192, 16_383, b)),
                _ if has_moved => format!("-MOVED 1 127.0.0.1:{b}\r\n"),
                _ => "+OK\r\n".to_owned(),
            };
            self.asked.lock().unwrap().push(command);
            let mut writer = stream;
            writer.write_all(answer.as_bytes()).unwrap();
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Reads a command, and returns its name; `None` at the end of the connection.
fn read_command(reader: &mut impl BufRead) -> Option<String> {
    let count = read_number(reader, '*')?;
    let mut name = None;
    for _ in 0..count {
        let length = read_number(reader, '$')?;
        let mut text = vec![0; length + 2];
        reader.read_exact(&mut text).ok()?;
        name.get_or_insert_with(|| String::from_utf8_lossy(&text[..length]).into_owned());
    }
    name
}

fn read_number(reader: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim().strip_prefix(mark)?.parse().ok()
}

#[test]
fn server_that_redirects_delays_no_request_to_others() {
    let [a, b] = [(); 2].map(|()| Arc::new(FakeServer::new()));
    let ports = [a.address.port, b.address.port];
    [&a, &b].iter().for_each(|server| server.serve(ports));
    let settings = ClientSettings::plain(a.address.clone());
    let mut client = Client::new(settings, &[]).unwrap();
    let (slots, long) = ([0, 9_000], Duration::from_secs(20));
    let get = || RedisCommand::Plain(cmd("GET").arg("a").to_owned());
    let answers = client.ask_all(slots.map(|slot| (RequestRoute::Slot(slot), get())).into(), long);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let before = b.asked().len();
    a.has_moved.store(true, Ordering::Release);
    let deadline = Instant::now() + long;
    client.put(RequestRoute::Slot(slots[0]), vec![get()], deadline);
    while client.search.is_none() {
        client.step();
        std::thread::yield_now();
    }
    // The search has begun, and has no answer yet.
    let request = client.put(RequestRoute::Slot(slots[1]), vec![get()], deadline);
    let answers = client.await_all(&[request], deadline);
    assert!(answers[0].is_ok(), "{answers:?}");
    assert_eq!(b.asked()[before], "GET", "the request waited for the search: {:?}", b.asked());
}

#[test]
fn server_that_comes_back_may_have_lost_writes() {
    let server = Arc::new(FakeServer::new());
    server.serve([server.address.port; 2]);
    let mut client = Client::new(ClientSettings::plain(server.address.clone()), &[]).unwrap();
    let ask = |client: &mut Client, name: &str| {
        let question = RedisCommand::Plain(cmd(name).arg("a").to_owned());
        client.ask_all(vec![(RequestRoute::Slot(0), question)], Duration::from_secs(20)).remove(0)
    };
    assert!(ask(&mut client, "GET").is_ok());
    assert_eq!(client.last_disturbance(), None, "this is the first connection");
    assert!(ask(&mut client, "QUIT").is_err());
    let lost = client.last_disturbance();
    assert!(lost.is_some());
    assert!(ask(&mut client, "GET").is_ok());
    assert!(client.last_disturbance() > lost, "it may have started again since its connection was lost");
}
