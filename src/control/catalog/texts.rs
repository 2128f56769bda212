//! The texts of a link that a search covers. Searches and signatures use the same ones.

use carom_shards::Code;
use carom_shards::code::CODE_LEN_MAX;

use crate::labels::in_joined;
use crate::link::Link;
use crate::record::LinkRef;

/// The searchable texts of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Texts<'l> {
    code: &'l Code,
    target: &'l str,
    /// The tags as one string, from [`crate::labels::Tags::joined`].
    tags: &'l str,
    title: Option<&'l str>,
}

impl<'l> Texts<'l> {
    pub(super) fn of_link(link: &'l Link) -> Texts<'l> {
        let labels = &link.labels;
        Texts { code: &link.code, target: &link.target, tags: labels.tags.joined(), title: labels.title.as_deref() }
    }

    pub(super) fn of_record(code: &'l Code, link: &LinkRef<'l>) -> Texts<'l> {
        Texts { code, target: link.target, tags: link.tags, title: link.title }
    }

    /// True if `has` returns true for one of the texts in lower case. Its second argument is true for the URL and the
    /// code, which are ASCII. `small` is a buffer for lower-casing.
    pub(super) fn any(&self, small: &mut Vec<u8>, mut has: impl FnMut(&[u8], bool) -> bool) -> bool {
        for text in [self.target.as_bytes(), self.code.slug(&mut [0; CODE_LEN_MAX])] {
            small.clear();
            small.extend_from_slice(text);
            small.make_ascii_lowercase();
            if has(small, true) {
                return true;
            }
        }
        // Tags are in lower case already.
        in_joined(self.tags).any(|tag| has(tag.as_bytes(), false))
            || self.title.is_some_and(|title| has(title.to_lowercase().as_bytes(), false))
    }
}
