//! Storage: links in `links`, the id table in `ids`, the lock of a data directory in `lock`; and remote data: Redis in
//! `redis`, texts at HTTP addresses in `http`.
//!
//! Each storage library is named in one module only. This module does not depend on cores, HTTP requests or messages.
//! [`crate::record`] defines a record; read that first, then [`links`].

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
