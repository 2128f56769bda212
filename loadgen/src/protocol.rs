//! The bytes of a connection, without I/O: HTTP/1.1 (`request`, `response`), HTTP/2 (`http2`) and TLS (`tls`).

pub(crate) mod http2;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod tls;
