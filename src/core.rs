//! A core: one pinned executor with its own ring, its shard of the links, its connections, and its place in the mesh.
//!
//! The modules, by topic:
//!
//! - `run_loop`: the loop of a core; `now`: the time of a turn; `mail`: the messages of a core; `settle`: what touched
//!   connections need at the end of a turn; `gathering`: waits for several requests before a core wakes up.
//! - `driver`: everything that touches the ring of the kernel (crate `carom-ring`), and the transport of a connection.
//! - `bypass`: the datapath past the kernel's TCP: AF_XDP (crate `carom-xdp`) and the stack (crate `carom-net`).
//! - `work`: what a core does with the bytes of its connections; `redirects`: look-ups and the responses to them, with
//!   `request_rules`, the rules that fast and late responses share, and `latencies`, their measured times.
//! - `timeouts`: timeouts; `drain`: the end of connections; `admission`: connection limits and eviction; `rejections`:
//!   rejected requests.
//! - `connection`: the state of one connection; `tls_connections`: handshakes and encryption, which `tls` serves;
//!   `hyper_bridge`: connections that hyper drives.
//! - `link_sources`: everything that a core can answer from. `shard` has the links that it owns and `link_memory` those of them
//!   in memory. `all_links` serves a node that keeps every link, and `known_codes` filters unknown codes where it does not.
//!   `ruled_links` has the links with redirect rules.
//! - `late_answers`: look-ups in the store and in Redis; `mesh`: look-ups on other cores; `hot_copies`: copies of other
//!   cores' links; `recalls`: how an owner has those copies dropped.
//! - `answers`: prebuilt responses to redirects, and their error pages.
//! - `vhosts`: virtual hosts; `listen`: listening sockets; `access`: entries of the access log.
//! - `executor`: glommio; `tasks`: the time-bounded work beside the loop.
//!
//! For redirects, cores share only memory without locks: the rings of the mesh, its `Presence` (which cores sleep), the
//! filter `RuledCodes`, the rate limits of addresses (`MissLimiter`, which compares and swaps), the knowledge about the
//! fleet (`FleetView`), and the counters in `stats`. A redirect therefore waits for no disk, lock, log or service.
//! Other requests take short locks: on the keys of TLS tickets, console sessions, idempotency keys, or lists for the
//! status page.

mod access;
mod admission;
mod all_links;
mod answers;
pub mod bypass;
mod connection;
mod drain;
mod driver;
pub mod executor;
mod gathering;
mod hot_copies;
mod hyper_bridge;
mod known_codes;
mod late_answers;
mod latencies;
mod link_memory;
mod link_sources;
pub mod listen;
mod mail;
mod mesh;
mod now;
mod recalls;
mod redirects;
mod rejections;
mod request_rules;
mod ruled_links;
mod run_loop;
mod settle;
mod shard;
mod tasks;
mod timeouts;
mod tls;
mod tls_connections;
mod vhosts;
mod work;

pub use hyper_bridge::HttpService;
pub use link_memory::MemoryBudget;
pub use run_loop::{CoreEvent, CoreParts, UnstartedCore, UnstartedCores, start};
