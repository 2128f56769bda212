//! The target of access log lines: standard output, or the end of a file that log rotation may move away at any time.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use carom_settings::access_log::terms::LogPlace;

/// Permissions of the file. Other users may not read it: it says which links people follow.
const MODE: u32 = 0o640;

/// Bytes that a pipe accepts whole or not at all (POSIX `PIPE_BUF`).
const PIECE_LEN: usize = 4_096;

/// Write timeout for pipes and terminals. Lines that are still unwritten by then are dropped.
const WRITE_TIME_MAX: Duration = Duration::from_secs(1);

/// A log file or standard output, opened on first use.
#[derive(Debug)]
pub(super) struct LogTarget {
    place: LogPlace,
    open: Option<Open>,
    /// True if the last write broke off within a line.
    is_torn: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode number.
    identity: (u64, u64),
    /// True for a file on a disk, false for a pipe or a terminal.
    is_regular: bool,
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            LogPlace::File(path) => write!(f, "{}", path.display()),
            LogPlace::StandardOutput => f.write_str("standard output"),
        }
    }
}

impl LogTarget {
    pub(super) fn new(place: LogPlace) -> LogTarget {
        LogTarget { place, open: None, is_torn: false }
    }

    /// Closes the file if its path leads to another file or to none. The next write then creates it again.
    pub(super) fn look(&mut self) {
        if let (LogPlace::File(path), Some(open)) = (&self.place, &self.open)
            && path.metadata().ok().as_ref().map(identity_of) != Some(open.identity)
        {
            (self.open, self.is_torn) = (None, false);
        }
    }

    /// True while the target is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Writes whole lines. Returns the number of bytes written, and the error that kept back the rest: opening failed,
    /// or the write did. After a line that was cut off, the next write begins with a line feed.
    pub(super) fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let mut open = match self.open.take().map_or_else(|| self.open(), Ok) {
            Ok(open) => open,
            Err(error) => return (0, Err(error)),
        };
        let until = Instant::now() + WRITE_TIME_MAX;
        let mut written = 0;
        let mended = if self.is_torn && !lines.is_empty() { open.write(b"\n", until, &mut 0) } else { Ok(()) };
        self.is_torn &= mended.is_err() || lines.is_empty();
        let done = mended.and_then(|()| open.write(lines, until, &mut written));
        self.is_torn |= written > 0 && lines[written - 1] != b'\n';
        self.open = Some(open);
        (written, done)
    }

    /// Opens the target. A file is opened non-blocking, so that a pipe without a reader cannot block this thread.
    fn open(&self) -> io::Result<Open> {
        let file = match &self.place {
            LogPlace::StandardOutput => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            LogPlace::File(path) => {
                OpenOptions::new().append(true).create(true).mode(MODE).custom_flags(libc::O_NONBLOCK).open(path)?
            }
        };
        let metadata = file.metadata()?;
        Ok(Open { file, identity: identity_of(&metadata), is_regular: metadata.is_file() })
    }
}

impl Open {
    /// Writes `bytes`, and adds the number of bytes written to `written`. A pipe may take until `until`; a file on a
    /// disk has no timeout.
    fn write(&mut self, bytes: &[u8], until: Instant, written: &mut usize) -> io::Result<()> {
        while *written < bytes.len() {
            let rest = &bytes[*written..];
            let piece = if self.is_regular { rest } else { whole_lines(rest) };
            if !self.is_regular {
                self.wait(until)?;
            }
            match self.file.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => *written += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the file is writable.
    fn wait(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        let within = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&within))? {
            0 => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing reads from it, or the reader is too slow")),
            _ => Ok(()),
        }
    }
}

/// Returns as many bytes as a pipe accepts at once, cut at the last line end among them, so that no line is torn.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    let piece = &bytes[..bytes.len().min(PIECE_LEN)];
    memchr::memrchr(b'\n', piece).map_or(piece, |end| &piece[..=end])
}

fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
        let mut target = LogTarget::new(LogPlace::File(path.clone()));
        assert_eq!(target.write(b"a\n").0, 2);
        target.look();
        assert_eq!(target.write(b"b\n").0, 2);
        fs::rename(&path, &moved).unwrap();
        assert_eq!(target.write(b"c\n").0, 2);
        target.look();
        assert_eq!(target.write(b"d\n").0, 2);
        assert_eq!((fs::read(&moved).unwrap(), fs::read(&path).unwrap()), (b"a\nb\nc\n".to_vec(), b"d\n".to_vec()));
        assert_eq!(path.metadata().unwrap().mode() & 0o777 & !MODE, 0);
    }

    #[test]
    fn what_cannot_be_written_says_so_and_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not-there").join("access.log");
        let mut target = LogTarget::new(LogPlace::File(path.clone()));
        assert!(target.write(b"").1.is_err());
        assert!(target.write(b"a\n").1.is_err());
        assert!(!target.is_open());
        fs::create_dir(path.parent().unwrap()).unwrap();
        assert_eq!(target.write(b"b\n").0, 2);
        assert_eq!(fs::read(&path).unwrap(), b"b\n");
        let mut full = LogTarget::new(LogPlace::File("/dev/full".into()));
        assert_eq!(full.write(b"a\n").1.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_pipe_that_nobody_reads_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut target = LogTarget::new(LogPlace::File(path.clone()));
        assert!(target.write(b"a\n").1.is_err(), "nobody has opened it");
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let lines = b"0123456789abcde\n".repeat(16_384);
        let (written, done) = target.write(&lines);
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut, "nobody reads");
        assert!(written > 0, "{written}: a line was cut");
        assert!(written % 16 == 0, "{written}: a line was cut");
        drop(reader);
    }
}
