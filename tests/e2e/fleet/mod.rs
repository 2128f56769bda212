//! Nodes that share one code space through a real Redis, and everything that can happen to it.

mod absence;
mod bulk;
mod changes;
mod clocks;
mod conflicts;
mod counter;
mod dedupe;
mod domains;
mod expiry;
mod idempotency;
mod keys;
mod launcher;
mod membership;
mod memory;
mod next_version;
mod outage;
mod rates;
mod scripts;
mod sentinel;
mod sharing;
mod slots;
mod sources;
mod timeouts;
mod versions;
mod visit_limits;
mod visits;
