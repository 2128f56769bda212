//! Strict parsing of a request body: a JSON object. Ambiguous input is refused, and a syntax error names its field.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::problem::{Invalid, Problem};
use carom_limits::JSON_VALUES_MAX;

/// Parses a text that consists of one JSON object.
///
/// # Errors
/// 400 for a text that is not a JSON object, that has a field twice, or that has a field with more than
/// [`JSON_VALUES_MAX`] values. No request needs more values.
pub(super) fn parse(text: &[u8]) -> Result<Map<String, Value>, Problem> {
    let mut seen = ParseFindings::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = (&mut seen).deserialize(&mut reader).and_then(|fields| reader.end().map(|()| fields));
    match read {
        Ok(_) if seen.long.is_some() => {
            let reason = format!("has too many values; a request may have at most {JSON_VALUES_MAX}");
            Err(Problem::invalid(&[Invalid::new(seen.long.unwrap_or_default(), reason)]))
        }
        Ok(fields) if seen.twice.is_empty() => Ok(fields),
        Ok(_) => {
            let twice = seen.twice.into_iter().map(|name| Invalid::new(name, "occurs twice; send it once"));
            Err(Problem::invalid(&twice.collect::<Vec<_>>()))
        }
        Err(error) if error.is_data() => Err(Problem::malformed("The body must be a JSON object.")),
        Err(error) => Err(match seen.at {
            None => Problem::malformed(format!("The body is not valid JSON: {error}.")),
            Some(name) => Problem::malformed_field(&name, &error.to_string()),
        }),
    }
}

/// Findings of the parser.
#[derive(Default)]
struct ParseFindings {
    /// Field whose value is being read, or was read last.
    at: Option<String>,
    /// Fields that occur more than once.
    twice: BTreeSet<String>,
    /// First field with more than [`JSON_VALUES_MAX`] values.
    long: Option<String>,
}

impl<'de> DeserializeSeed<'de> for &mut ParseFindings {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut ParseFindings {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        let budget = ValueBudget { left: Cell::new(JSON_VALUES_MAX), is_over: Cell::new(false) };
        while let Some(name) = map.next_key::<String>()? {
            self.at = Some(name.clone());
            if budget.left.get() == 0 {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(&budget)?;
            if budget.is_over.get() && self.long.is_none() {
                self.long = Some(name.clone());
            }
            if fields.insert(name.clone(), value).is_some() {
                self.twice.insert(name);
            }
        }
        self.at = None;
        Ok(fields)
    }
}

/// Number of values that may still be kept. As a seed it reads one value and those inside it.
struct ValueBudget {
    left: Cell<usize>,
    /// True if a nested value was dropped.
    is_over: Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for &ValueBudget {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                reader.deserialize_any(self)
            }
            None => {
                self.is_over.set(true);
                IgnoredAny::deserialize(reader).map(|_| Value::Null)
            }
        }
    }
}

impl<'de> Visitor<'de> for &ValueBudget {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            if !self.is_over.get() {
                values.push(value);
            }
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(self)?;
            if !self.is_over.get() {
                values.insert(name, value);
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Returns the problem with a text.
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
    fn no_more_values_are_kept_than_a_request_may_have() {
        let most = format!("{{\"tags\": [{}1]}}", "1, ".repeat(JSON_VALUES_MAX - 2));
        assert_eq!(parse(most.as_bytes()).unwrap()["tags"].as_array().unwrap().len(), JSON_VALUES_MAX - 1);
        for many in ["1, ", "[[]], ", "{\"a\": {}}, "] {
            let text = format!("{{\"a\": 1, \"tags\": [{}1], \"title\": [1, 2]}}", many.repeat(JSON_VALUES_MAX));
            assert_eq!(problem(text.as_bytes())["invalidElements"], json!(["tags"]), "{many}");
        }
        let fields: Vec<String> = (0..2 * JSON_VALUES_MAX).map(|number| format!("\"{number}\": 1")).collect();
        assert_eq!(parse(format!("{{{}}}", fields.join(",")).as_bytes()).unwrap().len(), JSON_VALUES_MAX);
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
