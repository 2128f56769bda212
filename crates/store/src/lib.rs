//! The data directory: links and their indexes in fjall, the id table in sled, and the form of a backup.
//!
//! Each storage library is used in one module only: `fjall` in [`links`], `sled` in [`ids`]. The store decides nothing:
//! it writes what the planner of commits has decided, and says what it could not write or read. Nothing here knows of
//! cores, HTTP, Redis or messages between threads.
//!
//! A link is durable once [`links::Links::sync`] has returned after its commit. The id table needs no fsync: losing
//! it only wastes unused codes.
//!
//! Read first:
//!
//! 1. [`carom_model::link::record`], the stored form of a link;
//! 2. [`links`], the store of records, and its keyspaces;
//! 3. [`links::catalog`], the indexes that lists are read from;
//! 4. [`journal`], what is repaired before the store is opened;
//! 5. [`ids`], the id table;
//! 6. [`backup`], the form of a backup;
//! 7. [`lock`], the lock of a data directory.

pub mod backup;
mod error;
pub mod ids;
pub mod journal;
pub mod links;
pub mod lock;
mod search;
