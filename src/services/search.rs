//! Lists and searches of links, from indexes by date and by tag in the store, and rank counts in memory.
//!
//! The writer commits through [`Catalog::commit`], so that counts and store change together. A reader that takes a view
//! of the store with counts under the same lock sees both as of one moment. After a start a background thread makes the
//! counts ([`counting`]); until then lists come without them. [`list`] finds a page, on the threads of
//! [`query_workers`].

mod bounded_scan;
mod catalog;
mod counted;
mod counting;
mod domains;
mod ended;
pub(super) mod filter;
mod filter_builder;
mod forgetting;
mod link_scan;
mod list;
mod ngram_filters;
mod ordered_scan;
mod purging;
pub mod query_workers;
mod rank_index;
mod ranked_page;
mod recent_texts;
mod search_scan;
mod section;
mod section_file;
mod section_store;
mod shared_filters;
mod sort_job;
mod sorted_lists;
mod sorted_page;
mod tags;
#[cfg(test)]
mod tests;
mod text_chunk;
mod text_file;
mod texts;
pub mod visits;

pub use self::catalog::{Catalog, IndexedChange, listing};
pub use self::counting::start as start_counting;
pub use self::filter_builder::{sign_once, start as start_signing};
pub use self::sort_job::start as start_sorting;
