//! A core: one pinned executor with its own ring, its shard of the links, its connections, and its place in the mesh.
//!
//! `serve` is the loop; `work` is what it does with bytes and messages; `conn` what is known of a connection; `slow` the
//! connections that hyper drives; `shard` the links; `mesh` the other cores; `listen` the sockets; `executor` glommio; the
//! crate `carom-ring` the kernel. Cores share nothing but the mesh's rings and the counters in `stats`. No core waits for a disk, a
//! lock, a log or a control thread.

mod conn;
pub mod executor;
pub mod listen;
mod mesh;
mod serve;
mod shard;
mod slow;
mod work;

pub use serve::{CoreEvent, CoreParts, CoreSeed, Limits, Seeds, start};
pub use slow::Service;
