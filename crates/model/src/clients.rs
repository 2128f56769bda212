//! Client addresses behind proxies: which sources carom trusts.
//!
//! [`networks`] are ranges of addresses; [`forwarded`] reads the fields that proxies add, from trusted peers alone.

pub mod forwarded;
pub mod networks;
