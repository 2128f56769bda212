//! Limits of links in memory: their load at start, the image, and the filter of codes.

use std::time::Duration;

/// Approximate size of the change log on disk, in bytes. Some six million changed codes, many times what a node changes
/// between two images of the link map. A start that misses the entry of a change reads all links.
pub const CHANGE_LOG_BYTES: u64 = 64 * 1024 * 1024;

/// Number of links from which on a node keeps an image of its link map, or a file of its filters of codes if it keeps
/// only the links in use in memory. Fewer are read from the store in a tenth of a second.
pub const IMAGE_LINKS_MIN: usize = 100_000;

/// Minimum number of changed links before a new image is written: a start looks them up in a fifth of a second.
pub const IMAGE_CHANGES_MIN: u64 = 50_000;

/// Divisor of the number of links that gives the changed links before a new image on large nodes. A start then takes
/// little longer, and each change is written to images some thirty times.
pub const IMAGE_CHANGES_SHARE: u64 = 32;

/// Divisor of the links in an image that gives the most changed links that a start looks up. Beyond it, reading all
/// links is as fast.
pub const IMAGE_REPLAYED_SHARE: u64 = 8;

/// Maximum number of changed codes before the file of the filters is written again: a start reads them from the change
/// log in a fifth of a second. Writing the file takes two bytes per link.
pub const FILTER_CHANGES_MAX: u64 = 1_000_000;

/// Changed codes beyond which the file of the filters is built from the store again, instead of the old file: each takes
/// eight bytes of memory and a look-up.
pub const FILTER_UPDATED_MAX: usize = 2_000_000;

/// Bytes of a page of the file of the filters. A core adds one to its filter in some twenty microseconds.
pub const FILTER_PAGE_BYTES: usize = 64 * 1024;

/// Pages of the file of the filters that are filled at once: one mebibyte, from some six mebibytes of hashes.
pub const FILTER_PART_PAGES: u64 = 16;

/// Maximum number of bytes of filters in flight to all cores at the start.
pub const FILTER_LOADED_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of bytes of filters in flight to cores that serve: two pages, so that no core handles several in one
/// turn for long.
pub const FILTER_SENT_MAX: usize = 2 * FILTER_PAGE_BYTES;

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

/// Frames of the AF_XDP socket of a core: 32 MiB, which count as locked memory.
pub const BYPASS_FRAMES: u32 = 8_192;

/// Maximum number of threads that read the store at the start. Each fills one batch for each core.
pub const LOADERS_MAX: usize = 8;

/// Codes of links deleted during loading, which all cores together remember until it ends: some 30 MB. Beyond it,
/// writes are refused until then.
pub const REMOVED_WHILE_LOADING_MAX: u64 = 256 * 1024;

/// Codes that a core remembers because their links did not fit in memory, or because only a later version can decode them:
/// some 8 MB. Beyond it, every code that is not in memory gets 503.
pub const UNSERVED_CODES_MAX: usize = 64 * 1024;

/// Codes of the store that a core adds to its next filter at once: less than a tenth of a millisecond.
pub const CODES_SENT_TOGETHER: usize = 1_024;

/// Maximum number of codes in flight to all cores: two batches, so that no core handles several in one turn for long.
pub const CODES_IN_FLIGHT_MAX: usize = 2 * CODES_SENT_TOGETHER;
