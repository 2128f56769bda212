//! The state of the batches of a handle: which requests of a batch are answered, and who waits for it.

use std::collections::HashMap;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use carom_shards::Code;

use crate::bridge::{ChangeAnswer, CreateAnswer, DeleteAnswer, LinkAnswer, WriteFailure};
use carom_limits::BULK_CHUNK_LINES;
use carom_model::access::idempotency::PendingCreate;

/// The reason of an answer that did not come in time.
pub(super) const LATE: &str = "the store did not answer in time";

/// Bit that marks the token of a request of a batch. The bit above marks look-ups.
pub(super) const BATCH_TOKEN: u64 = 1 << 62;

/// Number of lowest bits in such a token: the index of the request.
pub(super) const PLACE_BITS: u32 = 16;

const _: () = assert!(BULK_CHUNK_LINES < 1 << PLACE_BITS);

/// True for the token of a request of a batch.
pub(super) fn is_of_batch(token: u64) -> bool {
    token & BATCH_TOKEN != 0
}

/// A type of answers that come in batches.
pub trait BatchAnswer: Clone + Unpin + 'static {
    /// Returns the answer to a request that was not sent.
    fn refused(reason: &'static str) -> Self;

    /// Returns the answer to a request that was sent and not answered in time.
    fn late() -> Self;

    /// Takes note that the code of the request goes back to the core, if this answer leaves it free. Returns true if it
    /// does. Only creates bring a code.
    fn free_code(&mut self) -> bool {
        false
    }
}

impl BatchAnswer for CreateAnswer {
    fn refused(reason: &'static str) -> CreateAnswer {
        WriteFailure::Refused(reason).into()
    }

    fn late() -> CreateAnswer {
        // The link may still be created.
        WriteFailure::Unconfirmed(LATE).into()
    }

    fn free_code(&mut self) -> bool {
        match self {
            // An answer with an existing link then no longer calls the code spare.
            CreateAnswer::Existing { spare, .. } => std::mem::take(spare),
            answer => answer.frees_code(),
        }
    }
}

impl BatchAnswer for ChangeAnswer {
    fn refused(reason: &'static str) -> ChangeAnswer {
        WriteFailure::Refused(reason).into()
    }

    fn late() -> ChangeAnswer {
        // The change may still be made.
        WriteFailure::Unconfirmed(LATE).into()
    }
}

impl BatchAnswer for DeleteAnswer {
    fn refused(reason: &'static str) -> DeleteAnswer {
        WriteFailure::Refused(reason).into()
    }

    fn late() -> DeleteAnswer {
        // The link may still be deleted.
        WriteFailure::Unconfirmed(LATE).into()
    }
}

impl BatchAnswer for LinkAnswer {
    fn refused(reason: &'static str) -> LinkAnswer {
        LinkAnswer::Refused(reason)
    }

    fn late() -> LinkAnswer {
        LinkAnswer::Refused(LATE)
    }
}

/// All batches of a handle with answers of one type.
#[derive(Debug)]
pub struct Batches<A> {
    pub(super) by_number: HashMap<u64, OpenBatch<A>>,
    pub(super) last: u64,
}

impl<A> Default for Batches<A> {
    fn default() -> Batches<A> {
        Batches { by_number: HashMap::new(), last: 0 }
    }
}

/// A batch of requests, some of which may have no answer yet.
#[derive(Debug)]
pub(super) struct OpenBatch<A> {
    pub(super) slots: Vec<AnswerSlot<A>>,
    /// Requests without an answer.
    pub(super) unanswered: usize,
    pub(super) waker: Option<Waker>,
    pub(super) deadline: Instant,
    /// True if the task has stopped waiting.
    pub(super) abandoned: bool,
    /// The idempotency keys of the requests, in use until all of them are answered.
    pub(super) pending: Vec<Rc<PendingCreate>>,
}

#[derive(Debug)]
pub(super) struct AnswerSlot<A> {
    pub(super) answer: Option<A>,
    /// The code that the request brings, if it can go to another link should this one not need it.
    pub(super) code: Option<Code>,
}

impl<A: BatchAnswer> AnswerSlot<A> {
    /// Takes the code that is free after this answer.
    pub(super) fn take_spare(&mut self) -> Option<Code> {
        let is_free = self.answer.as_mut().is_some_and(A::free_code);
        if is_free { self.code.take() } else { None }
    }
}

impl<A: BatchAnswer> Batches<A> {
    /// Takes an answer. Returns the code that becomes free with it, if the task has stopped waiting.
    pub(super) fn deliver(&mut self, token: u64, answer: A) -> Option<Code> {
        let number = (token & !BATCH_TOKEN) >> PLACE_BITS;
        let batch = self.by_number.get_mut(&number)?;
        let place = batch.slots.get_mut((token & ((1 << PLACE_BITS) - 1)) as usize)?;
        if place.answer.replace(answer).is_none() {
            batch.unanswered -= 1;
        }
        let spare = if batch.abandoned { place.take_spare() } else { None };
        if batch.unanswered == 0 {
            if let Some(waker) = batch.waker.take() {
                waker.wake();
            }
            if batch.abandoned {
                self.by_number.remove(&number);
            }
        }
        spare
    }

    /// Ends all waits.
    pub(super) fn close(&mut self, now: Instant) {
        for batch in self.by_number.values_mut() {
            batch.deadline = batch.deadline.min(now);
        }
        self.expire(now);
    }

    /// Wakes the tasks whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        for batch in self.by_number.values_mut().filter(|batch| batch.deadline <= now) {
            if let Some(waker) = batch.waker.take() {
                waker.wake();
            }
        }
    }
}
