//! Limits of lists and searches.

use std::time::Duration;

/// Maximum number of links on a page. Each is a random read of the store.
pub const LIST_PER_PAGE_MAX: usize = 500;

/// Links on a page by default, as in Shlink.
pub const LIST_PER_PAGE: usize = 10;

/// Maximum number of tags on a page, and the default. Clients of Shlink expect all of them at once.
pub const TAGS_PER_PAGE_MAX: usize = 10_000;

/// Maximum number of links whose visits one request adds up to sort tags by visits: half a second.
pub const TAGS_SORTED_LINKS_MAX: u64 = 50_000;

/// Maximum number of tags whose links are counted: 10 MB of memory. A service with more uses tags for something else
/// than lists.
pub const TAGS_COUNTED_MAX: usize = 100_000;

/// Links that a rename or removal of tags changes at once. The writer puts them into one commit, or a few.
pub const RETAG_BATCH_LEN: usize = 256;

/// Longest time for which one request counts the links of a filter. Proxies often wait 60 seconds for a response.
pub const BULK_COUNT_TIME_MAX: Duration = Duration::from_secs(20);

/// Longest time for which one request renames or removes tags; the client then repeats it to continue. Proxies often
/// wait 60 seconds for a response.
pub const RETAG_TIME_MAX: Duration = Duration::from_secs(20);

/// Maximum number of tags of one app whose links are counted. Links can still be listed by any tag.
pub const TAGS_OF_APP_COUNTED_MAX: usize = 10_000;

/// Maximum number of counted tags of all apps together: some 40 MB of memory.
pub const TAGS_OF_APPS_COUNTED_MAX: usize = 400_000;

/// Longest search term, in characters: as long as a title.
pub const SEARCH_TERM_MAX: usize = 512;

/// Maximum number of links that are read for one page. In the order of codes, which is that of the store,
/// [`SEARCH_TIME_MAX`] is enough for that many; in the order of creation, for a tenth.
pub const LIST_LOOKED_MAX: u64 = 500_000;

/// Time limit of a search for one page, and of a scan in another order than that of creation.
pub const SEARCH_TIME_MAX: Duration = Duration::from_millis(250);

/// Time limit for a page in the order of creation without a search. Indexes answer nearly all of it: some 100,000 links
/// in that time.
pub const LIST_TIME_MAX: Duration = Duration::from_millis(40);

/// Maximum number of links that are read after a page is full, to count the matches.
pub const LIST_COUNTED_MAX: u64 = 2_000;

/// Maximum memory for texts of links that were created or changed lately, in bytes, until the thread that signs
/// sections has written them to the file. It holds some seconds of the fastest writers. If the memory for searches is
/// small, the limit is a quarter of it.
pub const SEARCH_HELD_BYTES: usize = 16 << 20;

/// Maximum size of the texts that a search reads at once, in bytes. A section of ordinary links has a third of that.
pub const SEARCH_SECTION_BYTES: usize = 1 << 20;

/// Changes of links after which the search sections are saved again. A start after a crash looks each change up, in
/// about 10 µs.
pub const SEARCH_KEPT_AFTER: u64 = 100_000;

/// Maximum number of changes that a start looks up to update saved search sections. Beyond it, signing all links again
/// is hardly more work.
pub const SEARCH_REPLAYED_MAX: usize = 500_000;

/// Minimum memory for search signatures, in bytes: enough for some 80,000 links.
pub const SEARCH_MEMORY_MIN: u64 = 1 << 20;

/// Time limit for a page in an order without an index, of a list that is too long to sort for each page. A node reads some
/// million links in that time. A list that takes longer is sorted in the background.
pub const LIST_ORDER_TIME_MAX: Duration = Duration::from_secs(8);

/// Time between the end of a scan for an order without an index and [`crate::ANSWER_TIME_MAX`], so that its client gets the
/// answer.
pub const LIST_ORDER_SPARE_TIME: Duration = Duration::from_millis(500);

/// Maximum number of lists that a node keeps sorted in files. An older version of a list counts as one of them.
pub const SORTED_LISTS_MAX: usize = 8;

/// Maximum number of sorted lists that a node keeps for one app: half, so that one app leaves room for others.
pub const SORTED_LISTS_OF_APP_MAX: usize = SORTED_LISTS_MAX / 2;

/// Maximum number of lists that wait to be sorted, one after the other.
pub const SORTS_WAITING_MAX: usize = 4;

/// Maximum number of lists of one app that wait to be sorted, or are being sorted.
pub const SORTS_OF_APP_MAX: usize = SORTS_WAITING_MAX / 2;

/// Time for which a sorted list is kept after its last use.
pub const SORTED_KEPT_TIME: Duration = Duration::from_secs(5 * 60);

/// Least time for which a sorted list serves requests without a cursor. Then it is sorted again when a client asks for it.
pub const SORTED_VALID_TIME: Duration = Duration::from_secs(10 * 60);

/// Memory for the links that a background sort puts in order at once, in bytes: some 100 ms, after which it sees the end of
/// the node.
pub const SORT_RUN_BYTES: usize = 4 << 20;

/// Bytes that a background sort reads ahead when it merges its runs.
pub const SORT_AHEAD_BYTES: usize = 16 << 20;

/// Maximum size of the files of a background sort, in bytes: 300 million links with destinations of ordinary length.
pub const SORT_BYTES_MAX: u64 = 32 << 30;

/// Maximum size of all sorted lists together, in bytes. A link takes about 15.
pub const SORTED_BYTES_MAX: u64 = 8 << 30;

/// Maximum number of links that are sorted for one page, in an order without an index: 30 ms.
pub const LIST_SORTED_MAX: usize = 2_500;

/// Index entries that the background count after a start reads at once: some milliseconds. Commits wait while it adds them
/// to the counts, for some hundred microseconds.
pub const COUNTED_AT_ONCE: usize = 2_048;

/// Maximum number of bytes of codes in `robots.txt`. Crawlers need not read more than 500 KiB (RFC 9309, section 2.5).
pub const ROBOTS_LEN_MAX: usize = 500 * 1024 - 256;

/// Queries of lists that may wait for the list threads.
pub const LIST_QUEUE_LEN: usize = 256;

/// Threads for pages that indexes answer.
pub const LISTERS: usize = 2;

/// Searches that may wait: four seconds.
pub const SEARCH_QUEUE_LEN: usize = 16;

/// Threads for searches. A single one leaves the CPUs to redirects.
pub const SEARCHERS: usize = 1;

/// Queries in an order without an index that may wait. Most of them take some milliseconds.
pub const ORDER_QUEUE_LEN: usize = 16;

/// Threads for orders without an index: while one of them reads a long list, the other one sorts short lists.
pub const ORDERERS: usize = 2;
