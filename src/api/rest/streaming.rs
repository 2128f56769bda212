//! Response bodies that a task produces while they are sent: the task writes a piece and continues once hyper has
//! taken it.
//!
//! The task is a part of the body. So it runs only while the client reads, and it ends with the connection. It
//! waits only for the services and for its own request.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::api::response::ResponseBody;
use carom_limits::SHORT_BODY_LEN;

/// The writing end of a streamed body.
pub(in crate::api) struct Outlet(Rc<Cell<Option<Bytes>>>);

impl Outlet {
    /// Sends a piece. Returns once hyper has taken it and asks for more.
    pub(in crate::api) async fn send(&self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        self.0.set(Some(piece.into()));
        poll_fn(|_| {
            let piece = self.0.take();
            let is_there = piece.is_some();
            self.0.set(piece);
            // No waker is needed: the body polls this task for the next piece.
            if is_there { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

struct StreamedBody<F> {
    task: Pin<Box<F>>,
    piece: Rc<Cell<Option<Bytes>>>,
    ended: bool,
}

/// Returns a body that consists of the pieces that a task writes.
pub(in crate::api) fn stream<F: Future<Output = ()> + 'static>(task: impl FnOnce(Outlet) -> F) -> ResponseBody {
    let piece = Rc::new(Cell::new(None));
    let task = Box::pin(task(Outlet(Rc::clone(&piece))));
    Box::pin(StreamedBody { task, piece, ended: false })
}

impl<F: Future<Output = ()>> Body for StreamedBody<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.ended && self.task.as_mut().poll(context).is_ready() {
            self.ended = true;
        }
        match self.piece.take() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// Lines after which a task yields to the others of its core.
pub(in crate::api) const LINES_PER_TURN: usize = 64;

/// The lines that a task has read since it last yielded to the others of its core.
#[derive(Default)]
pub(in crate::api) struct TurnShare {
    lines: usize,
    bytes: usize,
}

impl TurnShare {
    /// Counts a line of this many bytes. Yields after [`LINES_PER_TURN`] lines, or as many bytes as a core parses at once.
    pub(in crate::api) async fn take(&mut self, bytes: usize) {
        self.lines += 1;
        self.bytes += bytes;
        if self.lines >= LINES_PER_TURN || self.bytes as u64 >= SHORT_BODY_LEN {
            *self = TurnShare::default();
            yield_once().await;
        }
    }
}

/// Yields to the other tasks of the core once.
async fn yield_once() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_yields_after_many_lines_or_bytes() {
        let mut share = TurnShare::default();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut yields = |bytes: usize| std::pin::pin!(share.take(bytes)).poll(&mut context).is_pending();
        assert!((1..LINES_PER_TURN).all(|_| !yields(1)));
        assert!(yields(1));
        let long = SHORT_BODY_LEN as usize;
        assert!(!yields(long / 2));
        assert!(yields(long / 2));
        assert!(yields(long));
    }

    #[test]
    fn pieces_come_one_by_one_and_only_when_they_are_asked_for() {
        let written = Rc::new(Cell::new(0));
        let count = Rc::clone(&written);
        let mut body = stream(move |outlet| async move {
            for piece in ["a", "", "b"] {
                count.set(count.get() + 1);
                outlet.send(piece.into()).await;
                yield_once().await;
            }
        });
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut next = || loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Ready(frame) => return frame.map(|frame| frame.unwrap().into_data().unwrap()),
                Poll::Pending => {}
            }
        };
        assert_eq!(next().as_deref(), Some(&b"a"[..]));
        assert_eq!(written.get(), 1);
        assert_eq!(next().as_deref(), Some(&b"b"[..]));
        assert_eq!((next(), next()), (None, None));
    }
}
