//! A core: one pinned executor with its own ring, its shard of the links, its connections, and its place in the mesh.
//!
//! The modules, in reading order:
//!
//! - `serve`: the loop of a core, and the crate `carom-ring` below it for the kernel.
//! - `work`: what the loop does with bytes and messages; `told` has the rules that all ways to an answer share.
//! - `patience`: timeouts and the drain; `crowd`: connection limits and eviction; `refuse`: rejected requests.
//! - `conn`: the state of one connection; `secure`: TLS connections; `slow`: connections that hyper drives.
//! - `data`: everything that a core can answer from. `shard` has the links that it owns and `residents` those of them
//!   in memory. `all_links` serves a node that keeps every link, and `codes` filters unknown codes where it does not.
//! - `look`: look-ups in the store and in Redis; `mesh`: look-ups on other cores; `hot`: copies of other cores' links;
//!   `recall`: how an owner has those copies dropped.
//! - `answers`: prebuilt responses to redirects, and their error pages.
//! - `places`: virtual hosts; `listen`: listening sockets; `access`: entries of the access log.
//! - `executor`: glommio; `tasks`: the time-bounded work beside the loop.
//!
//! Cores share nothing but the rings of the mesh and the counters in `stats`. A core never waits for a disk, a lock, a
//! log or a control thread.

mod access;
mod accounting;
mod admission;
mod all_links;
mod answers;
mod codes;
mod connection;
mod data;
pub mod executor;
mod hot_copies;
mod hyper_bridge;
mod invalidation;
mod late_answers;
mod latencies;
mod link_memory;
pub mod listen;
mod mesh;
mod rejections;
mod run_loop;
mod shard;
mod tasks;
mod timeouts;
mod tls;
mod vhosts;
mod work;

pub use hyper_bridge::HttpService;
pub use link_memory::MemoryBudget;
pub use run_loop::{CoreEvent, CoreParts, CoreSeed, Seeds, start};
