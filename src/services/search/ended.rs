//! Ended links whose texts the search index still has: links that were deleted, or that have expired.
//!
//! The history has nothing of a link that expired and was never changed. Its texts stay in its section until the section is
//! signed again. So a purge finds the link by them, with its date.

use std::time::{Duration, Instant};

use super::catalog::Catalog;
use super::ngram_filters::skip::SkipStep;
use super::section::{Needle, Readable};
use super::text_chunk::{TextPart, key_of, texts_of};
use crate::services::threads::priority::pause_if_due;
use carom_model::purge::{EndedSelector, PurgedLink};
use carom_model::query::LinkPosition;
use carom_store::links::StoreError;
use carom_store::links::catalog::place_of;

/// Texts of the index before the tags of a link: its destination and its code.
const BEFORE_TAGS: usize = 2;

/// The part of a selection that texts can answer. The index has lower-case letters only.
enum TextSelector {
    /// The destination begins with one of these.
    Destination(Vec<String>),
    /// The link has this tag, or this title: the index does not tell them apart.
    Tag(String),
}

impl TextSelector {
    fn of(selector: &EndedSelector) -> Option<TextSelector> {
        match selector {
            EndedSelector::Destination(prefixes) => {
                Some(TextSelector::Destination(prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()).collect()))
            }
            EndedSelector::Tag(tag) => Some(TextSelector::Tag(tag.to_lowercase())),
            EndedSelector::Domain(_) | EndedSelector::App(_) => None,
        }
    }

    fn needle(&self) -> Needle {
        match self {
            TextSelector::Destination(prefixes) => Needle::of(prefixes.iter().map(String::as_str)),
            TextSelector::Tag(tag) => Needle::of(std::iter::once(tag.as_str())),
        }
    }

    fn has(&self, entry: &[u8]) -> bool {
        let mut texts = texts_of(entry);
        match self {
            TextSelector::Destination(prefixes) => {
                let target = texts.next().unwrap_or_default();
                prefixes.iter().any(|prefix| target.starts_with(prefix.as_bytes()))
            }
            TextSelector::Tag(tag) => texts.skip(BEFORE_TAGS).any(|text| text == tag.as_bytes()),
        }
    }
}

impl Catalog {
    /// Returns at most `most` ended links whose destination or tag is selected, whatever the case of its letters. Returns
    /// none for a selector by anything else. Ends early after `time_max`. Blocks the thread, also for reads of the text file.
    ///
    /// # Errors
    /// [`StoreError`] if a record cannot be read. Texts that cannot be read are left out.
    pub(super) fn ended_in_texts(
        &self,
        selector: &EndedSelector,
        most: usize,
        time_max: Duration,
    ) -> Result<Vec<PurgedLink>, StoreError> {
        let Some(selector) = TextSelector::of(selector) else { return Ok(Vec::new()) };
        let needle = selector.needle();
        let (start, mut found) = (Instant::now(), Vec::new());
        let (mut from, mut part) = (Vec::new(), TextPart::default());
        while found.len() < most && start.elapsed() < time_max {
            let step = self.signatures().step(&needle, &(from, Vec::new()), false);
            let ((_, end), to_read) = match step {
                SkipStep::End => break,
                SkipStep::On(reached) => {
                    from = reached;
                    continue;
                }
                SkipStep::Read(range, to_read) => (range, to_read),
            };
            pause_if_due();
            match to_read.as_ref().map(|to_read| &to_read.texts) {
                Some(Readable::Memory(chunks)) => {
                    for chunk in chunks {
                        self.add_ended(chunk, &selector, &mut found)?;
                    }
                }
                Some(Readable::Stored(extent)) if extent.read(&mut part).is_ok() => {
                    self.add_ended(&part, &selector, &mut found)?;
                }
                // A section without texts has none of ended links. One that cannot be read has none to look at.
                Some(Readable::Stored(_)) | None => {}
            }
            if end.is_empty() {
                break;
            }
            from = end;
        }
        found.truncate(most);
        Ok(found)
    }

    /// Adds the ended links among the selected entries of a part.
    fn add_ended(
        &self,
        part: &TextPart,
        selector: &TextSelector,
        found: &mut Vec<PurgedLink>,
    ) -> Result<(), StoreError> {
        for entry in part.entries().filter(|entry| selector.has(entry)) {
            let Some(LinkPosition { created_ms, code }) = place_of(key_of(entry), 0) else { continue };
            let link = PurgedLink { code, created_ms, claim: None, ended_ms: Some(created_ms) };
            if !found.contains(&link) && self.links.has_ended(&link)? {
                found.push(link);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter_builder::work_once;
    use super::super::section_store::save;
    use super::super::tests::{numbered, saved};
    use super::*;
    use carom_model::link::Link;
    use carom_model::link::labels::Tags;
    use carom_shards::Code;

    const TIME: Duration = Duration::from_secs(60);

    #[test]
    fn expired_links_are_found_by_the_texts_that_are_left() {
        let model = saved();
        let target_of = |number: u64| numbered(number).1.unwrap().target;
        let found = |prefix: &str| {
            let selector = EndedSelector::Destination(vec!["https://none.example/".to_owned(), prefix.to_owned()]);
            let found = model.catalog.ended_in_texts(&selector, 10, TIME).unwrap();
            found.into_iter().map(|link| link.created_ms).collect::<Vec<u64>>()
        };
        assert_eq!(found(&target_of(100)), Vec::<u64>::new(), "the link exists");
        // Two in closed sections, one of which has another link since, and one in the section that takes new links.
        model.commit([100, 200, 499].map(|number| (numbered(number).0, None)));
        let again = numbered(200).1.map(|link| Link { created_ms: 501, ..link });
        model.commit([(numbered(200).0, again)]);
        for number in [100, 200, 499] {
            assert_eq!(found(&target_of(number)), [number]);
            assert_eq!(found(&target_of(number).to_uppercase()), [number]);
        }
        let all = target_of(0);
        assert_eq!(found(&all[..all.len() - 7]), [100, 200, 499]);
    }

    #[test]
    fn expired_links_are_found_by_their_tags() {
        let model = saved();
        let tagged = |number: u64, tag: &str| {
            let mut link = Link { created_ms: 600 + number, ..numbered(number).1.unwrap() };
            link.labels.tags = Tags::of([tag, "other"]).unwrap();
            (link.code, Some(link))
        };
        model.commit([tagged(1_001, "spring-sale"), tagged(1_002, "spring-sale"), tagged(1_003, "spring-sales")]);
        model.commit([1_001, 1_003].map(|number| (numbered(number).0, None)));
        let found = |selector: EndedSelector| {
            let found = model.catalog.ended_in_texts(&selector, 10, TIME).unwrap();
            found.into_iter().map(|link| link.code).collect::<Vec<Code>>()
        };
        assert_eq!(found(EndedSelector::Tag("spring-sale".to_owned())), [numbered(1_001).0], "one exists");
        assert_eq!(found(EndedSelector::Tag("example".to_owned())), [], "a part of a destination is no tag");
        assert_eq!(found(EndedSelector::Domain(None)), []);
    }

    #[test]
    fn purged_texts_find_no_link_any_more() {
        let model = saved();
        model.commit([100, 499].map(|number| (numbered(number).0, None)));
        let all = EndedSelector::Destination(vec!["https://".to_owned()]);
        let found = || model.catalog.ended_in_texts(&all, 10, TIME).unwrap();
        assert_eq!(found().len(), 2);
        assert_eq!(model.catalog.ended_in_texts(&all, 1, TIME).unwrap().len(), 1);
        assert_eq!(model.catalog.ended_in_texts(&all, 10, Duration::ZERO).unwrap(), []);
        let request = model.catalog.forget_links(&found());
        assert_eq!(found(), []);
        while work_once(&model.catalog, || ()).unwrap() {}
        save(&model.catalog, false);
        assert!(model.catalog.has_forgotten(request));
        assert_eq!(found(), []);
    }
}
