//! The fields of a request: a JSON object, read strictly. What two programs could read in two ways is refused, and the field
//! at which the text is no JSON is named.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::problem::{Invalid, Problem};

/// Reads the object that the whole text is.
///
/// # Errors
/// 400 for a text that is no JSON object, or that has a field twice.
pub(super) fn parse(text: &[u8]) -> Result<Map<String, Value>, Problem> {
    let mut seen = Seen::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = (&mut seen).deserialize(&mut reader).and_then(|fields| reader.end().map(|()| fields));
    match read {
        Ok(fields) if seen.twice.is_empty() => Ok(fields),
        Ok(_) => {
            let twice = seen.twice.into_iter().map(|name| Invalid::new(name, "is there twice"));
            Err(Problem::invalid(&twice.collect::<Vec<_>>()))
        }
        Err(error) if error.is_data() => Err(Problem::malformed("The body must be a JSON object.")),
        Err(error) => Err(match seen.at {
            None => Problem::malformed(format!("The body is no JSON: {error}.")),
            Some(name) => Problem::malformed_field(&name, &error.to_string()),
        }),
    }
}

/// What a reader has met.
#[derive(Default)]
struct Seen {
    /// The field whose value is being read, or was read last.
    at: Option<String>,
    /// Fields that were there already.
    twice: BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            self.at = Some(name.clone());
            let value = map.next_value::<Value>()?;
            if fields.insert(name.clone(), value).is_some() {
                self.twice.insert(name);
            }
        }
        self.at = None;
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The problem with a text.
    fn problem(text: &[u8]) -> Value {
        parse(text).unwrap_err().members()
    }

    #[test]
    fn an_object_is_taken_as_it_is() {
        let text = r#" {"longUrl": "a\u00e9", "tags": ["b", null], "n": {"a": 1.5}} "#;
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            *json!({"longUrl": "aé", "tags": ["b", null], "n": {"a": 1.5}}).as_object().unwrap()
        );
    }

    #[test]
    fn the_field_that_is_no_json_is_named() {
        let deep = format!("{{\"a\": 1, \"tags\": {}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for (text, field) in [
            (r#"{"longUrl": "\ud800"}"#, Some("longUrl")),
            (r#"{"a": "", "title": "b"#, Some("title")),
            (r#"{"title": 'b'}"#, Some("title")),
            (r#"{"cacheSeconds": 1e999}"#, Some("cacheSeconds")),
            (r#"{"cacheSeconds": 01}"#, Some("cacheSeconds")),
            (&deep, Some("tags")),
            ("", None),
            ("{", None),
            ("{} x", None),
            (r#"{"a": 1,}"#, Some("a")),
            (r#"{"a": 1} x"#, None),
            (r#"{"\ud800": 1}"#, None),
        ] {
            let problem = problem(text.as_bytes());
            assert_eq!(problem["status"], 400, "{text}");
            assert_eq!(problem.get("invalidElements"), field.map(|field| json!([field])).as_ref(), "{problem}");
        }
        assert_eq!(problem(b"{\"title\": \"\xff\"}")["invalidElements"], json!(["title"]));
        for text in ["[]", "null", "\"x\"", "1", "[[[["] {
            assert!(problem(text.as_bytes())["detail"].as_str().unwrap().contains("must be a JSON object"), "{text}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused() {
        let problem = problem(br#"{"b": 1, "a": 1, "b": 1, "\u0061": 2, "b": 3, "c": null}"#);
        assert_eq!(problem["invalidElements"], json!(["a", "b"]));
    }

    proptest! {
        #[test]
        fn reading_is_total_and_takes_nothing_that_is_no_object(text in any::<Vec<u8>>(), near in "[{}\\[\\],:\"a\\\\u0-9 ]{0,20}") {
            for text in [&text[..], near.as_bytes()] {
                match serde_json::from_slice::<Value>(text) {
                    Ok(Value::Object(fields)) => prop_assert!(parse(text).is_err() || parse(text).unwrap() == fields),
                    _ => prop_assert!(parse(text).is_err()),
                }
            }
        }
    }
}
