//! Lists of links and tags: what may be asked for, and what is answered. The API reads one and writes the other; a control
//! thread finds what is in between.

use std::sync::Arc;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use xxhash_rust::xxh3::xxh3_64;

use crate::apps::Scope;
use crate::domains::DomainName;
use crate::link::Link;
use crate::visits::tally::{Counts, Part};

/// Bytes of the time in a [`Place`].
pub const PLACE_MS_LEN: usize = 6;

/// The latest time that a place can have, in milliseconds since 1970 UTC. It is in the year 10889.
const PLACE_MS_MAX: u64 = (1 << (8 * PLACE_MS_LEN)) - 1;

/// The form of cursors.
const CURSOR_FORM: u8 = 1;

/// Where a link stands among all others, the oldest first; those of the same millisecond by the ASCII form of their codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// When it was made, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// Its code.
    pub code: Code,
}

impl Place {
    /// The place of a link. All that are said to be made after the year 10889 are of its last millisecond.
    pub fn new(created_ms: u64, code: Code) -> Place {
        Place { created_ms: created_ms.min(PLACE_MS_MAX), code }
    }

    /// Bytes that compare as places do.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PLACE_MS_LEN + self.code.len());
        bytes.extend_from_slice(&ms_bytes(self.created_ms));
        bytes.extend_from_slice(self.code.key(&mut [0; CODE_KEY_LEN_MAX]));
        bytes
    }

    /// What [`Place::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Option<Place> {
        let (ms, code) = bytes.split_first_chunk::<PLACE_MS_LEN>()?;
        let created_ms = ms.iter().fold(0, |ms, &byte| ms << 8 | u64::from(byte));
        Some(Place { created_ms, code: Code::from_key(code).ok()? })
    }
}

/// What places of that time or later begin with.
pub fn ms_bytes(ms: u64) -> [u8; PLACE_MS_LEN] {
    let mut bytes = [0; PLACE_MS_LEN];
    bytes.copy_from_slice(&ms.min(PLACE_MS_MAX).to_be_bytes()[8 - PLACE_MS_LEN..]);
    bytes
}

/// Begins what stands in the place of a tag for the links of one app. Tags have no control characters.
const OF_APP: char = '\u{2}';

/// Most shelves of several domains that a list goes through; instead of more it passes over links of other domains.
const SHELVES_MAX: usize = 64;

/// The same for those of a domain that is not the default one.
const OF_DOMAIN: char = '\u{3}';

/// Stands between an app or domain and the tag of a link of it.
const TAG_OF_OWNER: char = '\u{1}';

/// What stands in the place of a tag for the links of an app.
pub fn app_shelf(app: &str) -> String {
    format!("{OF_APP}{app}")
}

/// The same for those of a domain that is not the default one.
pub fn domain_shelf(domain: DomainId) -> String {
    format!("{OF_DOMAIN}{}", HEXLOWER.encode(&domain.to_bytes()))
}

/// What those of all domains begin with, and what comes behind all of them.
pub fn domain_shelves() -> (String, String) {
    let behind = char::from_u32(u32::from(OF_DOMAIN) + 1).expect("a character of the same kind");
    (OF_DOMAIN.to_string(), behind.to_string())
}

/// Whether that is what [`domain_shelf`] gave.
pub fn is_domain_shelf(shelf: &str) -> bool {
    shelf.starts_with(OF_DOMAIN)
}

/// What stands there for those of them that have a tag.
pub fn with_tag(owner: &str, tag: &str) -> String {
    format!("{owner}{TAG_OF_OWNER}{tag}")
}

/// Whether that is what [`app_shelf`] or [`domain_shelf`] gave, perhaps [`with_tag`], and no tag alone.
pub fn is_of_owner(shelf: &str) -> bool {
    shelf.starts_with([OF_APP, OF_DOMAIN])
}

/// The shelf of an app or domain and the tag of what [`with_tag`] gave.
pub fn owner_and_tag(shelf: &str) -> Option<(&str, &str)> {
    if is_of_owner(shelf) { shelf.split_once(TAG_OF_OWNER) } else { None }
}

/// Which links a list has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Whose.
    pub scope: Scope,
    /// In small letters; it is in the long URL, the code, the title or a tag. Never empty.
    pub term: Option<String>,
    /// What else the term may be in long URLs, which are kept in ASCII; in small letters.
    pub url_terms: Vec<String>,
    /// Links that whoever searches may mean by name: they come before all others, and only once.
    pub named: Vec<Code>,
    /// Tags, in the form in which they are kept, each once.
    pub tags: Vec<String>,
    /// Whether a link must have all of them, and not just one.
    pub all_tags: bool,
    /// Made at this instant or later, in milliseconds since 1970 UTC.
    pub since_ms: Option<u64>,
    /// Made at this instant or before.
    pub until_ms: Option<u64>,
    /// Not those that were visited as often as they may be.
    pub without_used_up: bool,
    /// Not those whose time is over.
    pub without_over: bool,
    /// Those of which this is true.
    pub condition: Option<Condition>,
}

/// What becomes of whoever follows a link now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// It leads on.
    Active,
    /// Its time has not come.
    Scheduled,
    /// Its time is over.
    Ended,
    /// It is put away.
    Archived,
    /// It was followed as often as it may be.
    UsedUp,
}

impl Condition {
    /// All, by the names that callers use.
    pub const NAMES: [(&'static str, Condition); 5] = [
        ("active", Condition::Active),
        ("scheduled", Condition::Scheduled),
        ("ended", Condition::Ended),
        ("archived", Condition::Archived),
        ("usedUp", Condition::UsedUp),
    ];

    /// That of a name.
    pub fn parse(text: &str) -> Option<Condition> {
        Condition::NAMES.iter().find(|(name, _)| *name == text).map(|(_, condition)| *condition)
    }
}

impl Filter {
    /// Whether links that stand under one of the shelves and are of the time may still be others than those that are asked for.
    pub fn sifts(&self) -> bool {
        self.term.is_some()
            || self.has_all()
            || self.without_used_up
            || self.without_over
            || self.condition.is_some()
            || self.scope.domains().is_some() && (self.scope.app().is_some() || self.domain_shelves().is_none())
    }

    /// What the links stand under in the index of tags that are asked for; empty: they are found by their dates.
    pub fn shelves(&self) -> Vec<String> {
        let owners = match self.scope.app() {
            Some(app) => vec![app_shelf(app.as_str())],
            None => self.domain_shelves().unwrap_or_default(),
        };
        match (owners.is_empty(), self.tags.is_empty()) {
            (true, _) => self.tags.clone(),
            (false, true) => owners,
            (false, false) => {
                let with_tags = |owner: &String| self.tags.iter().map(|tag| with_tag(owner, tag)).collect::<Vec<_>>();
                owners.iter().flat_map(with_tags).collect()
            }
        }
    }

    /// The shelves that have the links of the domains and no others, if there are such: not of the default domain.
    fn domain_shelves(&self) -> Option<Vec<String>> {
        let domains = self.scope.domains().filter(|domains| !domains.is_empty())?;
        // Who must have several tags must have them on one shelf each; and each shelf is gone through by itself.
        let are_few = domains.len() == 1 || !self.has_all() && domains.len() * self.tags.len().max(1) <= SHELVES_MAX;
        let domains = Some(domains).filter(|_| are_few)?;
        domains.iter().map(|domain| domain.map(domain_shelf)).collect()
    }

    /// Whether a link must have several tags.
    pub fn has_all(&self) -> bool {
        self.all_tags && self.tags.len() > 1
    }
}

/// What a list is ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderField {
    /// The time at which links were made.
    DateCreated,
    /// The code, as stores have it.
    ShortCode,
    /// The long URL.
    LongUrl,
    /// The title, in small letters; links without one come first.
    Title,
    /// How often a link was visited.
    Visits,
    /// The same without bots.
    NonBotVisits,
}

/// What a list is ordered by, and in which direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// By what.
    pub field: OrderField,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// A page of a list of links that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListQuery {
    /// Which links.
    pub filter: Filter,
    /// In which order.
    pub order: Order,
    /// Which page, from 1. Where there is a cursor it says nothing.
    pub page: u64,
    /// Links of a page.
    pub per_page: usize,
    /// Where an earlier page has ended.
    pub cursor: Option<Cursor>,
}

impl ListQuery {
    /// Whether the indexes say nearly all that the page needs. Else links may have to be looked at one by one.
    pub fn is_by_index(&self) -> bool {
        self.order.field == OrderField::DateCreated && self.filter.term.is_none() && self.filter.condition.is_none()
    }

    /// What stands for the list that this is a page of. A cursor belongs to one list.
    pub fn key(&self) -> u64 {
        xxh3_64(format!("{:?} {:?}", self.filter, self.order).as_bytes())
    }
}

/// Where a page has ended, so that the next one can begin there whatever has come in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Behind what the page begins.
    pub behind: Behind,
    /// The number of the page that begins there.
    pub page: u64,
    /// How many links of the list came before.
    pub seen: u64,
}

/// Behind what a page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A place, where links stand in the order of their age.
    Place(Place),
    /// A code, where they stand in the order of their codes.
    Code(Code),
    /// So many links, where they are sorted anew for each page.
    Count(u64),
}

impl Cursor {
    /// Text for a URL. It means something for the list of this key alone.
    pub fn to_text(&self, list_key: u64) -> String {
        let mut bytes = vec![CURSOR_FORM];
        bytes.extend_from_slice(&list_key.to_be_bytes());
        bytes.extend_from_slice(&self.page.to_be_bytes());
        bytes.extend_from_slice(&self.seen.to_be_bytes());
        match &self.behind {
            Behind::Place(place) => {
                bytes.push(b'p');
                bytes.extend_from_slice(&place.to_bytes());
            }
            Behind::Code(code) => {
                bytes.push(b'c');
                bytes.extend_from_slice(code.key(&mut [0; CODE_KEY_LEN_MAX]));
            }
            Behind::Count(count) => {
                bytes.push(b'n');
                bytes.extend_from_slice(&count.to_be_bytes());
            }
        }
        HEXLOWER.encode(&bytes)
    }

    /// What [`Cursor::to_text`] gave for a list of that key and order; `None` for anything else.
    pub fn from_text(text: &str, list_key: u64, field: OrderField) -> Option<Cursor> {
        // None that was given has more digits.
        let bytes = (text.len() <= 256).then(|| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()).flatten()?;
        let (&form, rest) = bytes.split_first()?;
        let (key, rest) = number(rest)?;
        let (page, rest) = number(rest)?;
        let (seen, rest) = number(rest)?;
        let (&kind, rest) = rest.split_first()?;
        let behind = match (kind, field) {
            (b'p', OrderField::DateCreated) => Behind::Place(Place::from_bytes(rest)?),
            (b'c', OrderField::ShortCode) => Behind::Code(Code::from_key(rest).ok()?),
            (b'n', field) if field != OrderField::DateCreated => {
                Behind::Count(number(rest).filter(|(_, rest)| rest.is_empty())?.0)
            }
            _ => return None,
        };
        (form == CURSOR_FORM && key == list_key && page > 0).then_some(Cursor { behind, page, seen })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// A page of a list of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPage {
    /// The links.
    pub links: Vec<Arc<Link>>,
    /// How often each of them was followed.
    pub visits: Vec<Counts>,
    /// Its number, from 1.
    pub page: u64,
    /// How many links the list has, as far as was looked.
    pub total: u64,
    /// Whether that is all of it.
    pub complete: bool,
    /// Where the next page begins; nothing at the end of the list.
    pub next: Option<Cursor>,
}

/// What a list of tags is ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagField {
    /// The tags themselves.
    Tag,
    /// How many links have them.
    Links,
}

/// A page of the list of tags that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagQuery {
    /// Of whose links.
    pub scope: Scope,
    /// In small letters; it is in the tag.
    pub term: Option<String>,
    /// By what.
    pub field: TagField,
    /// Whether the largest comes first.
    pub descending: bool,
    /// Which page, from 1.
    pub page: u64,
    /// Tags of a page.
    pub per_page: usize,
    /// Whether it is to be said how often their links were followed.
    pub with_visits: bool,
}

/// A page of a list of tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TagPage {
    /// Tags, and how many links have each.
    pub tags: Vec<(Arc<str>, u64)>,
    /// How often the links of each were followed, if that was asked for; `None` where they are too many to add up.
    pub visits: Vec<Option<Counts>>,
    /// How many tags the list has.
    pub total: u64,
}

/// How often the links of parts were followed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartCounts {
    /// Of each part, in the order in which they were asked for.
    pub counts: Vec<Counts>,
    /// Whether the present hour is in it for apps. Which app has made a link must be looked up, and where very many were
    /// followed that is done when the hour is over.
    pub is_whole: bool,
}

/// What is asked of those who make lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListRequest {
    /// A page of links.
    Links(Box<ListQuery>),
    /// A page of tags.
    Tags(Box<TagQuery>),
    /// The codes of links that crawlers may follow.
    Crawlable(Option<DomainId>),
    /// How many links each of these lists has: such as stand in one run of an index, and need nothing but counting.
    Counts(Vec<Filter>),
    /// The links that were followed most in some hours.
    Top {
        /// The first, counted from 1970 UTC.
        from_hour: u32,
        /// The first that is not meant.
        to_hour: u32,
        /// How many.
        count: usize,
    },
    /// The hosts that sent most visits of any links on these days, both meant and counted from 1970 UTC.
    Referrers {
        /// The first of them.
        from_day: u32,
        /// The last of them.
        to_day: u32,
        /// How many hosts.
        count: usize,
    },
    /// The domains that have links, besides the default one.
    Domains,
    /// How often the links of each of these were followed in some hours.
    Parts {
        /// Apps and domains.
        parts: Vec<Part>,
        /// The first hour, counted from 1970 UTC.
        from_hour: u32,
        /// The first that is not meant.
        to_hour: u32,
    },
}

impl ListRequest {
    /// Whether links may have to be gone through one by one.
    pub fn may_take_long(&self) -> bool {
        match self {
            ListRequest::Links(query) => !query.is_by_index(),
            ListRequest::Tags(query) => query.with_visits,
            ListRequest::Crawlable(_) => false,
            ListRequest::Counts(_)
            | ListRequest::Top { .. }
            | ListRequest::Referrers { .. }
            | ListRequest::Domains
            | ListRequest::Parts { .. } => true,
        }
    }
}

/// What they answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListAnswer {
    /// Links.
    Links(ListPage),
    /// Tags.
    Tags(TagPage),
    /// The newest codes of links that crawlers may follow, one a line of a `robots.txt`.
    Crawlable(Arc<str>),
    /// How many links each list has; `None` where they are not counted yet.
    Counts(Vec<Option<u64>>),
    /// Hosts with their visits, the most frequent first.
    Referrers(Vec<(Box<[u8]>, u64)>),
    /// Domains by their names, in no order that says anything.
    Domains(Vec<DomainName>),
    /// How often the links of each part were followed.
    Parts(PartCounts),
    /// The list has too many links to sort them in this order.
    TooManyToSort,
    /// The page begins behind what is looked at for one answer.
    TooDeep,
    /// There are more tags than are counted.
    TooManyTags,
    /// Everything is being counted since the start; it takes a while.
    Counting,
    /// An index or a record cannot be read. That was logged.
    Unreadable,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    proptest! {
        #[test]
        fn places_and_cursors_are_read_back(ms in 0..=PLACE_MS_MAX, text in "[a-zA-Z0-9_-]{1,64}", key: u64, page in 1u64.., seen: u64) {
            let place = Place::new(ms, code(&text));
            prop_assert_eq!(Place::from_bytes(&place.to_bytes()), Some(place));
            for (behind, field) in [
                (Behind::Place(place), OrderField::DateCreated),
                (Behind::Code(place.code), OrderField::ShortCode),
                (Behind::Count(ms), OrderField::Title),
            ] {
                let cursor = Cursor { behind, page, seen };
                let text = cursor.to_text(key);
                prop_assert_eq!(Cursor::from_text(&text, key, field), Some(cursor));
                prop_assert_eq!(Cursor::from_text(&text, key ^ 1, field), None);
                prop_assert_eq!(Cursor::from_text(&text, key, OrderField::DateCreated).is_some(), field == OrderField::DateCreated);
            }
        }

        #[test]
        fn bytes_compare_as_places(a in 0..1_000u64, b in 0..1_000u64, x in "[a-zA-Z0-9_-]{1,3}", y in "[a-zA-Z0-9_-]{1,3}") {
            let bytes = |ms, text: &str| Place::new(ms, code(text)).to_bytes();
            prop_assert_eq!(bytes(a, &x).cmp(&bytes(b, &y)), a.cmp(&b).then(x.cmp(&y)));
        }

        #[test]
        fn reading_cursors_is_total(text in any::<String>(), hex in "[0-9a-fA-F]{0,300}") {
            for text in [text, hex] {
                let _ = Cursor::from_text(&text, 0, OrderField::ShortCode);
            }
        }
    }
}
