//! The open views of a store. The library keeps what a view can see on disk, also after its removal. So a purge waits
//! until no view is left that can see what it has removed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The views that are open: how many, by the sequence number from which on they see no more commits.
#[derive(Debug, Default)]
pub(super) struct OpenViews(Mutex<BTreeMap<u64, usize>>);

/// An open view, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenView {
    of: Arc<OpenViews>,
    seqno: u64,
}

impl OpenViews {
    /// Notes a view that is about to be opened. `seqno` returns the sequence number of a view of this moment.
    pub(super) fn open(self: &Arc<OpenViews>, seqno: impl FnOnce() -> u64) -> OpenView {
        // Read under the lock: a purge that looks later finds the view, and one that has looked has a lower number.
        let mut open = self.locked();
        let seqno = seqno();
        *open.entry(seqno).or_default() += 1;
        OpenView { of: Arc::clone(self), seqno }
    }

    /// Returns the lowest sequence number of an open view; `None` without any.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.locked().first_key_value().map(|(seqno, _)| *seqno)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenView {
    fn drop(&mut self) {
        let mut open = self.of.locked();
        let count = open.get_mut(&self.seqno).expect("an open view is counted until it is dropped");
        *count -= 1;
        if *count == 0 {
            open.remove(&self.seqno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_view_is_known_until_all_of_its_number_are_gone() {
        let views = Arc::new(OpenViews::default());
        assert_eq!(views.oldest(), None);
        let [first, second, later] = [7, 7, 9].map(|seqno| views.open(|| seqno));
        drop(first);
        assert_eq!(views.oldest(), Some(7));
        drop(second);
        assert_eq!(views.oldest(), Some(9));
        drop(later);
        assert_eq!(views.oldest(), None);
    }
}
