//! What is on disk: links and marks in `links`, the id table in `ids`, the lock of a data
//! directory. And what is kept elsewhere: by Redis in `redis`, behind an HTTP address in `http`.
//!
//! Each storage library has one door here and is named in no other file. Nothing here knows of cores, HTTP or mail.
//! What a record means is known in [`carom_model::link::record`]; read that first, then [`links`].

mod error;
pub mod http;
pub mod ids;
pub mod journal;
pub mod links;
pub mod lock;
pub mod redis;
mod search;
pub mod socket;
pub mod tls;
