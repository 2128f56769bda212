//! Reads of links and of their visits, for tasks: from the store of this node, or from Redis.

use std::sync::mpsc::TrySendError;

use carom_shards::Code;

use super::{LATE, ServiceHandle, refusal};
use crate::bridge::fleet_view::FleetView;
use crate::bridge::{LinkAnswer, LookupQueue, ReadRequest, Ticket, VisitsAnswer};
use carom_limits::ANSWER_TIME_MAX;
use carom_model::visits::tally::Subject;

impl ServiceHandle {
    /// Reads the record of a code, and its visit counts. In a fleet, this node looks up in Redis a link that it does
    /// not have. It knows no visits of such a link, unless Redis is the shared home of the links.
    pub async fn read_link(&self, code: Code) -> LinkAnswer {
        if let Some((queue, view)) = self.home() {
            if view.is_absent(&code, view.followed()) {
                return LinkAnswer::NotFound;
            }
            return self.read_in_fleet(queue, code).await;
        }
        let followed = self.context.fleet_view.as_ref().map(|view| (view, view.followed()));
        let answer = self.read(|ticket| ReadRequest::Link { code, ticket }).await;
        match (answer.unwrap_or_else(LinkAnswer::Refused), &self.context.redis_look_ups, followed) {
            (LinkAnswer::NotFound, Some(queue), Some((view, mark))) if !view.is_absent(&code, mark) => {
                self.read_in_fleet(queue, code).await
            }
            (answer, ..) => answer,
        }
    }

    /// Returns the queue to the shared home of the links, and the knowledge about it; `None` if this node stores all links.
    pub(super) fn home(&self) -> Option<(&LookupQueue, &FleetView)> {
        let view = self.context.fleet_view.as_deref().filter(|view| !view.stores_all_links())?;
        self.context.redis_look_ups.as_ref().map(|queue| (queue, view))
    }

    /// True if this node stores all links, so that it can list, search and copy them.
    pub fn stores_all_links(&self) -> bool {
        self.home().is_none()
    }

    /// Requests the record of a code for a batch: from the store, or from a shared home by the queue of bulk requests, which
    /// delays no redirect.
    ///
    /// # Errors
    /// The reason why it cannot be read now, in words for the client.
    pub(super) fn send_link_read(&self, code: Code, ticket: Ticket<LinkAnswer>) -> Result<(), &'static str> {
        let Some(queue) = &self.context.bulk_look_ups else {
            return self.send_read(ReadRequest::Link { code, ticket });
        };
        queue.try_send(self.record_look_up(code, ticket.token)).map_err(|error| busy(&error))
    }

    async fn read_in_fleet(&self, queue: &LookupQueue, code: Code) -> LinkAnswer {
        let waiter = self.add_waiter::<LinkAnswer>(ANSWER_TIME_MAX);
        if let Err(error) = queue.try_send(self.record_look_up(code, waiter.token)) {
            return LinkAnswer::Refused(busy(&error));
        }
        waiter.answer().await.unwrap_or(LinkAnswer::Refused(LATE))
    }

    /// Reads all visit statistics of a link, of all links, or of requests for missing codes. Returns `None` if there is
    /// no such link.
    ///
    /// # Errors
    /// The reason why they cannot be read now, in words for the client.
    pub async fn read_visits(&self, subject: Subject) -> VisitsAnswer {
        let mut exists = false;
        if let (Subject::Link(code), Some(_)) = (subject, self.home()) {
            match self.read_link(code).await {
                LinkAnswer::Found(..) | LinkAnswer::Damaged => exists = true,
                LinkAnswer::NotFound => return Ok(None),
                LinkAnswer::Refused(why) => return Err(why),
            }
        }
        self.read(|ticket| ReadRequest::Visits { subject, exists, ticket }).await?
    }
}

/// Returns the reason why a queue of look-ups in Redis refused a request.
fn busy<T>(error: &TrySendError<T>) -> &'static str {
    match error {
        TrySendError::Full(_) => "too many requests are waiting for Redis",
        TrySendError::Disconnected(_) => refusal(error),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::bridge::handle::batches::tests::{NoCodes, services};
    use crate::bridge::handle::{NodeContext, Recorders};
    use carom_shards::CoreId;

    #[test]
    fn bulk_reads_leave_the_queue_of_redirects_alone() {
        let ((single, singles), (bulk, lines)) = (sync_channel(9), sync_channel(4));
        let context = services(1).0.context().clone();
        let context = NodeContext { redis_look_ups: Some(single), bulk_look_ups: Some(bulk), ..context };
        let services = Rc::new(ServiceHandle::new(CoreId(0), context, Box::new(NoCodes), Recorders::default()));
        let code = Code::parse(b"abc").unwrap();
        let _answers = services.read_all(5, |_| code);
        let sent = services.send_link_read(code, Ticket::new(CoreId(0), 9));
        assert_eq!(sent, Err("too many requests are waiting for Redis"));
        assert_eq!(lines.try_iter().filter(|look_up| look_up.is_for_record).count(), 4);
        assert_eq!(singles.try_iter().count(), 0, "redirects would wait behind the lines");
    }
}
