//! Requests to the event log.

use super::batch_state::LATE;
use super::{ServiceHandle, refusal};
use crate::bridge::Ticket;
use crate::bridge::events::{EventAnswer, EventRequest, EventsFound};
use carom_limits::ANSWER_TIME_MAX;

impl ServiceHandle {
    /// Asks the event log; `None` if the node has none.
    ///
    /// # Errors
    /// The reason why it cannot be answered now, in words for the client.
    pub async fn ask_events(
        &self,
        request: impl FnOnce(Ticket<EventAnswer>) -> EventRequest,
    ) -> Result<Option<EventsFound>, &'static str> {
        let Some(queue) = &self.context.lists.events else { return Ok(None) };
        let waiter = self.add_waiter(ANSWER_TIME_MAX);
        queue.try_send(request(waiter.ticket())).map_err(|error| refusal(&error))?;
        waiter.answer().await.map_or(Err(LATE), |EventAnswer(answer)| answer.map(Some))
    }
}
