//! Limits of visit counts, and of links with `maxVisits`.

/// Memory for visit counts before they are written to the store, in bytes. Above it, links are still counted, in some
/// 64 bytes each, but referrers are not: a client can invent any number of those.
pub const VISITS_TALLIED_BYTES: usize = 64 * 1024 * 1024;

/// Referring hosts in memory for one link and hour; beyond it, the rarest are dropped. The store keeps fewer, so some
/// room is left for hosts that turn out to be rare.
pub const LINK_HOSTS_HELD: usize = 128;

/// Referring hosts in memory for all links together and one hour. More than for one link, since more hosts refer to
/// them.
pub const ALL_HOSTS_HELD: usize = 400;

/// Bytes of the visit log before visits are in the store: a start after a crash reads so many in a second.
pub const VISITS_LOG_BYTES: u64 = 128 * 1024 * 1024;

/// Redirects of limited links that may wait for a grant of visits. Further requests get 503.
pub const ALLOWANCE_QUEUE_LEN: usize = 16_384;

/// Redirects of limited links that are handled together: those of one link share a write.
pub const ALLOWANCE_BATCH: usize = 1_024;

/// Referring hosts that the API shows for a link or a period, those with the most visits.
pub const REFERRERS_SHOWN_MAX: usize = 100;

/// Bytes of visit counts of one node that wait for Redis. Beyond it, the oldest are dropped, and other nodes ask for a
/// snapshot once Redis is back.
pub const VISITS_UNSENT_BYTES: usize = 32 * 1024 * 1024;

/// Bytes of visit counts that Redis keeps for each node: minutes at a high load, weeks at a low one. A node that was
/// away for longer asks for a snapshot.
pub const VISITS_STREAM_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of visit counts in one stream entry, unless a single batch is longer.
pub const VISITS_ENTRY_BYTES: usize = 1024 * 1024;

/// Bytes of one chunk of a snapshot of visit counts.
pub const VISITS_CHUNK_BYTES: usize = 256 * 1024;

/// Chunks of a snapshot that Redis holds at once.
pub const VISITS_CHUNKS_HELD: usize = 4;

/// Rows of an unfinished snapshot of visit counts that a node can remove at once if the snapshot is given up. Rows of
/// larger ones are left to the hourly search.
pub const SNAPSHOT_NAMES_NOTED: usize = 32_768;

/// Bytes of the ring in which a core logs visits: some ten thousand visits. The log's thread drains it up to fifty
/// times a second.
pub const VISIT_LOG_RING_LEN: usize = 4 * 1024 * 1024;

/// Bytes of the records in one segment of the visit log, before compression. The newest segment is also in memory.
pub const VISIT_SEGMENT_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the records in one block of a segment, before compression. A query for one link decompresses a block or
/// two of each segment.
pub const VISIT_BLOCK_BYTES: usize = 64 * 1024;

/// Bytes of the visit log that Redis keeps for each node: some 200,000 visits. A node that was away for longer lacks
/// the visits of the others in between, and says so. Twelve nodes need less than half a gigabyte of Redis.
pub const VISIT_LOG_STREAM_BYTES: usize = 32 * 1024 * 1024;

/// Entries of the visit log that Redis keeps for each node: three days with one entry each second.
pub const VISIT_LOG_STREAM_ENTRIES: usize = 250_000;

/// Bytes of blocks in one stream entry of the visit log, unless a single block is longer.
pub const VISIT_LOG_ENTRY_BYTES: usize = 256 * 1024;

/// Bytes of sealed files that a node keeps because other nodes may lack blocks of them. Beyond it, the oldest file is
/// removed, and other nodes note a gap.
pub const VISIT_LOG_UNSENT_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of records of other nodes that wait for the thread that writes the log, unless a single block is longer.
pub const VISIT_LOG_INBOX_BYTES: usize = 16 * 1024 * 1024;

/// Spans of time in which the visit log may lack visits. Beyond them, neighbours are joined.
pub const VISIT_LOG_GAPS_MAX: usize = 64;

/// Data directories whose visit logs Redis names, with a hundred bytes for each. A node remembers twice as many.
pub const VISIT_LOG_ORIGINS_MAX: usize = 1_024;

/// Longest time for which a node may lack news of the logs of live nodes and still call its lists complete. Nodes
/// publish and read once a second.
pub const VISIT_LOG_LAG_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Time for which the nodes of a fleet remember a deletion of visits, for visits that arrive later.
pub const VISIT_DELETIONS_KEPT: std::time::Duration = std::time::Duration::from_secs(30 * 24 * 3_600);

/// Queries of the visit log that may wait. Further requests get 503.
pub const VISIT_QUERY_QUEUE_LEN: usize = 64;

/// Time that one query of the visit log may take. A longer one returns what it has found, and says so.
pub const VISIT_QUERY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Visits on one page of the API: what Shlink's web client asks for.
pub const VISITS_PER_PAGE_MAX: u64 = 5_000;

/// Visits on one page of the API if the client names no number, as in Shlink.
pub const VISITS_PER_PAGE: u64 = 1_000;

/// Visits on a page that a core describes itself. A thread describes more of them.
pub const VISITS_WRITTEN_AT_ONCE: usize = 50;

/// Links whose visits by day one request reads: a long page of a list.
pub const VISIT_DAYS_LINKS_MAX: usize = 100;

/// Days of each link in such a response. With [`VISIT_DAYS_LINKS_MAX`] links, it has less than a megabyte.
pub const VISIT_DAYS_MAX: u32 = 100;

/// Days of each link if the client names no period, as in the sparklines of the console.
pub const VISIT_DAYS_USUAL: u32 = 30;

/// Days with visits, of all links together, that a core describes itself: about 0.2 ms. A thread describes more of them.
pub const VISIT_DAYS_WRITTEN_AT_ONCE: usize = 256;

/// Days, hours and referring hosts of a history of visits that a core describes itself: about 0.2 ms. A thread describes
/// more of them: a history has 744 hours, and a day for each day with visits.
pub const HISTORY_WRITTEN_AT_ONCE: usize = 256;

/// Links that a query of the log remembers. Beyond them, links are looked up again.
pub const VISIT_LINKS_REMEMBERED: usize = 100_000;

/// Deletions of visits that wait for their removal from the disk. Further deletions are refused until the next daily
/// pass has removed some.
pub const VISIT_DELETIONS_MAX: usize = 10_000;

/// Values of one property, such as destinations, that the statistics of visits count at once. Beyond them, the rarer half
/// is left out, and the statistics say so.
pub const VISIT_VALUES_COUNTED_MAX: usize = 10_000;

/// Values of each property that the statistics of visits show.
pub const VISIT_VALUES_SHOWN_MAX: u64 = 500;

/// Values of each property that the statistics of visits show if the client names no number.
pub const VISIT_VALUES_SHOWN: u64 = 20;

/// Links that the statistics of visits show: the node reads the record of each.
pub const VISIT_LINKS_SHOWN_MAX: usize = 100;

/// Values that the statistics of visits have counted, of all properties together, up to which a core sorts and describes
/// them itself: about 0.2 ms. A thread does it for more of them.
pub const VISIT_VALUES_WRITTEN_AT_ONCE: usize = 256;

/// Bytes of a file with locations of addresses. The node has it in memory; those with cities have about 120 MiB.
pub const GEO_FILE_LEN_MAX: u64 = 1024 * 1024 * 1024;
