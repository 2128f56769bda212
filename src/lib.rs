//! carom: a URL shortener and redirect appliance.
//!
//! `ARCHITECTURE.md` at the root of the repository explains how the parts hang together.

pub mod limits;
pub mod link;
pub mod mail;
pub mod stats;
pub mod wire;
