//! Clients: their addresses behind proxies, and their devices.
//!
//! [`networks`] are ranges of addresses; [`forwarded`] reads the fields that proxies add, from trusted peers alone.
//! [`user_agent_device`] reads the platform from a `User-Agent`, and [`public_addresses`] knows the public Internet.

pub mod forwarded;
pub mod networks;
pub mod public_addresses;
pub mod user_agent_device;
