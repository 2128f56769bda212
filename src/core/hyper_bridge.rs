//! The bridge to hyper: a connection that hyper drives over a stream in memory, whose two ends are the connection's
//! buffers.
//!
//! The loop puts bytes in and takes answers out; hyper and the handler run as a task of the same core. Of HTTP/1.1,
//! hyper sees only heads and bodies that `carom_http::connection` has passed. Of HTTP/2 it sees everything, within the limits
//! that are set here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, STRICT_TRANSPORT_SECURITY,
};
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::access;
use super::tasks::Tasks;
use crate::bridge::handle::ServiceHandle;
use carom_limits::{
    ANSWER_CHUNK_LEN, ANSWER_PIECE_LEN, ANSWER_TIME_MAX, ANSWERS_WAITING_MAX, ConnectionLimits, GOODBYE_TIME_MAX,
    HEADERS_MAX, LONG_BODIES_MAX, SHORT_BODY_LEN, STREAM_WINDOW, STREAMS_MAX, STREAMS_RESET_MAX, STREAMS_WINDOW,
};
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::clients::forwarded::{Field, Trust};

/// The body of an answer: complete, or produced while it is sent.
type Content = Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>;

/// Answers the requests of a core, except redirects. Its futures run as tasks of the core.
pub type HttpService = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<Content>>>>>;

/// Parameters of hyper for one client.
pub(super) struct ConnectionInfo {
    /// Address that the requests come from.
    pub(super) source: Option<RequestOrigin>,
    /// Proxies that may name another client address.
    pub(super) trust: Arc<Trust>,
    /// True if the connection is encrypted.
    pub(super) is_secure: bool,
    /// True for HTTP/2, false for HTTP/1.1.
    pub(super) is_http2: bool,
    /// The value of `Strict-Transport-Security`, if it is sent.
    pub(super) hsts: Option<HeaderValue>,
    /// Limits and timeouts of the connection.
    pub(super) limits: ConnectionLimits,
    /// The tasks of the core, which answer the client's requests.
    pub(super) tasks: Tasks,
}

/// The reason why no more bytes come in for hyper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// No more requests come. hyper's last answer is the connection's last.
    Last,
    /// No more requests come, but the loop has something to say after hyper's last answer.
    Followed,
    /// The last message broke off or is malformed. hyper answers the complete messages before it, and not that one.
    Cut,
}

/// The action for an HTTP/2 client that has been checked for timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The client has more time.
    Wait,
    /// Announce the end of the connection with GOAWAY.
    Leave,
    /// End the connection once its answers are sent.
    End,
    /// Break the connection off.
    Cut,
}

/// True if a message had its answer although it was incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answered(bool);

/// The stream between the loop and hyper.
#[derive(Debug)]
pub(super) struct Stream {
    slot: u32,
    is_http2: bool,
    /// Bytes that may wait in either direction.
    queued_max: usize,
    /// Bytes of a body that count as progress.
    progress_len: usize,
    services: Rc<ServiceHandle>,
    tasks: Tasks,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    inbound: Vec<u8>,
    /// Bytes of `inbound` that hyper has read.
    read: usize,
    /// Set once no more bytes come in; hyper finishes the requests it has.
    ending: Option<Ending>,
    /// Set once hyper knows that the last message broke off, with whether its answer was complete by then.
    cut: Option<Answered>,
    /// True if the connection is gone.
    gone: bool,
    outbound: Vec<u8>,
    /// True if the loop has too many unsent bytes, so that hyper must wait.
    congested: bool,
    /// True if hyper had bytes to write and could not.
    write_blocked: bool,
    /// Number of heads put in by the loop, of heads passed to a handler, and of heads with an answer. They count from
    /// the beginning of the connection, and wrap.
    put_heads: u32,
    asked_heads: u32,
    answered_heads: u32,
    /// Requests whose answer hyper has not taken completely.
    in_flight: u32,
    /// Number of those requests that have been admitted to a handler.
    admitted: usize,
    /// Number of those requests that may have a long body.
    long_bodies: usize,
    /// Number and admission time of the requests without an answer, oldest first.
    unanswered: VecDeque<(u32, Instant)>,
    /// Time of the last progress: a request came, an answer was produced, or a piece of one was taken.
    progress: Option<Instant>,
    /// Bytes that came since then.
    arrived: usize,
    /// Time since which no further request is accepted.
    left_at: Option<Instant>,
    /// True if hyper has finished.
    finished: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Requests that wait for admission to a handler.
    waiting: Vec<Waker>,
}

impl State {
    /// True if hyper should write no more for now.
    fn is_congested(&self, queued_max: usize) -> bool {
        self.congested || self.outbound.len() >= queued_max
    }

    /// True if no request will follow the last one that hyper passed to a handler.
    fn is_at_last(&self) -> bool {
        self.ending == Some(Ending::Last) && self.asked_heads == self.put_heads
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// True if one more request may go to a handler.
    fn has_room(&self, queued_max: usize) -> bool {
        !self.is_congested(queued_max) && self.admitted < ANSWERS_WAITING_MAX || self.gone
    }
}

impl Stream {
    /// Starts hyper on a new stream for the connection in `slot`, of which `heads` heads were answered without it.
    /// Returns the stream and the task that drives hyper.
    pub(super) fn start(
        slot: u32,
        heads: u32,
        manner: ConnectionInfo,
        services: Rc<ServiceHandle>,
        service: HttpService,
    ) -> (Rc<Stream>, impl Future<Output = ()> + 'static) {
        let state =
            RefCell::new(State { put_heads: heads, asked_heads: heads, answered_heads: heads, ..State::default() });
        let (is_http2, queued_max) = (manner.is_http2, manner.limits.queued_len);
        let (progress_len, tasks) = (manner.limits.progress_len(), manner.tasks.clone());
        let stream = Rc::new(Stream { slot, is_http2, queued_max, progress_len, services, tasks, state });
        (Rc::clone(&stream), drive(stream, manner, service))
    }

    // For the loop.

    /// Hands bytes to hyper. Including them, the connection has sent `heads` heads.
    pub(super) fn put(&self, bytes: &[u8], heads: u32) {
        let mut state = self.state.borrow_mut();
        if state.read > 0 {
            let read = std::mem::take(&mut state.read);
            state.inbound.drain(..read);
        }
        state.inbound.extend_from_slice(bytes);
        state.put_heads = heads;
        state.arrived += bytes.len();
        if state.long_bodies > 0 && state.arrived >= self.progress_len {
            self.note_progress(&mut state);
        }
        state.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Ends the input of hyper.
    pub(super) fn end(&self, ending: Ending) {
        let mut state = self.state.borrow_mut();
        state.ending = Some(ending);
        state.wake();
    }

    /// True if the stream holds HTTP/2 frames.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Accepts no further request of an HTTP/2 client, and announces that with GOAWAY.
    pub(super) fn leave(&self) {
        let mut state = self.state.borrow_mut();
        if state.left_at.is_none() {
            state.left_at = Some(Instant::now());
            state.wake();
        }
    }

    /// True after [`Stream::leave`].
    fn is_leaving(&self) -> bool {
        self.state.borrow().left_at.is_some()
    }

    /// Applies the timeouts to an HTTP/2 client. Only frames that make progress on a request count, because a client
    /// could send others for ever.
    pub(super) fn judge(&self, now: Instant, limits: &ConnectionLimits) -> Verdict {
        let mut state = self.state.borrow_mut();
        let is_busy = state.in_flight > 0;
        let silent = now.saturating_duration_since(*state.progress.get_or_insert(now));
        let since =
            |instant: Option<Instant>| instant.map_or(Duration::ZERO, |instant| now.saturating_duration_since(instant));
        let unanswered = since(state.unanswered.front().map(|(_, came)| *came));
        let left = since(state.left_at);
        match () {
            () if unanswered >= limits.body_time + ANSWER_TIME_MAX => Verdict::Cut,
            () if is_busy && silent >= limits.body_time + ANSWER_TIME_MAX => Verdict::Cut,
            () if !is_busy && left >= GOODBYE_TIME_MAX => Verdict::End,
            () if !is_busy && silent >= limits.idle_time => Verdict::Leave,
            () => Verdict::Wait,
        }
    }

    /// Tells hyper that the connection is gone.
    pub(super) fn break_off(&self) {
        let mut state = self.state.borrow_mut();
        state.gone = true;
        state.wake();
    }

    /// Takes the bytes that hyper has written, and lets it write more.
    pub(super) fn take(&self, into: &mut Vec<u8>) {
        let mut state = self.state.borrow_mut();
        if into.is_empty() {
            std::mem::swap(into, &mut state.outbound);
        } else {
            into.append(&mut state.outbound);
        }
        state.congested = false;
        // Requests that wait for another answer to be taken are woken by that answer.
        if !state.has_room(self.queued_max) {
            let waiting = std::mem::take(&mut state.waiting);
            state.wake();
            state.waiting = waiting;
        } else {
            state.wake();
        }
    }

    /// Makes hyper wait, because the loop still has a lot of unsent bytes.
    pub(super) fn congest(&self) {
        self.state.borrow_mut().congested = true;
    }

    /// True if too many bytes wait for hyper.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state.borrow();
        state.inbound.len() - state.read >= self.queued_max
    }

    /// True if a request is in flight, or hyper still has bytes to read.
    pub(super) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        state.in_flight > 0 || state.inbound.len() > state.read
    }

    /// True if the message that broke off was answered before its end came.
    pub(super) fn answered_the_cut(&self) -> bool {
        self.state.borrow().cut == Some(Answered(true))
    }

    /// True if an answer that is produced now can be sent. hyper drops it if it knows that its request broke off.
    fn is_heard(&self) -> bool {
        let state = self.state.borrow();
        !state.gone && state.cut != Some(Answered(false))
    }

    /// True if hyper has finished.
    pub(super) fn is_finished(&self) -> bool {
        self.state.borrow().finished
    }

    /// Registers one more request of hyper. After `most` requests the connection accepts no more; 0 means no limit.
    fn begin(self: &Rc<Stream>, request: &Request<Incoming>, most: u32) -> InFlightRequest {
        let may_be_long = request.body().size_hint().upper().is_none_or(|len| len > SHORT_BODY_LEN);
        let mut state = self.state.borrow_mut();
        let body = match self.is_http2 && may_be_long {
            false => BodyKind::Short,
            true if state.long_bodies >= LONG_BODIES_MAX => BodyKind::OneTooMany,
            true => BodyKind::Long,
        };
        state.in_flight += 1;
        state.asked_heads = state.asked_heads.wrapping_add(1);
        state.long_bodies += usize::from(body == BodyKind::Long);
        let number = state.asked_heads;
        self.note_progress(&mut state);
        let is_last = self.is_http2 && most > 0 && number >= most;
        // Some requests may have been under way before GOAWAY. A client that continues after those ignores it.
        state.gone |= is_last && number - most > STREAMS_MAX;
        drop(state);
        if is_last {
            self.leave();
        }
        InFlightRequest { stream: Rc::clone(self), number, body, is_admitted: false }
    }

    /// Records progress. For HTTP/1.1 the loop does that itself.
    fn note_progress(&self, state: &mut State) {
        if self.is_http2 {
            (state.progress, state.arrived) = (Some(Instant::now()), 0);
        }
    }

    fn notify_loop(&self) {
        self.services.notify_loop(self.slot);
    }

    /// Waits until the request may go to a handler, or the connection is gone.
    fn poll_room(&self, flight: &mut InFlightRequest, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.has_room(self.queued_max) {
            state.admitted += 1;
            flight.is_admitted = true;
            if self.is_http2 {
                state.unanswered.push_back((flight.number, Instant::now()));
            }
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            state.waiting.push(context.waker().clone());
        }
        let is_congested = state.is_congested(self.queued_max);
        drop(state);
        // The loop can act on unsent bytes, but not on answers that the client does not take.
        if is_congested {
            self.notify_loop();
        }
        Poll::Pending
    }
}

/// Runs hyper until the connection ends in any way.
async fn drive(stream: Rc<Stream>, manner: ConnectionInfo, service: HttpService) {
    let ConnectionInfo { source, trust, is_secure, hsts, limits, .. } = manner;
    let handler = service_fn(|mut request: Request<Incoming>| {
        if let Some(source) = source {
            let source = client_of(&trust, source, request.headers());
            request.extensions_mut().insert(source);
        }
        request.extensions_mut().insert(limits);
        let noted = access::note_read(&stream.services, &request, is_secure).map(|noted| (noted, Instant::now()));
        let (stream, service, hsts) = (Rc::clone(&stream), Rc::clone(&service), hsts.clone());
        let mut flight = stream.begin(&request, limits.requests);
        async move {
            // hyper collects answers however much waits to be sent. Nothing is produced that the client does not take.
            poll_fn(|context| stream.poll_room(&mut flight, context)).await;
            let is_head = stream.is_http2 && request.method() == Method::HEAD;
            let mut answer = match () {
                () if is_of_two_hosts(&request) => refused(StatusCode::BAD_REQUEST, TWO_HOSTS),
                () if flight.body == BodyKind::OneTooMany => refused(StatusCode::SERVICE_UNAVAILABLE, LONG_BODIES),
                () => service(request).await,
            };
            if is_head {
                answer = without_body(answer);
            }
            flight.answer();
            if let Some((noted, since)) = noted.filter(|_| stream.is_heard()) {
                stream.services.log_noted(noted, answer.status().as_u16(), since.elapsed());
            }
            let mut response = answer.map(|content| Answering { content, rest: Bytes::new(), flight });
            if let Some(hsts) = hsts {
                response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts);
            }
            if stream.state.borrow().is_at_last() && !stream.is_http2 {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    // An error here is the client's: it went away, or its body broke off. Nothing is left to report to.
    if stream.is_http2 {
        let mut connection = pin!(
            http2::Builder::new(stream.tasks.clone())
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(STREAMS_RESET_MAX)
                .max_local_error_reset_streams(STREAMS_RESET_MAX)
                .max_header_list_size(limits.head_len)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(STREAMS_WINDOW)
                .max_send_buf_size(limits.queued_len)
                .serve_connection(End(Rc::clone(&stream)), handler)
        );
        let mut is_leaving = false;
        let _ = poll_fn(|context| {
            if stream.is_leaving() && !std::mem::replace(&mut is_leaving, true) {
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(context)
        })
        .await;
    } else {
        let _ = http1::Builder::new()
            .half_close(true)
            .max_headers(HEADERS_MAX)
            .max_buf_size(2 * limits.head_len as usize)
            .serve_connection(End(Rc::clone(&stream)), handler)
            .await;
    }
    let mut state = stream.state.borrow_mut();
    state.finished = true;
    state.in_flight = 0;
    drop(state);
    stream.notify_loop();
}

/// Returns the client of a request: the one that the proxies name, if they are trusted.
fn client_of(trust: &Trust, source: RequestOrigin, fields: &HeaderMap) -> RequestOrigin {
    if trust.field == Field::Off || source.is_final {
        return source;
    }
    let values: Vec<&[u8]> = fields.get_all(trust.field.as_str()).iter().map(HeaderValue::as_bytes).collect();
    RequestOrigin { address: trust.client(source.address, &values.join(&b","[..])), is_final: true }
}

/// True if a request names several hosts (RFC 9113, section 8.3.1), which two programs could take for different
/// domains. Our own state machine checks HTTP/1.1, where the host in the target counts (RFC 9112, section 3.2.2).
fn is_of_two_hosts(request: &Request<Incoming>) -> bool {
    if request.version() != Version::HTTP_2 {
        return false;
    }
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let fields = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    let mut hosts = authority.into_iter().chain(fields);
    let Some(first) = hosts.next() else { return false };
    request.headers().get_all(HOST).iter().count() > 1 || hosts.any(|host| !host.eq_ignore_ascii_case(first))
}

/// The problem for a request with two hosts.
const TWO_HOSTS: &str =
    r#"{"title":"Bad Request","type":"about:blank","detail":"The request has several Host fields.","status":400}"#;

/// The problem for a client with too many long bodies at once.
const LONG_BODIES: &str = r#"{"title":"Temporarily unavailable","type":"urn:carom:problem:unavailable","detail":"Too many long request bodies arrive at once on this connection. Send them one after the other.","status":503}"#;

/// Returns a problem of our own, in place of a handler's answer.
fn refused(status: StatusCode, problem: &'static str) -> Response<Content> {
    let mut answer = Response::new(Box::pin(Full::new(Bytes::from_static(problem.as_bytes()))) as Content);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// Returns the answer to `HEAD`: the fields of the answer to GET, and no body. For HTTP/1.1 hyper does that itself.
fn without_body(answer: Response<Content>) -> Response<Content> {
    let (mut head, content) = answer.into_parts();
    if let (Some(len), false) = (content.size_hint().exact(), head.headers.contains_key(CONTENT_LENGTH)) {
        head.headers.insert(CONTENT_LENGTH, len.into());
    }
    Response::from_parts(head, Box::pin(Full::default()) as Content)
}

/// The expected size of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BodyKind {
    /// At most [`SHORT_BODY_LEN`] bytes, or HTTP/1.1.
    Short,
    /// Possibly more.
    Long,
    /// Possibly more, while the connection already has as many such requests as it may.
    OneTooMany,
}

/// A request in flight, from the moment hyper passes it on until its answer is taken completely or given up.
struct InFlightRequest {
    stream: Rc<Stream>,
    number: u32,
    body: BodyKind,
    is_admitted: bool,
}

impl InFlightRequest {
    /// Notes that the answer is produced.
    fn answer(&mut self) {
        let mut state = self.stream.state.borrow_mut();
        state.answered_heads = state.answered_heads.wrapping_add(1);
        state.unanswered.retain(|(number, _)| *number != self.number);
        self.stream.note_progress(&mut state);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut state = self.stream.state.borrow_mut();
        state.in_flight = state.in_flight.saturating_sub(1);
        state.admitted -= usize::from(self.is_admitted);
        state.long_bodies -= usize::from(self.body == BodyKind::Long);
        state.unanswered.retain(|(number, _)| *number != self.number);
        self.stream.note_progress(&mut state);
        state.waiting.drain(..).for_each(Waker::wake);
    }
}

/// Runs the answer to one HTTP/2 request as a task, beside the others.
impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// The body of an answer on its way out. The connection is busy while hyper has it.
struct Answering {
    content: Content,
    /// Bytes that were produced and not taken; hyper gets them in pieces.
    rest: Bytes,
    flight: InFlightRequest,
}

impl Body for Answering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            match self.content.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return other,
            }
        }
        let stream = &self.flight.stream;
        stream.note_progress(&mut stream.state.borrow_mut());
        let most = if stream.is_http2 { ANSWER_PIECE_LEN } else { ANSWER_CHUNK_LEN };
        let len = self.rest.len().min(most);
        let piece = self.rest.split_to(len);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.content.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(exact) => SizeHint::with_exact(exact + rest),
            None => hint,
        }
    }
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
            if self.0.tasks.must_yield() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let was_full = waiting.len() >= self.0.queued_max;
            let len = waiting.len().min(buffer.remaining());
            buffer.put_slice(&waiting[..len]);
            state.read += len;
            if state.read == state.inbound.len() {
                state.inbound.clear();
                state.read = 0;
            }
            drop(state);
            if was_full {
                self.0.notify_loop();
            }
            return Poll::Ready(Ok(()));
        }
        match state.ending {
            _ if state.gone => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            // An error makes hyper drop its unwritten bytes, so earlier answers go out first.
            Some(Ending::Cut) if !state.write_blocked => {
                state.cut = Some(Answered(state.answered_heads == state.put_heads));
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Some(Ending::Last | Ending::Followed) => Poll::Ready(Ok(())),
            _ => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Write for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.state.borrow_mut();
        if state.gone || state.cut.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.write_blocked = state.is_congested(self.0.queued_max);
        if state.write_blocked {
            state.writer = Some(context.waker().clone());
            drop(state);
            self.0.notify_loop();
            return Poll::Pending;
        }
        // Takes no more bytes than the loop sends at once, however large the piece is.
        let len = bytes.len().min(self.0.queued_max - state.outbound.len());
        state.outbound.extend_from_slice(&bytes[..len]);
        state.reader.take().into_iter().for_each(Waker::wake);
        drop(state);
        self.0.notify_loop();
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The loop sends the bytes in its next turn.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
