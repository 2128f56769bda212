//! HTTP/2 as a layer of bytes, without I/O: bytes of the connection become responses, and requests become bytes.
//!
//! The crate `h2` does the work. It expects a runtime that wakes its tasks, and a socket. Here, both are a buffer: every
//! call passes in the bytes that have arrived, polls once, and takes out the bytes to send. So nothing ever waits.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::header::LOCATION;
use http::{Request, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::protocol::response::{ParsedResponse, RESPONSE_LEN_MAX};

/// Most requests in flight on a connection: each server accepts that many, as RFC 9113 recommends.
pub(crate) const STREAMS_MAX: u64 = 100;

/// Flow-control window of a connection and of each stream, in bytes: the server never waits for it.
const WINDOW: u32 = 16 << 20;

/// Most header fields of a request.
const FIELDS_MAX: usize = 64;

/// Header fields of HTTP/1.1 for which HTTP/2 has other means.
const FIELDS_OF_CONNECTION: [&str; 5] = ["host", "connection", "keep-alive", "transfer-encoding", "upgrade"];

/// Bytes between the connection and its transport.
#[derive(Default)]
struct Pipe {
    received: Vec<u8>,
    out: Vec<u8>,
}

/// The end of the pipe that `h2` takes for a socket.
struct PipeEnd(Rc<RefCell<Pipe>>);

impl AsyncRead for PipeEnd {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.0.borrow_mut();
        let received = &mut pipe.received;
        let len = received.len().min(into.remaining());
        if len == 0 {
            return Poll::Pending;
        }
        into.put_slice(&received[..len]);
        received.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A complete response.
#[derive(Debug, Default)]
pub(crate) struct StreamAnswer {
    status: u16,
    /// Length of `Location` at the front of the bytes; `None` without one.
    location: Option<usize>,
    /// The value of `Location`, and then the body.
    bytes: Vec<u8>,
}

impl StreamAnswer {
    /// Returns the response, and the input that its ranges belong to.
    pub(crate) fn parts(&self) -> (ParsedResponse, &[u8]) {
        let body: Range<usize> = self.location.unwrap_or(0)..self.bytes.len();
        (ParsedResponse::framed(self.status, self.location.map(|len| 0..len), body), &self.bytes[..])
    }
}

/// A request whose response is not complete.
struct StreamExchange {
    response: ResponseFuture,
    /// The body of the response, once its head has arrived.
    body: Option<RecvStream>,
    answer: StreamAnswer,
}

impl StreamExchange {
    /// Takes what has arrived of the response. Returns it once it is complete.
    fn poll(&mut self) -> Poll<Result<StreamAnswer, String>> {
        let mut context = Context::from_waker(Waker::noop());
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                let response = ready!(Pin::new(&mut self.response).poll(&mut context));
                let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
                self.answer.status = head.status.as_u16();
                let mut locations = head.headers.get_all(LOCATION).iter();
                if let Some(location) = locations.next() {
                    self.answer.location = Some(location.len());
                    self.answer.bytes.extend_from_slice(location.as_bytes());
                }
                // With two values, clients would follow different ones.
                if locations.next().is_some() {
                    return Poll::Ready(Err("two fields Location".to_owned()));
                }
                self.body.insert(body)
            }
        };
        while let Some(chunk) = ready!(body.poll_data(&mut context)) {
            let chunk = chunk.map_err(|error| error.to_string())?;
            self.answer.bytes.extend_from_slice(&chunk);
            if self.answer.bytes.len() > RESPONSE_LEN_MAX {
                return Poll::Ready(Err("the response is too long".to_owned()));
            }
            body.flow_control().release_capacity(chunk.len()).map_err(|error| error.to_string())?;
        }
        Poll::Ready(Ok(std::mem::take(&mut self.answer)))
    }
}

/// State of HTTP/2 on one connection.
pub(crate) struct Http2 {
    pipe: Rc<RefCell<Pipe>>,
    connection: Connection<PipeEnd, Bytes>,
    sender: SendRequest<Bytes>,
    /// The scheme of the requests: `http` or `https`.
    scheme: &'static str,
    /// The requests without a complete response, in the order of sending.
    exchanges: Vec<StreamExchange>,
    is_ended: bool,
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2").field("exchanges", &self.exchanges.len()).field("is_ended", &self.is_ended).finish()
    }
}

impl Http2 {
    /// Begins a connection: its preface and settings are ready to be sent.
    ///
    /// # Errors
    /// The message of `h2`; checked settings cause none.
    pub(crate) fn begin(is_tls: bool) -> Result<Http2, String> {
        let pipe = Rc::new(RefCell::new(Pipe::default()));
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        builder.initial_max_send_streams(STREAMS_MAX as usize);
        let handshake = pin!(builder.handshake::<_, Bytes>(PipeEnd(Rc::clone(&pipe))));
        // It only writes, so it is complete at once.
        let (sender, connection) = match handshake.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(begun) => begun.map_err(|error| error.to_string())?,
            Poll::Pending => return Err("HTTP/2 does not begin".to_owned()),
        };
        let scheme = if is_tls { "https" } else { "http" };
        let mut begun = Http2 { pipe, connection, sender, scheme, exchanges: Vec::new(), is_ended: false };
        begun.turn()?;
        Ok(begun)
    }

    /// Sends a request, given in the form of HTTP/1.1.
    ///
    /// # Errors
    /// The reason why the connection takes no request.
    pub(crate) fn send(&mut self, plain: &[u8]) -> Result<(), String> {
        let (request, body) = converted(plain, self.scheme)?;
        match self.sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.map_err(|error| error.to_string())?,
            Poll::Pending => return Err("the server takes no more streams".to_owned()),
        }
        let (response, mut stream) =
            self.sender.send_request(request, body.is_empty()).map_err(|error| error.to_string())?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true).map_err(|error| error.to_string())?;
        }
        self.exchanges.push(StreamExchange { response, body: None, answer: StreamAnswer::default() });
        self.turn()
    }

    /// Processes bytes of the connection.
    ///
    /// # Errors
    /// The reason why the connection is broken.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.pipe.borrow_mut().received.extend_from_slice(bytes);
        self.turn()
    }

    /// Returns a response that is complete, or the reason why there will be none, with its place in the order of the
    /// requests that are in flight.
    pub(crate) fn next_answer(&mut self) -> Option<(usize, Result<StreamAnswer, String>)> {
        for at in 0..self.exchanges.len() {
            if let Poll::Ready(answer) = self.exchanges[at].poll() {
                self.exchanges.remove(at);
                return Some((at, answer));
            }
        }
        None
    }

    /// Returns the bytes to send.
    ///
    /// # Errors
    /// The reason why the connection is broken.
    pub(crate) fn take(&mut self) -> Result<Vec<u8>, String> {
        self.turn()?;
        Ok(std::mem::take(&mut self.pipe.borrow_mut().out))
    }

    /// True if the server takes no new requests on this connection (GOAWAY). It still answers those in flight.
    pub(crate) fn is_leaving(&mut self) -> bool {
        matches!(self.sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// True once the connection has ended in order.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Moves frames between the pipe and the streams.
    fn turn(&mut self) -> Result<(), String> {
        if self.is_ended {
            return Ok(());
        }
        match Pin::new(&mut self.connection).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(ended) => {
                self.is_ended = true;
                ended.map_err(|error| error.to_string())
            }
        }
    }
}

/// Returns a request of HTTP/2 and its body, given the bytes of a request of HTTP/1.1.
fn converted<'p>(plain: &'p [u8], scheme: &str) -> Result<(Request<()>, &'p [u8]), String> {
    let wrong = |reason: &dyn fmt::Display| format!("the request is not one of HTTP/2: {reason}");
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(len) = head.parse(plain).map_err(|error| wrong(&error))? else {
        return Err(wrong(&"its head is incomplete"));
    };
    let host = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
    let host = host.map_or(String::new(), |host| String::from_utf8_lossy(host.value).into_owned());
    let uri = format!("{scheme}://{host}{}", head.path.unwrap_or("/"));
    let mut request = Request::builder().method(head.method.unwrap_or("GET")).uri(uri).version(Version::HTTP_2);
    for field in head.headers.iter() {
        if !FIELDS_OF_CONNECTION.iter().any(|name| field.name.eq_ignore_ascii_case(name)) {
            request = request.header(field.name, field.value);
        }
    }
    let request = request.body(()).map_err(|error| wrong(&error))?;
    Ok((request, &plain[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2::server;
    use http::StatusCode;

    const REQUEST: &[u8] = b"GET /abc?d HTTP/1.1\r\nHost: h.example:81\r\nX-One: 1\r\nConnection: close\r\n\r\n";

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Passes bytes from a client to a server and back until neither has any, and answers each request with `answer`.
    /// Returns the requests.
    fn exchange(
        client: &mut Http2,
        server: &mut server::Connection<PipeEnd, Bytes>,
        pipe: &Rc<RefCell<Pipe>>,
        mut answer: impl FnMut(&Request<()>, server::SendResponse<Bytes>),
    ) -> Vec<Request<()>> {
        let mut seen = Vec::new();
        for _ in 0..10 {
            let bytes = client.take().unwrap();
            pipe.borrow_mut().received.extend_from_slice(&bytes);
            while let Poll::Ready(Some(accepted)) = server.poll_accept(&mut context()) {
                let (request, respond) = accepted.unwrap();
                let request = request.map(|_| ());
                answer(&request, respond);
                seen.push(request);
            }
            let _ = server.poll_closed(&mut context());
            let bytes = std::mem::take(&mut pipe.borrow_mut().out);
            client.receive(&bytes).unwrap();
        }
        seen
    }

    fn pair() -> (Http2, server::Connection<PipeEnd, Bytes>, Rc<RefCell<Pipe>>) {
        let mut client = Http2::begin(true).unwrap();
        let pipe = Rc::new(RefCell::new(Pipe::default()));
        pipe.borrow_mut().received = client.take().unwrap();
        let handshake = pin!(server::Builder::new().handshake::<_, Bytes>(PipeEnd(Rc::clone(&pipe))));
        let Poll::Ready(Ok(server)) = handshake.poll(&mut context()) else { panic!("no handshake") };
        (client, server, pipe)
    }

    #[test]
    fn responses_arrive_in_any_order() {
        let (mut client, mut server, pipe) = pair();
        client.send(REQUEST).unwrap();
        client.send(b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz").unwrap();
        let mut first = None;
        let seen = exchange(&mut client, &mut server, &pipe, |request, mut respond| {
            if request.uri().path() == "/abc" {
                first = Some(respond);
                return;
            }
            let head = http::Response::builder().status(200).body(()).unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data(Bytes::from_static(b"content"), true).unwrap();
        });
        let (one, two) = (&seen[0], &seen[1]);
        assert_eq!((one.method().as_str(), one.uri().to_string()), ("GET", "https://h.example:81/abc?d".to_owned()));
        assert_eq!((one.headers().len(), &one.headers()["x-one"]), (1, &"1".parse::<http::HeaderValue>().unwrap()));
        assert_eq!((two.method().as_str(), two.uri().path()), ("POST", "/b"));
        let (place, answer) = client.next_answer().unwrap();
        let answer = answer.unwrap();
        let (response, bytes) = answer.parts();
        assert_eq!((place, response.status, &*response.content(bytes)), (1, 200, &b"content"[..]));
        assert!(client.next_answer().is_none());
        let redirect = http::Response::builder().status(StatusCode::FOUND).header(LOCATION, "https://a/").body(());
        first.unwrap().send_response(redirect.unwrap(), true).unwrap();
        exchange(&mut client, &mut server, &pipe, |_, _| {});
        let (place, answer) = client.next_answer().unwrap();
        let answer = answer.unwrap();
        let (response, bytes) = answer.parts();
        assert_eq!((place, response.status, &bytes[response.location.unwrap()]), (0, 302, &b"https://a/"[..]));
    }

    #[test]
    fn leaving_servers_still_answer() {
        let (mut client, mut server, pipe) = pair();
        client.send(REQUEST).unwrap();
        let mut first = None;
        exchange(&mut client, &mut server, &pipe, |_, respond| first = Some(respond));
        assert!(!client.is_leaving());
        server.graceful_shutdown();
        exchange(&mut client, &mut server, &pipe, |_, _| {});
        assert!(client.is_leaving());
        assert!(!client.is_ended());
        let redirect = http::Response::builder().status(StatusCode::FOUND).body(()).unwrap();
        first.unwrap().send_response(redirect, true).unwrap();
        exchange(&mut client, &mut server, &pipe, |_, _| {});
        assert!(matches!(client.next_answer(), Some((0, Ok(_)))));
    }

    #[test]
    fn refused_requests_have_no_answer() {
        let (mut client, mut server, pipe) = pair();
        client.send(REQUEST).unwrap();
        exchange(&mut client, &mut server, &pipe, |_, mut respond| respond.send_reset(h2::Reason::REFUSED_STREAM));
        assert!(matches!(client.next_answer(), Some((0, Err(_)))));
        client.send(REQUEST).unwrap();
    }

    #[test]
    fn other_bytes_break_the_connection() {
        let mut client = Http2::begin(false).unwrap();
        assert!(client.take().unwrap().starts_with(b"PRI * HTTP/2.0"));
        assert!(client.receive(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
