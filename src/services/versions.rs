//! The versions of a value that a service publishes to the cores. It frees them, so that no core does.

use std::sync::Arc;

/// The published versions of a value, each of which a core may use. A core that replaces a version frees nothing, because
/// the service holds it for longer: a list of a million hosts takes some 50 ms to free.
#[derive(Debug)]
pub(in crate::services) struct Versions<T>(Vec<Arc<T>>);

impl<T> Default for Versions<T> {
    fn default() -> Versions<T> {
        Versions(Vec::new())
    }
}

impl<T> Versions<T> {
    /// Holds a version. Call it before any core gets the version.
    pub(in crate::services) fn hold(&mut self, version: &Arc<T>) {
        self.0.push(Arc::clone(version));
    }

    /// Frees the versions that nobody else uses. The thread of the service calls it from time to time.
    pub(in crate::services) fn sweep(&mut self) {
        self.0.retain(|version| Arc::strong_count(version) > 1);
    }

    /// Returns the number of versions that are held.
    #[cfg(test)]
    pub(in crate::services) fn held(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_versions_are_freed_by_a_sweep() {
        let mut versions = Versions::default();
        let (first, second) = (Arc::new("first"), Arc::new("second"));
        versions.hold(&first);
        versions.hold(&second);
        let of_service = Arc::downgrade(&first);
        // A core replaces it.
        drop(first);
        assert!(of_service.upgrade().is_some());
        versions.sweep();
        assert!(of_service.upgrade().is_none());
        assert_eq!(versions.held(), 1, "a core uses the second one: {second}");
    }
}
