//! HTTP/1.1, the PROXY protocol and TLS as bytes: bytes and instants come in, bytes and actions go out.
//!
//! Nothing here does I/O, reads a clock or starts a thread, so every part is tested and fuzzed by itself. The crate
//! knows neither routes nor templates nor problem details: the caller brings the texts of error pages, and says which
//! paths accept bodies of any length. Of links it knows their codes and how they redirect (`carom-shards`), because the
//! fast path parses codes and writes redirects directly.
//!
//! The modules, in reading order:
//!
//! - [`connection`], the HTTP machine: the states of a connection, without a socket.
//! - [`head`]: the strict gate for request heads, with its [`rejection`]s; [`chunked`]: the framing of bodies; `proxy`:
//!   PROXY headers.
//! - [`redirect`]: requests for a short code, as the fast path reads them.
//! - [`answer`]: prebuilt responses; [`forward`]: the query string of a request in a destination.
//! - [`tls`]: the TLS session of a connection.

pub mod answer;
pub mod chunked;
pub mod connection;
pub mod forward;
pub mod head;
mod proxy;
pub mod redirect;
pub mod rejection;
pub mod tls;

pub use connection::{Action, Bounds, Connection};
pub use redirect::{RedirectRequest, Span, peek, peek_host};
pub use rejection::Rejection;
