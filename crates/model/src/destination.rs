//! Destinations: where links lead, and which hosts they may lead to.
//!
//! [`long_url`] turns what a client sends into the one form that is stored and sent; [`hosts`] are the patterns of
//! allow lists and block lists; [`rules`] are the hosts of both lists that an admin saves at run time.

pub mod extra_path;
pub mod hosts;
pub mod long_url;
pub mod rules;
