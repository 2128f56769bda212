//! Limits of the store: commits, expiry, reads of links, the disk, and imports.

use std::time::Duration;

/// Returns the maximum number of files that the store keeps open. This is the default of its library, 900, or less if
/// the limit on open files is low, which leaves enough for connections.
pub fn store_files(open_files: u64) -> u64 {
    (open_files / 8).clamp(32, 900)
}

/// Maximum number of writes in one group commit. A larger commit would only delay its first writes.
pub const COMMIT_WRITES_MAX: usize = 4_096;

/// Writes that may wait for the writer. Beyond it, creates get 503: the disk is too slow.
pub const WRITE_QUEUE_LEN: usize = 16_384;

/// Equivalent links, and again other links of the destination, that a look-up for an existing link reads. Nearly always
/// the first one matches, but a URL may have been shortened a million times.
pub const ALIKE_LOOKED_AT: usize = 64;

/// Index entries of a destination that such a look-up reads to find its newest links, besides those of equivalent links:
/// about a millisecond of the writer.
pub const DESTINATION_ENTRIES_MAX: usize = 2_048;

/// Entries of the index of destinations in one write while it is built: a megabyte of the journal.
pub const INDEX_BATCH: usize = 16_384;

/// Expired links that are removed in one batch: a millisecond of the writer's time, for which creates wait.
pub const EXPIRE_BATCH: u32 = 128;

/// Maximum number of expired links that are counted for the status: half a second of reading.
pub const EXPIRY_COUNT_MAX: usize = 1_000_000;

/// Maximum number of times that a create is answered with a link that turns out to be deleted. After that it makes a
/// new one.
pub const REUSES_TRIED_MAX: usize = 3;

/// Maximum number of codes that wait to be read from the store, if only links in use are in memory. Further requests
/// get 503.
pub const FETCH_QUEUE_LEN: usize = 16_384;

/// Threads that read links that are not in memory from the store: as many reads as a fast disk serves at once without
/// slowing down.
pub const FETCHERS: usize = 8;

/// Time for reading a link that is not in memory, from the store or from Redis; after it, the client gets 503.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(2);

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

/// Bytes of an import that are parsed together. Thousands of lines amortise the hand-over, and the chunks in flight fit
/// in the memory of a small machine.
pub const IMPORT_CHUNK_BYTES: usize = 1024 * 1024;

/// Longest line of an import, in bytes. The fields of a link fit in a fraction of it.
pub const IMPORT_LINE_MAX: usize = 256 * 1024;

/// Longest JSON document of an export of another shortener, in bytes: with a million links. It is held in memory, several
/// times its size.
pub const MOVED_DOCUMENT_MAX: u64 = 512 * 1024 * 1024;

/// Maximum number of invalid lines of an import that are reported one by one; later ones are counted.
pub const IMPORT_REPORTS_MAX: u64 = 1_000;

/// Bytes of records that an import sorts and writes at once: one file of the store, and the most that it repeats after
/// a crash.
pub const IMPORT_SORTED_BYTES: usize = 64 * 1024 * 1024;

/// Codes that an import issues at once.
pub const IMPORT_RUN_LEN: u64 = 100_000;
