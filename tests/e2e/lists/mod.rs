//! Many links at once: lists, searches, exports and bulk requests.

mod bulk;
mod export;
mod queries;
mod search;
