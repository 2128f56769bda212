//! Options that several keyspaces share.

use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, KeyspaceCreateOptions};

/// Returns the options of a keyspace that is read only by ranges, for which filters are useless. Sizes are in bytes.
pub(super) fn range_options(memtable: u64, block: u32, compression: CompressionPolicy) -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(memtable)
        .data_block_size_policy(BlockSizePolicy::all(block))
        .data_block_compression_policy(compression)
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::None))
}

/// Returns a compression of the lower levels; those with many writes stay uncompressed.
pub(super) fn deep_compression() -> CompressionPolicy {
    CompressionPolicy::new([CompressionType::None, CompressionType::None, CompressionType::Lz4])
}
