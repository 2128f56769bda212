//! HTTP/1.1 as bytes: request heads, message framing, the state machine of a connection, and prebuilt answers.
//!
//! Nothing here does I/O, reads a clock or knows of sockets, rings or stores: bytes and instants come in, bytes and
//! actions go out. So every part is tested and fuzzed by itself. Read [`connection`] first.

pub mod answer;
pub mod chunked;
pub mod connection;
pub mod forward;
pub mod head;
mod proxy;
pub mod tls;

pub use connection::{Action, Bounds, Connection, RedirectRequest, peek, peek_host};
pub use head::Rejection;
