//! The edit history of a link: each change with its time and author. No I/O.

use serde_json::{Map, Value, json};

use crate::access::app_name::AppName;
use crate::formats::dates;
use crate::link::Link;

/// The interface that a change came through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChangeOrigin {
    /// The API.
    #[default]
    Api,
    /// The console, or another request to the admin listener.
    Admin,
    /// A node of the fleet, whose change replaced that of this node.
    Fleet,
}

impl ChangeOrigin {
    const fn name(self) -> &'static str {
        match self {
            ChangeOrigin::Api => "api",
            ChangeOrigin::Admin => "admin",
            ChangeOrigin::Fleet => "fleet",
        }
    }
}

/// The author of a change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Author {
    /// The app of the API key, if API keys are in use.
    pub app: Option<AppName>,
    /// The name of the API key.
    pub key: Option<Box<str>>,
    /// The interface that the change came through.
    pub origin: ChangeOrigin,
}

impl Author {
    /// The author of changes by other nodes of the fleet.
    pub const FLEET: Author = Author { app: None, key: None, origin: ChangeOrigin::Fleet };
}

/// The member of a stored edit that says which link it ended. The console does not show it.
const ENDED: &str = "link";

/// A link that an edit ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndedLink {
    /// The creation time of the link, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The claim of the link, as in [`Version`](crate::link::Version).
    pub claim: u64,
    /// The app of the link.
    pub app: Option<AppName>,
}

/// A change or the end of a link, in its stored form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit(Value);

impl Edit {
    /// Returns the difference between two states of a link; `None` if no visible field differs. Without `after`, the
    /// link is deleted.
    pub fn between(before: &Link, after: Option<&Link>, at_ms: u64, author: &Author) -> Option<Edit> {
        let (what, changes) = match after {
            Some(after) => ("changed", changes(&fields(before), &fields(after))),
            // The fields at the time of the deletion.
            None => ("deleted", changes(&fields(before), &Map::new())),
        };
        (!changes.is_empty()).then(|| {
            let mut edit = json!({
                "at": dates::format(at_ms),
                "app": author.app.as_ref().map(AppName::as_str),
                "keyId": author.key,
                "through": author.origin.name(),
                "what": what,
                "changes": changes,
            });
            if after.is_none() {
                let app = before.labels.app.as_ref().map(AppName::as_str);
                edit[ENDED] = json!({"created": before.created_ms, "claim": before.version.claim, "app": app});
            }
            Edit(edit)
        })
    }

    /// Returns the author of the change.
    pub fn author(&self) -> Author {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str);
        let origin = [ChangeOrigin::Api, ChangeOrigin::Admin, ChangeOrigin::Fleet]
            .into_iter()
            .find(|origin| text("through") == Some(origin.name()));
        Author {
            app: text("app").and_then(|name| AppName::parse(name).ok()),
            key: text("keyId").map(Box::from),
            origin: origin.unwrap_or_default(),
        }
    }

    /// Encodes the stored form.
    pub fn encode(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    /// Decodes the stored form; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Edit> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        value.is_object().then_some(Edit(value))
    }

    /// Returns the time of the change, in milliseconds since 1970 UTC.
    pub fn at_ms(&self) -> u64 {
        self.0["at"].as_str().and_then(|at| dates::parse(at).ok()).unwrap_or_default()
    }

    /// Returns true if the change ended the link.
    pub fn is_end(&self) -> bool {
        self.0["what"] == "deleted"
    }

    /// Returns the link that the change ended; `None` for another change, and for one that an earlier version has
    /// stored.
    pub fn ended(&self) -> Option<EndedLink> {
        let link = self.0.get(ENDED).filter(|_| self.is_end())?;
        let app = link["app"].as_str().and_then(|name| AppName::parse(name).ok());
        Some(EndedLink { created_ms: link["created"].as_u64()?, claim: link["claim"].as_u64()?, app })
    }

    /// Iterates over the values that a field of the API had before and after the change, if it has changed.
    pub fn values<'e>(&'e self, field: &'e str) -> impl Iterator<Item = &'e Value> {
        let changes = self.0.get("changes").and_then(Value::as_array).into_iter().flatten();
        changes.filter(move |change| change["field"] == field).flat_map(|change| [&change["from"], &change["to"]])
    }

    /// Returns the form for the console.
    pub fn into_json(self) -> Value {
        let mut edit = self.0;
        if let Some(members) = edit.as_object_mut() {
            members.remove(ENDED);
        }
        edit
    }
}

/// Returns the editable fields of a link, by their names in the API.
fn fields(link: &Link) -> Map<String, Value> {
    let (policy, labels) = (&link.policy, &link.labels);
    let fields = json!({
        "longUrl": link.target,
        "title": labels.title,
        "tags": labels.tags.iter().collect::<Vec<_>>(),
        "validSince": policy.valid_since_ms.map(dates::format),
        "validUntil": policy.valid_until_ms.map(dates::format),
        "maxVisits": policy.max_visits,
        "redirectStatus": policy.status.number(),
        "cacheSeconds": policy.cache_seconds,
        "forwardQuery": policy.forward_query,
        "crawlable": labels.crawlable,
        "archived": policy.archived,
        "redirectRules": labels.rules.to_json(),
    });
    if let Value::Object(fields) = fields { fields } else { Map::new() }
}

/// Returns the fields that differ.
fn changes(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Value> {
    let of = |(name, from): (&String, &Value)| {
        let to = after.get(name).cloned().unwrap_or_default();
        (*from != to).then(|| json!({"field": name, "from": from, "to": to}))
    };
    before.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_link;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_are_read_back_and_nothing_is_no_edit(link in any_link(), other in any_link()) {
            prop_assert_eq!(Edit::between(&link, Some(&link), 5, &Author::FLEET), None);
            let edit = Edit::between(&link, None, 5, &Author::default()).unwrap();
            prop_assert_eq!(Edit::decode(&edit.encode()), Some(edit));
            let changed = Edit::between(&link, Some(&other), 5, &Author::default());
            prop_assert_eq!(changed.is_some(), fields(&link) != fields(&other));
        }
    }

    #[test]
    fn an_edit_says_who_when_and_what() {
        let link = crate::testing::link("abc", crate::link::Origin::Issued);
        let mut changed = link.clone();
        changed.target = "https://other.example/".to_owned();
        let author = Author { app: AppName::parse("ops").ok(), key: Some("12ab".into()), origin: ChangeOrigin::Admin };
        let edit = Edit::between(&link, Some(&changed), 0, &author).unwrap().into_json();
        assert_eq!(
            edit,
            json!({
                "at": "1970-01-01T00:00:00+00:00", "app": "ops", "keyId": "12ab", "through": "admin", "what": "changed",
                "changes": [{"field": "longUrl", "from": link.target, "to": "https://other.example/"}],
            })
        );
        assert_eq!((Edit::decode(b"[]"), Edit::decode(b"{")), (None, None));
    }

    #[test]
    fn a_deletion_says_which_link_it_ended() {
        let mut link = crate::testing::link("abc", crate::link::Origin::Issued);
        (link.created_ms, link.version.claim, link.labels.app) = (5, u64::MAX, AppName::parse("shop").ok());
        let edit = Edit::between(&link, None, 7, &Author::default()).unwrap();
        let ended = EndedLink { created_ms: 5, claim: u64::MAX, app: AppName::parse("shop").ok() };
        assert_eq!(Edit::decode(&edit.encode()).unwrap().ended(), Some(ended));
        assert_eq!(edit.values("longUrl").collect::<Vec<_>>(), [&json!(link.target), &Value::Null]);
        assert_eq!(edit.into_json().get(ENDED), None);
        let changed = Link { target: "https://other.example/".to_owned(), ..link.clone() };
        assert_eq!(Edit::between(&link, Some(&changed), 7, &Author::default()).unwrap().ended(), None);
    }
}
