//! Destinations: where links lead, and which hosts they may lead to.
//!
//! [`long_url`] turns what a client sends into the one form that is stored and sent; [`hosts`] are the patterns of
//! allow lists and block lists.

pub mod extra_path;
pub mod hosts;
pub mod long_url;
