//! The removal of purged links from the files of the search index.
//!
//! Texts of a deleted link stay in their section, which costs searches nothing but time. For a purge, the section drops
//! all of its texts. The signing thread signs it again, writes the section file without the old texts, and frees their
//! ranges of the text file.

use super::catalog::Catalog;
use super::section_store::remove_sections;
use carom_model::purge::PurgedLink;

impl Catalog {
    /// True if [`Catalog::forget_links`] may be called: the sections of the last process are read.
    pub fn can_forget(&self) -> bool {
        self.forgetting.is_restored() || !self.filters.is_on()
    }

    /// Forgets the texts of deleted links. Returns the number of the request.
    pub fn forget_links(&self, links: &[PurgedLink]) -> u64 {
        let keys: Vec<Vec<u8>> = links.iter().map(|link| link.position().to_bytes()).collect();
        self.signatures().purge(&keys);
        let number = self.forgetting.ask();
        self.read_imported_again(links);
        self.filters.wake_signer();
        number
    }

    /// Lets searches read the sections of links that exist again with the date of a purged one, after an import: those
    /// sections may have lost the texts of the new links, too.
    fn read_imported_again(&self, links: &[PurgedLink]) {
        let is_again = |link: &&PurgedLink| {
            // A record that cannot be read may be of such a link.
            let present = self.links.date_and_claim(&link.code).ok();
            present.is_none_or(|present| present.is_some_and(|(created_ms, _)| created_ms == link.created_ms))
        };
        let keys: Vec<Vec<u8>> = links.iter().filter(is_again).map(|link| link.position().to_bytes()).collect();
        self.signatures().forget_sections(&keys);
    }

    /// True once the files of the search index have followed a request. Ranges that a search is reading are freed with the
    /// next request.
    pub fn has_forgotten(&self, number: u64) -> bool {
        if !self.filters.is_on() {
            // No thread writes the files.
            if let Some(texts) = &self.texts {
                remove_sections(texts);
                texts.keep_only(Vec::new());
            }
            return true;
        }
        self.forgetting.is_done(number)
    }

    /// True if the disk has refused to remove texts from the files of the search index. The next start tries again.
    pub fn has_texts_left(&self) -> bool {
        self.texts.as_ref().is_some_and(|texts| texts.has_left())
    }
}
