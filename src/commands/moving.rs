//! Links of other shorteners, as lines that the import of carom reads.
//!
//! A [`source::MovingSource`] delivers links of one shortener, from a file ([`documents`], [`tables`], [`sql_dump`]) or from its
//! API ([`api`]). [`shorteners`] translates their fields into a [`moved_link::MovedLink`]. [`lines::MovingLines`] writes
//! each of them as one line of NDJSON for [`super::data::import`], and collects the links that carom cannot take.

pub mod api;
pub mod csv;
pub mod documents;
pub mod http;
pub mod lines;
pub mod moved_link;
pub mod shorteners;
pub mod source;
pub mod sql_dump;
pub mod tables;
