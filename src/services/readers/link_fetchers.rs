//! Threads that read links which are not in memory from the store, on a node that keeps only the links in use there.
//!
//! Both the client's core and the owner of the code get the link. The owner caches it, unless it was changed during the
//! read: the message carries the number of commits that had ended before (see `core::link_memory`). In a fleet, Redis
//! is asked for links that the store does not have or cannot read.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, CodeHasher, CoreCount, owner};

use super::record_readers::{self, RecordRead};
use crate::bridge::{Absence, LookupQueue, LookupRequest, Mailboxes, ToCore};
use crate::services::threads::pool;
use crate::services::threads::priority::Priority;
use carom_limits::{FETCH_QUEUE_LEN, FETCH_TIME_MAX, FETCHERS};
use carom_model::link::Link;
use carom_model::redirect::Lookup;
use carom_store::links::Links;
use carom_telemetry::stats::NodeStats;

/// Inputs of the threads.
#[derive(Clone, Debug)]
pub struct FetcherSetup {
    /// The store of links.
    pub links: Links,
    /// The mailboxes of the cores.
    pub mailboxes: Mailboxes,
    /// The hasher of the process, which finds the owner of a code.
    pub hasher: CodeHasher,
    /// Number of cores that own links.
    pub cores: CoreCount,
    /// The counters of the node.
    pub stats: Arc<NodeStats>,
    /// The queue of look-ups in Redis; `None` for a single node.
    pub redis: Option<LookupQueue>,
}

/// Starts the threads. They end when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(setup: FetcherSetup) -> io::Result<(LookupQueue, Vec<JoinHandle<()>>)> {
    #[cfg(feature = "faults")]
    let is_deaf = crate::services::faults::Faults::from_env().deaf_fetchers;
    pool::start(Priority::Urgent, "store-fetch", FETCHERS, FETCH_QUEUE_LEN, move |look_up: LookupRequest| {
        #[cfg(feature = "faults")]
        if is_deaf {
            return;
        }
        if look_up.since.elapsed() < FETCH_TIME_MAX {
            setup.fetch(look_up);
        } else {
            // This client has got a timeout already; requests that joined it may still wait.
            setup.reply(&look_up, Lookup::NotResident);
        }
    })
}

impl FetcherSetup {
    fn fetch(&self, look_up: LookupRequest) {
        // Counted before the read: see Links::commits.
        let as_of = self.links.commits();
        let found = self.read(&look_up.code);
        let kept = match &found {
            Lookup::Live(link) => Some(Some(Arc::clone(link))),
            Lookup::Damaged => Some(None),
            Lookup::NotYetValid
            | Lookup::Expired
            | Lookup::Missing
            | Lookup::Ruled
            | Lookup::NotResident
            | Lookup::Unconfirmed => None,
        };
        if let Some(link) = kept {
            let core = owner(self.hasher.hash(&look_up.code), self.cores);
            self.mailboxes.to(core).post(ToCore::CacheLink { code: look_up.code, link, as_of });
        }
        match (found, &self.redis) {
            (found @ (Lookup::Missing | Lookup::NotResident), Some(redis)) if !look_up.absence_is_final => {
                let may_be_stored = found == Lookup::NotResident;
                let question = LookupRequest { since: Instant::now(), may_be_stored, ..look_up };
                if redis.try_send(question).is_err() {
                    self.reply(&look_up, if may_be_stored { Lookup::NotResident } else { Lookup::Unconfirmed });
                }
            }
            (found, _) => self.reply(&look_up, found),
        }
    }

    fn reply(&self, look_up: &LookupRequest, found: Lookup<Arc<Link>>) {
        let LookupRequest { code, core, token, .. } = *look_up;
        let (is_allowance, absence) = (false, Absence::Unknown);
        self.mailboxes.to(core).post(ToCore::LookupDone { code, token, found, is_allowance, absence });
    }

    fn read(&self, code: &Code) -> Lookup<Arc<Link>> {
        match record_readers::read(&self.links, &self.stats, code) {
            RecordRead::Link(link) => Lookup::Live(link),
            RecordRead::Nothing | RecordRead::Deleted(_) => Lookup::Missing,
            RecordRead::Damaged(why) => {
                self.stats.report_damaged(code.key(&mut [0; CODE_KEY_LEN_MAX]), &why);
                Lookup::Damaged
            }
            // Redis is asked next, and has the state.
            RecordRead::Newer(None) => Lookup::Missing,
            RecordRead::Newer(Some(why)) => {
                self.stats.report_newer(code.key(&mut [0; CODE_KEY_LEN_MAX]), &why);
                Lookup::NotResident
            }
            RecordRead::Unreadable => Lookup::NotResident,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::TestNode;
    use carom_model::link::Origin;
    use carom_model::link::record;
    use carom_model::testing::link;
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
        record::encode_tombstone(b"gone", &carom_model::testing::tombstone(), &mut record);
        batch.put(&Code::parse(b"gone").unwrap(), &record);
        let newer = link("newer", Origin::Custom);
        batch.put(&newer.code, &carom_model::testing::newer_record(&newer));
        node.links.commit(batch).unwrap();
        let commits = node.links.commits();

        let (queue, threads) = start(node.fetcher_setup()).unwrap();
        for (token, code) in [(0, "abc"), (1, "moved"), (2, "gone"), (3, "never"), (4, "newer")] {
            let code = Code::parse(code.as_bytes()).unwrap();
            // The deadline is longer than any stall of the machine.
            let since = Instant::now() + 10 * FETCH_TIME_MAX;
            queue.send(LookupRequest::new(code, CoreId(0), token, since)).unwrap();
        }
        let mut found = vec![Lookup::Unconfirmed; 5];
        let mut kept = 0;
        for _ in 0..7 {
            match node.next_mail() {
                ToCore::LookupDone { token, found: this, .. } => found[token as usize] = this,
                ToCore::CacheLink { code, link, as_of } => {
                    assert_eq!((link.is_some(), as_of), (code == stored.code, commits));
                    kept += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kept, 2);
        assert_eq!(found[..2], [Lookup::Live(Arc::new(stored)), Lookup::Damaged]);
        assert_eq!(found[2..], [Lookup::Missing, Lookup::Missing, Lookup::NotResident]);
        assert_eq!((node.stats.store_damaged.get(), node.stats.store_newer.get()), (1, 1));
        // A request this old has got its answer already: the link is unavailable.
        let long_ago = Instant::now().checked_sub(FETCH_TIME_MAX).unwrap();
        let abc = Code::parse(b"abc").unwrap();
        let late = LookupRequest::new(abc, CoreId(0), 9, long_ago);
        queue.send(late).unwrap();
        assert!(matches!(node.next_mail(), ToCore::LookupDone { token: 9, found: Lookup::NotResident, .. }));
        drop(queue);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
