//! HTTP clients: a library, `curl`, and a bare socket for bytes that neither would send.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::bypass::source_towards;
use crate::support::node::{PATIENCE, wait_for};

/// The host that requests name by default.
pub(crate) const HOST: &str = "carom.test";

/// The path of links in the API.
pub(crate) const SHORT_URLS: &str = "/rest/v3/short-urls";

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reply {
    /// The number of its status.
    pub(crate) status: u16,
    /// The status line.
    pub(crate) line: String,
    /// Header fields in their order, names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    /// The decoded body.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The value of a field; it must not stand there twice.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let first = found.next();
        assert_eq!(found.next(), None, "{name} is there twice: {self:?}");
        first
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("bodies are UTF-8")
    }

    /// True if it says that Redis did not answer in time.
    pub(crate) fn waits_for_redis(&self) -> bool {
        self.status == 503 && self.text().contains("Redis")
    }

    /// The code of a created link.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()["shortCode"].as_str().expect("a created link has a code").to_owned()
    }

    /// The destination of a redirect. Fails if there is none.
    pub(crate) fn location(&self) -> &str {
        self.field("location").unwrap_or_else(|| panic!("no redirect: {self:?}"))
    }

    /// The fields that describe the answer rather than the connection or the moment, in the order of their names.
    pub(crate) fn lasting_fields(&self) -> Vec<(String, String)> {
        let passing = ["date", "connection"];
        let mut fields: Vec<_> =
            self.fields.iter().filter(|(name, _)| !passing.contains(&name.as_str())).cloned().collect();
        fields.sort();
        fields
    }

    /// Checks that it is a problem of that status and type, and returns it.
    pub(crate) fn problem(&self, status: u16, kind: &str) -> Value {
        assert_eq!((self.status, self.field("content-type")), (status, Some("application/problem+json")), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], json!(status));
        assert!(problem["type"].as_str().is_some_and(|it| it.ends_with(kind)), "{problem}");
        assert!(problem["title"].is_string(), "{problem}");
        assert!(problem["detail"].is_string(), "{problem}");
        problem
    }
}

/// A stream without and with TLS.
#[derive(Debug)]
enum Channel {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Channel {
    fn tcp(&self) -> &TcpStream {
        match self {
            Channel::Plain(stream) => stream,
            Channel::Secure(stream) => &stream.sock,
        }
    }
}

impl Read for Channel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.read(into),
            Channel::Secure(stream) => stream.read(into),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.write(bytes),
            Channel::Secure(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Channel::Plain(stream) => stream.flush(),
            Channel::Secure(stream) => stream.flush(),
        }
    }
}

/// A connection of its own.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Channel,
    /// Received and not used yet.
    rest: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> Wire {
        Wire::try_open(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects, if somebody listens.
    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire { stream: Channel::Plain(stream), rest: Vec::new() })
    }

    /// Connects from an address of this machine.
    pub(crate) fn open_from(source: IpAddr, address: SocketAddr) -> Wire {
        let source = source_towards(address, source);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("an address of this machine");
        socket.connect_timeout(&address.into(), PATIENCE).expect("somebody listens");
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).expect("a socket of TCP");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time that is not zero");
        Wire { stream: Channel::Plain(stream), rest: Vec::new() }
    }

    /// Makes a TLS handshake for a server name on this connection, with this configuration.
    pub(crate) fn secured(self, terms: &Arc<ClientConfig>, name: &str) -> io::Result<Wire> {
        let Channel::Plain(mut stream) = self.stream else { panic!("it has TLS already") };
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut connection = ClientConnection::new(Arc::clone(terms), name).expect("terms that are possible");
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Wire { stream: Channel::Secure(Box::new(StreamOwned::new(connection, stream))), rest: Vec::new() })
    }

    /// The TLS session of a secured connection.
    pub(crate) fn tls(&mut self) -> &mut ClientConnection {
        match &mut self.stream {
            Channel::Secure(stream) => &mut stream.conn,
            Channel::Plain(_) => panic!("it has no TLS"),
        }
    }

    /// Sends bytes past its TLS.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.tcp().write_all(bytes).expect("the node takes what is sent");
    }

    /// Reads some of the bytes that came next, at least one; none if the connection was closed.
    pub(crate) fn some(&mut self) -> Vec<u8> {
        if self.rest.is_empty() {
            match self.receive() {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("it was not closed")
                }
                // An end, however it came about.
                _ => {}
            }
        }
        std::mem::take(&mut self.rest)
    }

    /// Gives up on a write that makes no progress for that long.
    pub(crate) fn write_patience(&self, patience: Duration) {
        self.stream.tcp().set_write_timeout(Some(patience)).expect("a time that is not zero");
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the node takes what is sent");
    }

    /// Sends bytes to a node that may be gone.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a part of the bytes, at least one.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Says that nothing more is sent.
    pub(crate) fn end_sending(&self) {
        // The node may have closed the connection before; then there is nothing left to say.
        let _ = self.stream.tcp().shutdown(Shutdown::Write);
    }

    /// Everything that comes until the node closes the connection, which it must.
    pub(crate) fn read_to_end(mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        match self.stream.read_to_end(&mut all) {
            Ok(_) => all,
            Err(error) => panic!("the connection was not closed: {error}, after {:?}", String::from_utf8_lossy(&all)),
        }
    }

    /// Reads until the node closes or resets the connection.
    pub(crate) fn read_until_closed(mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        match self.stream.read_to_end(&mut all) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("not closed: {error}"),
            _ => all,
        }
    }

    /// The next answer to a request that is not `HEAD`.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(false).unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// The next answer, if it begins to come within that time.
    pub(crate) fn reply_within(&mut self, time: Duration) -> Option<Reply> {
        let set = |time| self.stream.tcp().set_read_timeout(Some(time)).expect("a time that is not zero");
        set(time);
        let mut first = [0];
        let peeked = self.stream.tcp().peek(&mut first);
        set(PATIENCE);
        match peeked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            _ => Some(self.reply()),
        }
    }

    /// The next answer; an error of kind `UnexpectedEof` where the connection ended before it began.
    pub(crate) fn try_reply(&mut self, to_head: bool) -> io::Result<Reply> {
        loop {
            if let Some((reply, len)) = parse(&self.rest, to_head) {
                self.rest.drain(..len);
                if reply.status >= 200 {
                    return Ok(reply);
                }
                continue;
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 * 1024];
        // A read with a timeout ends with EINTR when the process was frozen and thawed, though nobody handles a
        // signal.
        let len = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => break read?,
            }
        };
        if len == 0 {
            let text = format!("closed after {:?}", String::from_utf8_lossy(&self.rest));
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        self.rest.extend_from_slice(&piece[..len]);
        Ok(())
    }

    /// Asks for a path.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, "", b"")
    }

    /// Asks a host for a path.
    pub(crate) fn get_at(&mut self, host: &str, path: &str) -> Reply {
        self.send(&request_at(host, "GET", path, "", b""));
        self.reply()
    }

    /// Sends a request and reads its answer. `fields` are lines with their ends.
    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str, body: &[u8]) -> Reply {
        self.try_ask(method, path, fields, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Asks a node that may be gone.
    pub(crate) fn try_ask(&mut self, method: &str, path: &str, fields: &str, body: &[u8]) -> io::Result<Reply> {
        self.try_send(&request(method, path, fields, body))?;
        self.try_reply(method == "HEAD")
    }

    /// Asks the API to shorten.
    pub(crate) fn create(&mut self, fields: &Value) -> Reply {
        self.try_create(fields).unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// Creates a link on a node that may be gone.
    pub(crate) fn try_create(&mut self, fields: &Value) -> io::Result<Reply> {
        self.try_ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", fields.to_string().as_bytes())
    }

    /// Makes a link and returns its code.
    pub(crate) fn shorten(&mut self, target: &str) -> String {
        self.create(&json!({"longUrl": target})).code()
    }

    /// Makes a link of that name.
    pub(crate) fn shorten_as(&mut self, slug: &str, target: &str) {
        assert_eq!(self.create_named(&json!({"longUrl": target, "customSlug": slug})).code(), slug);
    }

    /// Asks the API for a link with a name that is free. A node of a fleet refuses it while Redis is too slow to say so. Redis may
    /// have taken the name all the same: then it is not free (400) until the node has taken it back.
    pub(crate) fn create_named(&mut self, fields: &Value) -> Reply {
        let mut may_be_taken = false;
        wait_for("a link of that name", || {
            let reply = self.create(fields);
            let waits = reply.waits_for_redis();
            may_be_taken |= waits;
            let is_refused = waits || may_be_taken && reply.status == 400;
            (!is_refused).then_some(reply)
        })
    }

    /// Asks the API to delete.
    pub(crate) fn delete(&mut self, code: &str) -> Reply {
        self.ask("DELETE", &format!("{SHORT_URLS}/{code}"), "", b"")
    }
}

/// The bytes of a request. `fields` are lines with their ends.
pub(crate) fn request(method: &str, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    request_at(HOST, method, path, fields, body)
}

/// A request for a host.
pub(crate) fn request_at(host: &str, method: &str, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    [format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}{length}\r\n").as_bytes(), body].concat()
}

/// The bytes of a request to shorten.
pub(crate) fn create_request(fields: &Value) -> Vec<u8> {
    request("POST", SHORT_URLS, "Content-Type: application/json\r\n", fields.to_string().as_bytes())
}

/// The answers in bytes that hold nothing else, none of them to `HEAD`.
pub(crate) fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (reply, len) =
            parse(bytes, false).unwrap_or_else(|| panic!("no whole answer: {:?}", String::from_utf8_lossy(bytes)));
        found.push(reply);
        bytes = &bytes[len..];
    }
    found
}

/// The answer at the start of the bytes and its length; `None` if it is not whole.
fn parse(bytes: &[u8], to_head: bool) -> Option<(Reply, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).expect("heads are ASCII");
    let mut lines = head.split("\r\n");
    let line = lines.next().expect("a text has a first line").to_owned();
    let status = line.split(' ').nth(1).and_then(|number| number.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {head}"));
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("no field: {line}"));
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let fields: Vec<(String, String)> = lines.map(field).collect();
    let is_chunked = fields.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    if is_chunked && !to_head {
        let (body, len) = dechunk(&bytes[end + 4..])?;
        return Some((Reply { status, line, fields, body }, end + 4 + len));
    }
    let length = fields.iter().find(|(name, _)| name == "content-length").map(|(_, value)| value);
    let len = match length {
        Some(_) if to_head => 0,
        Some(length) => length.parse().expect("a length is a number"),
        None => 0,
    };
    let body = bytes.get(end + 4..end + 4 + len)?.to_vec();
    Some((Reply { status, line, fields, body }, end + 4 + len))
}

/// The data of a chunked body and the length of it all; `None` if it is not whole.
fn dechunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).expect("sizes are ASCII");
        let size = usize::from_str_radix(size, 16).expect("sizes are numbers");
        at += line + 2;
        let chunk = bytes.get(at..at + size + 2)?;
        data.extend_from_slice(&chunk[..size]);
        at += size + 2;
        if size == 0 {
            return Some((data, at));
        }
    }
}

/// A client of an HTTP library that follows no redirect and takes every status for an answer.
pub(crate) fn agent() -> ureq::Agent {
    agent_within(PATIENCE)
}

/// Returns such a client whose requests may take that long.
pub(crate) fn agent_within(timeout: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().max_redirects(0).http_status_as_error(false);
    config.timeout_global(Some(timeout)).build().into()
}

/// Converts a response of the HTTP library.
pub(crate) fn received(mut response: ureq::http::Response<ureq::Body>) -> Reply {
    let text = |value: &ureq::http::HeaderValue| value.to_str().expect("fields are ASCII").to_owned();
    Reply {
        status: response.status().as_u16(),
        line: format!("{:?}", response.version()),
        fields: response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: response.body_mut().read_to_vec().expect("the body comes whole"),
    }
}

/// Runs `curl` without its configuration file and returns the last answer. The arguments end with the URL.
pub(crate) fn curl(arguments: &[&str]) -> Reply {
    let patience = PATIENCE.as_secs().to_string();
    let run =
        Command::new("curl").args(["-q", "-sS", "-i", "--noproxy", "*", "-m", &patience]).args(arguments).output();
    let run = run.expect("curl is installed");
    assert!(run.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    let is_head = arguments.contains(&"-I");
    let mut bytes = &run.stdout[..];
    let mut last = None;
    while let Some((reply, len)) = parse(bytes, is_head) {
        last = Some(reply);
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty(), "behind the answer: {:?}", String::from_utf8_lossy(bytes));
    last.expect("curl shows an answer")
}
