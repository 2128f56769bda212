//! The bridge to hyper: a connection that hyper drives over a stream in memory, whose two ends are the connection's
//! buffers.
//!
//! The loop puts bytes in and takes answers out; hyper and the handler run as a task of the same core. Of HTTP/1.1,
//! hyper sees only heads and bodies that `carom_http::connection` has passed. Of HTTP/2 it sees everything, within the
//! limits that are set here.

pub(super) mod stream;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, STRICT_TRANSPORT_SECURITY,
};
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};

use self::stream::{BodyKind, HyperEnd, InFlightRequest, Stream};
use super::access;
use super::tasks::Tasks;
use crate::bridge::handle::ServiceHandle;
use carom_limits::{
    ANSWER_CHUNK_LEN, ANSWER_PIECE_LEN, ConnectionLimits, HEADERS_MAX, STREAM_WINDOW, STREAMS_MAX, STREAMS_RESET_MAX,
    STREAMS_WINDOW,
};
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::clients::forwarded::{Field, Trust};

/// The body of an answer: complete, or produced while it is sent.
type HyperBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible>>>;

/// Answers the requests of a core, except redirects. Its futures run as tasks of the core. The API returns one as
/// `ApiService` (`src/api.rs`, the same type), and `src/node/cores.rs` passes it to the core.
pub type HttpService = Rc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<HyperBody>>>>>;

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

impl Stream {
    /// Starts hyper on a new stream for the connection in `slot`, of which `heads` heads were answered without it.
    /// Returns the stream and the task that drives hyper.
    pub(super) fn start(
        slot: u32,
        heads: u32,
        info: ConnectionInfo,
        services: Rc<ServiceHandle>,
        service: HttpService,
    ) -> (Rc<Stream>, impl Future<Output = ()> + 'static) {
        let stream = Rc::new(Stream::new(slot, heads, (info.is_http2, &info.limits), info.tasks.clone(), services));
        (Rc::clone(&stream), drive(stream, info, service))
    }
}

/// Runs hyper until the connection ends in any way.
async fn drive(stream: Rc<Stream>, info: ConnectionInfo, service: HttpService) {
    let limits = info.limits;
    let handler = service_fn(|request| respond(&stream, &info, &service, request));
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
                .serve_connection(HyperEnd(Rc::clone(&stream)), handler)
        );
        let mut is_going_away = false;
        let _ = poll_fn(|context| {
            if stream.is_going_away() && !std::mem::replace(&mut is_going_away, true) {
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
            .serve_connection(HyperEnd(Rc::clone(&stream)), handler)
            .await;
    }
    let mut state = stream.state.borrow_mut();
    state.finished = true;
    state.in_flight = 0;
    drop(state);
    stream.notify_loop();
}

/// Answers one request: has it wait for its admission, and passes it to the service.
fn respond(
    stream: &Rc<Stream>,
    info: &ConnectionInfo,
    service: &HttpService,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Answering>, Infallible>> + use<> {
    if let Some(source) = info.source {
        let source = client_of(&info.trust, source, request.headers());
        request.extensions_mut().insert(source);
    }
    request.extensions_mut().insert(info.limits);
    let log_entry = access::hyper_log_entry(&stream.services, &request, info.is_secure);
    let log_entry = log_entry.map(|log_entry| (log_entry, Instant::now()));
    let (stream, service, hsts) = (Rc::clone(stream), Rc::clone(service), info.hsts.clone());
    let mut flight = stream.begin(&request, info.limits.requests);
    async move {
        // hyper sets no bound to the answers that wait to be sent. So a client that does not read gets no new answer.
        poll_fn(|context| stream.poll_room(&mut flight, context)).await;
        let is_head = stream.is_http2 && request.method() == Method::HEAD;
        let mut answer = if names_two_hosts(&request) {
            refused(StatusCode::BAD_REQUEST, TWO_HOSTS)
        } else if flight.body == BodyKind::OneTooMany {
            refused(StatusCode::SERVICE_UNAVAILABLE, LONG_BODIES)
        } else {
            service(request).await
        };
        if is_head {
            answer = without_body(answer);
        }
        flight.answer();
        if let Some((log_entry, since)) = log_entry.filter(|_| stream.can_send_answer()) {
            stream.services.log_pending(log_entry, answer.status().as_u16(), since.elapsed());
        }
        let mut response = answer.map(|content| Answering { content, rest: Bytes::new(), flight });
        if let Some(hsts) = hsts {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts);
        }
        if stream.state.borrow().is_at_last() && !stream.is_http2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
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
/// domains. The HTTP machine checks HTTP/1.1, where the host in the target counts (RFC 9112, section 3.2.2).
fn names_two_hosts(request: &Request<Incoming>) -> bool {
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
fn refused(status: StatusCode, problem: &'static str) -> Response<HyperBody> {
    let mut answer = Response::new(Box::pin(Full::new(Bytes::from_static(problem.as_bytes()))) as HyperBody);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// Returns the answer to `HEAD`: the fields of the answer to GET, and no body. For HTTP/1.1 hyper does that itself.
fn without_body(answer: Response<HyperBody>) -> Response<HyperBody> {
    let (mut head, content) = answer.into_parts();
    if let (Some(len), false) = (content.size_hint().exact(), head.headers.contains_key(CONTENT_LENGTH)) {
        head.headers.insert(CONTENT_LENGTH, len.into());
    }
    Response::from_parts(head, Box::pin(Full::default()) as HyperBody)
}

/// Runs the answer to one HTTP/2 request as a task, beside the others.
impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// The body of an answer on its way out. The connection is busy while hyper has it.
struct Answering {
    content: HyperBody,
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
