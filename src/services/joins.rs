//! Joins: a new node of a fleet takes all links from a snapshot of a peer, and follows the streams from there.
//!
//! * `open_snapshot`: a snapshot of the store, and its pieces;
//! * [`server`]: the open snapshots of a node, on a thread of their own;
//! * `peer`: the HTTP client of the admin listener of a peer;
//! * `kept`: the pieces in the data directory of the new node, until it has all;
//! * [`transfer`]: fetches the pieces, keeps them, and fills a new store while they arrive.
//!
//! The pieces are defined in [`carom_store::backup::pieces`]. The places in the streams are records of the store, and the
//! commit of a change also writes the place behind it. So a snapshot never has a place ahead of its links: the new node
//! may read changes that it has, which do nothing, and misses none.

mod kept;
mod open_snapshot;
mod peer;
pub mod server;
pub mod transfer;
