//! The REST API and the rules for what it is given.

pub mod dates;
pub mod long_url;
