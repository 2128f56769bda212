//! The answer to a task whose change every core must have first: the last core that takes the change sends it.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::ticket::Ticket;

/// An answer on its way through all cores.
#[derive(Debug)]
pub struct AnswerOfLastCore<A> {
    /// The task that waits, and its answer; `None` if no task does.
    answer: Option<(Ticket<A>, A)>,
    /// Number of cores that do not have the change yet.
    left: AtomicUsize,
}

impl<A: Clone> AnswerOfLastCore<A> {
    /// Returns an answer that passes through that number of mailboxes.
    pub fn new(answer: Option<(Ticket<A>, A)>, mailboxes: usize) -> AnswerOfLastCore<A> {
        assert!(mailboxes > 0, "no core would send the answer");
        AnswerOfLastCore { answer, left: AtomicUsize::new(mailboxes) }
    }

    /// Records that a core has the change. Returns the answer to send if all others had it before.
    pub fn pass(&self) -> Option<(Ticket<A>, A)> {
        let left = self.left.fetch_sub(1, Ordering::AcqRel);
        assert!(left > 0, "a core counts twice, so another does not have the change");
        self.answer.as_ref().filter(|_| left == 1).map(|(ticket, answer)| (*ticket, answer.clone()))
    }
}
