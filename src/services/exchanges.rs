//! The loop of a thread that carries out orders. Once a second, the thread also exchanges its state with the other nodes of
//! a fleet through Redis, and reports exchanges that fail.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::services::replication::redis::RedisError;

/// Interval between two exchanges with Redis.
const SHARE_EVERY: Duration = Duration::from_secs(1);

/// Interval between two checks whether exchanges may begin.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Timeout of a request to Redis.
pub(in crate::services) const SHARE_TIME_MAX: Duration = Duration::from_secs(2);

/// A worker whose state all nodes of a fleet share: API keys, redirects of domains, or destination rules.
pub(in crate::services) trait ExchangingWorker {
    /// A request to the worker.
    type Order;

    /// Interval between two calls of [`ExchangingWorker::refresh`] without an order or exchange. `None` if the worker needs
    /// none.
    const REFRESH_EVERY: Option<Duration> = None;

    /// Frees what no core uses any more.
    fn sweep(&mut self);
    /// True if other nodes share the state.
    fn is_in_fleet(&self) -> bool;
    /// Merges the state of this node and that of Redis, both ways. Returns false, without an exchange, until the node knows
    /// that Redis is that of its fleet.
    fn share(&mut self) -> bool;
    /// Adopts changes of other processes on this machine. Returns true if Redis may lack a change of this node, so that an
    /// exchange is due at once. The loop calls this before each wait.
    fn refresh(&mut self) -> bool {
        false
    }
    /// Carries out an order.
    fn serve(&mut self, order: Self::Order);
}

/// Runs a worker until all senders of orders are gone. The first exchange follows as soon as it may be made: until then, a
/// node that starts lacks the changes that it has missed.
pub(in crate::services) fn run<W: ExchangingWorker>(mut worker: W, orders: &Receiver<W::Order>) {
    let mut due = worker.is_in_fleet().then(Instant::now);
    loop {
        worker.sweep();
        if worker.refresh() {
            due = due.map(|_| Instant::now());
        }
        if due.is_some_and(|at| at <= Instant::now()) {
            let pause = if worker.share() { SHARE_EVERY } else { CHECK_EVERY };
            due = Some(Instant::now() + pause);
        }
        let refresh = W::REFRESH_EVERY.map(|pause| Instant::now() + pause);
        let order = match due.into_iter().chain(refresh).min() {
            Some(at) => orders.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => orders.recv().map_err(RecvTimeoutError::from),
        };
        match order {
            Ok(order) => worker.serve(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The reports of failed exchanges of one kind. An exchange that fails again for the same reason is not reported again.
#[derive(Debug)]
pub(in crate::services) struct ExchangeReports {
    /// The name of the state in messages.
    name: &'static str,
    /// The last part of the key in Redis.
    key: &'static str,
    /// True if Redis has rejected the last exchange.
    is_refused: bool,
    /// True if the last changes of other nodes could not be written.
    is_unwritten: bool,
    /// True if the last state in Redis could not be decoded.
    is_unread: bool,
}

impl ExchangeReports {
    pub(in crate::services) fn new(name: &'static str, key: &'static str) -> ExchangeReports {
        ExchangeReports { name, key, is_refused: false, is_unwritten: false, is_unread: false }
    }

    /// Reports that changes of other nodes could not be written to a file. Returns true if it was reported.
    pub(in crate::services) fn take_write(&mut self, file: &str, written: &io::Result<()>) -> bool {
        let was_unwritten = std::mem::replace(&mut self.is_unwritten, written.is_err());
        let Err(error) = written else { return false };
        if !was_unwritten {
            tracing::warn!(
                "{file} cannot be written ({error}), so changes of other nodes do not apply; carom retries every second"
            );
        }
        !was_unwritten
    }

    /// Reports that a field of the state in Redis cannot be decoded; `None` if all can. Returns true if it was reported.
    pub(in crate::services) fn take_unread(&mut self, field: Option<&str>) -> bool {
        let (name, key) = (self.name, self.key);
        let was_unread = std::mem::replace(&mut self.is_unread, field.is_some());
        let Some(field) = field.filter(|_| !was_unread) else { return false };
        tracing::warn!(
            "the field {field} of the hash PREFIX:{key} in Redis cannot be read, so the {name} there do not apply to this node; upgrade the node if another one has a later version, or else remove the field (see fleet.prefix)"
        );
        true
    }

    /// Returns the result of an exchange. Reports it instead if the exchange has failed.
    pub(in crate::services) fn take<T>(&mut self, exchanged: Result<T, RedisError>) -> Option<T> {
        let (name, key) = (self.name, self.key);
        let was_refused = std::mem::take(&mut self.is_refused);
        match exchanged {
            Ok(result) => return Some(result),
            // An unreachable Redis has alarms of its own in the fleet's threads.
            Err(RedisError::Unavailable { what, .. }) => {
                tracing::debug!(%what, "the {name} of the fleet cannot be read");
            }
            Err(RedisError::Refused(what)) => {
                self.is_refused = true;
                if !was_refused {
                    tracing::warn!(
                        "Redis rejects a command on the {name} ({what}); changes on one node may not reach the others; allow the Redis user of the node HGETALL, HGET and HSET on the key PREFIX:{key} (see fleet.prefix)"
                    );
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A worker that may not share at first. Its last share ends the loop.
    struct NewWorker {
        refusals: u32,
        orders: Option<Sender<()>>,
    }

    impl ExchangingWorker for NewWorker {
        type Order = ();

        fn sweep(&mut self) {}

        fn is_in_fleet(&self) -> bool {
            true
        }

        fn share(&mut self) -> bool {
            if self.refusals == 0 {
                self.orders = None;
                return true;
            }
            self.refusals -= 1;
            false
        }

        fn serve(&mut self, (): ()) {}
    }

    /// A worker that finds a change before each wait. Its last share ends the loop.
    struct ChangingWorker {
        shares_left: u32,
        orders: Option<Sender<()>>,
    }

    impl ExchangingWorker for ChangingWorker {
        type Order = ();

        const REFRESH_EVERY: Option<Duration> = Some(CHECK_EVERY);

        fn sweep(&mut self) {}

        fn is_in_fleet(&self) -> bool {
            true
        }

        fn share(&mut self) -> bool {
            self.shares_left -= 1;
            if self.shares_left == 0 {
                self.orders = None;
            }
            true
        }

        fn refresh(&mut self) -> bool {
            true
        }

        fn serve(&mut self, (): ()) {}
    }

    #[test]
    fn failed_writes_are_reported_once() {
        let mut reports = ExchangeReports::new("state", "state");
        let full = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let reported = [full(), full(), Ok(()), full()].map(|written| reports.take_write("state.json", &written));
        assert_eq!(reported, [true, false, false, true]);
    }

    #[test]
    fn unreadable_states_are_reported_once() {
        let mut reports = ExchangeReports::new("state", "state");
        let reported = [Some("a"), Some("a"), None, Some("a")].map(|field| reports.take_unread(field));
        assert_eq!(reported, [true, false, false, true]);
    }

    #[test]
    fn first_exchange_follows_soon_once_it_may_be_made() {
        // A machine may stand still meanwhile.
        let is_soon = (0..3).any(|_| {
            let (sender, orders) = channel();
            let start = Instant::now();
            run(NewWorker { refusals: 2, orders: Some(sender) }, &orders);
            start.elapsed() < SHARE_EVERY
        });
        assert!(is_soon, "a start would wait as long as for later exchanges");
    }

    #[test]
    fn changes_that_a_worker_finds_are_exchanged_at_once() {
        // A machine may stand still meanwhile.
        let is_soon = (0..3).any(|_| {
            let (sender, orders) = channel();
            let start = Instant::now();
            run(ChangingWorker { shares_left: 3, orders: Some(sender) }, &orders);
            start.elapsed() < SHARE_EVERY
        });
        assert!(is_soon, "other nodes would hear of the change only with the next exchange");
    }
}
