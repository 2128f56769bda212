//! Look-ups of short codes for tasks: the task asks, and the loop of the core brings the result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use carom_shards::Code;

use super::ServiceHandle;
use crate::bridge::{Answer, Reply, TaskLookup};
use carom_model::link::Link;
use carom_model::redirect::OwnedLookup;

impl ServiceHandle {
    // For tasks.

    /// Looks a code up: in the memory of its owner, then in the store and Redis. Returns `Lookup::NotResident` on timeout.
    /// A link with redirect rules comes as it is, before a visit is granted.
    pub async fn look_up(&self, code: Code) -> TaskLookup {
        self.wait_for_lookup(&self.look_ups, code).await
    }

    /// Asks for one more visit of a link with redirect rules and a visit limit. Returns the link, or why it cannot be
    /// visited.
    pub async fn ask_visit(&self, code: Code) -> TaskLookup {
        self.wait_for_lookup(&self.visits, code).await
    }

    // For the loop.

    /// Returns the next look-up to start.
    pub fn next_look_up(&self) -> Option<(u64, Code)> {
        self.look_ups.borrow_mut().pop_front()
    }

    /// Returns the next request for a visit.
    pub fn next_visit(&self) -> Option<(u64, Code)> {
        self.visits.borrow_mut().pop_front()
    }

    /// Passes the durations of the look-ups that have ended since the last call to `take`.
    pub fn take_look_up_times(&self, mut take: impl FnMut(Duration, bool)) {
        self.look_up_times.borrow_mut().drain(..).for_each(|(time, is_absent)| take(time, is_absent));
    }

    /// Returns the instant since when the task with that token waits for a look-up; `None` once it does not wait.
    pub fn waits_since(&self, token: u64) -> Option<Instant> {
        TaskLookup::waiters(&mut self.waiting.borrow_mut()).waits_since(token)
    }

    /// Delivers the result of a look-up.
    pub fn deliver_lookup(&self, token: u64, looked: OwnedLookup) {
        self.deliver(token, Reply::Lookup(TaskLookup::Plain(looked)));
    }

    /// Delivers a link with redirect rules as the result of a look-up.
    pub fn deliver_ruled(&self, token: u64, link: Arc<Link>) {
        self.deliver(token, Reply::Lookup(TaskLookup::Ruled(link)));
    }
}
