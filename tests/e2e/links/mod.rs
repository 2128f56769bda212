//! Links: create, read, change, delete, deduplicate and repeat, as the API describes them.

mod basics;
mod bodies;
mod changes;
mod dedupe;
mod idempotency;
mod openapi;
mod responses;
