//! A core: one pinned executor with its own ring, its shard of the links, its connections, and its place in the mesh.
//!
//! `serve` is the loop; `work` is what it does with bytes and messages, `patience` for how long, `refuse` what it does not take; `conn` what is known of a connection, `crowd` who has to go when there are too many; `secure` those that speak TLS; `access` what the access log is told; `slow` the
//! connections that hyper drives; `data` what a core can answer from: `shard` the links, `residents` those of them in memory (`all_links` where that is all of them, `codes` what else there may be),
//! `look` the way to the rest, `mesh` the other cores, `hot` copies of their links and `recall` how an owner gets them dropped; `listen` the sockets; `executor` glommio; `tasks` what
//! runs beside the loop, for a bounded time; the crate `carom-ring` the kernel. Cores share nothing but the mesh's rings and the counters in `stats`. No core waits for a disk, a
//! lock, a log or a control thread.

mod access;
mod all_links;
mod codes;
mod conn;
mod crowd;
mod data;
pub mod executor;
mod hot;
mod latencies;
pub mod listen;
mod look;
mod mesh;
mod patience;
mod places;
mod recall;
mod refuse;
mod residents;
mod secure;
mod serve;
mod shard;
mod slow;
mod tasks;
mod told;
mod work;

pub use residents::Share;
pub use serve::{CoreEvent, CoreParts, CoreSeed, Seeds, start};
pub use slow::Service;
