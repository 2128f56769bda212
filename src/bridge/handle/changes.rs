//! Changes in the store: one request to the writer, and its answer.

use std::rc::Rc;
use std::sync::Arc;

use super::ServiceHandle;
use super::batch_state::LATE;
use crate::bridge::{CreateAnswer, StoreRequest, Ticket, WriteFailure, WriterAnswer};
use carom_limits::ANSWER_TIME_MAX;
use carom_model::access::idempotency::PendingCreate;
use carom_model::link::{Link, Reuse};

impl ServiceHandle {
    /// Sends a change to the store and waits until it is durable and visible.
    pub async fn store<A: WriterAnswer>(&self, request: impl FnOnce(Ticket<A>) -> StoreRequest) -> A {
        self.store_noting(request, |_| ()).await
    }

    /// Sends a create like [`ServiceHandle::store`]. `pending` is kept until the store has answered, even if the task
    /// stops waiting.
    pub async fn create(&self, pending: Option<&Rc<PendingCreate>>, link: &Arc<Link>, reuse: Reuse) -> CreateAnswer {
        let request = |ticket| StoreRequest::Create { link: Arc::clone(link), reuse, ticket };
        let note = |token| {
            let pending = pending.map(|pending| (token, Rc::clone(pending)));
            self.pending_creates.borrow_mut().extend(pending);
        };
        self.store_noting(request, note).await
    }

    /// Sends a request to the store, calls `note` with the token of the sent request, and waits.
    async fn store_noting<A: WriterAnswer>(
        &self,
        request: impl FnOnce(Ticket<A>) -> StoreRequest,
        note: impl FnOnce(u64),
    ) -> A {
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        if let Err(reason) = self.send(request(waiter.ticket())) {
            return WriteFailure::Refused(reason).into();
        }
        note(waiter.token);
        waiter.answer().await.unwrap_or_else(|| WriteFailure::Unconfirmed(LATE).into())
    }
}
