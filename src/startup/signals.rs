//! Signals of the process, received by a thread, so that no handler runs in the middle of other code.

use std::io;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::services::threads;
use crate::services::threads::priority::Priority;

/// A signal that the process can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessSignal {
    /// SIGTERM: the service manager stops the process.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal is gone, or files have changed.
    HangUp,
    /// SIGWINCH: the terminal has another size.
    WindowChange,
    /// SIGCONT: the process was stopped, and runs again.
    Continue,
}

impl ProcessSignal {
    /// The signals that end a process without a handler.
    pub(crate) const ENDING: [ProcessSignal; 3] =
        [ProcessSignal::Terminate, ProcessSignal::Interrupt, ProcessSignal::HangUp];

    /// Returns the name, such as `SIGTERM`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProcessSignal::Terminate => "SIGTERM",
            ProcessSignal::Interrupt => "SIGINT",
            ProcessSignal::HangUp => "SIGHUP",
            ProcessSignal::WindowChange => "SIGWINCH",
            ProcessSignal::Continue => "SIGCONT",
        }
    }

    const fn number(self) -> i32 {
        match self {
            ProcessSignal::Terminate => SIGTERM,
            ProcessSignal::Interrupt => SIGINT,
            ProcessSignal::HangUp => SIGHUP,
            ProcessSignal::WindowChange => SIGWINCH,
            ProcessSignal::Continue => SIGCONT,
        }
    }

    /// Ends this process as the signal does without a handler, so that its parent sees which signal it was. Only for
    /// [`ProcessSignal::ENDING`].
    pub(crate) fn end_process(self) -> ! {
        let _ = emulate_default_handler(self.number());
        std::process::abort()
    }
}

/// Starts a thread that passes these signals to `receive` until that returns false. Their default actions end with this
/// call.
///
/// # Errors
/// The kernel refuses the handlers, their pipe or the thread.
pub(crate) fn watch(
    wanted: &[ProcessSignal],
    mut receive: impl FnMut(ProcessSignal) -> bool + Send + 'static,
) -> io::Result<()> {
    let wanted = wanted.to_vec();
    let mut signals = Signals::new(wanted.iter().map(|signal| signal.number()))?;
    let pass_on = move || {
        for number in signals.forever() {
            let signal = wanted.iter().copied().find(|signal| signal.number() == number);
            if signal.is_some_and(|signal| !receive(signal)) {
                return;
            }
        }
    };
    threads::start(Priority::Urgent, "signals", pass_on)?;
    Ok(())
}
