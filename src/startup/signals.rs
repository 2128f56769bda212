//! Signals of the process, received by a thread.

use std::io;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

/// A signal that the process can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    HangUp,
    /// SIGWINCH: the terminal has another size.
    WindowChange,
    /// SIGCONT: the process was stopped, and runs again.
    Continue,
}

impl ProcessSignal {
    const fn number(self) -> i32 {
        match self {
            ProcessSignal::Terminate => SIGTERM,
            ProcessSignal::Interrupt => SIGINT,
            ProcessSignal::HangUp => SIGHUP,
            ProcessSignal::WindowChange => SIGWINCH,
            ProcessSignal::Continue => SIGCONT,
        }
    }
}

/// Starts a thread that passes these signals to `receive` until that returns false. Their default actions end with this
/// call.
///
/// # Errors
/// The kernel refuses the handlers, their pipe or the thread.
pub fn watch(
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
    std::thread::Builder::new().name("signals".to_owned()).spawn(pass_on)?;
    Ok(())
}
