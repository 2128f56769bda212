//! Exports and bulk requests in flight, each of which holds a slot of its core.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::Duration;

use super::ServiceHandle;
use super::long_slots::{LongKind, TooMany};
use crate::bridge::reply::{Answer, Pause};
use carom_model::access::AppName;

/// A long request in flight. It ends when it is dropped.
#[derive(Debug)]
pub struct LongRequest {
    services: Rc<ServiceHandle>,
    kind: LongKind,
    app: Option<AppName>,
    /// The token of a waiter whose deadline has passed, so that it is woken every second.
    token: u64,
}

impl LongRequest {
    /// True if it must end because the node does. Otherwise the task is woken within about a second to ask again.
    pub fn must_end(&self, context: &mut Context<'_>) -> bool {
        Pause::waiters(&mut self.services.waiting.borrow_mut()).watch(self.token, context);
        self.services.context.node.draining.load(Ordering::Relaxed)
    }
}

impl Drop for LongRequest {
    fn drop(&mut self) {
        Pause::waiters(&mut self.services.waiting.borrow_mut()).remove(self.token);
        self.services.long_requests.borrow_mut().end(self.kind, self.app.as_ref());
    }
}

impl ServiceHandle {
    /// Begins a long request of an app.
    ///
    /// # Errors
    /// [`TooMany`] if the app, or all apps together, have as many as the limit allows.
    pub fn begin_long(self: &Rc<ServiceHandle>, kind: LongKind, app: Option<&AppName>) -> Result<LongRequest, TooMany> {
        self.long_requests.borrow_mut().begin(kind, app)?;
        let token = self.add_waiter::<Pause>(Duration::ZERO).into_token();
        Ok(LongRequest { services: Rc::clone(self), kind, app: app.cloned(), token })
    }
}
