//! The access log.

pub mod terms;
