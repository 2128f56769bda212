//! The events for the thread that started the node: signals, and events of the cores.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use super::supervisor::thread_exit;
use crate::core::CoreEvent;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use crate::startup::signals::{self, ProcessSignal};
use carom_settings::exit::Exit;

/// The effect of SIGHUP on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hangup {
    /// The node reads its certificates again.
    Reload,
    /// The node stops, as after SIGTERM: it serves the person whose terminal is gone.
    Stop,
}

/// An event for the thread that started the node.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    /// A stop signal, with its name.
    Stop(&'static str),
    /// Files that were read at the start may have changed.
    Reload,
    /// An event of a core.
    Core(CoreEvent),
}

/// The inbox of a node, which receives signals from its creation on.
#[derive(Debug)]
pub struct SignalInbox {
    /// The end for the cores.
    pub(super) events: Sender<ProcessEvent>,
    /// The end for the node.
    pub(super) inbox: Receiver<ProcessEvent>,
}

/// The end of the inbox of a node for signals that another part of the process receives.
#[derive(Debug)]
pub struct SignalSender {
    events: Sender<ProcessEvent>,
    hangup: Hangup,
}

impl SignalSender {
    /// Passes a signal to the node. Returns false if the node has ended.
    pub fn send(&self, signal: ProcessSignal) -> bool {
        let event = match (signal, self.hangup) {
            (ProcessSignal::HangUp, Hangup::Reload) => ProcessEvent::Reload,
            (signal, _) => ProcessEvent::Stop(signal.name()),
        };
        self.events.send(event).is_ok()
    }
}

impl SignalInbox {
    /// Starts to receive signals. They wait for the node.
    ///
    /// # Errors
    /// [`carom_settings::exit::Reason::ThreadEnded`] if the kernel refuses the handlers or their thread.
    pub fn open(hangup: Hangup) -> Result<SignalInbox, Exit> {
        let (sender, inbox) = SignalInbox::channel(hangup);
        signals::watch(&ProcessSignal::ENDING, move |signal| sender.send(signal))
            .map_err(|error| thread_exit("signals", &error))?;
        Ok(inbox)
    }

    /// Returns an inbox for a process that receives signals itself, and passes them on.
    pub fn channel(hangup: Hangup) -> (SignalSender, SignalInbox) {
        let (events, inbox) = channel();
        (SignalSender { events: events.clone(), hangup }, SignalInbox { events, inbox })
    }
}

/// Returns the next event, or `None` at `until`.
pub(super) fn next_event(inbox: &Receiver<ProcessEvent>, until: Option<Instant>) -> Option<ProcessEvent> {
    const HELD: &str = "cores and signals hold the sending end";
    match until {
        None => Some(inbox.recv().expect(HELD)),
        Some(until) => match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("{HELD}"),
        },
    }
}

/// Starts a thread that forwards the events of the cores to `events`.
pub(super) fn forward_events(events: Sender<ProcessEvent>) -> Result<Sender<CoreEvent>, Exit> {
    let (sender, receiver) = channel();
    let forward = move || {
        receiver.into_iter().map(ProcessEvent::Core).try_for_each(|event| events.send(event)).unwrap_or_default();
    };
    threads::start(Priority::Urgent, "core-events", forward)
        .map_err(|error| thread_exit("the events of cores", &error))?;
    Ok(sender)
}
