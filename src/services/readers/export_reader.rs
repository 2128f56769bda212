//! The thread that reads the store page by page, for exports over HTTP.
//!
//! No state is kept between two pages except the last key, which comes with the next request, so a slow client costs
//! nothing here. An export is therefore not a snapshot. A link that exists throughout is included once; whether others
//! are depends on when their page is read.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use carom_shards::Code;

use super::export;
use crate::bridge::{Mailboxes, Page, PageQueue, PageRequest};
use crate::services::search::filter::LinkFilter;
use crate::services::search::visits::VisitSource;
use crate::services::threads::pool;
use crate::services::threads::priority::{PacedLoop, Priority};
use carom_limits::{EXPORT_PAGE_BYTES, EXPORT_PAGE_RECORDS, EXPORT_QUEUE_LEN};
use carom_model::link::record::LinkRef;
use carom_store::links::{Links, key_ranges};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::NodeStats;

/// Starts the thread. It ends when all senders are gone.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(
    links: &Links,
    mailboxes: &Mailboxes,
    stats: &Arc<NodeStats>,
    visits: Arc<dyn VisitSource>,
) -> io::Result<(PageQueue, Vec<JoinHandle<()>>)> {
    let (links, mailboxes, stats) = (links.clone(), mailboxes.clone(), Arc::clone(stats));
    pool::start(
        Priority::Long,
        "store-pages",
        1,
        EXPORT_QUEUE_LEN,
        move |PageRequest { behind, filter, ticket }: PageRequest| {
            let mut link_filter = LinkFilter::new(&filter, &*visits, unix_ms());
            let page = page(&links, &stats, &behind, &mut link_filter, PAGE_BOUNDS);
            mailboxes.answer(ticket, page);
        },
    )
}

/// The bounds of a page.
#[derive(Clone, Copy, Debug)]
struct PageBounds {
    /// Bytes of lines, about.
    bytes: usize,
    /// Most records that are read.
    records: usize,
}

/// Bounds of the pages of exports.
const PAGE_BOUNDS: PageBounds = PageBounds { bytes: EXPORT_PAGE_BYTES, records: EXPORT_PAGE_RECORDS };

/// Returns the page after a key. Damaged records are reported only to a client that may see all links, because their
/// owner is unknown.
fn page(
    links: &Links,
    stats: &NodeStats,
    behind: &[u8],
    link_filter: &mut LinkFilter<'_>,
    PageBounds { bytes, records }: PageBounds,
) -> Page {
    let tells_all = link_filter.filter().scope.is_all();
    let mut page = Page { lines: Vec::with_capacity(bytes + 4_096), ..Page::default() };
    let mut left = records;
    let (mut last, mut paced) = (Vec::new(), PacedLoop::default());
    for part in key_ranges().into_iter().filter(|part| !part.is_before(behind)) {
        let mut damaged = Vec::new();
        let scanned = links.scan_after(part, behind, |key, value| {
            paced.step();
            let is_wanted = |code: &Code, link: &LinkRef<'_>| link_filter.takes(code, link);
            match export::write_line(key, value, is_wanted, &mut page.lines) {
                Err(what) if tells_all => damaged.push(what),
                Ok(_) | Err(_) => {}
            }
            left -= 1;
            last.clear();
            last.extend_from_slice(key);
            left > 0 && page.lines.len() < bytes
        });
        page.damaged.append(&mut damaged);
        match scanned {
            Ok(ranges) if tells_all => page.damaged.extend(ranges.iter().map(ToString::to_string)),
            Ok(_) => {}
            Err(error) => {
                stats.store_errors.add_shared(1);
                tracing::error!(%error, "an export could not read the store");
                page.failed = true;
                return page;
            }
        }
        if left == 0 || page.lines.len() >= bytes {
            page.last = Some(last);
            return page;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::testing::{TestNode, sleeps_of};
    use carom_model::link::Origin;
    use carom_model::link::record;
    use carom_model::query::Filter;
    use carom_model::testing::link;
    use carom_model::visits::tally::VisitCounts;
    use carom_store::links::StoreError;

    struct Nobody;

    impl VisitSource for Nobody {
        fn counts(&self, codes: &[Code]) -> Result<Vec<VisitCounts>, StoreError> {
            Ok(vec![VisitCounts::default(); codes.len()])
        }
    }

    /// Returns all lines, read in pages of the given bounds, and the reports of damage.
    fn read_all(node: &TestNode, bounds: PageBounds) -> (Vec<u8>, Vec<String>) {
        let (mut lines, mut damaged, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let filter = Filter::default();
            let page = page(&node.links, &node.stats, &behind, &mut LinkFilter::new(&filter, &Nobody, 0), bounds);
            assert!(!page.failed);
            lines.extend(page.lines);
            damaged.extend(page.damaged);
            match page.last {
                Some(last) => behind = last,
                None => return (lines, damaged),
            }
        }
    }

    #[test]
    fn exports_pause_beside_cores() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let mut batch = node.links.batch();
        for number in 0..500 {
            let (name, mut record) = (format!("c{number}"), Vec::new());
            record::encode_link(name.as_bytes(), &link(&name, Origin::Custom), &mut record);
            batch.put(&Code::parse(name.as_bytes()).unwrap(), &record);
        }
        node.links.commit(batch).unwrap();
        let (links, stats) = (node.links.clone(), Arc::clone(&node.stats));
        let sleeps = sleeps_of(Priority::Long, move || {
            let filter = Filter::default();
            let bounds = PageBounds { bytes: 1 << 20, records: 1_000 };
            let page = page(&links, &stats, &[], &mut LinkFilter::new(&filter, &Nobody, 0), bounds);
            assert!(!page.lines.is_empty());
            assert!(page.last.is_none());
        });
        assert!(sleeps >= 10, "{sleeps} for 500 links");
    }

    #[test]
    fn pages_of_any_size_tell_the_same_as_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::new(dir.path(), 1);
        let mut batch = node.links.batch();
        let mut record = Vec::new();
        let names = ["-", "0", "0a", "A-", "Zz", "a", "aa", "ab", "b", "z", "zz-top", "z_", "_", "__"];
        for (at, name) in names.iter().enumerate() {
            let code = Code::parse(name.as_bytes()).unwrap();
            record.clear();
            match at % 4 {
                3 => record::encode_tombstone(name.as_bytes(), &carom_model::testing::tombstone(), &mut record),
                _ => record::encode_link(name.as_bytes(), &link(name, Origin::Custom), &mut record),
            }
            if at == 5 {
                record[3] ^= 1;
            }
            batch.put(&code, &record);
        }
        node.links.commit(batch).unwrap();
        let mut whole = Vec::new();
        let summary = export::export(&node.links, 1, &mut whole, &mut io::sink(), false).unwrap();
        assert_eq!((summary.links, summary.damaged), (10, 1));
        for (bytes, records) in [(1, 100), (150, 100), (1 << 20, 1), (1 << 20, 3), (1 << 20, 100)] {
            let bounds = PageBounds { bytes, records };
            let (lines, damaged) = read_all(&node, bounds);
            assert_eq!(String::from_utf8_lossy(&lines), String::from_utf8_lossy(&whole), "{bounds:?}");
            assert!(damaged.len() == 1, "{damaged:?}");
            assert!(damaged[0].starts_with("a: "), "{damaged:?}");
        }
    }
}
