//! Requests to the event log.

use super::{LATE, ServiceHandle};
use crate::bridge::Ticket;
use crate::bridge::events::{EventAnswer, EventRequest, EventsFound};

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
        let EventAnswer(answer) = self.ask_thread(queue, request).await?.ok_or(LATE)?;
        answer.map(Some)
    }
}
