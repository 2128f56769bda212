//! All limits of the server, each with the reason for its number.

use std::time::Duration;

/// Characters of a private code: 95 random bits, too many to be guessed.
pub const PRIVATE_CODE_LEN: usize = 16;

/// Longest long URL in its serialised form, in bytes. Browsers and crawlers handle this length reliably.
pub const TARGET_LEN_MAX: usize = 2_048;

/// Limits on the connections of a core, as an operator may set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections of a core, at least 1.
    pub connections: usize,
    /// Maximum number of open connections of an address; 0 for no limit.
    pub per_address: usize,
    /// True if the limit by address includes addresses of loopback and of private networks.
    pub counts_private: bool,
    /// Maximum number of TLS handshakes in progress.
    pub handshakes: usize,
    /// Maximum number of requests of a connection; 0 for no limit.
    pub requests: u32,
    /// Idle timeout of a connection between two requests.
    pub idle_time: Duration,
    /// Timeout from the first byte of a head to its last.
    pub head_time: Duration,
    /// Longest head, in bytes.
    pub head_len: u32,
    /// Timeout from the end of a head to the end of its body. A streamed body may be slower than
    /// [`ConnectionLimits::body_rate`] for that long.
    pub body_time: Duration,
    /// Longest body, in bytes, unless it is streamed.
    pub body_len: u32,
    /// Minimum rate of a streamed body, in bytes a second.
    pub body_rate: u32,
    /// Bytes that may wait in either direction of a connection before the writer has to pause (backpressure).
    pub queued_len: usize,
}

impl Default for ConnectionLimits {
    /// Returns the limits of a node without settings.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections: CONNECTIONS_MAX,
            per_address: CONNECTIONS_PER_ADDRESS,
            counts_private: false,
            handshakes: HANDSHAKES_MAX,
            requests: 0,
            idle_time: IDLE_TIME_MAX,
            head_time: HEAD_TIME_MAX,
            head_len: HEAD_LEN_MAX as u32,
            body_time: BODY_TIME_MAX,
            body_len: BODY_LEN_MAX as u32,
            body_rate: BODY_RATE_MIN,
            queued_len: QUEUED_LEN_MAX,
        }
    }
}

impl ConnectionLimits {
    /// Returns the bytes of a streamed body that must arrive within [`ConnectionLimits::body_time`].
    pub fn progress_len(&self) -> usize {
        self.body_rate as usize * self.body_time.as_secs() as usize
    }
}

/// Maximum number of open connections of one core, unless set otherwise. A full table of idle ones takes about 100 MB.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Maximum number of connections of a public address on a core, unless set otherwise. A browser keeps up to six, so
/// this allows 170 browsers at once behind one address of a carrier's NAT. One address can make a core and the kernel
/// use less than 256 MB. Addresses of loopback and of private networks may be a load balancer, and are not counted.
pub const CONNECTIONS_PER_ADDRESS: usize = 1_024;

/// Bytes of responses that the kernel accepts before they can be sent, because the window of the client or of the
/// network is full. The core refills half of them at a time: enough for a client to receive a long response at hundreds
/// of megabytes a second.
pub const UNSENT_LEN: u32 = 32 * 1024;

/// Size in bytes of the kernel's buffer for sent bytes without an acknowledgement; the kernel doubles it for its own
/// bookkeeping. This is its usual bound (`net.core.wmem_max`). A long response over a round trip of 100 ms still flows
/// at 2 MB/s. Without a bound, the kernel would let the buffer grow to 4 MB.
pub const SEND_BUFFER_LEN: usize = 208 * 1024;

/// Bytes that a connection may send in total before the core checks that the client reads them: the first window of a
/// connection. So short connections cost no extra system call.
pub const UNREAD_SMALL: u64 = 16 * 1024;

/// Longest request head, in bytes, unless set otherwise. Browsers with large cookies stay under 8 KiB; twice that is
/// generous.
pub const HEAD_LEN_MAX: usize = 16 * 1024;

/// Maximum number of header fields in a head. It equals hyper's own limit, so that the fast path and hyper agree.
pub const HEADERS_MAX: usize = 100;

/// Longest request body, in bytes, unless set otherwise. A create takes less than 3 KiB.
pub const BODY_LEN_MAX: usize = 1024 * 1024;

/// Maximum number of valid API keys. Every node reads all keys from Redis each second; ten thousand take about 2.5 MB
/// there.
pub const VALID_KEYS_MAX: usize = 10_000;

/// Maximum number of API keys that are kept after they have ended. Each is a tombstone, which informs copies of the
/// registry that missed the revocation. Ten thousand cover the rotations of a platform for weeks, and bound the
/// registry at twice the valid keys.
pub const ENDED_KEYS_MAX: usize = 10_000;

/// Retention of an ended API key, in milliseconds: longer than the longest grace period of a rotation.
pub const ENDED_KEY_TIME_MAX_MS: u64 = 400 * 86_400_000;

/// Longest form, in bytes. A form is read before its sender is authenticated. The longest URL takes 6 KiB of it.
pub const FORM_LEN_MAX: usize = 64 * 1024;

/// Maximum number of fields of a form that are read; further ones are ignored.
pub const FORM_FIELDS_MAX: usize = 128;

/// Maximum number of invalid fields that a response names. A request has some twenty fields, so this covers every
/// honest client; a hostile one can send a hundred thousand.
pub const PROBLEM_FIELDS_MAX: usize = 64;

/// Longest field name in a response, in characters. Every known name is shorter.
pub const PROBLEM_NAME_CHARS_MAX: usize = 64;

/// Total time from the first byte of a head to its last. It ends connections of clients that drip one byte a second.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// Total time from the end of a head to the end of its body.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Minimum rate of a streamed body (a bulk request), in bytes a second: a few lines within [`BODY_TIME_MAX`].
pub const BODY_RATE_MIN: u32 = 32;

/// Bytes that may wait in either direction of a connection before the writer has to pause, unless set otherwise. It
/// holds a few responses, or a chunk of a body.
pub const QUEUED_LEN_MAX: usize = 64 * 1024;

/// TLS handshakes in progress on one core, unless set otherwise. Each takes about 16 KiB.
pub const HANDSHAKES_MAX: usize = 1_000;

/// Age after which a handshake may be evicted for a new one, in ticks of a core. An honest client completes its
/// handshake within moments.
pub const HANDSHAKE_TICKS: u32 = 4;

/// Handshakes that advance in one turn of a core. Each takes some 200 microseconds, for which redirects of that core
/// wait.
pub const HANDSHAKES_PER_TURN: usize = 2;

/// Time for the tasks of a core (requests other than redirects) between two turns of its loop. Redirects that arrive
/// meanwhile wait for it. A turn under load takes about as long, so tasks get half of the core when both are in demand.
pub const TASK_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Time after which a task that continues to read must yield until its next turn. It leaves room in
/// [`TASK_TIME_PER_TURN`] for the work on what was read last.
pub const TASK_SLICE: Duration = Duration::from_micros(500);

/// Time for the handshakes of one turn; further ones wait for the next turn. One step takes 0.2 ms with an ECDSA key
/// and 1 ms with RSA, and cannot be divided.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Concurrent streams of an HTTP/2 connection. Browsers open as many requests as a page has links.
pub const STREAMS_MAX: u32 = 128;

/// Concurrent requests with long bodies of an HTTP/2 connection. Each body may be kept in memory until the response.
pub const LONG_BODIES_MAX: usize = 4;

/// Longest short body, in bytes. A create takes less than 3 KiB. A core parses the JSON of such a body itself, in less
/// than 0.3 ms.
pub const SHORT_BODY_LEN: u64 = 16 * 1024;

/// Responses of an HTTP/2 connection that may be in progress, or wait for the client to read them.
pub const ANSWERS_WAITING_MAX: usize = 32;

/// Bytes of a response that are passed to HTTP/2 at once, one frame. No limit counts them after that.
pub const ANSWER_PIECE_LEN: usize = 16 * 1024;

/// Bytes of a response that are passed to HTTP/1.1 at once. More than for HTTP/2, since its frames cost less: copying
/// them takes some microseconds.
pub const ANSWER_CHUNK_LEN: usize = 64 * 1024;

/// Streams that a client may open and reset before the server accepts them. More are an attack (CVE-2023-44487).
pub const STREAMS_RESET_MAX: usize = 32;

/// Flow-control window of a stream, in bytes.
pub const STREAM_WINDOW: u32 = 64 * 1024;

/// Flow-control window of an HTTP/2 connection, over all its streams, in bytes.
pub const STREAMS_WINDOW: u32 = 256 * 1024;

/// Time for an HTTP/2 client to close the connection after GOAWAY.
pub const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

/// Maximum rate of creates that an app may be granted, per second.
pub const APP_CREATES_MAX: u32 = 1_000_000;

/// Longest grace period of an API key after its rotation.
pub const KEY_GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Longest idempotency key of a client, in characters: as long as Stripe's, and several UUIDs.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 255;

/// Expired idempotency keys that are removed from the index at once: some milliseconds of work.
pub const IDEMPOTENCY_FORGET_BATCH: usize = 5_000;

/// Longest delay of a scheduled deletion: enough for a console that deletes many links to offer an undo for all.
pub const DELETION_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Exports that one core serves at once, and the same number of bulk requests. Each takes at most about a megabyte.
pub const LONG_REQUESTS_MAX: usize = 8;

/// Exports of one app on a core, and the same number of bulk requests: half, so that one app leaves room for others.
pub const LONG_REQUESTS_OF_APP_MAX: usize = LONG_REQUESTS_MAX / 2;

/// Lines of a bulk request that are processed together. A millisecond of the core's time, in several turns.
pub const BULK_CHUNK_LINES: usize = 256;

/// Bytes of lines that are processed together. Their responses may be several times as long.
pub const BULK_CHUNK_BYTES: usize = 64 * 1024;

/// Lines of one bulk request that may wait for the store: a group commit's worth, while the next is on its way.
pub const BULK_LINES_WAITING: usize = 2_048;

/// Lines of one bulk request that may wait for the store when many share [`BULK_QUEUE_SHARE`].
pub const BULK_LINES_WAITING_MIN: usize = 64;

/// Bytes of lines of one bulk request that may wait for the store.
pub const BULK_BYTES_WAITING: usize = 512 * 1024;

/// Slugs that a dry run remembers, to report duplicates within the request: about another megabyte.
pub const BULK_SLUGS_TRIED: usize = 64 * 1024;

/// Places in the writer's queue that all bulk requests of the node share, half of it. The rest is for single creates.
pub const BULK_QUEUE_SHARE: usize = WRITE_QUEUE_LEN / 2;

/// Maximum number of QR codes that wait to be drawn: a tenth of a second of the thread's time, at 0.4 ms each. Further
/// requests get 503.
pub const PICTURE_QUEUE_LEN: usize = 256;

/// Bytes of QR codes that a core caches: some thousand of the usual size.
pub const PICTURES_KEPT_BYTES: usize = 2 * 1024 * 1024;

/// Maximum number of long documents that wait to be parsed or written: half a second of the thread's time, at 2 ms
/// each.
pub const DOCUMENT_QUEUE_LEN: usize = 256;

/// Maximum number of links that a core writes as JSON itself: 0.5 ms with the longest fields, and less than a hand-over
/// with usual ones. A thread writes longer responses.
pub const LINKS_WRITTEN_AT_ONCE: usize = 32;

/// Maximum number of tags that a core writes as JSON itself. A thread writes longer responses.
pub const TAGS_WRITTEN_AT_ONCE: usize = 512;

/// Maximum number of values (objects, arrays, strings, numbers) of a JSON document that are kept. A link has fewer than
/// a hundred. Further values are checked and dropped, so that a client cannot make a core handle hundreds of thousands
/// of them.
pub const JSON_VALUES_MAX: usize = 4_096;

/// Bytes of lines that an export reads from the store at once: a millisecond or two of its thread.
pub const EXPORT_PAGE_BYTES: usize = 256 * 1024;

/// Maximum number of records that an export reads at once. Many of them may be tombstones, which give no line.
pub const EXPORT_PAGE_RECORDS: usize = 16 * 1024;

/// Pages of exports that may wait for the export thread: one for each export of many cores.
pub const EXPORT_QUEUE_LEN: usize = 1_024;

/// Unreadable records that an export names; the rest is counted.
pub const EXPORT_REPORTS_MAX: usize = 100;

/// Time for which a client may leave a response unread, also in the kernel's buffer, before its connection is closed.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(30);

/// Idle timeout of a connection between requests.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// Time for the API to produce a response; after it, the client gets 503.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Time for requests in flight when a node drains; after it, their connections are closed. With the time for the admin
/// listener and the last sync, a node ends within 10 seconds.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// Time for requests in flight on the admin listener, which drains after the cores have ended.
pub const ADMIN_DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Fresh codes that a core holds ready. At 10,000 creates a second on one core, the replenisher has more than a second
/// to respond.
pub const CODES_QUEUE_LEN: usize = 16_384;

/// Sessions of the console at once. A further sign-in ends the session that has been idle longest.
pub const SESSIONS_MAX: usize = 256;

/// Idle timeout of a session at the console. An open page with live data counts as use.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(2 * 3_600);

/// Lifetime of a session at the console: a working day.
pub const SESSION_TIME_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Pages of the console with live data at once. Each requests the latencies of every core once a second.
pub const WATCHERS_MAX: usize = 64;

/// Edits of one link that are kept, the latest ones.
pub const EDITS_KEPT: usize = 64;

/// Retention of edits: more than a year, for questions about this time last year.
pub const EDITS_KEPT_FOR: Duration = Duration::from_secs(400 * 86_400);

/// Codes that a core lends to the admin listener at once, and the minimum that it keeps. They serve links created by
/// hand, and an import needs one message for each 64 lines.
pub const CODES_LENT: usize = 64;

/// Pause before the admin listener asks the cores for codes again, after one had none to lend: about the time that a
/// new segment takes.
pub const CODE_LOAN_REST: Duration = Duration::from_millis(5);

/// Number of fresh codes below which the replenisher prepares the next segment.
pub const CODES_LOW: usize = 2_000;

/// Returns the maximum number of files that the store keeps open. This is the default of its library, 900, or less if
/// the limit on open files is low, which leaves enough for connections.
pub fn store_files(open_files: u64) -> u64 {
    (open_files / 8).clamp(32, 900)
}

/// Smallest segment, in codes. It is also the size of the first one.
pub const SEGMENT_LEN_MIN: u64 = 10_000;

/// Largest segment, in codes: a row of 8 MB in the id table.
pub const SEGMENT_LEN_MAX: u64 = 1_000_000;

/// Lifetime of a segment below which the next one is twice as large.
pub const SEGMENT_SHORT: Duration = Duration::from_secs(15 * 60);

/// Lifetime of a segment above which the next one is half as large.
pub const SEGMENT_LONG: Duration = Duration::from_secs(60 * 60);

/// Time for which a create waits for a fresh code before the client gets 503.
pub const CODE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of writes in one group commit. A larger commit would only delay its first writes.
pub const COMMIT_WRITES_MAX: usize = 4_096;

/// Writes that may wait for the writer. Beyond it, creates get 503: the disk is too slow.
pub const WRITE_QUEUE_LEN: usize = 16_384;

/// Requests to Redis in one batch. A millisecond of a server's time.
pub const GATEWAY_BATCH: usize = 512;

/// Candidates that a look-up for an equivalent link reads. Nearly always the first one matches, but a URL may have been
/// shortened a million times.
pub const ALIKE_LOOKED_AT: usize = 64;

/// Entries of the index of long URLs in one write while it is built: a megabyte of the journal.
pub const INDEX_BATCH: usize = 16_384;

/// Expired links that are removed in one batch: a millisecond of the writer's time, for which creates wait.
pub const EXPIRE_BATCH: u32 = 128;

/// Maximum number of expired links that are counted for the status: half a second of reading.
pub const EXPIRY_COUNT_MAX: usize = 1_000_000;

/// Codes of expired links that form a segment: as many as in the smallest other segment.
pub const RECYCLE_LEN: usize = SEGMENT_LEN_MIN as usize;

/// Codes of expired links that are released in one commit. Each commit is synced, so smaller ones would cost more.
pub const RECYCLE_BATCH: usize = 512;

/// Number of unused recycled codes above which no more codes are released: they take memory, and are lost with the id
/// table.
pub const RECYCLE_WHILE_BELOW: u64 = 100_000;

/// Maximum number of times that a create is answered with a link that turns out to be deleted. After that it makes a
/// new one.
pub const REUSES_TRIED_MAX: usize = 3;

/// Time for which a node of a fleet remembers the creates that it has sent to its writer: as long as a client waits for
/// one.
pub const MAKING_KEPT: Duration = ANSWER_TIME_MAX;

/// Time for which a request for an unknown code waits for Redis to report whether another node has created it.
pub const LOOK_UP_TIME: Duration = Duration::from_millis(20);

/// Maximum number of unknown codes that wait for a look-up in Redis. Further requests get 404 at once.
pub const LOOK_UP_QUEUE_LEN: usize = 1_024;

/// Unknown codes that are looked up in one batch.
pub const LOOK_UP_BATCH: usize = 256;

/// Maximum number of codes that wait to be read from the store, if only links in use are in memory. Further requests
/// get 503.
pub const FETCH_QUEUE_LEN: usize = 16_384;

/// Threads that read links that are not in memory from the store: as many reads as a fast disk serves at once without
/// slowing down.
pub const FETCHERS: usize = 8;

/// Time for reading a link that is not in memory, from the store or from Redis; after it, the client gets 503.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(2);

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

/// Minimum number of codes that a core of a fleet has in reserve: that many links can be created while Redis is
/// unavailable.
pub const FLEET_RESERVE: usize = 100_000;

/// Bytes that may be hashed to find the single wrong byte of a broken batch in a journal: half a second. Enough for any
/// byte of a batch of 3 KiB and any bit of one of 16 KiB.
pub const CORRECTION_WORK_MAX: usize = 1 << 31;

/// Files with the bytes of writes that a crash cut off, kept beside the journals. Each is at most a few commits long,
/// and only the latest help to investigate a crash.
pub const TORN_WRITES_KEPT: usize = 16;

/// Free space in bytes below which the node refuses writes, before the store itself fills the disk. It has room for a
/// journal, a memtable and a compaction of the store.
pub const DISK_FREE_MIN: u64 = 256 * 1024 * 1024;

/// Divisor of the disk size that gives the minimum of free space on a small disk.
pub const DISK_FREE_MIN_SHARE: u64 = 8;

/// Reads of whole records that may wait for the reader threads.
pub const READ_QUEUE_LEN: usize = 4_096;

/// Reader threads: one reads from disk while the other answers from memory.
pub const READERS: usize = 2;

/// Maximum number of links on a page. Each is a random read of the store.
pub const LIST_PER_PAGE_MAX: usize = 500;

/// Links on a page by default, as in Shlink.
pub const LIST_PER_PAGE: usize = 10;

/// Maximum number of tags on a page, and the default. Clients of Shlink expect all of them at once.
pub const TAGS_PER_PAGE_MAX: usize = 10_000;

/// Maximum number of tags whose links are counted: 10 MB of memory. A service with more uses tags for something else
/// than lists.
pub const TAGS_COUNTED_MAX: usize = 100_000;

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

/// Maximum number of links that are sorted for one page, in an order without an index: 30 ms.
pub const LIST_SORTED_MAX: usize = 2_500;

/// Index entries that the background count after a start reads at once: some 10 ms.
pub const COUNTED_AT_ONCE: usize = 16_384;

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

/// Approximate size of the change log on disk, in bytes. Some six million changed codes, many times what a node changes
/// between two images of the link map. A start that misses the entry of a change reads all links.
pub const CHANGE_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Number of links from which on a node keeps an image of its link map. Fewer are read from the store in a tenth of a
/// second.
pub const IMAGE_LINKS_MIN: usize = 100_000;

/// Minimum number of changed links before a new image is written: a start looks them up in a fifth of a second.
pub const IMAGE_CHANGES_MIN: u64 = 50_000;

/// Divisor of the number of links that gives the changed links before a new image on large nodes. A start then takes
/// little longer, and each change is written to images some thirty times.
pub const IMAGE_CHANGES_SHARE: u64 = 32;

/// Divisor of the links in an image that gives the most changed links that a start looks up. Beyond it, reading all
/// links is as fast.
pub const IMAGE_REPLAYED_SHARE: u64 = 8;

/// Interval at which a node checks whether to write a new image.
pub const IMAGE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// Bytes of an image that are written between two syncs. Commits wait at most for that many.
pub const IMAGE_SYNC_BYTES: usize = 4 * 1024 * 1024;

/// Shortest pause between two syncs of an image: 64 MiB a second.
pub const IMAGE_SYNC_PAUSE: Duration = Duration::from_millis(62);

/// Approximate bytes of records that are sorted at once for an image. Parts are larger if the store has more than
/// [`IMAGE_PARTS_MAX`] of them.
pub const IMAGE_PART_BYTES: u64 = 8 * 1024 * 1024;

/// Maximum number of parts of the records of an image. Each has a buffer of [`IMAGE_BUFFER_BYTES`] and a record. Each
/// core has at least one part.
pub const IMAGE_PARTS_MAX: u64 = 2048;

/// Bytes of a part that are written to disk at once.
pub const IMAGE_BUFFER_BYTES: usize = 16 * 1024;

/// Records in each partition of the store that are sampled to estimate the length of records.
pub const IMAGE_SAMPLED: u32 = 64;

/// Bytes of one batch of records at the start. A core decodes it in about a millisecond, the time between two turns.
pub const LOAD_BATCH_BYTES: usize = 256 * 1024;

/// Maximum number of bytes of batches that wait for the cores; beyond it, the loader pauses.
pub const LOAD_IN_FLIGHT_MAX: usize = 32 * 1024 * 1024;

/// Maximum number of threads that read the store at the start. Each fills one batch for each core.
pub const LOADERS_MAX: usize = 8;

/// Codes of links deleted during loading, which all cores together remember until it ends: some 30 MB. Beyond it,
/// writes are refused until then.
pub const REMOVED_WHILE_LOADING_MAX: u64 = 256 * 1024;

/// Codes that a core remembers because their links did not fit in memory: some 8 MB. Beyond it, every code that is not
/// in memory gets 503.
pub const UNSERVED_CODES_MAX: usize = 64 * 1024;

/// Codes of the store that a core adds to its next filter at once: less than a tenth of a millisecond.
pub const CODES_SENT_TOGETHER: usize = 1_024;

/// Maximum number of codes in flight to all cores: two batches, so that no core handles several in one turn for long.
pub const CODES_IN_FLIGHT_MAX: usize = 2 * CODES_SENT_TOGETHER;

/// Bytes of an import that are parsed together. Thousands of lines amortise the hand-over, and the chunks in flight fit
/// in the memory of a small machine.
pub const IMPORT_CHUNK_BYTES: usize = 1024 * 1024;

/// Longest line of an import, in bytes. The fields of a link fit in a fraction of it.
pub const IMPORT_LINE_MAX: usize = 256 * 1024;

/// Maximum number of invalid lines of an import that are reported one by one; later ones are counted.
pub const IMPORT_REPORTS_MAX: u64 = 1_000;

/// Bytes of records that an import sorts and writes at once: one file of the store, and the most that it repeats after
/// a crash.
pub const IMPORT_SORTED_BYTES: usize = 64 * 1024 * 1024;

/// Codes that an import issues at once.
pub const IMPORT_RUN_LEN: u64 = 100_000;

/// Share of the issued codes of one length above which an alarm is raised, in percent.
pub const CODES_USED_ALARM_PERCENT: u64 = 90;

/// Alarms kept for the status.
pub const ALARMS_KEPT: usize = 64;

const _: () = {
    assert!(CODES_LOW * 2 <= CODES_QUEUE_LEN);
    assert!(CODES_LOW as u64 * 2 <= SEGMENT_LEN_MIN);
    assert!(SEGMENT_LEN_MIN <= SEGMENT_LEN_MAX);
    assert!(TARGET_LEN_MAX < HEAD_LEN_MAX);
    assert!(COMMIT_WRITES_MAX <= WRITE_QUEUE_LEN);
    assert!(IMPORT_LINE_MAX < IMPORT_CHUNK_BYTES);
    assert!(LOAD_BATCH_BYTES < LOAD_IN_FLIGHT_MAX);
};
