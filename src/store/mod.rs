//! What is on disk: links and marks in `links`, the id table in `ids`, the form of a record, the lock of a data
//! directory.
//!
//! Each storage library has one door here and is named in no other file. Nothing here knows of cores, HTTP or mail.
//! Read [`record`] first, then [`links`].

mod error;
pub mod ids;
pub mod journal;
pub mod links;
pub mod lock;
pub mod record;
pub mod redis;
mod search;
