//! Purges: which links have to leave every file of every node. Pure.
//!
//! A purge names links by code, time of creation and claim, and keeps nothing else of them. So another link that gets the
//! slug later is not touched, also if an import gives it the date of the purged one.

use std::collections::HashMap;
use std::fmt;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use serde_json::{Value, json};

use crate::link::Link;
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
    use crate::testing::any_link;
    use proptest::prelude::*;

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
