//! The common interface of all places that links come from.

use super::moved_link::MovedLink;

/// A link of another shortener, as far as it could be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLink {
    /// The line in the file, or the number of the link in a response or document, counted from 1.
    pub number: u64,
    /// The name of the short URL for reports, such as `go.example/sale`; empty if it is unknown.
    pub name: String,
    /// The link, or the reason why it cannot be moved.
    pub link: Result<MovedLink, String>,
}

/// A place from which links are read, some at a time.
pub trait MovingSource: Send {
    /// Returns the next links; `None` after the last one. Blocks.
    ///
    /// # Errors
    /// A description of the failure. The links that were returned before are sound.
    fn next(&mut self) -> Result<Option<Vec<FoundLink>>, String>;

    /// Returns a remark for the end of the import, such as links that the source announced and did not deliver.
    fn remark(&self) -> Option<String> {
        None
    }
}
