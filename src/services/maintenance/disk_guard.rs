//! The check for free disk space. It comes before the store itself hits the end of the disk, because the store could
//! not continue after that without a restart.

use std::path::PathBuf;

use carom_limits::{DISK_FREE_MIN, DISK_FREE_MIN_SHARE};

/// Free space that files which a node can do without must leave for the store, as a multiple of the reserve at which creates
/// stop.
const RESERVES: u64 = 4;

/// Space of a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// The bytes that are free for this process.
    pub free: u64,
    /// The size of the file system in bytes.
    pub total: u64,
}

impl Space {
    /// Returns the space that is kept free for journals and compactions.
    pub fn reserve(self) -> u64 {
        DISK_FREE_MIN.min(self.total / DISK_FREE_MIN_SHARE)
    }
}

/// A watch on the free space of one directory.
#[derive(Debug)]
pub struct DiskGuard {
    dir: PathBuf,
    full: bool,
}

impl DiskGuard {
    /// Returns a guard of the file system that has `dir`.
    pub fn new(dir: PathBuf) -> DiskGuard {
        DiskGuard { dir, full: false }
    }

    /// True if writes may continue, given that a flush will write `unflushed` bytes once more. The writer calls it
    /// before each commit: another program can fill the disk between two commits, and the check costs a hundredth of a
    /// sync.
    pub fn has_room(&mut self, unflushed: u64) -> bool {
        // If the check fails, writes continue: a full disk then shows as a failed write, which is handled too.
        if let Ok(space) = self.space() {
            self.full = is_full(space, unflushed, self.full);
        }
        !self.full
    }

    /// True if a file of `bytes` more would leave the reserve of the store. False if the space is unknown: only files that
    /// a node can do without depend on this.
    pub(in crate::services) fn has_room_for(&self, bytes: u64) -> bool {
        self.space().is_ok_and(|space| space.free > space.reserve() + bytes)
    }

    /// Checks that `bytes` more in files that a node can do without leave enough space for the store.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::StorageFull`] if they do not, or any error of [`DiskGuard::space`].
    pub(in crate::services) fn check_room(&self, bytes: u64) -> std::io::Result<()> {
        let space = self.space()?;
        if space.free < (RESERVES * space.reserve()).saturating_add(bytes) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// Returns the current space.
    ///
    /// # Errors
    /// If the operating system cannot tell.
    pub fn space(&self) -> std::io::Result<Space> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(Space { free: stat.f_bavail * stat.f_frsize, total: stat.f_blocks * stat.f_frsize })
    }
}

/// True if the disk counts as full. Free space must cover what a flush will write, and a reserve for journals and
/// compactions. A full disk needs a quarter of the reserve on top before it counts as free again, so that it does not
/// toggle.
fn is_full(space: Space, unflushed: u64, was_full: bool) -> bool {
    let reserve = space.reserve();
    let slack = if was_full { reserve / 4 } else { 0 };
    space.free < reserve + slack + unflushed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1024 * 1024;

    #[test]
    fn a_small_disk_has_a_small_reserve() {
        let small = |free| Space { free: free * MB, total: 160 * MB };
        assert!(!is_full(small(20), 0, false));
        assert!(is_full(small(19), 0, false));
        assert!(is_full(small(30), 11 * MB, false));
        let large = |free| Space { free: free * MB, total: 1024 * 1024 * MB };
        assert!(is_full(large(255), 0, false));
        assert!(!is_full(large(256), 0, false));
    }

    #[test]
    fn full_and_free_are_a_step_apart() {
        let space = |free| Space { free: free * MB, total: 1024 * 1024 * MB };
        assert!(is_full(space(300), 0, true));
        assert!(!is_full(space(320), 0, true));
    }

    #[test]
    fn each_question_is_asked_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut guard = DiskGuard::new(dir.path().to_owned());
        for _ in 0..2 {
            assert!(guard.has_room(0));
            assert!(!guard.has_room(u64::MAX / 2));
            assert!(guard.has_room_for(0));
            assert!(!guard.has_room_for(u64::MAX / 2));
        }
    }
}
