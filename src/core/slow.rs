//! The slow way: a connection driven by hyper, over a stream in memory whose two ends are the connection's buffers.
//!
//! The loop puts checked bytes in and takes answers out; hyper and the handler run as a task of the same core. hyper
//! sees only heads and bodies that `wire::connection` has passed.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::desk::Desk;
use crate::limits::{HEAD_LEN_MAX, HEADERS_MAX};

/// Bytes that may wait in either direction before the writer has to pause. A few answers, or a piece of a body.
pub(super) const STREAM_LEN_MAX: usize = 64 * 1024;

/// Answers the requests of a core.
pub type Service = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<Full<Bytes>>>>>>;

/// The stream between the loop and hyper.
#[derive(Debug)]
pub(super) struct Stream {
    slot: u32,
    desk: Rc<Desk>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    inbound: Vec<u8>,
    /// Bytes of `inbound` that hyper has read.
    read: usize,
    /// Nothing more comes in; hyper finishes the requests it has.
    ended: bool,
    /// The connection broke, or what came in is not sound: hyper must not take it for an end.
    broken: bool,
    outbound: Vec<u8>,
    /// The loop has more unsent bytes than is good; hyper must wait.
    congested: bool,
    /// Requests that a handler has not answered yet.
    in_flight: u32,
    /// hyper has ended.
    finished: bool,
    /// The node is on its way out: the next answer is the last.
    draining: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Stream {
    /// Starts hyper on a new stream for the connection in `slot`.
    pub(super) fn start(
        slot: u32,
        desk: Rc<Desk>,
        service: &Service,
    ) -> (Rc<Stream>, impl Future<Output = ()> + 'static) {
        let stream = Rc::new(Stream { slot, desk, state: RefCell::default() });
        (Rc::clone(&stream), drive(stream, Rc::clone(service)))
    }

    // For the loop.

    /// Hands bytes to hyper.
    pub(super) fn put(&self, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        if state.read > 0 {
            let read = std::mem::take(&mut state.read);
            state.inbound.drain(..read);
        }
        state.inbound.extend_from_slice(bytes);
        state.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Says that nothing more comes. A body that breaks off must not look like one that ended.
    pub(super) fn end(&self, in_body: bool) {
        self.change(|state| {
            state.ended = true;
            state.broken |= in_body;
        });
    }

    /// Says that the connection is gone.
    pub(super) fn break_off(&self) {
        self.change(|state| state.broken = true);
    }

    /// Says that the next answer is the last.
    pub(super) fn drain(&self) {
        self.change(|state| state.draining = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.borrow_mut();
        change(&mut state);
        state.reader.take().into_iter().for_each(Waker::wake);
        state.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Takes what hyper has written, and lets it write on.
    pub(super) fn take(&self, into: &mut Vec<u8>) {
        let mut state = self.state.borrow_mut();
        if into.is_empty() {
            std::mem::swap(into, &mut state.outbound);
        } else {
            into.append(&mut state.outbound);
        }
        state.congested = false;
        state.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Makes hyper wait: the loop still has a lot unsent.
    pub(super) fn congest(&self) {
        self.state.borrow_mut().congested = true;
    }

    /// Whether more bytes wait for hyper than is good.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state.borrow();
        state.inbound.len() - state.read >= STREAM_LEN_MAX
    }

    /// Whether a handler is at work, or hyper still has something to read.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        state.in_flight > 0 || state.inbound.len() > state.read
    }

    /// Whether hyper has ended.
    pub(super) fn is_finished(&self) -> bool {
        self.state.borrow().finished
    }

    fn kick(&self) {
        self.desk.kick(self.slot);
    }
}

/// Runs hyper until the connection ends, one way or the other.
async fn drive(stream: Rc<Stream>, service: Service) {
    let handler = service_fn(|request| {
        let (stream, answer) = (Rc::clone(&stream), service(request));
        stream.state.borrow_mut().in_flight += 1;
        async move {
            let response = answer.await;
            stream.state.borrow_mut().in_flight -= 1;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .half_close(true)
        .max_headers(HEADERS_MAX)
        .max_buf_size(2 * HEAD_LEN_MAX)
        .serve_connection(End(Rc::clone(&stream)), handler);
    let mut connection = pin!(connection);
    let mut told = false;
    // An error here is the client's (it went away, or its body broke off): there is nobody left to tell.
    let _ = poll_fn(|context| {
        if !told && stream.state.borrow().draining {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    })
    .await;
    let mut state = stream.state.borrow_mut();
    state.finished = true;
    state.in_flight = 0;
    drop(state);
    stream.kick();
}

/// hyper's end of the stream.
struct End(Rc<Stream>);

impl Read for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state.borrow_mut();
        let waiting = &state.inbound[state.read..];
        if !waiting.is_empty() {
            let was_full = waiting.len() >= STREAM_LEN_MAX;
            let len = waiting.len().min(buffer.remaining());
            buffer.put_slice(&waiting[..len]);
            state.read += len;
            if state.read == state.inbound.len() {
                state.inbound.clear();
                state.read = 0;
            }
            drop(state);
            if was_full {
                self.0.kick();
            }
            return Poll::Ready(Ok(()));
        }
        if state.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.ended {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Write for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.state.borrow_mut();
        if state.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.congested || state.outbound.len() >= STREAM_LEN_MAX {
            state.writer = Some(context.waker().clone());
            drop(state);
            self.0.kick();
            return Poll::Pending;
        }
        state.outbound.extend_from_slice(bytes);
        drop(state);
        self.0.kick();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The loop sends whatever is there in its next turn.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
