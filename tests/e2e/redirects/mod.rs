//! Redirects: destinations, the fields of a link that change an answer, expiry, limits of visits, and memory.

mod destinations;
mod expiry;
mod fields;
mod gathering;
mod hot_copies;
mod memory;
mod rules;
mod visit_limits;
