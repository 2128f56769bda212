//! An HTTP server of a test's own, which receives what a node sends, and answers as the test says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::support::node::PATIENCE;

/// A request that the server received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    /// The method and the path.
    pub(crate) line: String,
    /// Header fields, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// An answer of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A status without a body.
    Status(u16),
    /// A redirect to this address.
    Redirect(String),
    /// No response; the connection stays open.
    Silence,
}

type Decide = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

/// A running server. Its threads end with the process.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<(Received, Answer)>>>,
    decide: Arc<Mutex<Decide>>,
}

impl Receiver {
    /// Starts a server on loopback that accepts everything.
    pub(crate) fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let decide: Decide = Arc::new(|_| Answer::Status(200));
        let receiver = Receiver { address, received: Arc::default(), decide: Arc::new(Mutex::new(decide)) };
        let server = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.serve(stream));
            }
        });
        receiver
    }

    /// Answers from now on as `decide` says.
    pub(crate) fn answer(&self, decide: impl Fn(&Received) -> Answer + Send + Sync + 'static) {
        *self.decide.lock().unwrap() = Arc::new(decide);
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything that was received so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().iter().map(|(request, _)| request.clone()).collect()
    }

    /// Everything that was accepted so far, with a status of 200 or 204.
    pub(crate) fn accepted(&self) -> Vec<Received> {
        let is_accepted = |answer: &Answer| matches!(answer, Answer::Status(200 | 204));
        let received = self.received.lock().unwrap();
        received.iter().filter(|(_, answer)| is_accepted(answer)).map(|(request, _)| request.clone()).collect()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = Vec::new();
        while let Some(request) = read_request(&mut stream, &mut bytes) {
            let decide = Arc::clone(&self.decide.lock().unwrap());
            let answer = decide(&request);
            self.received.lock().unwrap().push((request, answer.clone()));
            let head = match answer {
                Answer::Status(status) => format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n"),
                Answer::Redirect(to) => format!("HTTP/1.1 307 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"),
                Answer::Silence => {
                    std::thread::sleep(Duration::from_secs(600));
                    return;
                }
            };
            // The node may have been killed meanwhile.
            if stream.write_all(head.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Reads one request; `None` at the end of the connection.
fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Received> {
    let mut piece = [0; 16 * 1024];
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = head {
            let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = text.split("\r\n");
            let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
            let fields: Vec<(String, String)> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length = fields.iter().find(|(name, _)| name == "content-length").and_then(|(_, len)| len.parse().ok());
            let whole = end + 4 + length.unwrap_or(0);
            if bytes.len() >= whole {
                let body = bytes[end + 4..whole].to_vec();
                bytes.drain(..whole);
                return Some(Received { line, fields, body });
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
        }
    }
}
