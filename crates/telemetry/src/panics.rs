//! The end of a process in which a thread has panicked.

/// Makes a panic on any thread of this process end it after the report of the panic, as `panic = "abort"` does in a
/// release. Call it first in `main`.
pub fn abort_on_panic() {
    if cfg!(panic = "unwind") {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            std::process::abort();
        }));
    }
}
