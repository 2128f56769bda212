//! The home of the states of links, by the setting `links.home`: the store of each node, or Redis for all nodes.
//!
//! A node whose links have a shared home stores only states that Redis may lack. It has no copy of the links to compare
//! with Redis or to answer from. So its look-ups take the place of reads from the store: they bring links into memory,
//! and count visits.

use std::sync::Arc;
use std::time::Duration;

use carom_shards::{Code, CodeHasher, CoreCount, owner};

use crate::bridge::{Mailboxes, ToCore};
use crate::services::visits::VisitReader;
use carom_model::link::Link;
use carom_model::replication::State;
use carom_model::visits::tally::VisitCounts;
use carom_store::links::{Links, StoreError};

/// The home of the states of links.
#[derive(Clone)]
pub enum StateHome {
    /// The store of each node: this node stores all links.
    Node,
    /// Redis: this node stores only states that Redis may lack.
    Shared(SharedHome),
}

/// The parts of a node that answer for links in a shared home.
#[derive(Clone)]
pub struct SharedHome {
    /// The hasher of the process, which finds the owner of a code.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The visits of links.
    pub visits: VisitReader,
}

impl StateHome {
    /// True if this node stores all links. Such a node compares them with Redis after a loss, stores what its look-ups find,
    /// and marks codes whose states it cannot decode.
    pub(super) fn stores_all_links(&self) -> bool {
        matches!(self, StateHome::Node)
    }

    /// True if the writer drops states that Redis has had for a while. It must then hear of the time even while its outbox is
    /// empty.
    pub(super) fn drops_settled_states(&self) -> bool {
        !self.stores_all_links()
    }

    /// True if look-ups of a code share one question to Redis: without a copy of the link, each request for it that memory
    /// cannot answer is a look-up.
    pub(super) fn shares_questions(&self) -> bool {
        !self.stores_all_links()
    }

    /// Returns the time for which a client waits for a look-up, given the timeouts of look-ups and of changes. A link in a
    /// shared home is worth a longer wait than a code that may have a link on another node.
    pub(super) fn look_up_time(&self, of_look_ups: Duration, of_changes: Duration) -> Duration {
        match self {
            StateHome::Node => of_look_ups,
            StateHome::Shared(_) => of_changes.max(of_look_ups),
        }
    }

    /// Returns the state that a look-up must compare with the one in Redis, since Redis may lack it. On a node that stores
    /// all links, memory or the store was asked before: `None`.
    pub(super) fn unsettled_state(&self, code: &Code, links: &Links) -> Option<State> {
        match self {
            StateHome::Node => None,
            StateHome::Shared(_) => State::from_value(*code, &links.get(code).ok()??),
        }
    }

    /// Gives a link that a look-up has found to the memory of its owner. The question was sent when `as_of` commits had
    /// ended. On a node that stores all links, the writer does that.
    pub(super) fn keep_in_memory(&self, link: &Arc<Link>, as_of: u64, mailboxes: &Mailboxes) {
        let StateHome::Shared(home) = self else { return };
        let (code, link) = (link.code, Some(Arc::clone(link)));
        let core = owner(home.hasher.hash(&code), home.cores);
        mailboxes.to(core).post(ToCore::CacheLink { code, link, as_of });
    }

    /// Returns the visits of a link that a look-up has found. On a node that stores all links, the readers know them once
    /// the link is stored: zero. Blocks for the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn counts(&self, code: Code) -> Result<VisitCounts, StoreError> {
        match self {
            StateHome::Node => Ok(VisitCounts::default()),
            StateHome::Shared(home) => Ok(home.visits.counts(&[code])?.first().copied().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::{Origin, record};
    use carom_model::testing::link;

    /// Stores a link on a node, and returns its code and both homes.
    fn node_with_link(dir: &std::path::Path) -> (TestNode, Arc<Link>, [StateHome; 2]) {
        let node = TestNode::new(dir, 1);
        let counted = crate::services::visits::start(dir, &node.links, Vec::new(), &node.stats, None).unwrap();
        let shared = SharedHome { hasher: node.hasher, cores: node.cores, visits: counted.visits };
        let (link, mut batch, mut value) = (link("abc", Origin::Custom), node.links.batch(), Vec::new());
        record::encode_link(b"abc", &link, &mut value);
        batch.put(&link.code, &value);
        node.links.commit(batch).unwrap();
        (node, Arc::new(link), [StateHome::Node, StateHome::Shared(shared)])
    }

    #[test]
    fn look_ups_of_a_shared_home_wait_as_long_as_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (_, _, [own, shared]) = node_with_link(dir.path());
        let (short, long) = (Duration::from_millis(20), Duration::from_millis(50));
        assert_eq!(own.look_up_time(short, long), short);
        assert_eq!(shared.look_up_time(short, long), long);
        assert_eq!(shared.look_up_time(long, short), long, "the setting may ask for more");
    }

    #[test]
    fn stored_state_counts_beside_a_shared_home() {
        let dir = tempfile::tempdir().unwrap();
        let (node, link, [own, shared]) = node_with_link(dir.path());
        assert_eq!(own.unsettled_state(&link.code, &node.links), None, "the store was read before");
        assert_eq!(shared.unsettled_state(&link.code, &node.links), Some(State::Link(Arc::clone(&link))));
        assert_eq!(shared.counts(link.code).unwrap(), VisitCounts::default());
    }

    #[test]
    fn found_link_reaches_memory_if_the_store_lacks_it() {
        let dir = tempfile::tempdir().unwrap();
        let (node, link, [own, shared]) = node_with_link(dir.path());
        own.keep_in_memory(&link, 7, &node.mailboxes);
        assert!(node.mail[0].try_recv().is_err(), "the writer hands it over");
        shared.keep_in_memory(&link, 7, &node.mailboxes);
        let ToCore::CacheLink { code, as_of, .. } = node.next_mail() else { panic!("no link") };
        assert_eq!((code, as_of), (link.code, 7));
    }
}
