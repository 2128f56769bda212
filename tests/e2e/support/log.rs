//! The log of a node under test: the standard error of its process.

use std::os::fd::AsFd;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{ioctl_fionread, read, retry_on_intr};

/// The log of a process. A thread gathers it, so that the process never waits for room.
pub(crate) struct Log {
    pipe: Arc<Pipe>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

/// The end of a pipe that a process writes to, and all that came out of it.
struct Pipe {
    stream: ChildStderr,
    gathered: Mutex<Vec<u8>>,
}

impl Pipe {
    /// Takes out all that is in the pipe. Returns all that ever was.
    fn drain(&self) -> String {
        let mut gathered = self.gathered.lock().unwrap();
        let mut piece = [0; 4096];
        // Nobody reads without the lock: what is there is still there when it is read.
        while ioctl_fionread(self.stream.as_fd()).expect("a pipe says how much is in it") > 0 {
            let len = read(self.stream.as_fd(), &mut piece[..]).expect("a pipe can be read");
            gathered.extend_from_slice(&piece[..len]);
        }
        String::from_utf8_lossy(&gathered).into_owned()
    }

    /// Waits until there is something in the pipe. Returns true if nobody can write to it any more.
    fn wait(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
        retry_on_intr(|| poll(&mut polled, None)).expect("a pipe can be waited for");
        polled[0].revents().contains(PollFlags::HUP)
    }
}

impl Log {
    pub(crate) fn of(stream: ChildStderr) -> Log {
        let pipe = Arc::new(Pipe { stream, gathered: Mutex::new(Vec::new()) });
        let shared = Arc::clone(&pipe);
        let reader = std::thread::spawn(move || {
            let mut is_over = false;
            while !is_over {
                is_over = shared.wait();
                shared.drain();
            }
        });
        Log { pipe, reader: Mutex::new(Some(reader)) }
    }

    /// All that the process has written so far, whether or not the thread has come to it.
    pub(crate) fn text(&self) -> String {
        self.pipe.drain()
    }

    /// Returns the whole log, once the process has ended.
    pub(crate) fn whole(&self) -> String {
        if let Some(reader) = self.reader.lock().unwrap().take() {
            reader.join().expect("the reader of a log does not panic");
        }
        self.text()
    }

    /// Looks in the log of a process that has ended for what should not be there.
    pub(crate) fn check(&self, expected: &[String]) {
        let text = self.whole();
        let is_bad = |line: &&str| line.contains(" WARN ") || line.contains("ERROR ") || line.contains("panicked");
        let is_expected = |line: &str| expected.iter().any(|text| line.contains(text.as_str()));
        let surprises: Vec<&str> = text.lines().filter(is_bad).filter(|line| !is_expected(line)).collect();
        assert!(surprises.is_empty(), "unexpected in the log:\n{}\n\nthe whole log:\n{text}", surprises.join("\n"));
    }
}
