//! Clients: their addresses behind proxies, and the properties that their requests show.
//!
//! [`networks`] are ranges of addresses; [`forwarded`] reads the fields that proxies add, from trusted peers alone.
//! [`user_agent_bot`], [`user_agent_device`] and [`user_agent_browser`] read a `User-Agent`, [`accept_language`] an
//! `Accept-Language`, and [`query_parameters`] a query. [`locations`] say where an address is, and [`public_addresses`]
//! knows the public Internet.

pub mod accept_language;
pub mod forwarded;
pub mod locations;
pub mod networks;
pub mod public_addresses;
pub mod query_parameters;
pub mod user_agent_bot;
pub mod user_agent_browser;
pub mod user_agent_device;
