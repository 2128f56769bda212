//! The stream in memory between the loop of a core and hyper: the bytes in both directions, and the requests in
//! flight.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::bridge::handle::ServiceHandle;
use crate::core::tasks::Tasks;
use carom_limits::{
    ANSWER_TIME_MAX, ANSWERS_WAITING_MAX, ConnectionLimits, GOODBYE_TIME_MAX, LONG_BODIES_MAX, SHORT_BODY_LEN,
    STREAMS_MAX,
};

/// The reason why no more bytes come in for hyper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::core) enum InputEnd {
    /// No more requests come. hyper's last answer is the connection's last.
    Last,
    /// No more requests come, but the loop has something to say after hyper's last answer.
    Followed,
    /// The last message broke off or is malformed. hyper answers the complete messages before it, and not that one.
    Cut,
}

/// The action for an HTTP/2 client that has been checked for timeouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::core) enum TimeoutAction {
    /// The client has more time.
    Wait,
    /// Announce the end of the connection with GOAWAY.
    GoAway,
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
pub(in crate::core) struct Stream {
    slot: u32,
    pub(super) is_http2: bool,
    /// Bytes that may wait in either direction.
    queued_max: usize,
    /// Bytes of a body that count as progress.
    progress_len: usize,
    pub(super) services: Rc<ServiceHandle>,
    pub(super) tasks: Tasks,
    pub(super) state: RefCell<StreamState>,
}

#[derive(Debug, Default)]
pub(super) struct StreamState {
    inbound: Vec<u8>,
    /// Bytes of `inbound` that hyper has read.
    read: usize,
    /// Set once no more bytes come in; hyper finishes the requests it has.
    ending: Option<InputEnd>,
    /// Set once hyper knows that the last message broke off, with whether its answer was complete by then.
    aborted: Option<Answered>,
    /// True if the connection is gone.
    is_disconnected: bool,
    outbound: Vec<u8>,
    /// True if the loop has too many unsent bytes, so that hyper must wait.
    congested: bool,
    /// True if hyper had bytes to write and could not.
    write_blocked: bool,
    /// Number of heads put in by the loop, of heads passed to a handler, and of heads with an answer. They count from
    /// the beginning of the connection, and wrap.
    received_heads: u32,
    dispatched_heads: u32,
    answered_heads: u32,
    /// Requests whose answer hyper has not taken completely.
    pub(super) in_flight: u32,
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
    goaway_since: Option<Instant>,
    /// True if hyper has finished.
    pub(super) finished: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Requests that wait for admission to a handler.
    waiting: Vec<Waker>,
}

impl StreamState {
    /// True if hyper should write no more for now.
    fn is_congested(&self, queued_max: usize) -> bool {
        self.congested || self.outbound.len() >= queued_max
    }

    /// True if no request will follow the last one that hyper passed to a handler.
    pub(super) fn is_at_last(&self) -> bool {
        self.ending == Some(InputEnd::Last) && self.dispatched_heads == self.received_heads
    }

    fn wake(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// True if one more request may go to a handler.
    fn has_room(&self, queued_max: usize) -> bool {
        !self.is_congested(queued_max) && self.admitted < ANSWERS_WAITING_MAX || self.is_disconnected
    }
}

impl Stream {
    /// Returns a stream for the connection in `slot`, of which `heads` heads were answered without hyper.
    pub(super) fn new(
        slot: u32,
        heads: u32,
        (is_http2, limits): (bool, &ConnectionLimits),
        tasks: Tasks,
        services: Rc<ServiceHandle>,
    ) -> Stream {
        let state = RefCell::new(StreamState {
            received_heads: heads,
            dispatched_heads: heads,
            answered_heads: heads,
            ..StreamState::default()
        });
        let (queued_max, progress_len) = (limits.queued_len, limits.progress_len());
        Stream { slot, is_http2, queued_max, progress_len, services, tasks, state }
    }

    // For the loop.

    /// Hands bytes to hyper. Including them, the connection has sent `heads` heads.
    pub(in crate::core) fn put(&self, bytes: &[u8], heads: u32) {
        let mut state = self.state.borrow_mut();
        if state.read > 0 {
            let read = std::mem::take(&mut state.read);
            state.inbound.drain(..read);
        }
        state.inbound.extend_from_slice(bytes);
        state.received_heads = heads;
        state.arrived += bytes.len();
        if state.long_bodies > 0 && state.arrived >= self.progress_len {
            self.note_progress(&mut state);
        }
        if let Some(waker) = state.reader.take() {
            waker.wake();
        }
    }

    /// Ends the input of hyper.
    pub(in crate::core) fn end(&self, ending: InputEnd) {
        let mut state = self.state.borrow_mut();
        state.ending = Some(ending);
        state.wake();
    }

    /// True if the stream holds HTTP/2 frames.
    pub(in crate::core) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Accepts no further request of an HTTP/2 client, and announces that with GOAWAY.
    pub(in crate::core) fn go_away(&self) {
        let mut state = self.state.borrow_mut();
        if state.goaway_since.is_none() {
            state.goaway_since = Some(Instant::now());
            state.wake();
        }
    }

    /// True after [`Stream::go_away`].
    pub(super) fn is_going_away(&self) -> bool {
        self.state.borrow().goaway_since.is_some()
    }

    /// Applies the timeouts to an HTTP/2 client. Only frames that make progress on a request count, because a client
    /// could send others forever.
    pub(in crate::core) fn check_timeouts(&self, now: Instant, limits: &ConnectionLimits) -> TimeoutAction {
        let mut state = self.state.borrow_mut();
        let is_busy = state.in_flight > 0;
        let silent = now.saturating_duration_since(*state.progress.get_or_insert(now));
        let since =
            |instant: Option<Instant>| instant.map_or(Duration::ZERO, |instant| now.saturating_duration_since(instant));
        let unanswered = since(state.unanswered.front().map(|(_, came)| *came));
        let left = since(state.goaway_since);
        let work_time = limits.body_time + ANSWER_TIME_MAX;
        if unanswered >= work_time || is_busy && silent >= work_time {
            TimeoutAction::Cut
        } else if !is_busy && left >= GOODBYE_TIME_MAX {
            TimeoutAction::End
        } else if !is_busy && silent >= limits.idle_time {
            TimeoutAction::GoAway
        } else {
            TimeoutAction::Wait
        }
    }

    /// Tells hyper that the connection is gone.
    pub(in crate::core) fn break_off(&self) {
        let mut state = self.state.borrow_mut();
        state.is_disconnected = true;
        state.wake();
    }

    /// Takes the bytes that hyper has written, and lets it write more.
    pub(in crate::core) fn take(&self, into: &mut Vec<u8>) {
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
    pub(in crate::core) fn congest(&self) {
        self.state.borrow_mut().congested = true;
    }

    /// True if too many bytes wait for hyper.
    pub(in crate::core) fn is_full(&self) -> bool {
        let state = self.state.borrow();
        state.inbound.len() - state.read >= self.queued_max
    }

    /// True if a request is in flight, or hyper still has bytes to read.
    pub(in crate::core) fn is_busy(&self) -> bool {
        let state = self.state.borrow();
        state.in_flight > 0 || state.inbound.len() > state.read
    }

    /// True if the message that broke off was answered before its end came.
    pub(in crate::core) fn answered_before_abort(&self) -> bool {
        self.state.borrow().aborted == Some(Answered(true))
    }

    /// True if an answer that is produced now can be sent. hyper drops it if it knows that its request broke off.
    pub(super) fn can_send_answer(&self) -> bool {
        let state = self.state.borrow();
        !state.is_disconnected && state.aborted != Some(Answered(false))
    }

    /// True if hyper has finished.
    pub(in crate::core) fn is_finished(&self) -> bool {
        self.state.borrow().finished
    }

    /// Registers one more request of hyper. After `most` requests the connection accepts no more; 0 means no limit.
    pub(super) fn begin(self: &Rc<Stream>, request: &Request<Incoming>, most: u32) -> InFlightRequest {
        let may_be_long = request.body().size_hint().upper().is_none_or(|len| len > SHORT_BODY_LEN);
        let mut state = self.state.borrow_mut();
        let body = if !(self.is_http2 && may_be_long) {
            BodyKind::Short
        } else if state.long_bodies >= LONG_BODIES_MAX {
            BodyKind::OneTooMany
        } else {
            BodyKind::Long
        };
        state.in_flight += 1;
        state.dispatched_heads = state.dispatched_heads.wrapping_add(1);
        state.long_bodies += usize::from(body == BodyKind::Long);
        let number = state.dispatched_heads;
        self.note_progress(&mut state);
        let is_last = self.is_http2 && most > 0 && number >= most;
        // Some requests may have been in flight before GOAWAY. A client that continues after those ignores it.
        state.is_disconnected |= is_last && number - most > STREAMS_MAX;
        drop(state);
        if is_last {
            self.go_away();
        }
        InFlightRequest { stream: Rc::clone(self), number, body, is_admitted: false }
    }

    /// Records progress. For HTTP/1.1 the loop does that itself.
    pub(super) fn note_progress(&self, state: &mut StreamState) {
        if self.is_http2 {
            (state.progress, state.arrived) = (Some(Instant::now()), 0);
        }
    }

    pub(super) fn notify_loop(&self) {
        self.services.notify_loop(self.slot);
    }

    /// Waits until the request may go to a handler, or the connection is gone.
    pub(super) fn poll_room(&self, flight: &mut InFlightRequest, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.has_room(self.queued_max) {
            debug_assert!(!flight.is_admitted, "a request is admitted once");
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

/// The expected size of a request's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BodyKind {
    /// At most [`SHORT_BODY_LEN`] bytes, or HTTP/1.1.
    Short,
    /// Possibly more.
    Long,
    /// Possibly more, while the connection already has as many such requests as it may.
    OneTooMany,
}

/// A request in flight, from the moment hyper passes it on until its answer is taken completely or given up.
pub(super) struct InFlightRequest {
    pub(super) stream: Rc<Stream>,
    number: u32,
    pub(super) body: BodyKind,
    is_admitted: bool,
}

impl InFlightRequest {
    /// Notes that the answer is produced.
    pub(super) fn answer(&mut self) {
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
        debug_assert!(state.admitted >= usize::from(self.is_admitted), "each admitted request was counted");
        state.admitted -= usize::from(self.is_admitted);
        state.long_bodies -= usize::from(self.body == BodyKind::Long);
        state.unanswered.retain(|(number, _)| *number != self.number);
        self.stream.note_progress(&mut state);
        state.waiting.drain(..).for_each(Waker::wake);
    }
}

/// hyper's end of the stream.
pub(super) struct HyperEnd(pub(super) Rc<Stream>);

impl Read for HyperEnd {
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
            _ if state.is_disconnected => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            // An error makes hyper drop its unwritten bytes, so earlier answers go out first.
            Some(InputEnd::Cut) if !state.write_blocked => {
                state.aborted = Some(Answered(state.answered_heads == state.received_heads));
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Some(InputEnd::Last | InputEnd::Followed) => Poll::Ready(Ok(())),
            _ => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Write for HyperEnd {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.state.borrow_mut();
        if state.is_disconnected || state.aborted.is_some() {
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
        if let Some(waker) = state.reader.take() {
            waker.wake();
        }
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
