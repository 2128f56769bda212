//! The JSON files of values that merge with other copies: an object with the version of its format.

use std::fmt;

use serde_json::{Map, Value};

/// The latest stamp that is read, in milliseconds since 1970 UTC. The stamp of the next change is at least one greater, and
/// must be readable, too. So the bound is not close to the greatest number of an integer type, which a faulty program may
/// have stored.
const STAMP_MS_MAX: u64 = u64::MAX / 4 * 3;

/// The most levels of arrays and objects in an entry that is read. A file adds up to two, and can be read with 127.
const ENTRY_LEVELS_MAX: usize = 64;

/// The reason why a stored text or a part of it cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Returns the stamp of a change, in milliseconds since 1970 UTC; `None` if it is missing or beyond [`STAMP_MS_MAX`].
pub(crate) fn stamp_ms(change: &Value) -> Option<u64> {
    change.get("stampMs")?.as_u64().filter(|stamp_ms| *stamp_ms <= STAMP_MS_MAX)
}

/// Parses an entry that another node has written. Returns null, which is no entry, if the text is not JSON, or if it has too many
/// levels: a node could not read its own file with such an entry.
pub fn entry(text: &[u8]) -> Value {
    let entry: Option<Value> = serde_json::from_slice(text).ok();
    entry.filter(|entry| has_levels(entry, ENTRY_LEVELS_MAX)).unwrap_or_default()
}

/// True if a value has at most so many levels of arrays and objects.
fn has_levels(value: &Value, most: usize) -> bool {
    match value {
        Value::Array(values) => most > 0 && values.iter().all(|value| has_levels(value, most - 1)),
        Value::Object(members) => most > 0 && members.values().all(|value| has_levels(value, most - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns the content of a file. The field `version` of the object is 1.
pub(crate) fn to_text(file: &Value) -> String {
    let mut text = serde_json::to_string_pretty(file).expect("it is plain JSON");
    text.push('\n');
    text
}

/// Parses text from [`to_text`].
///
/// # Errors
/// [`Malformed`] if the text is not a JSON object of version 1.
pub(crate) fn from_text(text: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let file: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| Malformed(format!("the file is not a JSON object ({error})")))?;
    match file.get("version").and_then(Value::as_u64) {
        Some(1) => Ok(file),
        Some(version) => Err(Malformed(format!("the version is {version} instead of 1; a newer carom wrote the file"))),
        None => Err(Malformed("the number \"version\" is missing or invalid".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_number_shows_a_newer_version() {
        let wrong = |text: &str| from_text(text.as_bytes()).unwrap_err().0;
        assert!(wrong(r#"{"version": 2}"#).ends_with("a newer carom wrote the file"));
        for text in ["{}", r#"{"version": "1"}"#] {
            assert_eq!(wrong(text), "the number \"version\" is missing or invalid", "{text}");
        }
        assert!(from_text(br#"{"version": 1}"#).is_ok());
    }

    #[test]
    fn files_with_an_entry_that_was_read_can_be_read() {
        for levels in [1, ENTRY_LEVELS_MAX, ENTRY_LEVELS_MAX + 1, 126, 127, 128] {
            let text = format!(r#"{}"member"{}"#, "[".repeat(levels), "]".repeat(levels));
            let entry = entry(text.as_bytes());
            assert_eq!(entry.is_null(), levels > ENTRY_LEVELS_MAX, "{levels} levels");
            let file = to_text(&json!({"version": 1, "entries": {"name": entry}}));
            assert!(from_text(file.as_bytes()).is_ok(), "{levels} levels");
        }
        assert!(entry(b"[").is_null());
    }

    #[test]
    fn stamp_after_the_greatest_number_of_a_type_is_read() {
        let read = |stamp: u64| stamp_ms(&json!({"stampMs": stamp}));
        for greatest in [u64::from(u32::MAX), (1 << 53) - 1, i64::MAX as u64] {
            assert_eq!(read(greatest), Some(greatest));
            assert_eq!(read(greatest + 1), Some(greatest + 1), "the node could not read its own file");
        }
        assert_eq!(read(u64::MAX), None, "no stamp is later");
    }
}
