//! Many links at once: lists, searches, exports, bulk requests and changes of tags.

mod bulk;
mod export;
mod queries;
mod search;
mod tags;
