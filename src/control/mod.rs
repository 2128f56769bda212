//! Threads that may block, so that cores need not: writer, readers and fetchers of the store, list threads, the loader,
//! the replenisher and others. Also the commands that work on a data directory without a node: import and export.
//!
//! Nothing here knows sockets or HTTP. Cores are reached through [`crate::mail`] alone.

pub mod access_log;
pub mod allowances;
pub mod apps;
pub mod backup;
pub mod catalog;
pub mod certificates;
pub mod code_filter;
pub mod disk;
pub mod expiry;
pub mod export;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults;
pub mod fetchers;
pub mod fleet;
pub mod host_lists;
mod idempotency;
pub mod image;
pub mod import;
mod import_lines;
pub mod indexes;
pub mod inspect;
pub mod loader;
pub mod ndjson;
pub mod pages;
pub mod plan;
mod pool;
pub mod priority;
pub mod progress;
pub mod pulse;
pub mod readers;
pub mod replenisher;
pub mod restore;
#[cfg(test)]
pub(crate) mod testing;
pub mod urls;
pub mod visits;
pub mod workers;
pub mod writer;
