//! Queries and results of lists of links and tags. The API parses a query and writes the result; a service
//! (`services::search`) computes the result.

mod tags;

use std::sync::Arc;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use xxhash_rust::xxh3::xxh3_64;

pub use self::tags::{TagField, TagPage, TagQuery, TagsFailure};
use crate::access::{AppName, Scope};
use crate::link::Link;
use crate::visits::tally::VisitCounts;

/// Bytes of the time in a [`LinkPosition`].
pub const PLACE_MS_LEN: usize = 6;

/// The latest time of a [`LinkPosition`], in milliseconds since 1970 UTC. It is in the year 10889.
const PLACE_MS_MAX: u64 = (1 << (8 * PLACE_MS_LEN)) - 1;

/// Version of the format of cursors.
const CURSOR_FORM: u8 = 1;

/// The position of a link by age, the oldest first. Links of the same millisecond are ordered by the ASCII form of
/// their codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LinkPosition {
    /// The creation time of the link, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The code of the link.
    pub code: Code,
}

impl LinkPosition {
    /// Builds the position of a link. Creation times after the year 10889 count as its last millisecond.
    pub fn new(created_ms: u64, code: Code) -> LinkPosition {
        LinkPosition { created_ms: created_ms.min(PLACE_MS_MAX), code }
    }

    /// Encodes the position in bytes that sort as positions do.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PLACE_MS_LEN + self.code.len());
        bytes.extend_from_slice(&ms_bytes(self.created_ms));
        bytes.extend_from_slice(self.code.key(&mut [0; CODE_KEY_LEN_MAX]));
        bytes
    }

    /// Decodes bytes from [`LinkPosition::to_bytes`]; `None` for malformed ones.
    pub fn from_bytes(bytes: &[u8]) -> Option<LinkPosition> {
        let (ms, code) = bytes.split_first_chunk::<PLACE_MS_LEN>()?;
        let created_ms = ms.iter().fold(0, |ms, &byte| ms << 8 | u64::from(byte));
        Some(LinkPosition { created_ms, code: Code::from_key(code).ok()? })
    }
}

/// Returns the first bytes of positions at a time, in milliseconds since 1970 UTC.
pub fn ms_bytes(ms: u64) -> [u8; PLACE_MS_LEN] {
    let mut bytes = [0; PLACE_MS_LEN];
    bytes.copy_from_slice(&ms.min(PLACE_MS_MAX).to_be_bytes()[8 - PLACE_MS_LEN..]);
    bytes
}

/// First character of an index key: a key of the tag index under which the links of an app are listed. Tags have no
/// control characters.
const OF_APP: char = '\u{2}';

/// Maximum number of index keys that a query over several domains reads. Beyond it, the query filters the links of all
/// domains.
const INDEX_KEYS_MAX: usize = 64;

/// First character of the index key for the links of a domain other than the default one.
const OF_DOMAIN: char = '\u{3}';

/// Separator of an app or domain and a tag of its links.
const TAG_OF_OWNER: char = '\u{1}';

/// Returns the index key of the links of an app.
pub fn app_index_key(app: &str) -> String {
    format!("{OF_APP}{app}")
}

/// Returns the index key of the links of a domain other than the default one.
pub fn domain_index_key(domain: DomainId) -> String {
    format!("{OF_DOMAIN}{}", HEXLOWER.encode(&domain.to_bytes()))
}

/// Returns the range of the index keys of all domains: their first character, and the first key after them.
pub fn domain_index_range() -> (String, String) {
    let behind = char::from_u32(u32::from(OF_DOMAIN) + 1).expect("a character of the same kind");
    (OF_DOMAIN.to_string(), behind.to_string())
}

/// True for a text from [`domain_index_key`].
pub fn is_domain_index_key(index_key: &str) -> bool {
    index_key.starts_with(OF_DOMAIN)
}

/// Returns the index key of the links of an app or domain that have a tag.
pub fn index_key_with_tag(owner: &str, tag: &str) -> String {
    format!("{owner}{TAG_OF_OWNER}{tag}")
}

/// True for a text from [`app_index_key`] or [`domain_index_key`], with or without [`index_key_with_tag`]; false for a
/// plain tag.
pub fn is_of_owner(index_key: &str) -> bool {
    index_key.starts_with([OF_APP, OF_DOMAIN])
}

/// Splits a text from [`index_key_with_tag`] into the index key of the app or domain and the tag.
pub fn owner_and_tag(index_key: &str) -> Option<(&str, &str)> {
    if is_of_owner(index_key) { index_key.split_once(TAG_OF_OWNER) } else { None }
}

/// A filter for the links of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// The links that the client may see.
    pub scope: Scope,
    /// A search term in lower case, never empty. It matches the destination, the code, the title, a tag or, by
    /// [`Filter::term_domains`], the name of the domain.
    pub term: Option<String>,
    /// The spellings of the term in destinations, which are stored in ASCII; in lower case.
    pub url_terms: Vec<String>,
    /// Domains whose names contain the search term, sorted: all their links match it. `None` is the default domain.
    pub term_domains: Vec<Option<DomainId>>,
    /// Codes that the search term may name. Their links come before all others, and only once.
    pub named: Vec<Code>,
    /// Normalised tags, each once.
    pub tags: Vec<String>,
    /// True if a link must have all the tags, false if one is enough.
    pub all_tags: bool,
    /// Normalised tags, each once, of links to exclude.
    pub excluded_tags: Vec<String>,
    /// True if a link must have all the excluded tags to be excluded, false if one is enough.
    pub excludes_all: bool,
    /// Earliest creation time, in milliseconds since 1970 UTC, inclusive.
    pub since_ms: Option<u64>,
    /// Latest creation time, in milliseconds since 1970 UTC, inclusive.
    pub until_ms: Option<u64>,
    /// Excludes links that have used up their visits.
    pub without_used_up: bool,
    /// Excludes expired links.
    pub without_expired: bool,
    /// Includes only links in this condition.
    pub condition: Option<Condition>,
}

/// The current condition of a link, as a visitor meets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The link redirects.
    Active,
    /// The link has not started yet.
    Scheduled,
    /// The link has expired.
    Expired,
    /// The link is archived.
    Archived,
    /// The link has used up its visits.
    UsedUp,
}

impl Condition {
    /// All conditions, by their names in the API.
    pub const NAMES: [(&'static str, Condition); 5] = [
        ("active", Condition::Active),
        ("scheduled", Condition::Scheduled),
        ("ended", Condition::Expired),
        ("archived", Condition::Archived),
        ("usedUp", Condition::UsedUp),
    ];

    /// Parses the name of a condition.
    pub fn parse(text: &str) -> Option<Condition> {
        Condition::NAMES.iter().find(|(name, _)| *name == text).map(|(_, condition)| *condition)
    }
}

impl Filter {
    /// True if the index keys and the time range alone cannot answer the query, so that links must be filtered one by
    /// one. Each new condition must be added here: otherwise it is silently ignored.
    pub fn needs_filtering(&self) -> bool {
        self.reads_records()
            || self.has_all()
            || self.without_used_up
            || self.without_expired
            || self.scope.domains().is_some() && (self.scope.app().is_some() || self.domain_index_keys().is_none())
    }

    /// True if only the record of a link says whether it matches, whatever the indexes say.
    pub fn reads_records(&self) -> bool {
        self.term.is_some() || self.reads_records_beside_term()
    }

    /// True if only the record of a link says whether it matches, even if the link is known to have the search term.
    pub fn reads_records_beside_term(&self) -> bool {
        self.condition.is_some() || !self.excluded_tags.is_empty()
    }

    /// Returns the keys of the tag index that list the requested links; empty if the links are listed by creation time.
    pub fn index_keys(&self) -> Vec<String> {
        let owners = match self.scope.app() {
            Some(app) => vec![app_index_key(app.as_str())],
            None => self.domain_index_keys().unwrap_or_default(),
        };
        match (owners.is_empty(), self.tags.is_empty()) {
            (true, _) => self.tags.clone(),
            (false, true) => owners,
            (false, false) => {
                let with_tags =
                    |owner: &String| self.tags.iter().map(|tag| index_key_with_tag(owner, tag)).collect::<Vec<_>>();
                owners.iter().flat_map(with_tags).collect()
            }
        }
    }

    /// Returns the index keys that list exactly the links of the domains, if such index keys exist: the default domain
    /// has none.
    fn domain_index_keys(&self) -> Option<Vec<String>> {
        let domains = self.scope.domains().filter(|domains| !domains.is_empty())?;
        // Several required tags must share an index key, and each index key is read by itself.
        let are_few = domains.len() == 1 || !self.has_all() && domains.len() * self.tags.len().max(1) <= INDEX_KEYS_MAX;
        let domains = Some(domains).filter(|_| are_few)?;
        domains.iter().map(|domain| domain.map(domain_index_key)).collect()
    }

    /// True if the search term is part of the name of a link's domain.
    pub fn has_term_in_domain(&self, code: &Code) -> bool {
        self.term_domains.binary_search(&code.domain()).is_ok()
    }

    /// Returns the index keys that list exactly the links of [`Filter::term_domains`]; `None` if some have no index key, or
    /// if too many would be read.
    pub fn term_index_keys(&self) -> Option<Vec<String>> {
        let domains = Some(&self.term_domains).filter(|domains| domains.len() <= INDEX_KEYS_MAX)?;
        domains.iter().map(|domain| domain.map(domain_index_key)).collect()
    }

    /// True if a link must have several tags.
    pub fn has_all(&self) -> bool {
        self.all_tags && self.tags.len() > 1
    }
}

/// The sort key of a list of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderField {
    /// The creation time.
    DateCreated,
    /// The code, in the order of the store.
    ShortCode,
    /// The destination.
    LongUrl,
    /// The title in lower case; links without one come first.
    Title,
    /// The number of visits.
    Visits,
    /// The number of visits without bots.
    NonBotVisits,
}

/// The sort key and direction of a list of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortOrder {
    /// The sort key.
    pub field: OrderField,
    /// True for the largest first.
    pub descending: bool,
}

/// A query for a page of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListQuery {
    /// The links to list.
    pub filter: Filter,
    /// The order of the list.
    pub order: SortOrder,
    /// The number of the page, from 1. Ignored with a cursor.
    pub page: u64,
    /// Links per page.
    pub per_page: usize,
    /// The end of an earlier page, to continue from.
    pub cursor: Option<Cursor>,
    /// The app whose key asks for the list; `None` without API keys.
    pub asker: Option<AppName>,
}

impl ListQuery {
    /// True if the indexes can answer nearly all of the query. Otherwise links may have to be read one by one.
    pub fn is_by_index(&self) -> bool {
        self.order.field == OrderField::DateCreated && !self.filter.reads_records()
    }

    /// True if no index has the order, and the store neither. The store has codes of all apps and domains together.
    pub fn is_unindexed(&self) -> bool {
        match self.order.field {
            OrderField::DateCreated => false,
            OrderField::ShortCode => !self.filter.scope.is_all(),
            OrderField::LongUrl | OrderField::Title | OrderField::Visits | OrderField::NonBotVisits => true,
        }
    }

    /// Returns a hash that identifies the list. A cursor is valid for one list only.
    pub fn key(&self) -> u64 {
        xxh3_64(self.identity(self.order).as_bytes())
    }

    /// Returns a text that identifies the list in an order. Of [`Filter::term_domains`], only the default domain counts: the
    /// others, which may be thousands, follow from the term and the scope.
    pub fn identity(&self, order: SortOrder) -> String {
        let has_default = self.filter.term_domains.first() == Some(&None);
        let filter = Filter { term_domains: Vec::new(), ..self.filter.clone() };
        format!("{filter:?} {has_default} {order:?}")
    }
}

/// The end of a page, where the next one begins, even if links were created or deleted meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The last position of the page.
    pub behind: Behind,
    /// The number of the page that begins there.
    pub page: u64,
    /// Links of the list up to there.
    pub seen: u64,
}

/// Bytes of a link's sort key that order a list without an index; links with equal ones follow each other by age. A
/// cursor has them, in an address.
pub const SORT_KEY_LEN_MAX: usize = 512;

/// Longest cursor, in characters.
const CURSOR_LEN_MAX: usize = 2 * (SORT_KEY_LEN_MAX + PLACE_MS_LEN + CODE_KEY_LEN_MAX + 32);

/// The last position of a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A position by age, in lists ordered by creation time.
    Place(LinkPosition),
    /// A code, in lists ordered by code.
    Code(Code),
    /// A number of links, in lists that are sorted for each page.
    Count(u64),
    /// A sort key of at most [`SORT_KEY_LEN_MAX`] bytes and a position by age, in longer lists without an index.
    Key(Box<[u8]>, LinkPosition),
    /// The instant of a list that was sorted in the background, in milliseconds since 1970 UTC. The page begins after
    /// [`Cursor::seen`] of its links.
    Sorted(u64),
}

impl Cursor {
    /// Encodes the cursor as text for a URL, valid only for the list with this key.
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
            Behind::Key(key, place) => {
                assert!(key.len() <= SORT_KEY_LEN_MAX, "the cursor would not be read back");
                bytes.push(b'k');
                bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
                bytes.extend_from_slice(key);
                bytes.extend_from_slice(&place.to_bytes());
            }
            Behind::Sorted(sorted_ms) => {
                bytes.push(b's');
                bytes.extend_from_slice(&sorted_ms.to_be_bytes());
            }
        }
        HEXLOWER.encode(&bytes)
    }

    /// Decodes a text from [`Cursor::to_text`] for a list with that key and order; `None` for anything else.
    pub fn from_text(text: &str, list_key: u64, field: OrderField) -> Option<Cursor> {
        let bytes =
            (text.len() <= CURSOR_LEN_MAX).then(|| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()).flatten()?;
        let (&form, rest) = bytes.split_first()?;
        let (key, rest) = number(rest)?;
        let (page, rest) = number(rest)?;
        let (seen, rest) = number(rest)?;
        let (&kind, rest) = rest.split_first()?;
        let behind = match (kind, field) {
            (b'p', OrderField::DateCreated) => Behind::Place(LinkPosition::from_bytes(rest)?),
            (b'c', OrderField::ShortCode) => Behind::Code(Code::from_key(rest).ok()?),
            (b'n', field) if field != OrderField::DateCreated => {
                Behind::Count(number(rest).filter(|(_, rest)| rest.is_empty())?.0)
            }
            (b's', field) if field != OrderField::DateCreated => {
                Behind::Sorted(number(rest).filter(|(_, rest)| rest.is_empty())?.0)
            }
            (b'k', field) if field != OrderField::DateCreated => {
                let (len, rest) = rest.split_first_chunk::<2>()?;
                let len = usize::from(u16::from_be_bytes(*len));
                let (key, place) = rest.split_at_checked(len).filter(|_| len <= SORT_KEY_LEN_MAX)?;
                Behind::Key(key.into(), LinkPosition::from_bytes(place)?)
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

/// A page of links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPage {
    /// The links of the page.
    pub links: Vec<Arc<Link>>,
    /// Visits of each link, in the same order.
    pub visits: Vec<VisitCounts>,
    /// The number of the page, from 1.
    pub page: u64,
    /// Links of the list, as far as they were counted.
    pub total: u64,
    /// True if all links were counted.
    pub complete: bool,
    /// The cursor of the next page; `None` at the end of the list.
    pub next: Option<Cursor>,
    /// The instant at which the list was sorted in the background, in milliseconds since 1970 UTC; `None` for a list of now.
    pub sorted_ms: Option<u64>,
}

/// Visits of the links of apps and domains.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// Visits of each group, in the order of the request.
    pub counts: Vec<VisitCounts>,
    /// True if apps include the current hour. The app of each visited link must be looked up, and if very many links
    /// were visited, that happens after the hour has ended.
    pub is_whole: bool,
}

/// The reason why a query for links has no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListFailure {
    /// The list is being sorted in the background.
    Sorting {
        /// The share of the work that is done, in percent.
        percent: u8,
        /// Seconds after which the list may be sorted.
        retry_s: u16,
    },
    /// Too many other lists are to be sorted first.
    SortsWaiting,
    /// The list could not be sorted in the background. The cause was logged.
    NotSorted {
        /// Seconds after which the node tries again.
        retry_s: u32,
    },
    /// The page begins after the last position that one query reads.
    TooDeep,
    /// The counting after the start is still in progress.
    Counting,
    /// An index or a record cannot be read. The cause was logged.
    Unreadable,
}

/// A query that fails only if an index or a record cannot be read. The cause was logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnreadableIndex;

impl From<UnreadableIndex> for ListFailure {
    fn from(_: UnreadableIndex) -> ListFailure {
        ListFailure::Unreadable
    }
}

impl From<UnreadableIndex> for TagsFailure {
    fn from(_: UnreadableIndex) -> TagsFailure {
        TagsFailure::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(text: &str) -> Code {
        Code::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn domains_of_the_term_do_not_identify_a_list() {
        let order = SortOrder { field: OrderField::DateCreated, descending: true };
        let key = |term: &str, term_domains: &[Option<DomainId>]| {
            let (term, term_domains) = (Some(term.to_owned()), term_domains.to_vec());
            let filter = Filter { term, term_domains, ..Filter::default() };
            ListQuery { filter, order, page: 1, per_page: 20, cursor: None, asker: None }.key()
        };
        let [first, second] = [1, 2].map(|byte| DomainId::from_bytes([byte; 6]));
        assert_eq!(key("test", &[first]), key("test", &[first, second]), "a domain is added between two pages");
        assert_ne!(key("test", &[first]), key("test", &[None, first]), "only in the list of all domains");
        assert_ne!(key("test", &[first]), key("tes", &[first]));
    }

    proptest! {
        #[test]
        fn places_and_cursors_are_read_back(ms in 0..=PLACE_MS_MAX, text in "[a-zA-Z0-9_-]{1,64}", key: u64, page in 1u64.., seen: u64) {
            let place = LinkPosition::new(ms, code(&text));
            prop_assert_eq!(LinkPosition::from_bytes(&place.to_bytes()), Some(place));
            for (behind, field) in [
                (Behind::Place(place), OrderField::DateCreated),
                (Behind::Code(place.code), OrderField::ShortCode),
                (Behind::Count(ms), OrderField::Title),
                (Behind::Sorted(ms), OrderField::ShortCode),
                (Behind::Key(text.repeat(8).as_bytes().into(), place), OrderField::LongUrl),
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
            let bytes = |ms, text: &str| LinkPosition::new(ms, code(text)).to_bytes();
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
