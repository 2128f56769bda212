//! Standard output of a command. The first failed write is kept, so that a command finishes its work, and its exit code
//! still says whether all of the output arrived.

use std::io::{self, Write};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use carom_settings::exit::{Exit, Reason};

/// The first failure of standard output. Later output is dropped.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Writes to standard output. The first failure ends the output, but not the command: it is kept for [`checked`].
pub(crate) fn print(text: &str) {
    if !has_failed() {
        let mut out = io::stdout().lock();
        keep(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    }
}

/// True once standard output takes no more, so that an endless command must end.
pub(crate) fn has_failed() -> bool {
    FAILURE.get().is_some()
}

/// Keeps the failure of a write to standard output.
pub(crate) fn keep(written: io::Result<()>) {
    if let Err(error) = written {
        // An earlier failure is the cause of this one.
        let _ = FAILURE.set(error);
    }
}

/// Notices a reader that has closed the pipe of standard output, for an endless command that has nothing to print.
pub(crate) fn notice_lost_reader() {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let is_polled = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
    if is_polled && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        keep(Err(io::ErrorKind::BrokenPipe.into()));
    }
}

/// Returns the end of a command, given the end of its work: an error if its output could not be written. A reader that
/// closes a pipe early, as `head` does, is not an error.
///
/// # Errors
/// The error of the work, or else [`Reason::Incomplete`] for lost output.
pub fn checked(done: Result<(), Exit>) -> Result<(), Exit> {
    with_lost_output(done, FAILURE.get())
}

/// Replaces success by an error if the output was lost.
fn with_lost_output(done: Result<(), Exit>, failure: Option<&io::Error>) -> Result<(), Exit> {
    match failure {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => done.and_then(|()| {
            Err(Exit::new(Reason::Incomplete, format!("standard output cannot be written: {error}"))
                .with_remedy("free space on its disk, or write to another file; the command has done everything else"))
        }),
        _ => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_output_is_an_error_unless_nobody_reads_it() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let lost = with_lost_output(Ok(()), Some(&full)).unwrap_err();
        assert_eq!(lost.reason, Reason::Incomplete);
        assert!(lost.what.starts_with("standard output cannot be written: "), "{lost}");
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!((with_lost_output(Ok(()), Some(&closed)), with_lost_output(Ok(()), None)), (Ok(()), Ok(())));
        // The error of the work says more.
        let wrong = Exit::new(Reason::Usage, "wrong");
        for failure in [&full, &closed] {
            assert_eq!(with_lost_output(Err(wrong.clone()), Some(failure)), Err(wrong.clone()));
        }
    }
}
