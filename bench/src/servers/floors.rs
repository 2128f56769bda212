//! Two minimal servers that measure the cost of the kernel alone, by io_uring and by epoll. They send one constant
//! redirect for each empty line that ends a head, pipelined ones included, and parse no other part of HTTP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::Result;
use carom_ring::{Completion, Ring, Tag};
use memchr::memmem::Finder;
use rustix::event::epoll;
use socket2::{Domain, Socket, Type};

/// Returns the response: as long as carom's for a link of a hundred bytes.
fn answer() -> Vec<u8> {
    let target = crate::data::target(0);
    format!(
        "HTTP/1.1 302 Found\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nContent-Length: 0\r\nCache-Control: private, max-age=0\r\nLocation: {target}\r\n\r\n"
    )
    .into_bytes()
}

fn listener(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(4_096)?;
    Ok(socket)
}

/// Counter of the ends of heads, also across the borders of reads.
#[derive(Default, Debug)]
struct Heads {
    tail: Vec<u8>,
}

impl Heads {
    /// Returns how many heads end in these bytes, and whether one of them asks to close.
    fn take(&mut self, bytes: &[u8], end: &Finder<'_>, close: &Finder<'_>) -> (usize, bool) {
        if self.tail.is_empty() && bytes.ends_with(b"\r\n\r\n") {
            return (end.find_iter(bytes).count(), close.find(bytes).is_some());
        }
        self.tail.extend_from_slice(bytes);
        let ends: Vec<usize> = end.find_iter(&self.tail).collect();
        let asks = close.find(&self.tail).is_some() && !ends.is_empty();
        if let Some(last) = ends.last() {
            self.tail.drain(..last + 4);
        }
        (ends.len(), asks)
    }
}

struct RingConnection {
    socket: OwnedFd,
    tag: Tag,
    heads: Heads,
    out: Vec<u8>,
    receiving: bool,
    sending: bool,
    closing: bool,
}

/// Runs the io_uring floor: the ring that carom uses, and nothing else. Ends with the process.
pub(crate) fn ring(address: SocketAddr) -> Result<()> {
    let listener = listener(address)?;
    let mut ring = Ring::new(None)?;
    ring.accept(&listener, 0);
    let (end, close, answer) = (Finder::new(b"\r\n\r\n"), Finder::new(b"Connection: close"), answer());
    // By slot; the slots of ended connections are reused.
    let mut connections: Vec<Option<RingConnection>> = Vec::new();
    let (mut free, mut completions) = (Vec::new(), Vec::new());
    loop {
        ring.wait(Duration::from_secs(1))?;
        ring.take_completions(&mut completions);
        for completion in completions.drain(..) {
            match completion {
                Completion::Accepted { result: Ok(socket), .. } => {
                    let slot = free.pop().unwrap_or(connections.len() as u32);
                    let tag = Tag { slot, generation: 0 };
                    ring.receive(&socket, tag);
                    let connection = RingConnection {
                        socket,
                        tag,
                        heads: Heads::default(),
                        out: Vec::new(),
                        receiving: true,
                        sending: false,
                        closing: false,
                    };
                    match connections.get_mut(slot as usize) {
                        Some(place) => *place = Some(connection),
                        None => connections.push(Some(connection)),
                    }
                }
                Completion::Received { tag, result, more } => {
                    let Some(Some(connection)) = connections.get_mut(tag.slot as usize) else { continue };
                    connection.receiving = more;
                    match result {
                        Ok(Some(chunk)) => {
                            let (count, asks) = connection.heads.take(ring.bytes(&chunk), &end, &close);
                            ring.give_back(chunk);
                            (0..count).for_each(|_| connection.out.extend_from_slice(&answer));
                            connection.closing |= asks;
                        }
                        Err(error) if error == rustix::io::Errno::NOBUFS.raw_os_error() => {}
                        _ => connection.closing = true,
                    }
                    if settle(&mut ring, connection) {
                        connections[tag.slot as usize] = None;
                        free.push(tag.slot);
                    }
                }
                Completion::Sent { tag, mut buffer, .. } => {
                    let Some(Some(connection)) = connections.get_mut(tag.slot as usize) else { continue };
                    connection.sending = false;
                    buffer.clear();
                    if connection.out.is_empty() {
                        connection.out = buffer;
                    }
                    if settle(&mut ring, connection) {
                        connections[tag.slot as usize] = None;
                        free.push(tag.slot);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Submits the operations that a connection needs. True if it has ended.
fn settle(ring: &mut Ring, connection: &mut RingConnection) -> bool {
    if !connection.out.is_empty() && !connection.sending {
        connection.sending = true;
        ring.send(&connection.socket, connection.tag, std::mem::take(&mut connection.out), 0);
    }
    if connection.closing && !connection.sending {
        Ring::shut_down(&connection.socket);
    } else if !connection.receiving {
        connection.receiving = true;
        ring.receive(&connection.socket, connection.tag);
    }
    connection.closing && !connection.receiving && !connection.sending
}

/// Runs the epoll floor: one `epoll_wait`, `read` and `write`. Ends with the process.
pub(crate) fn epoll(address: SocketAddr) -> Result<()> {
    let listener: TcpListener = listener(address)?.into();
    listener.set_nonblocking(true)?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listening = listener.as_raw_fd() as u64;
    epoll::add(&set, &listener, epoll::EventData::new_u64(listening), epoll::EventFlags::IN)?;
    let (end, close, answer) = (Finder::new(b"\r\n\r\n"), Finder::new(b"Connection: close"), answer());
    let mut connections: HashMap<u64, (TcpStream, Heads)> = HashMap::new();
    let (mut buffer, mut out) = (vec![0; 64 * 1024], Vec::new());
    let mut events = Vec::with_capacity(512);
    loop {
        events.clear();
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => _ = result?,
        }
        for event in &events {
            let key = event.data.u64();
            if key == listening {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let key = stream.as_raw_fd() as u64;
                    epoll::add(&set, stream.as_fd(), epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
                    connections.insert(key, (stream, Heads::default()));
                }
                continue;
            }
            let Some((stream, heads)) = connections.get_mut(&key) else { continue };
            let len = stream.read(&mut buffer).unwrap_or(0);
            let (count, asks) = heads.take(&buffer[..len], &end, &close);
            out.clear();
            (0..count).for_each(|_| out.extend_from_slice(&answer));
            // Blocking writes keep it simple; the clients here read all responses.
            if len == 0 || stream.write_all(&out).is_err() || asks {
                connections.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn check(serve: fn(SocketAddr) -> Result<()>) {
        let address = SocketAddr::from(([127, 0, 0, 1], crate::servers::process::free_port().unwrap()));
        std::thread::spawn(move || serve(address));
        let begin = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(10), "{error}"),
            }
        };
        let answer = answer();
        let mut received = vec![0; answer.len()];
        // In pieces, and three at once.
        for piece in [&b"GET /a HTTP/1.1\r\nHo"[..], b"st: a\r\n\r", b"\n"] {
            stream.write_all(piece).unwrap();
        }
        stream.read_exact(&mut received).unwrap();
        assert_eq!(received, answer);
        stream.write_all(&b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)).unwrap();
        for _ in 0..3 {
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, answer);
        }
        stream.write_all(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, answer);
    }

    #[test]
    fn the_ring_answers_every_head() {
        check(ring);
    }

    #[test]
    fn epoll_answers_every_head() {
        check(epoll);
    }
}
