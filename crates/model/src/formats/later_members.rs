//! Members of stored JSON objects that only a later version knows.
//!
//! Nodes of several versions share such objects during an upgrade. A node decodes them and encodes them again, for its file,
//! for an emptied Redis and for the other site. It keeps the members that it does not know, so that none is lost on the way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json_file;

/// The value of a member that only a later version knows. Values are in the order in which they replace each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LaterValue {
    /// The stamp of the value, in milliseconds since 1970 UTC; `None` for a value without one.
    stamp_ms: Option<u64>,
    /// The JSON text; `None` for null.
    text: Option<String>,
}

impl LaterValue {
    fn of(value: &Value) -> LaterValue {
        LaterValue { stamp_ms: json_file::stamp_ms(value), text: (!value.is_null()).then(|| value.to_string()) }
    }

    fn to_value(&self) -> Value {
        let text = self.text.as_ref();
        text.map_or(Value::Null, |text| serde_json::from_str(text).expect("it is the text of a value"))
    }
}

/// Members of a stored object that only a later version knows, by their names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct LaterMembers(BTreeMap<String, LaterValue>);

impl LaterMembers {
    /// Returns the members of an object that are not among the `known` ones.
    pub(crate) fn of(object: &Map<String, Value>, known: &[&str]) -> LaterMembers {
        let later = object.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        LaterMembers(later.map(|(name, value)| (name.clone(), LaterValue::of(value))).collect())
    }

    /// Adds the members to an object.
    pub(crate) fn add_to(&self, object: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        let members = object.as_object_mut().expect("only an object has members");
        members.extend(self.0.iter().map(|(name, value)| (name.clone(), value.to_value())));
    }

    /// Returns the name of a member that no version may ignore, if there is one. A later version lets such a name begin with a
    /// capital letter. Null is a value that changes nothing, and may be ignored.
    pub(crate) fn critical(&self) -> Option<&str> {
        let is_critical = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
        self.0.iter().find(|(name, value)| is_critical(name) && value.text.is_some()).map(|(name, _)| name.as_str())
    }

    /// Merges the members of another copy, whose members are as independent of each other as the changes of redirects. Of two
    /// values of a member, the one with the later stamp stays. Without stamps, any value replaces null, and the text decides
    /// between two others, so that all nodes have the same one. Returns true if anything changed.
    pub(crate) fn merge(&mut self, other: &LaterMembers) -> bool {
        let mut is_more = false;
        for (name, theirs) in &other.0 {
            if self.0.get(name).is_none_or(|mine| mine < theirs) {
                self.0.insert(name.clone(), theirs.clone());
                is_more = true;
            }
        }
        is_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn later(object: &Value) -> LaterMembers {
        LaterMembers::of(object.as_object().unwrap(), &["known"])
    }

    #[test]
    fn unknown_members_are_written_again() {
        let object = json!({"known": 1, "list": [{"a": null}, 1.5, "\u{e9}\n"], "no": null, "number": u64::MAX});
        let mut written = json!({"known": 2});
        later(&object).add_to(&mut written);
        let expected = json!({"known": 2, "list": [{"a": null}, 1.5, "\u{e9}\n"], "no": null, "number": u64::MAX});
        assert_eq!(written, expected);
    }

    #[test]
    fn written_numbers_are_the_same() {
        // A quick conversion from decimal changes each of them, so that copies would differ after every exchange.
        for number in ["1.2636812297694034e-17", "7.658672455754966e-10", "6.56597516036516e-14"] {
            let object: Value = serde_json::from_str(&format!(r#"{{"rate": {number}}}"#)).unwrap();
            let mut written = json!({});
            later(&object).add_to(&mut written);
            assert_eq!(written, object);
        }
    }

    #[test]
    fn latest_value_of_each_member_stays() {
        let merged = |one: &Value, other: &Value| {
            let mut both = later(one);
            both.merge(&later(other));
            let mut written = json!({});
            both.add_to(&mut written);
            written
        };
        let first = json!({"only": "here", "set": null, "change": {"stampMs": 10, "url": "a"}, "text": "a"});
        let second = json!({"set": 1, "change": {"stampMs": 9, "url": "b"}, "text": "b", "more": []});
        let expected =
            json!({"only": "here", "set": 1, "change": {"stampMs": 10, "url": "a"}, "text": "b", "more": []});
        assert_eq!(merged(&first, &second), expected);
        assert_eq!(merged(&second, &first), expected);
        assert!(!later(&expected).merge(&later(&first)), "nothing is new");
    }

    #[test]
    fn members_in_capitals_must_not_be_ignored() {
        let critical = |object: Value| later(&object).critical().map(str::to_owned);
        assert_eq!(critical(json!({"note": "x", "Networks": ["192.0.2.0/24"]})).as_deref(), Some("Networks"));
        assert_eq!(critical(json!({"note": "x", "Networks": []})).as_deref(), Some("Networks"));
        assert_eq!(critical(json!({"note": "X", "Networks": null})), None);
    }

    #[test]
    fn objects_without_unknown_members_have_none() {
        let none = later(&json!({"known": 1}));
        assert_eq!(none, LaterMembers::default());
        let mut null = Value::Null;
        none.add_to(&mut null);
        assert_eq!(null, Value::Null, "it need not be an object");
    }
}
