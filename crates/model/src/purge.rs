//! Purges: which links have to leave every file of every node. Pure.
//!
//! A purge names links by code, time of creation and claim, and keeps nothing else of them. So another link that gets the
//! slug later is not touched, also if an import gives it the date of the purged one.

pub mod selection;

use std::collections::HashMap;
use std::fmt;

use carom_shards::code::CODE_KEY_LEN_MAX;
use carom_shards::{Code, DomainId};
use serde_json::{Value, json};

use crate::access::AppName;
use crate::link::history::Edit;
use crate::link::{Link, LinkIdentity};
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
    /// The last instant at which the history knows of a link that was deleted or had expired before the request, in
    /// milliseconds since 1970 UTC. `None` for a link that the request deletes: it existed at least until then.
    pub ended_ms: Option<u64>,
}

/// The bounds of a purge: for each code, the creation of the link that has it now, in milliseconds since 1970 UTC, or
/// `u64::MAX` without one. Older entries of the code belong to purged links.
pub type PurgeBounds = HashMap<Code, u64>;

/// Returns the instant up to which the logged visits of a purged code belong to deleted links. `bound_ms` is the one of
/// [`PurgeBounds`]. `ended_ms` is the last time at which a purged link of the code is known to have existed or to have
/// been deleted. It counts besides the bound: the link that has the code now may be imported, with a creation before
/// that time or in the future. A visit in the millisecond of that time may be one of the next link: a purge removes it, too,
/// rather than leave one of the purged link. All times are in milliseconds since 1970 UTC.
pub fn visits_until(bound_ms: u64, ended_ms: u64, now_ms: u64) -> u64 {
    let before_next = match bound_ms {
        u64::MAX => now_ms,
        // The link exists although its date is ahead: its visits are since the end of the others.
        _ if bound_ms > now_ms => 0,
        _ => bound_ms.saturating_sub(1),
    };
    now_ms.min(before_next.max(ended_ms))
}

/// The links of a purge, as nodes send them to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeList {
    /// The instant of the request, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The links to purge, all of them already deleted or about to be.
    pub links: Vec<PurgedLink>,
}

/// A selection of links that have ended before, by what the node still has of them, or of links that exist.
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

/// Some links that have ended before, by their history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndedLinks {
    /// The links that were found, all of them deleted.
    pub links: Vec<PurgedLink>,
    /// The key in the history that the next ones are behind; `None` at its end.
    pub behind: Option<Vec<u8>>,
}

/// The place at which a search for ended links continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndedPlace {
    /// In the history, behind a key; an empty one is before all edits.
    History(Vec<u8>),
    /// In the event log, behind the event of a number.
    Events(u64),
}

impl Default for EndedPlace {
    fn default() -> EndedPlace {
        EndedPlace::History(Vec::new())
    }
}

/// Some links that have ended before, from all that a node has. A link may come several times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndedPage {
    /// The links.
    pub links: Vec<PurgedLink>,
    /// The place of the next ones; `None` after the last one.
    pub next: Option<EndedPlace>,
}

impl EndedSelector {
    /// True if a link is selected by what it has, or had at its end.
    pub fn has_link(&self, link: &Link) -> bool {
        match self {
            EndedSelector::Domain(domain) => link.code.domain() == *domain,
            EndedSelector::App(app) => link.labels.app.as_ref() == Some(app),
            EndedSelector::Tag(tag) => link.labels.tags.iter().any(|of_link| of_link == tag),
            EndedSelector::Destination(prefixes) => {
                prefixes.iter().any(|prefix| link.target.starts_with(prefix.as_str()))
            }
        }
    }

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

    /// Returns the selected links among those that a code has had, from all of its edits, the oldest first. Leaves out
    /// `present`, the link that the code has now. The date is 0 for a link that has expired, which has no end in the
    /// history, and for one that an earlier version has deleted without a date.
    pub fn ended_of(&self, code: Code, edits: &[Edit], present: Option<LinkIdentity>) -> Vec<PurgedLink> {
        let lives = edits.split_inclusive(Edit::is_end).map(|life| match present {
            // The later ones may be changes of the present link.
            Some(LinkIdentity { created_ms, .. }) if !life.last().is_some_and(Edit::is_end) => {
                let earlier = life.iter().take_while(|edit| edit.at_ms() < created_ms).count();
                &life[..earlier]
            }
            _ => life,
        });
        let selected = lives.filter(|life| life.iter().any(|edit| self.has(&code, edit)));
        let purged = |life: &[Edit]| {
            let ended = life.last().and_then(Edit::ended);
            let (created_ms, claim) = ended.map_or((0, None), |ended| (ended.created_ms, Some(ended.claim)));
            PurgedLink { code, created_ms, claim, ended_ms: life.last().map(Edit::at_ms) }
        };
        let is_present = |link: &PurgedLink| present.is_some_and(|present| link.is(present));
        selected.map(purged).filter(|link| !is_present(link)).collect()
    }
}

/// Joins the entries of a code and a date. The texts of the search index have neither the claim of a link nor its end;
/// the history or an event may have both.
pub fn without_repeats(links: Vec<PurgedLink>) -> Vec<PurgedLink> {
    let (mut joined, mut places): (Vec<PurgedLink>, HashMap<(Code, u64), usize>) = (Vec::new(), HashMap::new());
    for link in links {
        let place = *places.entry((link.code, link.created_ms)).or_insert(joined.len());
        match joined.get_mut(place) {
            Some(first) => {
                first.claim = first.claim.or(link.claim);
                first.ended_ms = first.ended_ms.zip(link.ended_ms).map(|(one, other)| one.max(other));
            }
            None => joined.push(link),
        }
    }
    joined
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
        PurgedLink { code: link.code, created_ms: link.created_ms, claim: Some(link.version.claim), ended_ms: None }
    }

    /// True if this is the link of the code with this identity.
    pub fn is(&self, of: LinkIdentity) -> bool {
        self.created_ms == of.created_ms && self.claim.is_none_or(|claim| claim == of.claim)
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
        Some(PurgedLink { code, created_ms: created_ms.parse().ok()?, claim: None, ended_ms: None })
    }
}

impl PurgeList {
    /// Returns the list as JSON.
    pub fn to_json(&self) -> Value {
        let links: Vec<String> = self.links.iter().map(|link| link.to_text()).collect();
        // In members of their own, which earlier versions ignore.
        let claims: Vec<Option<u64>> = self.links.iter().map(|link| link.claim).collect();
        let ended: Vec<Option<u64>> = self.links.iter().map(|link| link.ended_ms).collect();
        json!({ "at": self.at_ms, "links": links, "claims": claims, "ended": ended })
    }

    /// Reads the list from JSON; `None` if it is malformed. Other members are ignored.
    pub fn from_json(json: &Value) -> Option<PurgeList> {
        let links = json.get("links")?.as_array()?.iter();
        let mut links: Vec<PurgedLink> = links.map(|link| PurgedLink::parse(link.as_str()?)).collect::<Option<_>>()?;
        let len = links.len();
        let of_each = |name: &str| json.get(name).and_then(Value::as_array).filter(|values| values.len() == len);
        for (link, claim) in links.iter_mut().zip(of_each("claims").into_iter().flatten()) {
            link.claim = claim.as_u64();
        }
        for (link, ended) in links.iter_mut().zip(of_each("ended").into_iter().flatten()) {
            link.ended_ms = ended.as_u64();
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
        let found = |selector: EndedSelector| selector.ended_of(link.code, &edits, None).len();
        let of_destination = |text: &str| found(EndedSelector::Destination(vec!["no".to_owned(), text.to_owned()]));
        assert_eq!(of_destination("https://later.example/"), 1);
        assert_eq!(of_destination(&link.target), 1, "an earlier destination is in the history, too");
        assert_eq!(of_destination("https://other.example/x"), 0);
        assert_eq!([found(EndedSelector::Tag("old".to_owned())), found(EndedSelector::Tag("ol".to_owned()))], [1, 0]);
        assert_eq!(found(EndedSelector::App(AppName::parse("shop").unwrap())), 1);
        assert_eq!(found(EndedSelector::Domain(None)), 2);
        assert_eq!(found(EndedSelector::Domain(DomainId::from_bytes([1; DOMAIN_ID_LEN]))), 0);
        let all = EndedSelector::Domain(None);
        let deleted = PurgedLink { ended_ms: Some(9), ..PurgedLink::of(&link) };
        assert_eq!(all.ended_of(link.code, &edits[1..2], None), [deleted]);
        let expired = PurgedLink { code: link.code, created_ms: 0, claim: None, ended_ms: Some(9) };
        assert_eq!(all.ended_of(link.code, &edits[..1], None), [expired]);
    }

    #[test]
    fn earlier_links_of_a_code_are_selected_without_the_present_one() {
        let mut first = crate::testing::link("ab", Origin::Custom);
        (first.created_ms, first.version.claim) = (5, 7);
        let next = |target: &str, created_ms| Link { target: target.to_owned(), created_ms, ..first.clone() };
        let edit = |before: &Link, after: Option<&Link>, at_ms| {
            Edit::between(before, after, at_ms, &Author::default()).unwrap()
        };
        let (expired, present) = (next("https://expired.example/", 20), next("https://present.example/", 40));
        // The first link was deleted, the second one was changed and expired, and the third one was changed.
        let edits =
            [edit(&first, None, 10_000), edit(&expired, Some(&first), 30_000), edit(&present, Some(&first), 50_000)];
        let all = EndedSelector::Domain(None);
        let of_first = PurgedLink { ended_ms: Some(10_000), ..PurgedLink::of(&first) };
        let of_expired = PurgedLink { code: first.code, created_ms: 0, claim: None, ended_ms: Some(30_000) };
        let identity = |created_ms, claim| Some(LinkIdentity { created_ms, claim });
        let found = |present| all.ended_of(first.code, &edits, present);
        assert_eq!(found(identity(40_000, 8)), [of_first, of_expired]);
        let of_destination = EndedSelector::Destination(vec!["https://present.example/".to_owned()]);
        assert_eq!(of_destination.ended_of(first.code, &edits, identity(40_000, 8)), []);
        assert_eq!(found(identity(20_000, 8)), [of_first], "the changes may be those of the present link");
        assert_eq!(found(identity(5, 7)), [], "an import has created it again");
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
        assert_eq!(visits_until(60, 12, now_ms), 12, "the next link was imported with a date ahead");
        assert_eq!(visits_until(0, 0, now_ms), 0);
        assert_eq!(visits_until(3, 60, now_ms), now_ms, "the clock of another node is ahead");
    }

    #[test]
    fn lists_of_earlier_versions_have_no_claims() {
        let read = |text: &str| PurgeList::from_json(&serde_json::from_str(text).unwrap()).unwrap().links;
        let code = Code::parse(b"a").unwrap();
        let link = PurgedLink { code, created_ms: 5, claim: None, ended_ms: None };
        assert_eq!(read(r#"{"at": 1, "links": ["5 a"]}"#), [link]);
        assert_eq!(read(r#"{"at": 1, "links": ["5 a"], "claims": [7, 8]}"#), [link], "they are of another list");
        let claimed = read(r#"{"at": 1, "links": ["5 a"], "claims": [7]}"#);
        assert_eq!(claimed, [PurgedLink { claim: Some(7), ..link }]);
        let ended = read(r#"{"at": 9, "links": ["5 a"], "claims": [7], "ended": [8]}"#);
        assert_eq!(ended, [PurgedLink { claim: Some(7), ended_ms: Some(8), ..link }]);
        let identity = |created_ms, claim| LinkIdentity { created_ms, claim };
        assert!(link.is(identity(5, 8)));
        assert!(!link.is(identity(4, 8)));
        assert!(claimed[0].is(identity(5, 7)));
        assert!(!claimed[0].is(identity(5, 8)), "an import has created it again with its date");
    }

    #[test]
    fn links_are_selected_by_what_they_had() {
        let mut link = crate::testing::link("ab", Origin::Custom);
        (link.labels.tags, link.labels.app) = (Tags::of(["old"]).unwrap(), AppName::parse("shop").ok());
        let destination = |text: &str| EndedSelector::Destination(vec!["no".to_owned(), text.to_owned()]);
        let has = |selector: EndedSelector| selector.has_link(&link);
        assert!(has(destination(&link.target)));
        assert!(!has(destination("https://other.example/")));
        assert!(has(EndedSelector::Tag("old".to_owned())));
        assert!(!has(EndedSelector::Tag("ol".to_owned())));
        assert!(has(EndedSelector::Domain(None)));
        assert!(!has(EndedSelector::Domain(DomainId::from_bytes([1; DOMAIN_ID_LEN]))));
        let app = |name: &str| EndedSelector::App(AppName::parse(name).unwrap());
        assert!(has(app("shop")));
        assert!(!has(app("other")));
    }

    #[test]
    fn link_that_is_found_twice_counts_once() {
        let link = |code: &[u8], created_ms, claim| PurgedLink {
            code: Code::parse(code).unwrap(),
            created_ms,
            claim,
            ended_ms: None,
        };
        let (first, other) = (link(b"a", 5, Some(7)), link(b"b", 5, None));
        let links = vec![first, link(b"a", 6, None), link(b"a", 5, None), other];
        assert_eq!(without_repeats(links), [first, link(b"a", 6, None), other]);
        // The texts come before the event of the end.
        let of_texts = PurgedLink { ended_ms: Some(5), ..other };
        let of_event = PurgedLink { claim: Some(8), ended_ms: Some(12), ..other };
        assert_eq!(without_repeats(vec![of_texts, of_event]), [of_event]);
        assert_eq!(without_repeats(vec![of_event, of_texts]), [of_event]);
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
