//! A client for Redis, Redis Sentinel and Redis Cluster. It routes each request, and reports whether a failed one may
//! have been carried out.
//!
//! A [`Client`] belongs to one thread. It detects a cluster by itself, or asks sentinels for the master. It keeps one
//! connection to each master that it needs, and waits for all of them at once. Each request has its own deadline: a
//! slow server, name server or handshake does not delay the responses of others. Connections are opened in the
//! background. After a failover the client fetches the new map of slots, or the name of the new master, and continues.
//! A master that does not answer costs one timeout. After that, requests to it fail at once until it answers again.
//!
//! This crate knows neither links nor the meaning of any key: its caller names the slot or the server of each request,
//! and passes the scripts that it wants to run. It is the door of the `redis` library, whose commands and values it
//! re-exports.
//!
//! Read first:
//!
//! 1. [`Client`], which sends requests and waits for all of them at once;
//! 2. [`RequestRoute`], which server a request is for;
//! 3. [`RedisError`], what may have become of a request without a reply;
//! 4. `topology`, how the masters of a cluster are found;
//! 5. `topology::sentinel`, how the master of a service is found;
//! 6. `server`, the state of one connection;
//! 7. `scripts`, how scripts are loaded and called;
//! 8. [`EvictionPolicy`], whether a server may remove keys by itself.

mod address;
mod client;
mod error;
mod eviction;
mod reply;
mod request;
mod scripts;
mod server;
mod settings;
mod topology;

pub use redis::{Cmd, Value, cmd};

pub use self::address::ServerAddress;
pub use self::client::Client;
pub use self::error::RedisError;
pub use self::eviction::EvictionPolicy;
pub use self::reply::text;
pub use self::request::{RedisCommand, Replies, RequestId, RequestRoute};
pub use self::settings::{ClientSettings, SentinelSettings};
pub use self::topology::slot;
