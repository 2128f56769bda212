//! Clients: whose word carom takes for the address of a client behind a proxy.
//!
//! [`networks`] are ranges of addresses; [`forwarded`] reads the fields that proxies add, from trusted peers alone.

pub mod forwarded;
pub mod networks;
