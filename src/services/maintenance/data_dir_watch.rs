//! The thread that looks at the data directory for status and metrics: free space of its disk, and the time of the last
//! backup. It is a thread of its own, because a disk that hangs must stop neither a core nor the samples of activity.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::disk_guard::DiskGuard;
use super::last_backup;
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_telemetry::stats::{DataDirStats, NodeStats};

/// Interval of the looks. Prometheus scrapes rarely more often, and the disk is checked before each commit anyway.
const EVERY: Duration = Duration::from_secs(2);

/// A handle on the thread.
pub struct DataDirWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl DataDirWatch {
    /// Stops the thread and waits for it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Notes the path of a data directory, and starts the thread that looks at it.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(data_dir: &Path, stats: Arc<NodeStats>) -> io::Result<DataDirWatch> {
    let path = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
    // A node has one data directory, and one watch.
    let _ = stats.data_dir.path.set(path);
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let mut look = DataDirCheck { data_dir: data_dir.to_owned(), has_warned: false };
    let run = move || {
        while !until.load(Ordering::Acquire) {
            look.take(&stats.data_dir);
            std::thread::park_timeout(EVERY);
        }
    };
    let thread = threads::start(Priority::Long, "data-dir", run)?;
    Ok(DataDirWatch { stop, thread })
}

/// The looks at a data directory.
struct DataDirCheck {
    data_dir: PathBuf,
    /// True if the last look failed, which the log has once.
    has_warned: bool,
}

impl DataDirCheck {
    /// Reads everything once. A value that cannot be read stays as it was.
    fn take(&mut self, stats: &DataDirStats) {
        let done = self.read(stats);
        if let Err(error) = &done
            && !self.has_warned
        {
            tracing::warn!(%error, "the state of the data directory {} is unknown", self.data_dir.display());
        }
        self.has_warned = done.is_err();
    }

    fn read(&self, stats: &DataDirStats) -> io::Result<()> {
        let space = DiskGuard::new(self.data_dir.clone()).space()?;
        stats.free_bytes.set(space.free);
        stats.size_bytes.set(space.total);
        stats.last_backup_ms.set(last_backup::read(&self.data_dir)?.unwrap_or(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_sees_the_disk_and_the_last_backup() {
        let dir = tempfile::tempdir().unwrap();
        let (stats, mut look) =
            (DataDirStats::default(), DataDirCheck { data_dir: dir.path().to_owned(), has_warned: false });
        look.take(&stats);
        assert!(stats.free_bytes.get() > 0);
        assert!(stats.size_bytes.get() >= stats.free_bytes.get());
        assert_eq!(stats.last_backup_ms.get(), 0);
        last_backup::write(dir.path(), 1_700_000_000_000).unwrap();
        look.take(&stats);
        assert_eq!(stats.last_backup_ms.get(), 1_700_000_000_000);
        // A time that cannot be read leaves the last one.
        std::fs::write(dir.path().join(last_backup::FILE_NAME), "soon").unwrap();
        look.take(&stats);
        assert!(look.has_warned);
        assert_eq!(stats.last_backup_ms.get(), 1_700_000_000_000);
    }
}
