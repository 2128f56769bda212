//! Many links at once: lists, searches, exports, bulk requests and changes of tags; and the compression of responses.

mod bulk;
mod compression;
mod export;
mod queries;
mod search;
mod sorted;
mod tags;
