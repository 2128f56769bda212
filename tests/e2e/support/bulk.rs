//! Bulk requests: a client that sends a body and reads its answer piece by piece.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::node::{Node, PATIENCE};

pub(crate) const TARGET: &str = "https://example.org/target";

/// The path of bulk requests.
pub(crate) const BULK: &str = "/rest/v3/short-urls/bulk";

/// The path of imports.
pub(crate) const IMPORT: &str = "/rest/v3/short-urls/bulk/import";

pub(crate) const KIND: &str = "Content-Type: application/x-ndjson\r\n";

/// A request whose body is sent, and whose answer is read, bit by bit.
pub(crate) struct Session {
    pub(crate) stream: TcpStream,
    lines: BufReader<Chunks>,
}

impl Session {
    /// Sends a head. Its answer is read with [`Session::begin`].
    pub(crate) fn open(address: SocketAddr, head: &str) -> Session {
        Session::over(TcpStream::connect_timeout(&address, PATIENCE).unwrap(), head)
    }

    /// Sends a head as a client that leaves the answer unread: its kernel keeps little of it.
    pub(crate) fn open_unread(address: SocketAddr, head: &str) -> Session {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(64 * 1024).unwrap();
        socket.connect_timeout(&address.into(), PATIENCE).unwrap();
        Session::over(socket.into(), head)
    }

    fn over(mut stream: TcpStream, head: &str) -> Session {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}Host: carom.test\r\n\r\n").as_bytes()).unwrap();
        let read = BufReader::new(stream.try_clone().unwrap());
        Session { stream, lines: BufReader::new(Chunks { stream: read, left: 0, ended: false }) }
    }

    /// A bulk request with that key and a body in chunks.
    pub(crate) fn bulk_as(node: &Node, key: &str) -> Session {
        let fields = format!("{KIND}X-Api-Key: {key}\r\nTransfer-Encoding: chunked\r\n");
        Session::open(node.public, &format!("POST {BULK} HTTP/1.1\r\n{fields}"))
    }

    /// A bulk request with a body in chunks, without a key.
    pub(crate) fn bulk(node: &Node) -> Session {
        Session::open(node.public, &format!("POST {BULK} HTTP/1.1\r\n{KIND}Transfer-Encoding: chunked\r\n"))
    }

    /// Sends a body and reads the head of the answer. Returns its status.
    pub(crate) fn begin_with(&mut self, lines: &str) -> u16 {
        self.send(lines);
        self.begin()
    }

    /// Reads the head of the answer. Returns its status.
    pub(crate) fn begin(&mut self) -> u16 {
        let stream = &mut self.lines.get_mut().stream;
        let mut status = None;
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "no answer");
            if line == "\r\n" {
                return status.expect("a head has a first line");
            }
            status.get_or_insert_with(|| line.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap());
        }
    }

    /// Sends a piece of the body as a chunk.
    pub(crate) fn send(&mut self, piece: &str) {
        self.try_send(piece).unwrap();
    }

    pub(crate) fn try_send(&mut self, piece: &str) -> io::Result<()> {
        self.stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes())
    }

    /// Says that the body is over.
    pub(crate) fn end(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").unwrap();
    }

    /// The next line of the answer; `None` at its end, an error where it breaks off.
    pub(crate) fn line(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        match self.lines.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")))),
        }
    }

    /// The result of the next line, which must be there.
    pub(crate) fn result(&mut self) -> Value {
        self.line().unwrap().expect("a result")
    }
}

/// The data of a chunked answer, as it comes.
pub(crate) struct Chunks {
    stream: BufReader<TcpStream>,
    left: usize,
    ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.ended {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            self.ended = size == 0;
            self.left = size + 2;
        }
        if self.ended || self.left == 0 {
            return Ok(0);
        }
        let data = self.left.saturating_sub(2).min(into.len());
        let len = self.stream.read(&mut into[..data])?;
        self.left -= len;
        if self.left == 2 {
            self.stream.read_exact(&mut [0; 2])?;
            self.left = 0;
        }
        if len == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(len) }
    }
}

/// Sends a whole body, while its results are read, and returns these.
pub(crate) fn send_all(node: &Node, path: &str, body: &[u8]) -> Vec<Value> {
    let head = format!("POST {path} HTTP/1.1\r\n{KIND}Content-Length: {}\r\n", body.len());
    let mut session = Session::open(node.public, &head);
    let mut stream = session.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stream.write_all(body).unwrap());
        assert_eq!(session.begin(), 200);
        std::iter::from_fn(|| session.line().unwrap()).collect()
    })
}

pub(crate) fn code_of(result: &Value) -> &str {
    result["shortUrl"]["shortCode"].as_str().unwrap_or_else(|| panic!("no link: {result}"))
}

/// Returns a number of lines, each of a link of its own.
pub(crate) fn many(count: usize) -> String {
    (0..count).map(|number| format!("{}\n", json!({"longUrl": format!("{TARGET}/{number}")}))).collect()
}
