//! Purges: which links have to leave every file of every node. Pure.
//!
//! A purge names links by code, time of creation and claim, and keeps nothing else of them. So another link that gets the
//! slug later is not touched, also if an import gives it the date of the purged one.

use std::collections::HashMap;
use std::fmt;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId};
use serde_json::{Value, json};

use crate::access::AppName;
use crate::link::Link;
use crate::link::history::Edit;
use crate::query::LinkPosition;

/// The number of a purge, in the API as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PurgeId(pub u64);

/// A link that is purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgedLink {
    /// The code of the link.
    pub code: Code,
    /// The creation time of the link, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The claim of the link, as in [`Version`](crate::link::Version): no later link of the code has it. Zero for a link that
    /// was created outside of a fleet; `None` in a list of an earlier version of carom.
    pub claim: Option<u64>,
}

/// The bounds of a purge: for each code, the creation of the link that has it now, in milliseconds since 1970 UTC, or
/// `u64::MAX` without one. Older entries of the code belong to purged links.
pub type PurgeBounds = HashMap<Code, u64>;

/// Returns the instant up to which the logged visits of a purged code belong to deleted links. `bound_ms` is the one of
/// [`PurgeBounds`], and `ended_ms` the last time at which a link of the code is known to have existed or to have been deleted:
/// an imported link may have an earlier time of creation than that. All times are in milliseconds since 1970 UTC.
pub fn visits_until(bound_ms: u64, ended_ms: u64, now_ms: u64) -> u64 {
    now_ms.min(bound_ms.saturating_sub(1).max(ended_ms))
}

/// The links of a purge, as nodes send them to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeList {
    /// The instant of the request, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The links.
    pub links: Vec<PurgedLink>,
}

/// A selection of links that were deleted before, by what their history still has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndedSelector {
    /// The links of a domain; `None` is the default one.
    Domain(Option<DomainId>),
    /// The links of an app. Earlier versions did not store it.
    App(AppName),
    /// The links that had this tag at their end.
    Tag(String),
    /// The links whose destination began with one of these texts at some time.
    Destination(Vec<String>),
}

/// Some links that were deleted before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndedLinks {
    /// The links.
    pub links: Vec<PurgedLink>,
    /// The key in the history that the next ones are behind; `None` at its end.
    pub behind: Option<Vec<u8>>,
}

impl EndedSelector {
    /// True if an edit of a link with this code shows that the link is selected.
    fn has(&self, code: &Code, edit: &Edit) -> bool {
        match self {
            EndedSelector::Domain(domain) => code.domain() == *domain,
            EndedSelector::App(app) => edit.ended().is_some_and(|ended| ended.app.as_ref() == Some(app)),
            EndedSelector::Tag(tag) => {
                let mut tags = edit.values("tags").filter_map(Value::as_array).flatten();
                edit.is_end() && tags.any(|of_link| of_link.as_str() == Some(tag.as_str()))
            }
            EndedSelector::Destination(prefixes) => {
                let mut urls = edit.values("longUrl").filter_map(Value::as_str);
                urls.any(|url| prefixes.iter().any(|prefix| url.starts_with(prefix.as_str())))
            }
        }
    }

    /// Returns the selected links among those of a code that has no link now, from all of its edits, the oldest first. A
    /// link that has expired has no end in the history, and one that an earlier version has deleted has no date there:
    /// these get the date 0.
    pub fn ended_of(&self, code: Code, edits: &[Edit]) -> Vec<PurgedLink> {
        let lives = edits.split_inclusive(Edit::is_end);
        let selected = lives.filter(|life| life.iter().any(|edit| self.has(&code, edit)));
        let purged = |life: &[Edit]| {
            let ended = life.last().and_then(Edit::ended);
            let (created_ms, claim) = ended.map_or((0, None), |ended| (ended.created_ms, Some(ended.claim)));
            PurgedLink { code, created_ms, claim }
        };
        selected.map(purged).collect()
    }
}

impl fmt::Display for PurgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl PurgeId {
    /// Parses the text of a number; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<PurgeId> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u64::from_str_radix(text, 16).ok().filter(|_| is_hex).map(PurgeId)
    }
}

impl PurgedLink {
    /// Returns the entry of a link in a purge.
    pub fn of(link: &Link) -> PurgedLink {
        PurgedLink { code: link.code, created_ms: link.created_ms, claim: Some(link.version.claim) }
    }

    /// True if this is the link of the code with this time of creation, in milliseconds since 1970 UTC, and this claim.
    pub fn is(&self, created_ms: u64, claim: u64) -> bool {
        self.created_ms == created_ms && self.claim.is_none_or(|known| known == claim)
    }

    /// Returns the key of the link in the index by date.
    pub fn position(&self) -> LinkPosition {
        LinkPosition::new(self.created_ms, self.code)
    }

    fn to_text(self) -> String {
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        format!("{} {}", self.created_ms, String::from_utf8_lossy(self.code.key(&mut buffer)))
    }

    fn parse(text: &str) -> Option<PurgedLink> {
        let (created_ms, key) = text.split_once(' ')?;
        let code = Code::from_key(key.as_bytes()).ok()?;
        Some(PurgedLink { code, created_ms: created_ms.parse().ok()?, claim: None })
    }
}

impl PurgeList {
    /// Returns the list as JSON.
    pub fn to_json(&self) -> Value {
        let links: Vec<String> = self.links.iter().map(|link| link.to_text()).collect();
        // In a member of its own, which earlier versions ignore.
        let claims: Vec<Option<u64>> = self.links.iter().map(|link| link.claim).collect();
        json!({ "at": self.at_ms, "links": links, "claims": claims })
    }

    /// Reads the list from JSON; `None` if it is malformed. Other members are ignored.
    pub fn from_json(json: &Value) -> Option<PurgeList> {
        let links = json.get("links")?.as_array()?.iter();
        let mut links: Vec<PurgedLink> = links.map(|link| PurgedLink::parse(link.as_str()?)).collect::<Option<_>>()?;
        let claims = json.get("claims").and_then(Value::as_array).filter(|claims| claims.len() == links.len());
        for (link, claim) in links.iter_mut().zip(claims.into_iter().flatten()) {
            link.claim = claim.as_u64();
        }
        Some(PurgeList { at_ms: json.get("at")?.as_u64()?, links })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Origin;
    use crate::link::history::Author;
    use crate::link::labels::{LinkLabels, Tags};
    use crate::testing::any_link;
    use carom_shards::code::DOMAIN_ID_LEN;
    use proptest::prelude::*;

    #[test]
    fn deleted_links_are_selected_by_their_history() {
        let mut link = crate::testing::link("ab", Origin::Custom);
        (link.created_ms, link.version.claim) = (5, 7);
        (link.labels.tags, link.labels.app) = (Tags::of(["old"]).unwrap(), AppName::parse("shop").ok());
        let later = Link { target: "https://later.example/x".to_owned(), ..link.clone() };
        let other = Link { target: "https://other.example/".to_owned(), labels: LinkLabels::default(), ..link };
        let edit = |before: &Link, after: Option<&Link>| Edit::between(before, after, 9, &Author::default()).unwrap();
        let edits = [edit(&link, Some(&later)), edit(&later, None), edit(&other, None)];
        let found = |selector: EndedSelector| selector.ended_of(link.code, &edits).len();
        let of_destination = |text: &str| found(EndedSelector::Destination(vec!["no".to_owned(), text.to_owned()]));
        assert_eq!(of_destination("https://later.example/"), 1);
        assert_eq!(of_destination(&link.target), 1, "an earlier destination is in the history, too");
        assert_eq!(of_destination("https://other.example/x"), 0);
        assert_eq!([found(EndedSelector::Tag("old".to_owned())), found(EndedSelector::Tag("ol".to_owned()))], [1, 0]);
        assert_eq!(found(EndedSelector::App(AppName::parse("shop").unwrap())), 1);
        assert_eq!(found(EndedSelector::Domain(None)), 2);
        assert_eq!(found(EndedSelector::Domain(DomainId::from_bytes([1; DOMAIN_ID_LEN]))), 0);
        let all = EndedSelector::Domain(None);
        assert_eq!(all.ended_of(link.code, &edits[1..2]), [PurgedLink::of(&link)]);
        let expired = PurgedLink { code: link.code, created_ms: 0, claim: None };
        assert_eq!(all.ended_of(link.code, &edits[..1]), [expired]);
    }

    proptest! {
        #[test]
        fn lists_are_read_back(links in proptest::collection::vec(any_link(), 0..5), at_ms in any::<u64>()) {
            let list = PurgeList { at_ms, links: links.iter().map(PurgedLink::of).collect() };
            let text = list.to_json().to_string();
            prop_assert_eq!(PurgeList::from_json(&serde_json::from_str(&text).unwrap()), Some(list));
        }

        #[test]
        fn ids_are_read_back(number in any::<u64>()) {
            prop_assert_eq!(PurgeId::parse(&PurgeId(number).to_string()), Some(PurgeId(number)));
        }

        #[test]
        fn reading_is_total(text in any::<String>()) {
            let _ = (PurgeId::parse(&text), PurgedLink::parse(&text));
        }
    }

    #[test]
    fn visits_go_up_to_the_deletion_of_their_link() {
        let now_ms = 50;
        assert_eq!(visits_until(u64::MAX, 0, now_ms), now_ms, "no link has the code");
        assert_eq!(visits_until(20, 12, now_ms), 19, "the next link keeps its visits");
        assert_eq!(visits_until(3, 12, now_ms), 12, "the next link was imported with its date");
        assert_eq!(visits_until(0, 0, now_ms), 0);
        assert_eq!(visits_until(3, 60, now_ms), now_ms, "the clock of another node is ahead");
    }

    #[test]
    fn lists_of_earlier_versions_have_no_claims() {
        let read = |text: &str| PurgeList::from_json(&serde_json::from_str(text).unwrap()).unwrap().links;
        let code = Code::parse(b"a").unwrap();
        let link = PurgedLink { code, created_ms: 5, claim: None };
        assert_eq!(read(r#"{"at": 1, "links": ["5 a"]}"#), [link]);
        assert_eq!(read(r#"{"at": 1, "links": ["5 a"], "claims": [7, 8]}"#), [link], "they are of another list");
        let claimed = read(r#"{"at": 1, "links": ["5 a"], "claims": [7]}"#);
        assert_eq!(claimed, [PurgedLink { claim: Some(7), ..link }]);
        assert!(link.is(5, 8) && !link.is(4, 8));
        assert!(claimed[0].is(5, 7) && !claimed[0].is(5, 8), "an import has created it again with its date");
    }

    #[test]
    fn malformed_lists_are_refused() {
        for text in ["{}", "[]", r#"{"at": 1}"#, r#"{"at": 1, "links": ["x"]}"#, r#"{"at": 1, "links": ["1 a b"]}"#] {
            assert_eq!(PurgeList::from_json(&serde_json::from_str(text).unwrap()), None, "{text}");
        }
        for text in ["", "1", "000000000000000G", "+00000000000000f", "00000000000000000"] {
            assert_eq!(PurgeId::parse(text), None, "{text}");
        }
    }
}
