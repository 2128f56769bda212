//! Answers that are made while they are sent: a task writes pieces, and goes on when hyper has taken the last one.
//!
//! The task is a part of the body, so it runs only while the client takes what it is sent, and it ends with the
//! connection. It never waits for anything else than the desk and its own request.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use crate::api::Content;

/// Where the task puts what it has written.
pub(in crate::api) struct Outlet(Rc<Cell<Option<Bytes>>>);

impl Outlet {
    /// Sends a piece. Comes back when hyper has taken it and wants more.
    pub(in crate::api) async fn send(&self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        self.0.set(Some(piece.into()));
        poll_fn(|_| {
            let piece = self.0.take();
            let is_there = piece.is_some();
            self.0.set(piece);
            // Nobody has to wake it: the body polls it for the next piece.
            if is_there { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

struct Stream<F> {
    task: Pin<Box<F>>,
    piece: Rc<Cell<Option<Bytes>>>,
    ended: bool,
}

/// A body with what a task writes.
pub(in crate::api) fn stream<F: Future<Output = ()> + 'static>(task: impl FnOnce(Outlet) -> F) -> Content {
    let piece = Rc::new(Cell::new(None));
    let task = Box::pin(task(Outlet(Rc::clone(&piece))));
    Box::pin(Stream { task, piece, ended: false })
}

impl<F: Future<Output = ()>> Body for Stream<F> {
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

/// Lets everything else of the core have its turn.
pub(in crate::api) async fn breathe() {
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
    fn pieces_come_one_by_one_and_only_when_they_are_asked_for() {
        let written = Rc::new(Cell::new(0));
        let count = Rc::clone(&written);
        let mut body = stream(move |outlet| async move {
            for piece in ["a", "", "b"] {
                count.set(count.get() + 1);
                outlet.send(piece.into()).await;
                breathe().await;
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
