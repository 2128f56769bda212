//! The removal of purged links from the files of the search index, and from sorted lists.
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

    /// Forgets the texts of deleted links, and erases the links from sorted lists. Returns the number of the request.
    pub fn forget_links(&self, links: &[PurgedLink]) -> u64 {
        let keys: Vec<Vec<u8>> = links.iter().map(|link| link.position().to_bytes()).collect();
        self.signatures().purge(&keys);
        let number = self.forgetting.ask();
        self.sorted_lists.forget(links);
        self.read_imported_again(links);
        self.filters.wake_signer();
        number
    }

    /// Lets searches read the sections of links that exist again with the date of a purged one, after an import. Those
    /// sections may have lost the texts of the new links, too.
    fn read_imported_again(&self, links: &[PurgedLink]) {
        let is_again = |link: &&PurgedLink| {
            // A record that cannot be read may be of such a link.
            let present = self.links.link_identity(&link.code).ok();
            present.is_none_or(|present| present.is_some_and(|present| present.created_ms == link.created_ms))
        };
        let keys: Vec<Vec<u8>> = links.iter().filter(is_again).map(|link| link.position().to_bytes()).collect();
        self.signatures().forget_sections(&keys);
    }

    /// True once the files of the search index and of sorted lists have followed a request. Ranges that a search is reading are freed with the
    /// next request.
    pub fn has_forgotten(&self, number: u64) -> bool {
        if !self.sorted_lists.has_forgotten() {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use super::super::filter_builder::work_once;
    use super::super::section_store::{restore, save};
    use super::super::tests::{CatalogModel, numbered, saved};
    use super::*;
    use carom_model::link::Link;
    use carom_model::query::{Filter, OrderField, SortOrder};

    /// True if a file of the search index has the texts of the link of a number.
    fn is_on_disk(model: &CatalogModel, number: u64) -> bool {
        let text = format!("example.org/{}", numbered(number).0);
        let file = |name: &str| std::fs::read(model.dir().join(name)).unwrap();
        let has = |file: Vec<u8>| memchr::memmem::find(&file, text.as_bytes()).is_some();
        ["search.sections", "search.texts"].map(file).into_iter().any(has)
    }

    /// Deletes links by their numbers, and purges them. Returns the number of the request.
    fn purge(model: &CatalogModel, numbers: &[u64]) -> u64 {
        let gone = || numbers.iter().map(|number| numbered(*number));
        model.commit(gone().map(|(code, _)| (code, None)));
        let purged: Vec<PurgedLink> = gone().map(|(_, link)| PurgedLink::of(&link.unwrap())).collect();
        model.catalog.forget_links(&purged)
    }

    #[test]
    fn purged_links_leave_the_files() {
        let model = saved();
        // One of them is in a section that still takes new links.
        let gone = [100, 499];
        for number in gone {
            assert!(is_on_disk(&model, number), "otherwise the test proves nothing");
        }
        let request = purge(&model, &gone);
        assert!(!model.catalog.has_forgotten(request));
        while work_once(&model.catalog, || ()).unwrap() {}
        save(&model.catalog, false);
        assert!(model.catalog.has_forgotten(request));
        for number in gone {
            assert!(!is_on_disk(&model, number));
        }
        let filter = Filter { term: Some("c00010".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 50);
    }

    #[test]
    fn purged_links_leave_the_bounds_of_their_sections() {
        let model = saved();
        // The last links of the section that still takes new links, and of a closed one.
        let is_bound = |key: &[u8]| {
            let mut images = Vec::new();
            let mut from = model.catalog.signatures().copy_some(&[], &mut images);
            while let Some(next) = from {
                from = model.catalog.signatures().copy_some(&next, &mut images);
            }
            let mut bounds = images.iter().filter_map(|(section, _)| section.bounds.as_ref());
            bounds.any(|(_, last)| **last == *key)
        };
        let key = |number: u64| PurgedLink::of(&numbered(number).1.unwrap()).position().to_bytes();
        let closed = (100..200).find(|number| is_bound(&key(*number))).unwrap();
        assert!(is_bound(&key(499)), "otherwise the test proves nothing");
        purge(&model, &[closed, 499]);
        assert!(!is_bound(&key(closed)));
        assert!(!is_bound(&key(499)));
        let filter = Filter { term: Some("c0004".to_owned()), ..Filter::default() };
        model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 50);
    }

    #[test]
    fn links_deleted_before_a_start_leave_the_files_when_purged() {
        let model = saved();
        model.commit((490..500).map(|number| (numbered(number).0, None)));
        save(&model.catalog, true);
        let model = model.restarted(|_| {});
        assert!(restore(&model.catalog).unwrap().is_some());
        assert!(is_on_disk(&model, 495), "otherwise the test proves nothing");
        let request = purge(&model, &[495]);
        save(&model.catalog, false);
        assert!(model.catalog.has_forgotten(request));
        assert!(!is_on_disk(&model, 495));
    }

    #[test]
    fn purged_links_leave_the_files_while_their_section_is_signed() {
        let model = saved();
        // More links of one section than are signed at once.
        model.commit((1_000..1_006).map(|number| {
            let (code, link) = numbered(number);
            (code, link.map(|link| Link { created_ms: 102, ..link }))
        }));
        assert!(work_once(&model.catalog, || ()).unwrap());
        assert!(is_on_disk(&model, 103), "otherwise the test proves nothing");
        let request = purge(&model, &[103]);
        save(&model.catalog, false);
        assert!(model.catalog.has_forgotten(request));
        assert!(!is_on_disk(&model, 103));
    }

    #[test]
    fn purged_texts_leave_the_disk_if_no_sections_are_stored() {
        let model = saved();
        let (code, _) = numbered(100);
        let has = || {
            let file = std::fs::read(model.dir().join("search.texts")).unwrap();
            memchr::memmem::find(&file, format!("example.org/{code}").as_bytes()).is_some()
        };
        assert!(has(), "otherwise the test proves nothing");
        let request = purge(&model, &[100]);
        while work_once(&model.catalog, || ()).unwrap() {}
        // The new file leads to a folder that does not exist.
        let new = model.dir().join("search.sections.new");
        std::os::unix::fs::symlink(model.dir().join("none/file"), &new).unwrap();
        save(&model.catalog, false);
        assert!(!model.dir().join("search.sections").exists(), "it was stored");
        assert!(model.catalog.has_forgotten(request));
        assert!(!model.catalog.has_texts_left());
        assert!(!has());
    }

    #[test]
    fn links_that_are_imported_again_are_found_after_a_purge() {
        let model = CatalogModel::with_signatures(1_000);
        model.commit((0..500).map(numbered));
        while work_once(&model.catalog, || ()).unwrap() {}
        // One of them is in a section that still takes new links.
        let again = [100, 499].map(numbered);
        let purged = again.each_ref().map(|(_, link)| PurgedLink::of(link.as_ref().unwrap()));
        model.commit(again.each_ref().map(|(code, _)| (*code, None)));
        model.commit(again);
        model.catalog.forget_links(&purged);
        let check = || {
            for term in ["c000100", "c000499"] {
                let filter = Filter { term: Some(term.to_owned()), ..Filter::default() };
                model.check(&filter, SortOrder { field: OrderField::DateCreated, descending: true }, 8);
            }
        };
        check();
        while work_once(&model.catalog, || ()).unwrap() {}
        check();
    }
}
