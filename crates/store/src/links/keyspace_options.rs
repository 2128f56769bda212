//! Options that several keyspaces share.

use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy};
use fjall::{CompressionType, KeyspaceCreateOptions};

/// Returns options with filters and indexes of tables in parts of 4 KiB. By default, the library writes those of the upper
/// levels whole: 1.2 MB of filter and 0.6 MB of index for each million links. With more tables than the block cache holds, each
/// look-up would read several of them from disk: in an import, the sixth ten million links took more than twelve minutes.
pub(super) fn partitioned_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
}

/// Returns the options of a keyspace that is read only by ranges, for which filters are useless. Sizes are in bytes.
pub(super) fn range_options(memtable: u64, block: u32, compression: CompressionPolicy) -> KeyspaceCreateOptions {
    partitioned_options()
        .max_memtable_size(memtable)
        .data_block_size_policy(BlockSizePolicy::all(block))
        .data_block_compression_policy(compression)
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::None))
}

/// Returns a compression of the lower levels; those with many writes stay uncompressed.
pub(super) fn deep_compression() -> CompressionPolicy {
    CompressionPolicy::new([CompressionType::None, CompressionType::None, CompressionType::Lz4])
}
