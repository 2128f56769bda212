//! Every bound of the server in one place, each with the reason for its number.

use std::time::Duration;

/// Characters of a private code: so many that nobody comes upon one by trying (95 bits).
pub const PRIVATE_CODE_LEN: usize = 16;

/// Longest long URL in its serialised form, bytes. What browsers and crawlers handle without trouble.
pub const TARGET_LEN_MAX: usize = 2_048;

/// What a core takes of its connections, as an operator may set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Most open connections, at least 1.
    pub connections: usize,
    /// Most of one address; 0: any number.
    pub per_address: usize,
    /// Whether that holds for addresses of loopback and of private networks as well.
    pub counts_private: bool,
    /// Most TLS handshakes under way.
    pub handshakes: usize,
    /// Most requests of one; 0: any number.
    pub requests: u32,
    /// How long one may be silent between two requests.
    pub idle_time: Duration,
    /// From the first byte of a head to its last.
    pub head_time: Duration,
    /// Bytes of a head.
    pub head_len: u32,
    /// From the end of a head to the end of its body; for one without end, how long it may come slower than it must.
    pub body_time: Duration,
    /// Bytes of a body, where it is not one without end.
    pub body_len: u32,
    /// Bytes a second of a body without end that must come.
    pub body_rate: u32,
    /// Bytes that wait in either direction before the one who writes has to pause.
    pub queued_len: usize,
}

impl Default for ConnectionLimits {
    /// What holds where nothing is set.
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
    /// Bytes of a body without end that must come within [`ConnectionLimits::body_time`].
    pub fn progress_len(&self) -> usize {
        self.body_rate as usize * self.body_time.as_secs() as usize
    }
}

/// Open connections of one core, where nothing else is set. A full table of idle ones takes about 100 MB.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Connections that one public address may have on a core, where nothing else is set. A browser keeps up to six, so that is
/// room for 170 browsers at once behind one address of a carrier's NAT; and what one address can make a core and the kernel
/// keep for it stays under 256 MB. Addresses of loopback and of private networks may be a balancer, and are not counted.
pub const CONNECTIONS_PER_ADDRESS: usize = 1_024;

/// Bytes that the kernel takes of answers before they may be sent, because the window of the client or of the network is full.
/// Half of it is refilled at a time: enough for a client to receive a long answer at hundreds of megabytes a second.
pub const UNSENT_LEN: u32 = 32 * 1024;

/// Bytes of the kernel's buffer for what was sent and is not acknowledged, before the kernel doubles them for its own
/// bookkeeping; its usual bound (`net.core.wmem_max`). A long answer over a round trip of 100 ms still moves at 2 MB/s.
/// Without a bound the kernel would let it grow to 4 MB.
pub const SEND_BUFFER_LEN: usize = 208 * 1024;

/// Bytes that a connection may have sent in all without anybody looking at whether the client has read them: the first window of a
/// connection. So nothing is asked of the kernel for a connection that asks for a few links.
pub const UNREAD_SMALL: u64 = 16 * 1024;

/// Longest request head, bytes, where no other length is set. Browsers with large cookies stay under 8 KiB; twice that is generous.
pub const HEAD_LEN_MAX: usize = 16 * 1024;

/// Most header fields in a head: hyper's own bound, so that both ways to answer agree.
pub const HEADERS_MAX: usize = 100;

/// Longest request body, bytes, where no other length is set. A create is under 3 KiB.
pub const BODY_LEN_MAX: usize = 1024 * 1024;

/// Most valid API keys. Every node reads all keys from Redis each second; ten thousand take about 2.5 MB there.
pub const VALID_KEYS_MAX: usize = 10_000;

/// Most API keys that are kept after they have ended. Each is a tombstone: it tells a copy of the registry that missed the
/// revocation. Ten thousand cover the rotations of a platform for weeks, and bound the registry at twice the valid keys.
pub const ENDED_KEYS_MAX: usize = 10_000;

/// How long an ended API key is kept, in milliseconds: longer than any key that replaces another may live.
pub const ENDED_KEY_TIME_MAX_MS: u64 = 400 * 86_400_000;

/// Longest form, bytes: it is read before anybody knows who sends it. The longest URL takes 6 KiB there.
pub const FORM_LEN_MAX: usize = 64 * 1024;

/// Fields of a form that are read; the others are passed over.
pub const FORM_FIELDS_MAX: usize = 128;

/// Wrong fields of a request that its answer names. There are some twenty, so these are all for an honest client; somebody
/// else can send a hundred thousand.
pub const PROBLEM_FIELDS_MAX: usize = 64;

/// Characters of a field's name that an answer repeats. No field has so long a name.
pub const PROBLEM_NAME_CHARS_MAX: usize = 64;

/// From the first byte of a head to its last, in total: a client that drips one byte a second must not hold a slot.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// From the end of a head to the end of its body, in total.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes a second of a body without end (many links at once) that must come: a few lines within [`BODY_TIME_MAX`].
pub const BODY_RATE_MIN: u32 = 32;

/// Bytes that may wait in either direction of a connection before the one who writes has to pause, where nothing else is
/// set. A few answers, or a piece of a body.
pub const QUEUED_LEN_MAX: usize = 64 * 1024;

/// TLS handshakes that one core has under way, where nothing else is set. Each takes about 16 KiB.
pub const HANDSHAKES_MAX: usize = 1_000;

/// How old a handshake is before it has to go for another, in ticks of a core: who means it is done in a moment.
pub const HANDSHAKE_TICKS: u32 = 4;

/// Those that it goes on with in one turn: each takes some 200 microseconds, for which redirects of that core wait.
pub const HANDSHAKES_PER_TURN: usize = 2;

/// Time that the tasks of a core (requests other than redirects) have between two turns of its loop. Redirects that arrive
/// meanwhile wait for it; a turn under load takes about as long, so that tasks get half of the core when both are in demand.
pub const TASK_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Time after which a task that goes on reading has to wait for its next turn. It leaves room in
/// [`TASK_TIME_PER_TURN`] for the work on what was read last.
pub const TASK_SLICE: Duration = Duration::from_micros(500);

/// Time that the handshakes of one turn may take before the others wait for the next turn. One step takes 0.2 ms with an ECDSA
/// key and 1 ms with RSA, and cannot be divided.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Streams of a connection that speaks HTTP/2. Browsers open as many requests as they have links.
pub const STREAMS_MAX: u32 = 128;

/// Requests of such a connection at once whose bodies may be long: each may be kept whole until it is answered.
pub const LONG_BODIES_MAX: usize = 4;

/// Bytes of a body that is not long. A create is under 3 KiB. A core reads the JSON of such a body itself, in less than 0.3 ms.
pub const SHORT_BODY_LEN: u64 = 16 * 1024;

/// Answers of such a connection that are made, or wait for its client to take them.
pub const ANSWERS_WAITING_MAX: usize = 32;

/// Bytes of an answer that are given to HTTP/2 at once: a frame of it. What it has been given counts for nobody.
pub const ANSWER_PIECE_LEN: usize = 16 * 1024;

/// The same for HTTP/1.1, whose frames cost less: what is copied into the stream in some microseconds.
pub const ANSWER_CHUNK_LEN: usize = 64 * 1024;

/// Streams that a client opened and reset again before we took them, after which it is an attack (CVE-2023-44487).
pub const STREAMS_RESET_MAX: usize = 32;

/// Bytes that a client may send of one stream before we have read them.
pub const STREAM_WINDOW: u32 = 64 * 1024;

/// The same for all streams of a connection together.
pub const STREAMS_WINDOW: u32 = 256 * 1024;

/// How long a client that speaks HTTP/2 may take to agree that the connection ends.
pub const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

/// Most links that an app may be let make a second.
pub const APP_CREATES_MAX: u32 = 1_000_000;

/// For how long a key may still hold that another one follows.
pub const KEY_GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Longest idempotency key of a client, characters: as long as Stripe's, and several UUIDs.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 255;

/// Entries of the index of idempotency keys that are removed at once when they are too old: some milliseconds of work.
pub const IDEMPOTENCY_FORGET_BATCH: usize = 5_000;

/// How long a link may wait to be deleted: long enough for a console that deletes many links to offer an undo for all.
pub const DELETION_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Exports that one core serves at once, and as many bulk requests. Each holds about a megabyte at most.
pub const LONG_REQUESTS_MAX: usize = 8;

/// Exports, and as many bulk requests, that one app may have at a core: half, so that no app keeps others from theirs.
pub const LONG_REQUESTS_OF_APP_MAX: usize = LONG_REQUESTS_MAX / 2;

/// Lines of such a request that are decided together. A millisecond of the core's time, in several turns.
pub const BULK_CHUNK_LINES: usize = 256;

/// Bytes of lines that are decided together: what is answered of them may be some times as long.
pub const BULK_CHUNK_BYTES: usize = 64 * 1024;

/// Lines of one such request that may wait for the store: what a group commit takes while the next is on its way.
pub const BULK_LINES_WAITING: usize = 2_048;

/// The same, where many such requests share [`BULK_QUEUE_SHARE`].
pub const BULK_LINES_WAITING_MIN: usize = 64;

/// Bytes of lines of one such request that may wait for the store.
pub const BULK_BYTES_WAITING: usize = 512 * 1024;

/// Slugs that a request remembers that stores nothing, to tell of those that stand there twice: about another megabyte.
pub const BULK_SLUGS_TRIED: usize = 64 * 1024;

/// Places in the writer's queue that all such requests of the node take together: the rest is for single creates.
pub const BULK_QUEUE_SHARE: usize = WRITE_QUEUE_LEN / 2;

/// QR codes that wait to be drawn at most: a tenth of a second of the thread's time, at 0.4 ms each. A client that asks for one
/// more is told to come again.
pub const PICTURE_QUEUE_LEN: usize = 256;

/// Bytes of QR codes that a core keeps: some thousand of the usual size.
pub const PICTURES_KEPT_BYTES: usize = 2 * 1024 * 1024;

/// Long documents that wait to be read or written at most: half a second of the thread's time, at 2 ms each.
pub const DOCUMENT_QUEUE_LEN: usize = 256;

/// Links that a core writes as JSON itself: 0.5 ms with the longest fields, and less than handing them over with usual ones.
/// Answers with more are written by a thread.
pub const LINKS_WRITTEN_AT_ONCE: usize = 32;

/// Tags that a core writes as JSON itself. Answers with more are written by a thread.
pub const TAGS_WRITTEN_AT_ONCE: usize = 512;

/// Values (objects, arrays, texts, numbers) of a JSON document that are kept. A link has fewer than a hundred; what stands behind
/// so many is checked and dropped, so that nobody can make a core handle hundreds of thousands of them.
pub const JSON_VALUES_MAX: usize = 4_096;

/// Bytes of lines that are read from the store at once for an export: a millisecond or two of its thread.
pub const EXPORT_PAGE_BYTES: usize = 256 * 1024;

/// Records that are looked at for them at most. There may be more ends of links than links.
pub const EXPORT_PAGE_RECORDS: usize = 16 * 1024;

/// Pages of exports that may wait for that thread: one for each export of many cores.
pub const EXPORT_QUEUE_LEN: usize = 1_024;

/// What an export could not read is named so many times; the rest is counted.
pub const EXPORT_REPORTS_MAX: usize = 100;

/// How long a client may leave our answer unread before the connection is given up, also where the answer waits in the kernel.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a connection may be idle between requests.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(75);

/// How long one answer of the API may take to be made before the client is told 503.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a drain waits for requests in flight before it closes what is left. With the time for the admin listener and
/// the last sync a node ends within 10 seconds.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// The same for the admin listener, which stays until the cores have ended.
pub const ADMIN_DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// Codes a core holds ready. 10,000 creates a second on one core leave the replenisher more than a second to answer.
pub const CODES_QUEUE_LEN: usize = 16_384;

/// Browsers that are signed in at the console at once; with more, the one that was left alone for longest is signed out.
pub const SESSIONS_MAX: usize = 256;

/// For how long a session at the console may be left alone. An open page that tells what goes on is use.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(2 * 3_600);

/// For how long it lasts in any case: a working day.
pub const SESSION_TIME_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Pages of the console that are told at once what goes on: each asks every core for its latencies once a second.
pub const WATCHERS_MAX: usize = 64;

/// Changes of one link that are kept, the last ones.
pub const EDITS_KEPT: usize = 64;

/// For how long they are kept: as long as somebody may ask who it was last year at this time.
pub const EDITS_KEPT_FOR: Duration = Duration::from_secs(400 * 86_400);

/// Codes that a core lends at once to the admin listener, and keeps for itself at least: some for a person who makes links by
/// hand, and a message for each 64 lines of an import.
pub const CODES_LENT: usize = 64;

/// For how long the admin listener leaves the cores alone when one had no codes to lend: about what a segment takes to come.
pub const CODE_LOAN_REST: Duration = Duration::from_millis(5);

/// Below this many codes left, the replenisher prepares the next segment.
pub const CODES_LOW: usize = 2_000;

/// Files that the store keeps open at most, where the process may have so many: the usual number of its library, less where
/// that would take too much from connections.
pub fn store_files(open_files: u64) -> u64 {
    (open_files / 8).clamp(32, 900)
}

/// Smallest and first segment, codes.
pub const SEGMENT_LEN_MIN: u64 = 10_000;

/// Largest segment, codes: a row of 8 MB in the id table.
pub const SEGMENT_LEN_MAX: u64 = 1_000_000;

/// A segment that lasted less than this doubles the next one.
pub const SEGMENT_SHORT: Duration = Duration::from_secs(15 * 60);

/// A segment that lasted more than this halves the next one.
pub const SEGMENT_LONG: Duration = Duration::from_secs(60 * 60);

/// How long a create waits for a fresh code before it is refused with 503.
pub const CODE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Writes that one group commit takes together. More would only make the first of them wait longer.
pub const COMMIT_WRITES_MAX: usize = 4_096;

/// Writes that may wait for the writer. Beyond it creates are refused with 503: the disk does not keep up.
pub const WRITE_QUEUE_LEN: usize = 16_384;

/// Requests that are put to Redis in one piece. A millisecond of a server's time.
pub const GATEWAY_BATCH: usize = 512;

/// Links that lead to the same place in the same way, of which one is looked for: so many are looked at. Nearly always the
/// first of them is the one; a URL may have been shortened a million times all the same.
pub const ALIKE_LOOKED_AT: usize = 64;

/// Entries of the index of long URLs that are written at once when it is made: a megabyte of the journal.
pub const INDEX_BATCH: usize = 16_384;

/// Expired links that are removed together: a millisecond of the writer's time, for which creates wait.
pub const EXPIRE_BATCH: u32 = 128;

/// Links that are due to be removed are counted up to here, for status: half a second of reading.
pub const EXPIRY_COUNT_MAX: usize = 1_000_000;

/// Codes of expired links that become a segment together: as many as the smallest of other segments has.
pub const RECYCLE_LEN: usize = SEGMENT_LEN_MIN as usize;

/// Such codes that are freed in one commit. It is synced, so that fewer would cost more.
pub const RECYCLE_BATCH: usize = 512;

/// None are freed while so many of them are ready and not used: they take memory, and are lost with the id table.
pub const RECYCLE_WHILE_BELOW: u64 = 100_000;

/// Times that a create may be answered with a link that turns out to be gone. After that a new one is made at once.
pub const REUSES_TRIED_MAX: usize = 3;

/// How long a node of a fleet remembers what it has sent to its writer, at least: as long as a client waits for that.
pub const MAKING_KEPT: Duration = ANSWER_TIME_MAX;

/// How long a client with an unknown code waits for Redis to say whether another node has made it.
pub const LOOK_UP_TIME: Duration = Duration::from_millis(20);

/// Unknown codes that wait to be looked up at most. More are told at once that there is no such link.
pub const LOOK_UP_QUEUE_LEN: usize = 1_024;

/// Unknown codes that are looked up at once.
pub const LOOK_UP_BATCH: usize = 256;

/// Codes that wait to be read from the store at most, where only links in use are in memory. A client who asks for one more
/// is told to come again.
pub const FETCH_QUEUE_LEN: usize = 16_384;

/// Threads that read them: as many reads as a fast disk serves at once without slowing down.
pub const FETCHERS: usize = 8;

/// How long a client waits for such a read, or for Redis, before it is told that the link is unavailable.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(2);

/// Memory for counts of visits before they are written to the store, bytes. Above it links are still counted, in some 64 bytes
/// each, and referrers are not: a client can invent any number of those.
pub const VISITS_TALLIED_BYTES: usize = 64 * 1024 * 1024;

/// Referring hosts of one link and hour in memory before the rarest are forgotten: what the store keeps of it, with room for
/// some that turn out to be rare.
pub const LINK_HOSTS_HELD: usize = 128;

/// The same of all links together, which more hosts refer to.
pub const ALL_HOSTS_HELD: usize = 400;

/// Bytes of the log of visits before they are: what a start after a crash reads back, in a second.
pub const VISITS_LOG_BYTES: u64 = 128 * 1024 * 1024;

/// Redirects of limited links that wait to hear whether they are allowed. A client who asks for one more is told to come
/// again.
pub const ALLOWANCE_QUEUE_LEN: usize = 16_384;

/// So many of them are looked at together: those of one link share a write.
pub const ALLOWANCE_BATCH: usize = 1_024;

/// Codes that a core of a fleet has in reserve at least: as many links can be made while Redis is away.
pub const FLEET_RESERVE: usize = 100_000;

/// Bytes of a broken batch in a journal that may be hashed to find its one wrong byte: half a second. Enough for any byte of
/// a batch of 3 KiB and any bit of one of 16 KiB.
pub const CORRECTION_WORK_MAX: usize = 1 << 31;

/// Files with the bytes of writes that a crash cut off, kept beside the journals. Each is at most a few commits long, and only
/// the last ones are of any use to somebody who looks into a crash.
pub const TORN_WRITES_KEPT: usize = 16;

/// Free space below which the node stops taking writes, before the store itself hits the end of the disk: one journal
/// and one memtable of the store, with room for a compaction.
pub const DISK_FREE_MIN: u64 = 256 * 1024 * 1024;

/// The same on a small disk: this part of the whole.
pub const DISK_FREE_MIN_SHARE: u64 = 8;

/// Reads of whole records that may wait for the readers.
pub const READ_QUEUE_LEN: usize = 4_096;

/// Threads that answer reads: one reads from disk while the other answers from memory.
pub const READERS: usize = 2;

/// Links of a page at most. Each is a read at a random place of the store.
pub const LIST_PER_PAGE_MAX: usize = 500;

/// Links of a page where nobody says how many: as in Shlink.
pub const LIST_PER_PAGE: usize = 10;

/// Tags of a page at most, and where nobody says how many. Clients of Shlink expect all of them at once.
pub const TAGS_PER_PAGE_MAX: usize = 10_000;

/// Tags whose links are counted at most: 10 MB of memory. Who has more uses them for something else than lists.
pub const TAGS_COUNTED_MAX: usize = 100_000;

/// Tags of one app whose links are counted at most: who has more may still ask for links by them.
pub const TAGS_OF_APP_COUNTED_MAX: usize = 10_000;

/// Tags of all apps together: some 40 MB of memory.
pub const TAGS_OF_APPS_COUNTED_MAX: usize = 400_000;

/// Characters of what is searched for at most, as many as of a title.
pub const SEARCH_TERM_MAX: usize = 512;

/// Links that are looked at for one page at most. In the order of their codes they lie
/// side by side, and as many are looked at within [`SEARCH_TIME_MAX`]; in the order of their age a tenth of it.
pub const LIST_LOOKED_MAX: u64 = 500_000;

/// For how long links are searched for one page, or gone through in another order than that of their age.
pub const SEARCH_TIME_MAX: Duration = Duration::from_millis(250);

/// For how long one page is looked for in the order of age where nothing is searched for: indexes say nearly all, some 100,000 links in that time.
pub const LIST_TIME_MAX: Duration = Duration::from_millis(40);

/// Links that are looked at for a page that is full already, to count those that are asked for.
pub const LIST_COUNTED_MAX: u64 = 2_000;

/// Most memory for texts of links that were created or changed lately, in bytes: some seconds of the fastest writers, until the
/// thread that signs sections has written them to the file. Of less memory for searches it is a quarter.
pub const SEARCH_HELD_BYTES: usize = 16 << 20;

/// Most texts that a search reads in one piece, in bytes. A section of ordinary links has a third of that.
pub const SEARCH_SECTION_BYTES: usize = 1 << 20;

/// Changes of links after which sections for searches are written again: a start after a crash looks each of them up, 10 µs or so.
pub const SEARCH_KEPT_AFTER: u64 = 100_000;

/// Most changes that a start looks up for the sections that it finds. With more of them, signing all links again is hardly more work.
pub const SEARCH_REPLAYED_MAX: usize = 500_000;

/// The least memory that signatures for searches may be given, bytes: enough for some 80,000 links.
pub const SEARCH_MEMORY_MIN: u64 = 1 << 20;

/// Links that are sorted for one page at most, in an order in which they stand nowhere: 30 ms.
pub const LIST_SORTED_MAX: usize = 2_500;

/// Entries of an index that are counted at once in the background after a start: some 10 ms.
pub const COUNTED_AT_ONCE: usize = 16_384;

/// Bytes of codes in `robots.txt` at most. Crawlers need not read more than 500 KiB (RFC 9309, section 2.5).
pub const ROBOTS_LEN_MAX: usize = 500 * 1024 - 256;

/// Lists that may wait for those who make them.
pub const LIST_QUEUE_LEN: usize = 256;

/// Threads that find pages which are found at once.
pub const LISTERS: usize = 2;

/// Searches that may wait: four seconds.
pub const SEARCH_QUEUE_LEN: usize = 16;

/// Threads that search. One, so that searches do not take the CPUs from redirects.
pub const SEARCHERS: usize = 1;

/// Bytes of the change log on disk, roughly. Some six million changed codes: what a node changes between two images of the
/// map, many times over. Without the entry of a change a start reads all links.
pub const CHANGE_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Links from which on a node keeps an image of its map. Fewer are read from the store in a tenth of a second.
pub const IMAGE_LINKS_MIN: usize = 100_000;

/// Changed links for which an image is made anew at least: to look them up at a start takes a fifth of a second.
pub const IMAGE_CHANGES_MIN: u64 = 50_000;

/// The same for large nodes: this part of all links, so that a start takes little longer, and a change is written to
/// images some thirty times.
pub const IMAGE_CHANGES_SHARE: u64 = 32;

/// Changed links that a start looks up at most, as a part of those in the image: beyond it reading all links is as fast.
pub const IMAGE_REPLAYED_SHARE: u64 = 8;

/// How often a node looks whether its image is to be made anew.
pub const IMAGE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// Bytes of an image that are written before the disk is waited for: commits wait no longer for it than for so many.
pub const IMAGE_SYNC_BYTES: usize = 4 * 1024 * 1024;

/// How long is waited between them at least: 64 MiB a second.
pub const IMAGE_SYNC_PAUSE: Duration = Duration::from_millis(62);

/// Bytes of records that are sorted at once for an image, about; more where there are more than [`IMAGE_PARTS_MAX`] times as
/// many.
pub const IMAGE_PART_BYTES: u64 = 8 * 1024 * 1024;

/// Parts that the records of an image are divided into at most; each has a buffer of [`IMAGE_BUFFER_BYTES`] and a record.
/// There is one part for each core at least.
pub const IMAGE_PARTS_MAX: u64 = 2048;

/// Bytes of a part that are written to disk at once.
pub const IMAGE_BUFFER_BYTES: usize = 16 * 1024;

/// Records in each part of the store that are looked at to tell how long records are.
pub const IMAGE_SAMPLED: u32 = 64;

/// Bytes of one batch of records at start: a core decodes it in about a millisecond, the time between two turns.
pub const LOAD_BATCH_BYTES: usize = 256 * 1024;

/// Bytes of such batches that wait for the cores at most; beyond it the loader waits for them.
pub const LOAD_IN_FLIGHT_MAX: usize = 32 * 1024 * 1024;

/// Threads that read the store at start at most. Each has a batch in the making for each core.
pub const LOADERS_MAX: usize = 8;

/// Codes of links deleted while the others are loaded, which all cores together remember until that has ended: some 30 MB.
/// Beyond it writes are refused until then.
pub const REMOVED_WHILE_LOADING_MAX: u64 = 256 * 1024;

/// Codes that a core remembers because their links found no room in memory: some 8 MB. Beyond it every code that is not in
/// memory answers 503.
pub const UNSERVED_CODES_MAX: usize = 64 * 1024;

/// Codes of the store that a core takes at once into its next filter: less than a tenth of a millisecond.
pub const CODES_SENT_TOGETHER: usize = 1_024;

/// Codes that wait for all cores at most while they are sent: two batches, so that no core takes several in one turn for long.
pub const CODES_IN_FLIGHT_MAX: usize = 2 * CODES_SENT_TOGETHER;

/// Bytes of an import that are parsed together. Thousands of lines, so that hand-over costs nothing; few enough that the
/// pieces in flight fit the memory of a small machine.
pub const IMPORT_CHUNK_BYTES: usize = 1024 * 1024;

/// Longest line of an import, bytes. A link's fields fit in a fraction of it.
pub const IMPORT_LINE_MAX: usize = 256 * 1024;

/// Bad lines of an import that are reported one by one; later ones are counted.
pub const IMPORT_REPORTS_MAX: u64 = 1_000;

/// Bytes of records that an import sorts and writes at once: one file of the store, and what a crash makes it repeat.
pub const IMPORT_SORTED_BYTES: usize = 64 * 1024 * 1024;

/// Codes that an import issues at once.
pub const IMPORT_RUN_LEN: u64 = 100_000;

/// Share of the codes of one length given out at which an alarm is raised, in percent.
pub const CODES_USED_ALARM_PERCENT: u64 = 90;

/// Alarms kept for the status page.
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
