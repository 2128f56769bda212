//! Services: threads that may block, so that cores need not.
//!
//! Each folder or file is one long-running thread, or a few of one kind, with what it decides. Cores reach a service
//! through its queue in [`crate::bridge`], and a service reaches a core through that core's mailbox. Nothing here knows
//! of client connections or of the HTTP server. Long work in the background runs at a lower priority than the cores
//! ([`threads::priority`]).

pub mod access_log;
pub mod allowances;
pub mod api_keys;
pub mod certificates;
mod derived;
pub mod destination_rules;
pub mod domain_redirects;
pub mod events;
mod exchanges;
pub mod expiry;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub mod faults;
pub mod first_start;
pub mod geo;
pub mod host_lists;
pub mod http;
pub mod ids;
pub mod joins;
pub mod loader;
pub mod maintenance;
pub mod map_image;
pub mod purges;
pub mod readers;
pub mod replication;
pub mod search;
#[cfg(test)]
pub(crate) mod testing;
pub mod threads;
mod versions;
pub mod visit_log;
pub mod visits;
pub mod whole_file;
pub mod workers;
pub mod writer;
