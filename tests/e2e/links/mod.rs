//! Links: create, read, change, delete, deduplicate, repeat and import, as the API and the commands describe them.

mod basics;
mod bodies;
mod bulk_edits;
mod changes;
mod dedupe;
mod idempotency;
mod moving;
mod moving_in;
mod openapi;
mod purges;
mod responses;
