//! Threads that read the store for cores: single records for the API, links for redirects, and pages of exports.

pub mod export;
pub mod export_reader;
pub mod link_fetchers;
pub mod ndjson;
pub mod record_readers;
