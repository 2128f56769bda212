//! AMQP 0-9-1, as far as tests need it: a client that declares and binds, and takes the messages of queues.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The name of a method: its class and its number.
type Name = (u16, u16);

/// A message that was taken from a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivered {
    /// The routing key.
    pub(crate) key: String,
    /// Routing keys besides the first, in the header `CC`.
    pub(crate) more_keys: Vec<String>,
    pub(crate) content_type: String,
    pub(crate) is_persistent: bool,
    pub(crate) id: String,
    /// The type.
    pub(crate) of: String,
    pub(crate) body: Value,
}

/// A connection with one channel, logged in as `guest`.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects and opens a channel.
    pub(crate) fn open(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream };
        client.stream.write_all(b"AMQP\0\0\x09\x01")?;
        client.answer((10, 10))?;
        let login = [long(&[]), short("PLAIN"), long(b"\0guest\0guest"), short("en_US")].concat();
        client.send(0, (10, 11), &login)?;
        client.answer((10, 30))?;
        // One channel, frames of 128 KiB, and no heartbeats.
        client.send(0, (10, 31), &[0, 1, 0, 2, 0, 0, 0, 0])?;
        client.ask(0, (10, 40), &[short("/"), vec![0; 2]].concat(), (10, 41))?;
        client.ask(1, (20, 10), &[0], (20, 11))?;
        Ok(client)
    }

    /// Declares a durable exchange of a type.
    pub(crate) fn declare_exchange(&mut self, name: &str, of: &str) {
        let arguments = [vec![0; 2], short(name), short(of), vec![2], long(&[])].concat();
        self.ask(1, (40, 10), &arguments, (40, 11)).unwrap();
    }

    /// Deletes an exchange.
    pub(crate) fn delete_exchange(&mut self, name: &str) {
        self.ask(1, (40, 20), &[vec![0; 2], short(name), vec![0]].concat(), (40, 21)).unwrap();
    }

    /// Declares a durable queue, and binds it to an exchange with a key.
    pub(crate) fn bind(&mut self, queue: &str, exchange: &str, key: &str) {
        let arguments = [vec![0; 2], short(queue), vec![2], long(&[])].concat();
        self.ask(1, (50, 10), &arguments, (50, 11)).unwrap();
        let arguments = [vec![0; 2], short(queue), short(exchange), short(key), vec![0], long(&[])].concat();
        self.ask(1, (50, 20), &arguments, (50, 21)).unwrap();
    }

    /// Takes all messages that a queue has now.
    pub(crate) fn take_all(&mut self, queue: &str) -> Vec<Delivered> {
        let mut all = Vec::new();
        while let Some(message) = self.take(queue).unwrap() {
            all.push(message);
        }
        all
    }

    fn take(&mut self, queue: &str) -> Result<Option<Delivered>> {
        // Without an acknowledgement.
        self.send(1, (60, 70), &[vec![0; 2], short(queue), vec![1]].concat())?;
        let (name, payload) = self.method()?;
        if name == (60, 72) {
            return Ok(None);
        }
        expect(name, (60, 71), &payload)?;
        let mut parts = Parts(&payload);
        // The tag, and whether it was delivered before.
        parts.take(9);
        let (_, key) = (parts.short(), parts.short());
        let (_, header) = self.frame()?;
        let mut parts = Parts(&header);
        parts.take(4);
        let len = parts.number(8) as usize;
        let mut message = properties(&mut parts);
        let mut body = Vec::new();
        while body.len() < len {
            body.extend(self.frame()?.1);
        }
        message.key = key;
        message.body = serde_json::from_slice(&body)?;
        Ok(Some(message))
    }

    /// Sends a request and reads its answer.
    fn ask(&mut self, channel: u16, request: Name, arguments: &[u8], answer: Name) -> Result<Vec<u8>> {
        self.send(channel, request, arguments)?;
        self.answer(answer)
    }

    fn send(&mut self, channel: u16, (class, number): Name, arguments: &[u8]) -> Result<()> {
        let payload = [&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat();
        let frame = [&[1][..], &channel.to_be_bytes(), &long(&payload), &[0xce]].concat();
        self.stream.write_all(&frame)
    }

    fn answer(&mut self, wanted: Name) -> Result<Vec<u8>> {
        let (name, payload) = self.method()?;
        expect(name, wanted, &payload)?;
        Ok(payload)
    }

    /// Reads the next method, and its arguments.
    fn method(&mut self) -> Result<(Name, Vec<u8>)> {
        loop {
            let (kind, payload) = self.frame()?;
            if kind == 1 {
                let mut parts = Parts(&payload);
                let name = (parts.number(2) as u16, parts.number(2) as u16);
                return Ok((name, parts.0.to_vec()));
            }
        }
    }

    /// Reads the next frame: its type and its payload.
    fn frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        let mut payload = vec![0; len + 1];
        self.stream.read_exact(&mut payload)?;
        assert_eq!(payload.pop(), Some(0xce), "the end of a frame");
        Ok((head[0], payload))
    }
}

/// Fails unless a method is the wanted one. The server gives its reasons in what it sends instead.
fn expect(name: Name, wanted: Name, payload: &[u8]) -> Result<()> {
    if name == wanted {
        return Ok(());
    }
    let what = format!("{name:?} instead of {wanted:?}: {}", String::from_utf8_lossy(payload));
    Err(Error::new(ErrorKind::InvalidData, what))
}

/// The properties of a message: those that carom sets, in the order of the protocol.
fn properties(parts: &mut Parts<'_>) -> Delivered {
    let flags = parts.number(2);
    assert_eq!(flags, 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 3, "the properties of a message");
    let content_type = parts.short();
    let more_keys = keys(parts.long());
    let is_persistent = parts.number(1) == 2;
    let (id, seconds, of) = (parts.short(), parts.number(8), parts.short());
    assert!(seconds > 1_700_000_000, "{seconds}");
    assert_eq!(parts.short(), "carom");
    Delivered { key: String::new(), more_keys, content_type, is_persistent, id, of, body: Value::Null }
}

/// The keys in the header `CC`, the only one that carom sets.
fn keys(table: &[u8]) -> Vec<String> {
    let mut parts = Parts(table);
    assert_eq!((parts.short().as_str(), parts.number(1)), ("CC", u64::from(b'A')));
    let mut list = Parts(parts.long());
    let mut keys = Vec::new();
    while !list.0.is_empty() {
        assert_eq!(list.number(1), u64::from(b'S'));
        keys.push(String::from_utf8_lossy(list.long()).into_owned());
    }
    keys
}

/// Bytes that are read from the front.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (part, rest) = self.0.split_at(len);
        self.0 = rest;
        part
    }

    fn number(&mut self, len: usize) -> u64 {
        self.take(len).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn short(&mut self) -> String {
        let len = self.number(1) as usize;
        String::from_utf8_lossy(self.take(len)).into_owned()
    }

    fn long(&mut self) -> &'a [u8] {
        let len = self.number(4) as usize;
        self.take(len)
    }
}

fn short(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
