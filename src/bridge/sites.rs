//! The mark of a site that may lack links of the other one: what the API asks of a thread for jobs.

use std::fmt;

/// The mark of this site in its Redis. Only threads for jobs call `complete`, because it waits for Redis.
pub trait SiteMark: fmt::Debug + Send + Sync {
    /// Returns the name of this site.
    fn site(&self) -> &str;

    /// Removes the mark, once an operator has filled the nodes of this site from the other one. Returns false if this site
    /// is not marked.
    ///
    /// # Errors
    /// The reason, in words for the operator. Redis may have removed the mark nevertheless.
    fn complete(&self) -> Result<bool, String>;
}
