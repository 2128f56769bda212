//! The threads of a node: which ones run, and in which order they stop.
//!
//! Each service is registered once, right after its start, with the phase in which it stops. [`Supervisor::stop_all`]
//! runs the phases in order, and stops the services of a phase in the opposite order of their start. So a service stops
//! only after everything that asks it has stopped. Runs on the main thread.

use std::fmt;
use std::io;
use std::thread::JoinHandle;

use carom_settings::exit::{Exit, Reason};

/// The phase of a shutdown in which a service stops. The phases run in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum StopPhase {
    /// While cores still answer: services that bring work of their own, and upkeep.
    Upkeep,
    /// The cores, when every connection is closed; the admin listener's core last.
    Cores,
    /// Link fetchers, which only cores asked and which ask Redis themselves.
    Fetchers,
    /// The threads of a fleet, which use the writer.
    Fleet,
    /// Services that end when nothing can send to their queue any more. The writer syncs what it has first.
    Queues,
    /// The last writes, after the writer has ended: counted visits, and the last sync of the store.
    Store,
    /// The access log, whose disk may be another and slower one.
    AccessLog,
    /// The watchdog: the service manager wants keep-alive pings for as long as the process lives.
    Watchdog,
}

impl StopPhase {
    const ALL: [StopPhase; 8] = [
        StopPhase::Upkeep,
        StopPhase::Cores,
        StopPhase::Fetchers,
        StopPhase::Fleet,
        StopPhase::Queues,
        StopPhase::Store,
        StopPhase::AccessLog,
        StopPhase::Watchdog,
    ];
}

struct Service {
    name: &'static str,
    phase: StopPhase,
    stop: Box<dyn FnOnce()>,
}

/// Every service of a node, in the order of their start.
#[derive(Default)]
pub(super) struct Supervisor {
    services: Vec<Service>,
}

impl Supervisor {
    /// Registers a running service with what stops it and waits for its end.
    pub(super) fn register(&mut self, phase: StopPhase, name: &'static str, stop: impl FnOnce() + 'static) {
        assert!(self.services.iter().all(|service| service.name != name), "{name} is registered twice");
        self.services.push(Service { name, phase, stop: Box::new(stop) });
    }

    /// Registers threads that end by themselves once nothing can send to their queue any more.
    pub(super) fn register_threads(&mut self, phase: StopPhase, name: &'static str, threads: Vec<JoinHandle<()>>) {
        self.register(phase, name, move || {
            for thread in threads {
                thread.join().expect("panics abort");
            }
        });
    }

    /// Stops every service, phase by phase.
    pub(super) fn stop_all(self) {
        let mut services = self.services;
        for phase in StopPhase::ALL {
            let (now, later): (Vec<Service>, Vec<Service>) =
                services.into_iter().partition(|service| service.phase == phase);
            for Service { name, stop, .. } in now.into_iter().rev() {
                tracing::debug!(service = name, "stopping");
                stop();
            }
            services = later;
        }
        assert!(services.is_empty(), "every phase is in StopPhase::ALL");
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|service| service.name)).finish()
    }
}

/// Returns the reason to exit when the operating system refuses a thread or its resources. `what` begins the message.
pub(super) fn thread_exit(what: &str, error: &io::Error) -> Exit {
    Exit::new(Reason::ThreadEnded, format!("{what} could not be started: {error}"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn services_stop_by_phase_and_then_in_opposite_order() {
        let stopped = Rc::new(RefCell::new(Vec::new()));
        let mut supervisor = Supervisor::default();
        let services = [
            ("writer", StopPhase::Queues),
            ("access log", StopPhase::AccessLog),
            ("expiry", StopPhase::Upkeep),
            ("readers", StopPhase::Queues),
            ("cores", StopPhase::Cores),
            ("backup", StopPhase::Upkeep),
        ];
        for (name, phase) in services {
            let stopped = Rc::clone(&stopped);
            supervisor.register(phase, name, move || stopped.borrow_mut().push(name));
        }
        supervisor.stop_all();
        assert_eq!(*stopped.borrow(), ["backup", "expiry", "cores", "readers", "writer", "access log"]);
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn a_service_has_one_stop() {
        let mut supervisor = Supervisor::default();
        supervisor.register(StopPhase::Upkeep, "expiry", || ());
        supervisor.register(StopPhase::Upkeep, "expiry", || ());
    }
}
