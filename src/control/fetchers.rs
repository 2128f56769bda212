//! Threads that read links from the store which are not in memory, where a node keeps only those in use there.
//!
//! The client's core gets the link, and so does the one that owns it: for its memory, with the number of commits that had
//! ended before the read, so that it does not take what was changed meanwhile (see `core::residents`). In a fleet Redis is
//! asked for what the store does not have, or cannot give.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, CodeHasher, CoreCount, owner};

use super::pool;
use super::readers::{self, Read};
use crate::limits::{FETCH_QUEUE_LEN, FETCH_TIME_MAX, FETCHERS};
use crate::link::Link;
use crate::mail::{LookUp, LookUpQueue, Post, ToCore};
use crate::redirect::Lookup;
use crate::stats::NodeStats;
use crate::store::links::Links;

/// What the fetchers work with.
#[derive(Clone, Debug)]
pub struct FetcherSetup {
    /// The store.
    pub links: Links,
    /// The cores' mailboxes.
    pub post: Post,
    /// The hasher of the process, to find owners.
    pub hasher: CodeHasher,
    /// How many cores own links.
    pub cores: CoreCount,
    /// Where to count.
    pub stats: Arc<NodeStats>,
    /// Who asks Redis; nobody where a node is alone.
    pub redis: Option<LookUpQueue>,
}

/// Starts the threads. They end when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: FetcherSetup) -> io::Result<(LookUpQueue, Vec<JoinHandle<()>>)> {
    #[cfg(feature = "faults")]
    let is_deaf = super::faults::Faults::from_env().deaf_fetchers;
    pool::start(
        "store-fetch",
        FETCHERS,
        FETCH_QUEUE_LEN,
        || (),
        move |look_up: LookUp| {
            #[cfg(feature = "faults")]
            if is_deaf {
                return;
            }
            if look_up.since.elapsed() < FETCH_TIME_MAX {
                setup.fetch(look_up);
            } else {
                // The client has been told; others still wait.
                setup.tell(&look_up, Lookup::NotResident);
            }
        },
    )
}

impl FetcherSetup {
    fn fetch(&self, look_up: LookUp) {
        // Asked for before the read: see Links::commits.
        let as_of = self.links.commits();
        let found = self.read(&look_up.code);
        let kept = match &found {
            Lookup::Live(link) => Some(Some(Arc::clone(link))),
            Lookup::Damaged => Some(None),
            Lookup::NotYetValid | Lookup::Expired | Lookup::Missing | Lookup::NotResident | Lookup::Unconfirmed => None,
        };
        if let Some(link) = kept {
            let core = owner(self.hasher.hash(&look_up.code), self.cores);
            self.post.to(core).post(ToCore::Fetched { code: look_up.code, link, as_of });
        }
        match (found, &self.redis) {
            (found @ (Lookup::Missing | Lookup::NotResident), Some(redis)) if !look_up.was_unknown => {
                let in_doubt = found == Lookup::NotResident;
                let question = LookUp { since: Instant::now(), in_doubt, ..look_up };
                if redis.try_send(question).is_err() {
                    self.tell(&look_up, if in_doubt { Lookup::NotResident } else { Lookup::Unconfirmed });
                }
            }
            (found, _) => self.tell(&look_up, found),
        }
    }

    fn tell(&self, look_up: &LookUp, found: Lookup<Arc<Link>>) {
        let LookUp { code, core, token, .. } = *look_up;
        self.post.to(core).post(ToCore::LookedUp { code, token, found, is_allowance: false });
    }

    fn read(&self, code: &Code) -> Lookup<Arc<Link>> {
        match readers::read(&self.links, &self.stats, code) {
            Read::Link(link) => Lookup::Live(link),
            Read::Nothing => Lookup::Missing,
            Read::Damaged(why) => {
                self.stats.report_damaged(code.key(&mut [0; CODE_KEY_LEN_MAX]), &why);
                Lookup::Damaged
            }
            Read::Unreadable => Lookup::NotResident,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::plan::tests::link;
    use crate::control::testing::TestNode;
    use crate::link::Origin;
    use crate::record;
    use carom_shards::CoreId;

    #[test]
    fn what_is_found_goes_to_who_asked_and_to_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let stored = link("abc", Origin::Custom);
        let (mut batch, mut record) = (node.links.batch(), Vec::new());
        record::encode_link(b"abc", &stored, &mut record);
        batch.put(&stored.code, &record);
        batch.put(&Code::parse(b"moved").unwrap(), &record);
        record.clear();
        record::encode_tombstone(b"gone", &record::tests::a_tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        node.links.commit(batch).unwrap();
        let commits = node.links.commits();

        let (queue, threads) = start(node.fetcher_setup()).unwrap();
        for (token, code) in [(0, "abc"), (1, "moved"), (2, "gone"), (3, "never")] {
            let code = Code::parse(code.as_bytes()).unwrap();
            queue
                .send(LookUp {
                    code,
                    core: CoreId(0),
                    token,
                    since: Instant::now(),
                    in_doubt: false,
                    was_unknown: false,
                })
                .unwrap();
        }
        let mut found = vec![Lookup::NotResident; 4];
        let mut kept = 0;
        for _ in 0..6 {
            match node.next_mail() {
                ToCore::LookedUp { token, found: this, .. } => found[token as usize] = this,
                ToCore::Fetched { code, link, as_of } => {
                    assert_eq!((link.is_some(), as_of), (code == stored.code, commits));
                    kept += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kept, 2);
        assert_eq!(found, [Lookup::Live(Arc::new(stored)), Lookup::Damaged, Lookup::Missing, Lookup::Missing]);
        // Whoever asked so long ago has been told that the link is unavailable.
        let long_ago = Instant::now().checked_sub(FETCH_TIME_MAX).unwrap();
        let abc = Code::parse(b"abc").unwrap();
        let late =
            LookUp { code: abc, core: CoreId(0), token: 9, since: long_ago, in_doubt: false, was_unknown: false };
        queue.send(late).unwrap();
        assert!(matches!(node.next_mail(), ToCore::LookedUp { token: 9, found: Lookup::NotResident, .. }));
        drop(queue);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
